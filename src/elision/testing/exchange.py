"""A request that a provider received, and its response."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from elision.providers.provider import Api
from elision.providers.shared.json_reading import Json
from elision.testing.faults import Fault
from elision.trajectory.usage import Usage

#: Headers that hold a credential; they are never kept.
CREDENTIALS: Final = frozenset(
    ("authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie", "proxy-authorization")
)


@dataclass(slots=True, kw_only=True)
class ReceivedRequest:
    """One request, and what became of it.

    body:     as parsed; {} where it was no JSON object. Gemini's has the model and `stream` of its path.
    raw:      its very bytes.
    headers:  without credentials, names in lower case. key: a short hash of the API key; "" where none was sent.
    run, turn: the recorded run and the turn that answered; "" and 0 where none did.
    problems: what the provider refuses it for.
    usage:    as it was reported.
    finished: whether the whole answer went out; stays False where it was cut or the client went away.
    """

    api: Api
    raw: bytes = field(repr=False)
    body: Json = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    key: str
    status: int = 200
    run: str = ""
    turn: int = 0
    stream: bool = False
    problems: tuple[str, ...] = ()
    usage: Usage | None = None
    fault: Fault | None = None
    finished: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderResponse:
    """What goes back. events: of a stream, each with its name ("" where the API gives events none); None for a body."""

    status: int = 200
    body: Json = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    events: Iterable[tuple[str, str]] | None = None
