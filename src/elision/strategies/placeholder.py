"""Placeholders: one line that tells what happened and how to get it back (design 5)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from elision.strategies.extractors import BUILT_IN, Extractors
from elision.strategies.gist import write_gist
from elision.strategies.known_identifiers import KnownIdentifiers
from elision.trajectory.content import Text
from elision.trajectory.encodable import make_encodable
from elision.trajectory.plan import Key, make_handle
from elision.trajectory.redact import DEFAULT, Redaction
from elision.trajectory.tokens import make_counter
from elision.trajectory.turn import Observation, Turn

#: The placeholder of the published masking strategies.
PUBLISHED_TEXT = "[Observation omitted for brevity]"

#: Characters of the key argument. The call itself stands in the view right above; this only says which one it was.
LABEL_TOKENS = 24
#: Characters of the outcome.
RESULT_TOKENS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Placeholders:
    """How placeholders are written.

    gist:    its budget in o200k tokens, whatever the model; 0 for none.
    text:    a fixed text instead of an account of what happened; "" for the account.
    handles: whether handles are named; only where recall is served. redaction: of secrets that a text would name.
    """

    gist: int = 50
    text: str = ""
    handles: bool = True
    extractors: Extractors = BUILT_IN
    redaction: Redaction = DEFAULT

    @property
    def names_handle(self) -> bool:
        """Whether placeholders say by which handle what they stand for is recalled."""
        return self.handles and not self.text

    def write_placeholder(self, key: Key, turn: Turn, observation: Observation, known: KnownIdentifiers) -> str:
        """The placeholder of `observation`, of `turn`, as of the log behind `lexicon`."""
        # What is hidden may be forgotten, what stands for it stays: a secret must not be what it is known by.
        return make_encodable(self.redaction.redact_text(self._write_unredacted(key, turn, observation, known)))

    def _write_unredacted(self, key: Key, turn: Turn, observation: Observation, known: KnownIdentifiers) -> str:
        if self.text:
            telling = write_gist(observation.text, known, self.gist, make_counter("o200k"))
            if telling:
                return f"{self.text} {telling}"
            return self.text
        outcome = self.extractors.find_outcome(turn, observation)
        name = f"{make_handle(key)} " if self.handles else ""
        tool = observation.tool or "result"
        label = _shorten_label(outcome.label)
        if label:
            what = f"{name}{tool}: {label}"
        else:
            what = f"{name}{tool}"
        account = f"{what} -> {_shorten_result(outcome.result) or 'done'}"
        telling = write_gist(observation.text, known, self.gist, make_counter("o200k"), shown_text=account)
        noted = f" | {telling}" if telling else ""
        return f"[{account}; {_format_size(observation)}{noted}]"


def _shorten_label(label: str) -> str:
    """`label` cut to `LABEL_TOKENS`: a path keeps its end, anything else its beginning."""
    if len(label) <= LABEL_TOKENS:
        return label
    if " " in label.split("/", 1)[0] or "/" not in label:
        return f"{label[: LABEL_TOKENS - 1]}…"
    tail = label[1 - LABEL_TOKENS :]
    return f"…{tail[tail.find('/') :] if '/' in tail[:-12] else tail}"


def _shorten_result(result: str) -> str:
    if len(result) <= RESULT_TOKENS:
        return result
    return f"{result[: RESULT_TOKENS - 1]}…"


def _format_size(observation: Observation) -> str:
    """What is hidden, in tokens; what is no text is named by its kind, at the tokens it is booked at."""
    others = [part for part in observation.content if not isinstance(part, Text)]
    tokens = make_counter("o200k").count(observation.text)
    if not others:
        return f"{tokens} tokens hidden"
    kinds = Counter(" ".join(part.kind.split())[:LABEL_TOKENS] for part in others)
    named = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    booked = f"{named} (about {sum(part.tokens for part in others)} tokens)"
    if tokens:
        return f"{tokens} tokens + {booked} hidden"
    return f"{booked} hidden"
