"""A whole gateway on a real socket in front of a provider, and what the provider's own clients wrote to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import openai

from elision.formats.registry import read_runs
from elision.gateway.server import GatewayThread
from elision.gateway.settings import gateway_settings
from elision.trajectory.trajectory import Trajectory
from tests.soak import SOAK

RUNS = Path(__file__).parents[2] / "examples" / "runs"
NOWHERE = Path("/nowhere")
#: Turns of each recorded run that are worked through; whole runs take minutes.
CALLS = 1_000 if SOAK else 12
#: Hides at every turn whatever is older than two, so that little has to be said for much to be hidden.
EAGER = "masking(window=2, schedule=every-turn)"
FOLDING = "hybrid(window=2, summarize_at=6, tail=2, summary_max_tokens=400, schedule=every-turn)"


@cache
def recorded(name: str, calls: int = CALLS) -> Trajectory:
    """The first run of a sample file, by the beginning of its name; its first turns."""
    path = next(RUNS.glob(f"{name}*.gz"))
    run = next(each for each in read_runs(path) if isinstance(each, Trajectory))
    return Trajectory(id=run.id, head=run.head, turns=run.turns[:calls], model=run.model)


@contextmanager
def gateway(upstream: str, **given: Any) -> Iterator[GatewayThread]:
    """A gateway in front of `upstream`; `given` are settings."""
    usual: dict[str, Any] = {
        "gateway_port": 0,
        "gateway_upstream_openai": upstream,
        "gateway_upstream_anthropic": upstream,
        "gateway_log": "none",
        "store": "memory:",
        "strategy": EAGER,
    }
    with GatewayThread(gateway_settings({}, NOWHERE, **(usual | given))) as running:
        yield running


@dataclass(slots=True)
class Wire:
    """What clients wrote and were told, byte for byte, as they left them and as they came."""

    bodies: list[bytes] = field(default_factory=list)
    sessions: list[str | None] = field(default_factory=list)

    def http(self) -> httpx2.Client:
        return httpx2.Client(event_hooks={"request": [self._asked], "response": [self._answered]}, timeout=30.0)

    def http_async(self) -> httpx2.AsyncClient:
        async def asked(request: httpx2.Request) -> None:
            self._asked(request)

        async def answered(response: httpx2.Response) -> None:
            self._answered(response)

        return httpx2.AsyncClient(event_hooks={"request": [asked], "response": [answered]}, timeout=30.0)

    def openai(self, url: str, key: str = "any", **options: Any) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, http_client=self.http(), **options)

    def claude(self, url: str, key: str = "any", **options: Any) -> anthropic.Anthropic:
        return anthropic.Anthropic(base_url=url, api_key=key, max_retries=0, http_client=self.http(), **options)

    def async_openai(self, url: str, key: str = "any") -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, http_client=self.http_async())

    def async_claude(self, url: str, key: str = "any") -> anthropic.AsyncAnthropic:
        return anthropic.AsyncAnthropic(base_url=url, api_key=key, max_retries=0, http_client=self.http_async())

    def _asked(self, request: httpx2.Request) -> None:
        if request.method == "POST":
            self.bodies.append(request.content)

    def _answered(self, response: httpx2.Response) -> None:
        if response.request.method == "POST":
            self.sessions.append(response.headers.get("x-elision-session"))
