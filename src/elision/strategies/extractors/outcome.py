"""What happened in a masked observation, in a few words; and how any text becomes one short line."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from elision.trajectory.turn import Action, Observation

LABEL_CHARS = 80
RESULT_CHARS = 100
PATH_CHARS = 48
ELLIPSIS = "…"

_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]{0,20}[ -/]{0,4}[@-~]|[@-_])")


def shorten_to_line(text: str, limit: int) -> str:
    """`text` as a single printable line of at most `limit` characters; only its beginning is looked at."""
    start = text[:10_000].lstrip()[: limit * 6]
    plain = _ESCAPES.sub("", start)
    line = " ".join(plain.split())
    if not line.isprintable():
        line = " ".join("".join(char if char.isprintable() else " " for char in line).split())
    if len(line) <= limit:
        return line
    return line[: limit - 1].rstrip() + ELLIPSIS


def shorten_path(path: str) -> str:
    """`path` with leading folders left out where it is long: the end of a path tells the most."""
    path = path.strip()
    if len(path) <= PATH_CHARS:
        return path
    _, slash, rest = path[-PATH_CHARS:].partition("/")
    if slash and rest:
        return f"{ELLIPSIS}/{rest}"
    return ELLIPSIS + path[-PATH_CHARS:]


def format_count(number: int, noun: str, plural: str = "") -> str:
    """ "1 line", "2 lines"."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The middle of a placeholder. Both texts are made one printable line within their limits, whoever built it.

    label:  the key argument, what was done; at most LABEL_CHARS characters.
    result: what came of it; at most RESULT_CHARS characters; "no output" where nothing printable is left.
    """

    label: str
    result: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "label", shorten_to_line(self.label, LABEL_CHARS))
        object.__setattr__(self, "result", shorten_to_line(self.result, RESULT_CHARS) or "no output")


#: Reads one observation; None: not mine. The third argument is the assistant's text of the turn (text protocols).
Extractor: TypeAlias = Callable[[Action | None, Observation, str], Outcome | None]
