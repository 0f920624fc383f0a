"""A summary request without secrets: what a summarizer is not told it cannot repeat.

Texts are redacted whole, before any of them is cut: half a private key has no beginning that tells what it is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from lacuna.trajectory.content import Content, Text
from lacuna.trajectory.plan import SummaryRequest
from lacuna.trajectory.redact import Redaction
from lacuna.trajectory.turn import Turn


@dataclass(slots=True)
class Redactor:
    """A redaction that counts what it took out."""

    redaction: Redaction
    hits: int = 0

    def text(self, text: str) -> str:
        clean, hits = self.redaction.counted(text)
        self.hits += hits
        return clean

    def request(self, request: SummaryRequest) -> SummaryRequest:
        """`request` with every text of it redacted; the live prefix stays, since its bytes are what a cache holds."""
        if request.redacted == self.redaction:
            return request
        return replace(
            request,
            redacted=self.redaction,
            previous=self.text(request.previous),
            task=self.text(request.task),
            turns=tuple(self._turn(turn) for turn in request.turns),
        )

    def _turn(self, turn: Turn) -> Turn:
        return replace(
            turn,
            content=self._content(turn.content),
            reasoning=self.text(turn.reasoning),
            actions=tuple(replace(action, arguments=self.text(action.arguments)) for action in turn.actions),
            observations=tuple(replace(seen, content=self._content(seen.content)) for seen in turn.observations),
            interjections=tuple(replace(said, content=self._content(said.content)) for said in turn.interjections),
        )

    def _content(self, parts: Content) -> Content:
        return tuple(Text(self.text(part.text)) if isinstance(part, Text) else part for part in parts)
