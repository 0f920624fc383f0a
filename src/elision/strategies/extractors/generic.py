"""Anything at all: its first lines, or what kind of thing it is."""

from __future__ import annotations

import re

from elision.strategies.extractors.arguments import describe_arguments
from elision.strategies.extractors.failure import find_error_line
from elision.strategies.extractors.outcome import RESULT_CHARS, Outcome, format_count, shorten_to_line
from elision.strategies.extractors.wrappers import unwrap_output
from elision.trajectory.content import Opaque
from elision.trajectory.turn import Action, Observation

#: A first sentence that is long enough to stand alone.
_SENTENCE = re.compile(r"\S[^\n]{14,90}?[.!?。](?=\s+\S)")


def describe_anything(action: Action | None, observation: Observation, text: str) -> Outcome:
    """Describe a result of any kind: the last resort."""
    envelope = unwrap_output(observation.text)
    summary_line = ""
    if observation.error or envelope.has_failed:
        summary_line = find_error_line(envelope.body)
    summary_line = summary_line or _find_opening_line(envelope.head) or _name_part_kinds(observation)
    if envelope.exit_code is not None:
        summary_line = f"exit {envelope.exit_code}, {summary_line}"
    return Outcome(describe_arguments(action), summary_line)


def _find_opening_line(head: str) -> str:
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
    return shown or shorten_to_line(head[:4_000], RESULT_CHARS)


def _name_part_kinds(observation: Observation) -> str:
    """What an observation without text holds."""
    kinds = [part.kind for part in observation.content if isinstance(part, Opaque)]
    if not kinds:
        return "no output"
    return ", ".join(format_count(kinds.count(kind), kind) for kind in dict.fromkeys(kinds))
