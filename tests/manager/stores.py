"""A store that fails when it is told to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from elision.errors import StoreError
from elision.stores.memory import MemoryStore
from elision.stores.store import NewSession
from elision.trajectory.events import Event


class FailingStore(MemoryStore):
    """A store that fails while it is told to, as a full disk, a lock or a lost connection does."""

    def __init__(self) -> None:
        super().__init__()
        self.is_down = False
        self.refused_writes = 0

    def create_with_events(self, session: NewSession, events: Sequence[Event], *, at: float, batch: bytes = b"") -> int:
        self._check()
        return super().create_with_events(session, events, at=at, batch=batch)

    def append(self, session: str, events: Sequence[Event], *, after: int, at: float, batch: bytes = b"") -> int:
        self._check()
        return super().append(session, events, after=after, at=at, batch=batch)

    def locate(self, family: str, nodes: Sequence[str]) -> tuple[str, int] | None:
        self._check()
        return super().locate(family, nodes)

    def _check(self) -> None:
        if self.is_down:
            self.refused_writes += 1
            raise StoreError("the disk is full: free some space")


class UnreliableStore(MemoryStore):
    """A store that fails as `plan` says, write by write: "ok", "down" (nothing is written), "lost" (it is written, and
    the connection breaks before the store says so)."""

    def __init__(self, plan: Iterable[str] = ()) -> None:
        super().__init__()
        self.plan = list(plan)

    def create_with_events(self, session: NewSession, events: Sequence[Event], *, at: float, batch: bytes = b"") -> int:
        how = self._take_outcome()
        length = super().create_with_events(session, events, at=at, batch=batch)
        self._raise_if_lost(how)
        return length

    def append(self, session: str, events: Sequence[Event], *, after: int, at: float, batch: bytes = b"") -> int:
        how = self._take_outcome()
        length = super().append(session, events, after=after, at=at, batch=batch)
        self._raise_if_lost(how)
        return length

    def _take_outcome(self) -> str:
        how = self.plan.pop(0) if self.plan else "ok"
        if how == "down":
            raise StoreError("the server is gone")
        return how

    @staticmethod
    def _raise_if_lost(how: str) -> None:
        if how == "lost":
            raise StoreError("the connection was lost")
