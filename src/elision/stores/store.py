"""The protocol of all stores: append-only logs of sessions, durable before a call returns.

A store is sync, may be used by several threads, and knows nothing of strategies: it keeps events in order and finds
turns, observations and words in them again. `after` in `append` is a compare-and-swap: a writer that has not seen the
newest record gets a ConflictError and nothing is written. A writer that does not know whether its append was written,
because the answer was lost, repeats it with the same `batch`: it is written once.

A fork is a session whose log begins with a copy of its parent's; large texts of both are stored once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from elision.trajectory.events import Event
from elision.trajectory.plan import Key, make_handle
from elision.trajectory.turn import Observation, Turn

#: How a session came from its parent: a sub-agent's run, another continuation, or a history that the client rewrote.
Relation: TypeAlias = Literal["", "sub-agent", "fork", "replaced"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSession:
    """A session that begins.

    key:      its name, unique in the store.
    family:   histories are looked up within one family alone: a root session's key, or whom it belongs to.
    parent:   the session it came from, "" for none. relation: how. shared: leading records of the parent's log that
              this log begins with.
    at:       when it began, in seconds since the epoch.
    """

    key: str
    family: str
    at: float
    parent: str = ""
    relation: Relation = ""
    shared: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInfo:
    """Facts about one session.

    begun, changed: seconds since the epoch. records: in its log, a shared beginning included. turns: the newest index.
    raw_bytes: of its log before compression and de-duplication; not part of a comparison.
    """

    key: str
    family: str
    parent: str
    relation: Relation
    begun: float
    changed: float
    records: int
    turns: int
    raw_bytes: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One place that contains the searched words.

    position: of the observation within its turn; 0 for the assistant's text. excerpt: a line around the words.
    """

    session: str
    turn: int
    position: int
    tool: str
    excerpt: str

    @property
    def handle(self) -> str:
        """Return the handle: t12.1 for an observation, t12 for what the assistant said."""
        if self.position:
            return make_handle((self.turn, self.position))
        return f"t{self.turn}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """What a store takes up: bytes on disk or in the server, and bytes before compression and de-duplication.

    turns: that can be read, an amended one once. texts: large ones that are kept apart, each once.
    """

    sessions: int
    records: int
    turns: int
    texts: int
    raw_bytes: int
    stored_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something `check` found: where, what, and whether it can still be read around."""

    place: str
    what: str
    lost: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeResult:
    """What a purge took away."""

    sessions: tuple[str, ...]
    freed_bytes: int


