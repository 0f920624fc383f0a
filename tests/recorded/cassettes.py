"""Read VCR cassettes: exchanges that were recorded between a program and a provider's API.

A cassette is a YAML file of `interactions`, each a `request` and a `response`. A body is one of three things: `body`,
text or bytes as they were on the wire; `body.base64_string`; or `parsed_body`, JSON that the recorder parsed. JSON is
written again here, without spaces, as the providers' own clients do. So bytes are the wire's for streams and uploads
only, and of JSON everything but spaces and the order of keys is.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import urlsplit

import yaml

from tests.soak import SOAK

Provider: TypeAlias = Literal["openai", "anthropic"]
Api: TypeAlias = Literal["openai", "openai-responses", "anthropic"]
Headers: TypeAlias = tuple[tuple[str, str], ...]

#: A few recordings that are part of the project, and all of them where they lie beside it: in a soak they are read.
SAMPLE_FOLDER: Final = Path(__file__).parents[1] / "data" / "cassettes"
SHARED_FOLDER: Final = Path(__file__).parents[3] / "shared" / "cassettes"

HOSTS: Final[Mapping[str, Provider]] = {"api.openai.com": "openai", "api.anthropic.com": "anthropic"}
#: POST to one of these asks the model for an answer.
APIS: Final[Mapping[str, Api]] = {
    "/v1/chat/completions": "openai",
    "/v1/responses": "openai-responses",
    "/v1/messages": "anthropic",
}
#: The C parser reads all files in a second; the one in Python takes a minute.
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One request and its response.

    file:      the cassette's path below the folder that was read.
    index:     place in the cassette, from 0; the exchanges of a cassette are often one conversation.
    target:    path and query of the request, as in its first line.
    is_stream: whether the response is a stream of server-sent events.
    provider:  whose host it is; None for any other host.
    api:       whose messages the request holds; None where it asks no model (files, counts, compaction, ...).
    """

    file: str
    index: int
    method: str
    host: str
    target: str
    request_headers: Headers
    request_body: bytes = field(repr=False)
    status: int
    reason: str
    response_headers: Headers
    response_body: bytes = field(repr=False)
    is_stream: bool
    provider: Provider | None
    api: Api | None

    @property
    def name(self) -> str:
        """Where it is found, for messages: `folder/file.yaml#2`."""
        return f"{self.file}#{self.index}"

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]

    def request_json(self) -> Any:
        """Return the request's JSON. Raises ValueError where the body is none."""
        return json.loads(self.request_body)

    def response_json(self) -> Any:
        """Return the response's JSON. Raises ValueError where the body is none, as a stream's is."""
        return json.loads(self.response_body)


def find_cassettes(*, whole: bool = SOAK) -> Path:
    """Return the sample's folder; where `whole` is set, that of all recordings if they lie beside the project."""
    return SHARED_FOLDER if whole and SHARED_FOLDER.is_dir() else SAMPLE_FOLDER


@cache
def load_exchanges(folder: Path) -> tuple[Exchange, ...]:
    """Read every cassette below `folder` (`.yaml`, `.yaml.gz`), in the order of their paths; once in a process.

    Exchanges with other hosts are among them; their provider is None.
    """
    paths = sorted([*folder.rglob("*.yaml"), *folder.rglob("*.yaml.gz")])
    return tuple(each for path in paths for each in read_cassette(path, folder))


def read_cassette(path: Path, folder: Path) -> Iterator[Exchange]:
    """Read the exchanges of one file. Raises ValueError, which names the file and the place, where it is none."""
    raw = path.read_bytes()
    content = yaml.load(gzip.decompress(raw) if path.suffix == ".gz" else raw, _LOADER)
    name = path.relative_to(folder).as_posix().removesuffix(".gz")
    for index, interaction in enumerate(content["interactions"]):
        try:
            yield _parse_exchange(name, index, interaction["request"], interaction["response"])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path}: interaction {index} cannot be read: {error!r}") from error


def _parse_exchange(file: str, index: int, request: Mapping[str, Any], response: Mapping[str, Any]) -> Exchange:
    uri = urlsplit(request["uri"])
    provider = HOSTS.get(uri.netloc)
    response_headers = _parse_headers(response)
    content_type = dict(response_headers).get("content-type", "")
    return Exchange(
        file=file,
        index=index,
        method=request["method"],
        host=uri.netloc,
        target=f"{uri.path}?{uri.query}" if uri.query else uri.path,
        request_headers=_parse_headers(request),
        request_body=_parse_body(request),
        status=int(response["status"]["code"]),
        reason=response["status"]["message"] or "",
        response_headers=response_headers,
        response_body=_parse_body(response),
        is_stream=content_type.startswith("text/event-stream"),
        provider=provider,
        api=APIS.get(uri.path) if provider and request["method"] == "POST" else None,
    )


def _parse_headers(message: Mapping[str, Any]) -> Headers:
    """Names in lower case; one with several values once for each."""
    fields: list[tuple[str, str]] = []
    for name, values in (message.get("headers") or {}).items():
        listed: Sequence[Any] = values if isinstance(values, list) else [values]
        fields += [(name.lower(), str(value)) for value in listed]
    return tuple(fields)


def _parse_body(message: Mapping[str, Any]) -> bytes:
    if "parsed_body" in message:
        return json.dumps(message["parsed_body"], ensure_ascii=False, separators=(",", ":")).encode()
    body = message.get("body")
    if isinstance(body, dict):
        if "base64_string" in body:
            return base64.b64decode(body["base64_string"])
        body = body.get("string")
    if isinstance(body, bytes):
        return body
    return (body or "").encode()
