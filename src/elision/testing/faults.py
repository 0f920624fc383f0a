"""What can go wrong at a provider, as values: a playback server does to a request what its fault describes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The request is answered with an error in the provider's own shape.

    status:      429, 500, 503, 529 (overloaded), 401 ...
    retry_after: seconds, sent as a header; None for none.
    message:     "" for what the provider usually says.
    """

    status: int
    retry_after: float | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The connection closes midway: after `after` events of a stream, or half of a plain body."""

    after: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Slow:
    """The answer comes late. first: seconds before its first byte. each: seconds before every further event."""

    first: float = 0.0
    each: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Garbled:
    """Status 200 and a body that is no JSON; in a stream, event number `after` is broken (counted from 0)."""

    after: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A stream reports midway that the provider failed: an error event after `after` events, then the end."""

    after: int = 3
    message: str = "Overloaded"


Fault: TypeAlias = Refused | Cut | Slow | Garbled | Broken