class Store(Protocol):
    """See the module. Every method raises StoreError if the place fails, CorruptError where stored bytes are wrong.

    Methods that take `session` raise UnknownHandle if there is no such session.
    """

    def create(self, session: NewSession) -> None:
        """Begin a session, durably. Any text is a key.

        Raises ConflictError if the key is taken, or the parent's log is shorter than what is shared; UnknownHandle if
        something is shared and there is no such parent.
        """
        ...

    def create_with_events(self, session: NewSession, events: Sequence[Event], *, at: float, batch: bytes = b"") -> int:
        """Do `create`, and `append` after what is shared, or neither; return the new length. Raises as both do.

        Where an earlier call with the same `batch` wrote `events`, nothing changes, and it returns the same length.
        """
        ...

    def append(self, session: str, events: Sequence[Event], *, after: int, at: float, batch: bytes = b"") -> int:
        """Write `events` after record `after` (0: the log is empty), all or none, durably; return the new length.

        at: seconds since the epoch. batch: 16 bytes that no other append has, such as `uuid.uuid4().bytes`; b"" for
        none. Where an earlier call with the same `batch` wrote `events` after record `after`, nothing changes, and it
        returns the same length, whatever was appended since and by whom. The id is kept as long as the record.

        Raises ConflictError if the log does not end at `after`; StoreError if `batch` wrote other events there. No
        events, no change.
        """
        ...

    def length(self, session: str) -> int:
        """Return the number of records in the log."""
        ...

    def events(self, session: str, after: int = 0) -> Iterator[Event]:
        """Yield the log after record `after` as it is at this call, oldest first."""
        ...

    def turns(self, session: str, first: int = 1, last: int | None = None) -> list[Turn]:
        """Return raw turns first ... last (1-based, inclusive); an amended one as it is now."""
        ...

    def observation(self, session: str, key: Key) -> Observation:
        """Return one raw observation. Raises UnknownHandle if the turn or the result is not there."""
        ...

    def search(self, session: str, query: str, limit: int = 20) -> list[Hit]:
        """Return observations, and texts of the assistant, that contain all parts of `query`; the newest turn first.

        Any text is a query; its parts stand between blanks. Where nothing contains all of them, those are returned that
        contain all of its words: the runs of letters, digits and underscores. Case is ignored, and a part may stand
        inside a word. Within a turn the assistant's text comes first. limit: hits.
        """
        ...

    def locate(self, family: str, nodes: Sequence[str]) -> tuple[str, int] | None:
        """Return the session of `family` that holds the last of `nodes` that any holds, and the turn it names.

        nodes: names of histories, shortest first (`TurnAdded.node`); "" names none, and what an amended turn was named
        before names nothing any more. Of several sessions that hold it, the one changed last.
        """
        ...

    def sessions(self, *, family_prefix: str = "", changed_since: float | None = None) -> list[SessionInfo]:
        """Return all sessions, the one changed last first; of those changed at once the greatest key.

        family_prefix: only those whose family begins so; SQLite and PostgreSQL read no others, the other stores look at
        each session. changed_since: only those changed then or later, in seconds since the epoch.
        """
        ...

    def info(self, session: str) -> SessionInfo: ...

    def delete(self, session: str) -> None:
        """Forget a session for good; forks of it keep what they share."""
        ...

    def purge(self, *, older_than: float | None = None, max_bytes: int | None = None) -> PurgeResult:
        """Delete sessions not changed since `older_than` (seconds since the epoch), then the oldest ones until at most
        `max_bytes` are stored."""
        ...

    def footprint(self) -> Footprint: ...

    def compact(self) -> int:
        """Give back space that nothing uses; return the bytes freed."""
        ...

    def check(self) -> list[Finding]:
        """Read everything and report what is wrong; nothing is changed."""
        ...

    def close(self) -> None:
        """Close files and connections; a second call does nothing."""
        ...


@runtime_checkable
class NonBlockingLength(Protocol):
    """A store that mostly knows without waiting how long a log is, so that an event loop may call it."""

    def try_length(self, session: str) -> int | None:
        """Return the number of records in the log; None where the call would have to wait. Raises as `length` does."""
        ...


@runtime_checkable
class ChecksWrites(Protocol):
    """A store that can find out whether it can be written, before there is something to write."""

    def check_writes(self, *, is_tried: bool) -> None:
        """Raise StoreError, with the reason, where nothing can be written now.

        is_tried: write something that changes nothing, durably. Otherwise look only for what can be seen without
        writing: a file that is gone, another process that keeps it locked, a disk without room, a server that is gone.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendingLease:
    """What a counter gave. granted: of what was asked for. total: what it has given, this included. seconds: for which
    the lease is valid."""

    granted: float
    total: float
    seconds: float


@runtime_checkable
class LeasesSpending(Protocol):
    """A store that counts what is spent, for all who ask it, on any machine."""

    def lease_spending(
        self, key: str, what: str, *, charge: float, amount: float, most: float, period: int = 0, spent: float | None
    ) -> SpendingLease | None:
        """Add `charge` to what `key` has spent of `what`, then lease at most `amount` of what is left up to `most`.

        charge: spent beyond earlier leases; below 0 it gives back what is left of them. period: seconds after which
        the count begins anew; 0 for never. spent: what a new count begins with; None returns None where there is none.
        Raises StoreError; then it may have been counted all the same.
        """
        ...


@runtime_checkable
class KeepsSecret(Protocol):
    """A store that keeps a secret for all gateways that serve from it, on any machine."""

    def keep_secret(self, fresh: bytes) -> bytes:
        """Keep `fresh`, unless a secret is kept already; return the one that is kept. Raises StoreError."""
        ...
