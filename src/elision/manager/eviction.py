"""Which sessions of a pool to close: those that are idle for too long, too many or too large.

The library's `Sessions` and the gateway's registry decide alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar


class PooledSession(Protocol):
    """A session as a pool sees it. last_used: in seconds, by the pool's clock."""

    last_used: float

    @property
    def memory_bytes(self) -> int:
        """Estimate the bytes of memory that it holds."""
        ...

    @property
    def is_busy(self) -> bool:
        """Return whether somebody works with it, so that it must not be closed."""
        ...


_S = TypeVar("_S", bound=PooledSession)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLimits:
    """What a pool holds at most: sessions, bytes of memory, and seconds that one of them may be idle."""

    sessions: int
    idle_seconds: float
    memory_bytes: float = math.inf


def select_evictable(
    sessions: Iterable[_S], limits: PoolLimits, *, count: int, held_bytes: int, now: float, keep: _S
) -> list[_S]:
    """Return the sessions to close, so that the others keep within `limits`. Busy ones and `keep` are never among them.

    sessions: least recently used first. count, held_bytes: of all of them. now: in seconds.
    """
    evictable: list[_S] = []
    for session in sessions:
        fits = count <= limits.sessions and held_bytes <= limits.memory_bytes
        if fits and now - session.last_used <= limits.idle_seconds:
            break
        if session is not keep and not session.is_busy:
            count -= 1
            held_bytes -= session.memory_bytes
            evictable.append(session)
    return evictable
