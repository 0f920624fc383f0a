"""A summary request without secrets: what a summarizer is not told it cannot repeat.

Texts are redacted whole, before any of them is cut: half a private key has no beginning that tells what it is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from elision.trajectory.content import Content, Text
from elision.trajectory.plan import SummaryRequest
from elision.trajectory.redact import Redaction
from elision.trajectory.turn import Action, Message, Observation, Turn


def redact_request(request: SummaryRequest) -> SummaryRequest:
    """`request` without the secrets that its own rules name: what every summarizer is given."""
    if request.redaction is None:
        return request
    return Redactor(request.redaction).request(request)


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
        before = self.hits
        content = self._content(turn.content)
        reasoning = self.text(turn.reasoning)
        actions = tuple(map(self._action, turn.actions))
        observations = tuple(map(self._observation, turn.observations))
        interjections = tuple(map(self._message, turn.interjections))
        if self.hits == before:
            # Nearly every turn: the same object, of which whoever looked at it before may know what it says.
            return turn
        return replace(
            turn,
            content=content,
            reasoning=reasoning,
            actions=actions,
            observations=observations,
            interjections=interjections,
        )

    def _action(self, action: Action) -> Action:
        before = self.hits
        clean = self.text(action.arguments)
        if self.hits > before:
            return replace(action, arguments=clean)
        return action

    def _observation(self, seen: Observation) -> Observation:
        before = self.hits
        clean = self._content(seen.content)
        if self.hits > before:
            return replace(seen, content=clean)
        return seen

    def _message(self, said: Message) -> Message:
        before = self.hits
        clean = self._content(said.content)
        if self.hits > before:
            return replace(said, content=clean)
        return said

    def _content(self, parts: Content) -> Content:
        return tuple(Text(self.text(part.text)) if isinstance(part, Text) else part for part in parts)
