"""Recorded runs, and the clients of both providers, for the tests of the playback server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from elision.formats.registry import read_runs
from elision.providers.provider import Api
from elision.testing.playback import PATHS, Playback
from elision.trajectory.trajectory import Trajectory

RUNS = Path(__file__).parents[2] / "examples" / "runs"
ADDRESS: dict[Api, str] = {api: path for path, api in PATHS.items()} | {"gemini": "/v1beta/models/m:generateContent"}


@cache
def recorded() -> dict[str, Trajectory]:
    """The sample runs by the name of their file, each the first of it."""
    return {
        path.name.split(".")[0]: next(each for each in read_runs(path) if isinstance(each, Trajectory))
        for path in sorted(RUNS.glob("*.gz"))
    }


@pytest.fixture(scope="session")
def runs() -> dict[str, Trajectory]:
    return recorded()


@pytest.fixture
def server(runs: dict[str, Trajectory]) -> Iterator[Playback]:
    """The sample runs, played."""
    with Playback(runs.values()) as playing:
        yield playing


class Plain:
    """A client without any provider's package: bytes in, status, headers and bytes out, over one connection."""

    def __init__(self, server: Playback) -> None:
        self._connection = HTTPConnection(server.url.removeprefix("http://"))

    def post(self, path: str, body: object, **headers: str) -> tuple[int, dict[str, str], bytes]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self._connection.request("POST", path, data, {"content-type": "application/json", **headers})
        return self._taken()

    def get(self, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
        self._connection.request("GET", path, headers=headers)
        return self._taken()

    def ask(self, api: Api, body: dict[str, Any], **headers: str) -> tuple[int, dict[str, str], bytes]:
        if api == "gemini":
            body = dict(body)
            model = quote(body.pop("model", "m"), safe="")
            method = "streamGenerateContent?alt=sse" if body.pop("stream", False) else "generateContent"
            return self.post(f"/v1beta/models/{model}:{method}", body, **headers)
        return self.post(ADDRESS[api], {"model": "m", "max_tokens": 100, **body}, **headers)

    def _taken(self) -> tuple[int, dict[str, str], bytes]:
        answer = self._connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def plain(server: Playback) -> Iterator[Plain]:
    client = Plain(server)
    yield client
    client.close()
