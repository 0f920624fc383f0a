"""Which part of an output is here: a count of the lines that `| head` let through is not a total."""

from __future__ import annotations

import re
from collections.abc import Sequence

from elision.strategies.extractors.command import Command, Stage
from elision.trajectory.text_pieces import search_pieces

#: How tools mark an output of which they show only a part.
_CLIPPED = re.compile(
    r"<response clipped>|<elided_chars>|\[Showing lines \d{1,9}-\d{1,9} of \d|\(?results (?:are )?truncated"
    r"|\[\d{1,9} more (?:lines|matches|results|files)\b"
    r"|\[(?:\d{1,9} )?(?:lines|characters|chars|output) (?:truncated|omitted)",
    re.I,
)
#: Characters of the longest of these marks.
_LONGEST_MARK = 64
_RANGE = re.compile(r"(\d{1,9})(?:,(\d{1,9}|\$))?p(?:;\d{1,9}q)?")
_NUMBER = re.compile(r"(?:-n|-m|-|--lines=|--max-count=)?(\d{1,9})")
#: Programs that let every line through.
_WHOLE = frozenset({"sort", "cat", "nl", "less", "more", "column"})


def qualify_count(result: str, body: str, command: Command | None = None) -> str:
    """Return `result`, marked as the count of a part of the output unless `body` is all of it."""
    if not result[:1].isdigit():
        return result
    stages = command.pipelines[-1] if command and command.pipelines else ()
    part = _find_chosen_part(stages, body.strip("\n").count("\n") + 1)
    if not part and search_pieces(_CLIPPED, body, _LONGEST_MARK):
        part = "shown:"
    return f"{part} {result}".strip()


def _find_chosen_part(stages: Sequence[Stage], lines: int) -> str:
    """Return which lines of a pipeline's output are here: "first", "last", "shown:"; "" for all of its `lines`."""
    for position, stage in enumerate(stages):
        part, limit = _read_limit(stage)
        is_counted = all(later.program in _WHOLE for later in stages[position + 1 :])
        if part and (lines >= limit or not is_counted):
            return part
    return ""


def _read_limit(stage: Stage) -> tuple[str, int]:
    """Return which lines `stage` lets through, and how many at most: "" for all, 0 where the number is unknown."""
    if stage.program == "sed":
        script = next((found for word in stage.words[1:] if (found := _RANGE.fullmatch(word))), None)
        if script is None or not stage.has_option("-n"):
            return "", 0
        first = int(script[1])
        last = int(script[2] or first) if script[2] != "$" else 0
        return ("first" if first == 1 else "shown:"), last - first + 1
    if stage.program == "head":
        return "first", _find_limit(stage, "-n", "--lines")
    if stage.program == "tail":
        return "last", 0 if "+" in stage.text else _find_limit(stage, "-n", "--lines")
    if stage.program == "grep" and stage.has_option("-m", "--max-count"):
        return "first", _find_limit(stage, "-m", "--max-count")
    return "", 0


def _find_limit(stage: Stage, *options: str) -> int:
    """Return the number of lines that `stage` is limited to, also where it is bundled: `-20`, `-n20`, `-n 20`."""
    for before, word in zip(stage.words, stage.words[1:], strict=False):
        found = _NUMBER.fullmatch(word)
        if found and (word.startswith("-") or before in options):
            return int(found[1])
    return 0 if stage.has_option("-c", "--bytes") else 10
