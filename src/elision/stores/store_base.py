"""What the stores do alike: methods in terms of what each does its own way, search in one turn, the check of a log."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext

from elision.stores.store import Hit, NewSession, SessionInfo
from elision.stores.store_errors import missing_observation_error, stale_writer_error
from elision.trajectory.events import Event, PassDecided, TurnAdded, TurnAmended
from elision.trajectory.plan import Key
from elision.trajectory.trajectory import join_assistant_text
from elision.trajectory.turn import Observation, Turn

#: Characters of an excerpt.
WIDTH = 160
_WORD = re.compile(r"\w+")


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


# -- search in one turn -----------------------------------------------------------------------------------------------


def split_words(query: str) -> list[str]:
    """Return the words of `query`, casefolded: the runs of letters, digits and underscores.

    Folding comes first: a folded text then contains a word exactly where one of its own words does.
    """
    return _WORD.findall(query.casefold())


def make_excerpt(text: str, words: Sequence[str], width: int = WIDTH) -> str:
    """Return one line of `text` around the longest of `words`, the rarest as a rule, at most `width` characters."""
    # Folding may change lengths; a place that is a little off only moves the excerpt.
    middle = max(0, text.casefold().find(max(words, key=len, default="")))
    first = max(0, middle - width // 3)
    cut = " ".join(text[first : first + width].split())
    return f"{'…' if first else ''}{cut}{'…' if first + width < len(text) else ''}"


def list_texts(turn: Turn) -> Iterator[tuple[int, str, str]]:
    """Yield what can be searched in `turn`: (position, tool, text); position 0 is what the assistant wrote."""
    words = join_assistant_text(turn)
    if words:
        yield 0, "", words
    for position, observation in enumerate(turn.observations, start=1):
        yield position, observation.tool, observation.text


def find_hits(session: str, turn: Turn, words: Sequence[str]) -> Iterator[Hit]:
    """Yield the pieces of `turn` that contain all of `words`, which are folded."""
    for position, tool, text in list_texts(turn):
        folded = text.casefold()
        if all(word in folded for word in words):
            yield Hit(session=session, turn=turn.index, position=position, tool=tool, excerpt=make_excerpt(text, words))


# -- the check of a log -----------------------------------------------------------------------------------------------


class LogCheck:
    """One log while its events are read, in their order: it finds records that are gone without a trace.

    They are found by what later events say. The first gap is reported, and none where some records cannot be read.
    """

    def __init__(self) -> None:
        self._turns = 0
        self._is_over = False

    def skip(self) -> None:
        """Note that records here cannot be read: what is missing after them is no new finding."""
        self._is_over = True

    def find_gap(self, event: Event) -> str:
        """Return what must have been before `event` and was not; "" for nothing."""
        if self._is_over:
            return ""
        what = ""
        match event:
            case TurnAdded():
                if event.turn.index != self._turns + 1:
                    what = f"it has turn {event.turn.index}, after turn {self._turns}"
                self._turns = event.turn.index
            case TurnAmended():
                if event.turn.index > self._turns:
                    what = f"it amends turn {event.turn.index}, which is not there"
            case PassDecided():
                named = [mask.key[0] for mask in event.masks]
                if event.summary is not None:
                    named.append(event.summary.covers)
                if (newest := max(named, default=0)) > self._turns:
                    what = f"it hides turn {newest}, which is not there"
            case _:
                pass
        self._is_over = bool(what)
        return f"records before it are missing: {what}" if what else ""
