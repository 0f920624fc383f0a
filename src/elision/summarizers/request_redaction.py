"""A summary request without secrets: a summarizer cannot repeat what it does not get.

Texts are redacted whole, before any of them is cut: half a private key has no beginning to recognize it by.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain

import msgspec

from elision.trajectory.content import Content, Text
from elision.trajectory.items import find_items
from elision.trajectory.plan import SummaryRequest
from elision.trajectory.redact import Redaction
from elision.trajectory.turn import Turn


def redact_request(request: SummaryRequest) -> SummaryRequest:
    """Return `request` without the secrets that its own rules name: what every summarizer is given."""
    if request.redaction is None:
        return request
    return RequestRedactor(request.redaction).redact(request)


@dataclass(slots=True)
class RequestRedactor:
    """A redaction that counts what it took out."""

    redaction: Redaction
    hits: int = 0

    def redact_text(self, text: str) -> str:
        clean, hits = self.redaction.redact_and_count(text)
        self.hits += hits
        return clean

    def redact(self, request: SummaryRequest) -> SummaryRequest:
        """Return `request` with every text redacted, except the live prefix: a cache holds exactly its bytes."""
        if request.redacted_by == self.redaction:
            return request
        previous = self.redact_text(request.previous)
        turns = tuple(map(self.redact_turn, request.turns))
        return replace(
            request,
            redacted_by=self.redaction,
            previous=previous,
            task=self.redact_text(request.task),
            turns=turns,
            shown=_select_known_items(request.shown, previous, turns),
        )

    def redact_turn(self, turn: Turn) -> Turn:
        """Return `turn` with every text redacted: the same object where it has no secret."""
        clean, hits = _redact_turn(self.redaction, turn)
        self.hits += hits
        return clean

    def redact_parts(self, turn: Turn) -> Turn:
        """Do as `redact_turn`, without a cache."""
        before = self.hits
        clean = msgspec.structs.replace(
            turn,
            content=self._redact_content(turn.content),
            reasoning=self.redact_text(turn.reasoning),
            actions=tuple(
                msgspec.structs.replace(action, arguments=self.redact_text(action.arguments)) for action in turn.actions
            ),
            observations=tuple(
                msgspec.structs.replace(observation, content=self._redact_content(observation.content))
                for observation in turn.observations
            ),
            interjections=tuple(
                msgspec.structs.replace(message, content=self._redact_content(message.content))
                for message in turn.interjections
            ),
        )
        # Nearly every turn has none: the same object, for which caches of earlier readers hold.
        return turn if self.hits == before else clean

    def _redact_content(self, parts: Content) -> Content:
        return tuple(Text(self.redact_text(part.text)) if isinstance(part, Text) else part for part in parts)


def _select_known_items(shown: frozenset[str], previous: str, turns: Iterable[Turn]) -> frozenset[str]:
    """Return the items of `shown` that the redacted texts have too: an item alone has no words by which a rule finds a
    secret."""
    if not shown:
        return shown
    texts = [previous, *(observation.text for turn in turns for observation in turn.observations)]
    return shown.intersection(chain.from_iterable(map(find_items, texts)))


@lru_cache(maxsize=128)
def _redact_turn(redaction: Redaction, turn: Turn) -> tuple[Turn, int]:
    """Return `turn` redacted, and how much was. It is read while the model thinks, and again by a summary of it."""
    redactor = RequestRedactor(redaction)
    return redactor.redact_parts(turn), redactor.hits
