"""Anything at all: its first lines, or what kind of thing it is."""

from __future__ import annotations

import re

from elision.strategies.extractors.arguments import words_of
from elision.strategies.extractors.envelope import opened
from elision.strategies.extractors.failure import error_line
from elision.strategies.extractors.outcome import RESULT_CHARS, Outcome, counted, one_line
from elision.trajectory.content import Opaque
from elision.trajectory.turn import Action, Observation

#: A first sentence that is long enough to stand alone.
_SENTENCE = re.compile(r"\S[^\n]{14,90}?[.!?。](?=\s+\S)")


def generic(action: Action | None, observation: Observation, text: str) -> Outcome:
    """The last resort: it always answers."""
    envelope = opened(observation.text)
    if observation.error or envelope.failed:
        said = error_line(envelope.body)
    else:
        said = ""
    said = said or _opening(envelope.head) or _kinds(observation)
    return Outcome(words_of(action), f"exit {envelope.exit}, {said}" if envelope.exit is not None else said)


def _opening(head: str) -> str:
    """The first lines, as many as fit."""
    shown = ""
    for line in head[:4_000].split("\n"):
        if not any(char.isalnum() for char in line[:400]):
            continue
        if shown.endswith((":", ";", ",", ".")):
            link = " "
        else:
            link = "; "
        if shown:
            longer = f"{shown}{link}{line.strip()}"
        else:
            longer = line.strip()
        if not shown and (sentence := _SENTENCE.match(longer)):
            return sentence[0]
        if shown and len(longer) > RESULT_CHARS - 20:
            break
        shown = longer
    return shown or one_line(head[:4_000], RESULT_CHARS)


def _kinds(observation: Observation) -> str:
    """What an observation without text holds."""
    kinds = [part.kind for part in observation.content if isinstance(part, Opaque)]
    if not kinds:
        return "no output"
    return ", ".join(counted(kinds.count(kind), kind) for kind in dict.fromkeys(kinds))
