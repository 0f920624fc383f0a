"""What the stores do alike, in terms of what each does its own way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext

from elision.stores.store import Hit, NewSession, SessionInfo
from elision.stores.store_errors import missing_observation_error, stale_writer_error
from elision.stores.text_search import find_hits, split_words
from elision.trajectory.events import Event
from elision.trajectory.plan import Key
from elision.trajectory.turn import Observation, Turn


class StoreBase(ABC):
    """A part of `Store`, which has what these methods promise."""

    @abstractmethod
    def create_with_events(self, session: NewSession, events: Sequence[Event], *, at: float, batch: bytes = b"") -> int:
        """Begin a session with events."""

    @abstractmethod
    def info(self, session: str) -> SessionInfo:
        """Return facts about one session."""

    @abstractmethod
    def turns(self, session: str, first: int = 1, last: int | None = None) -> list[Turn]:
        """Return raw turns."""

    def open_newest_turns(self, session: str, words: Sequence[str]) -> AbstractContextManager[Iterator[Turn]]:
        """Return turns of a session, the newest first, as long as the block lasts.

        words: those that do not contain all of these may be left out. Raises UnknownHandle.
        """
        return nullcontext(reversed(self.turns(session)))

    def create(self, session: NewSession) -> None:
        self.create_with_events(session, (), at=session.at)

    def length(self, session: str) -> int:
        return self.info(session).records

    def observation(self, session: str, key: Key) -> Observation:
        turns = self.turns(session, key[0], key[0])
        if not turns or not 1 <= key[1] <= len(turns[0].observations):
            raise missing_observation_error(session, key)
        return turns[0].observations[key[1] - 1]

    def search(self, session: str, query: str, limit: int = 20) -> list[Hit]:
        words = list(dict.fromkeys(split_words(query)))
        if not words or limit < 1:
            self.length(session)
            return []
        # As they are written: an id, a path or `ERR-104` is one thing, though it is several words.
        parts = list(dict.fromkeys(query.casefold().split()))
        exact: list[Hit] = []
        by_words: list[Hit] = []
        with self.open_newest_turns(session, words) as turns:
            for turn in turns:
                exact.extend(find_hits(session, turn, parts))
                if len(exact) >= limit:
                    break
                if not exact and len(by_words) < limit:
                    by_words.extend(find_hits(session, turn, words))
        return (exact or by_words)[:limit]

    def check_length(self, session: str, after: int) -> int:
        """Return the length of a log. Raises ConflictError if it is not `after`."""
        records = self.length(session)
        if records != after:
            raise stale_writer_error(session, records, after)
        return records
