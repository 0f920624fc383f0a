"""What digests claim, against what the covered turns say."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from elision.summarizers import write_digest
from elision.trajectory.plan import SummaryRequest
from elision.trajectory.tokens import make_counter
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.turn import Turn

#: Turns between two digests, and the tokens of each.
STRETCH: Final = 33
MAX_TOKENS: Final = 1_000

_COMPLETED: Final = re.compile(r"^- \[(\d+)\] (.*)", re.MULTILINE)
_DENIAL: Final = re.compile(
    r"(?:didn't|did not|doesn't|does not|hasn't) (?:\w+ )?(?:work|resolve|fix|solve|help)"
    r"|\bstill (?:fail|not working|wrong)|\bis (?:wrong|incorrect)\b",
    re.IGNORECASE,
)
_NUMBER: Final = re.compile(r"\d{3,}(?:\.\d+)?")


def write_last_digest(run: Trajectory) -> tuple[str, Sequence[Turn]]:
    """Return the last of the rolling digests of `run`, and the turns that it covers."""
    count = make_counter("o200k").count
    task = "\n".join(message.text for message in run.head.messages if message.role == "user")
    text = ""
    covered: Sequence[Turn] = ()
    for start in range(0, len(run.turns) - STRETCH, STRETCH):
        turns = run.turns[start : start + STRETCH]
        request = SummaryRequest(previous=text, task=task, turns=tuple(turns), max_tokens=MAX_TOKENS)
        text = write_digest(request, count)
        covered = run.turns[: start + STRETCH]
    return text, covered


def find_denied_lines(text: str, turns: Sequence[Turn]) -> Iterator[str]:
    """Yield lines of COMPLETED that claim a result which the agent's next sentence denies."""
    by_index = {turn.index: turn for turn in turns}
    for number, line in _COMPLETED.findall(_find_section(text, "COMPLETED")):
        following = by_index.get(int(number) + 1)
        said = re.split(r"(?<=[.!?])\s", following.text, maxsplit=1)[0] if following else ""
        if " -> " in line and "-> failed" not in line and _DENIAL.search(said) and not _DENIAL.search(line):
            yield f"[{number}] {line}"


def find_bare_numbers(text: str, turns: Sequence[Turn]) -> Iterator[str]:
    """Yield numbers among the facts without the key that results show before them."""
    shown = "\n".join(observation.text for turn in turns for observation in turn.observations)
    for line in _find_section(text, "FACTS").splitlines():
        label, _, facts = line.removeprefix("- ").partition(": ")
        for number in filter(_NUMBER.fullmatch, facts.split()):
            if not re.search(rf"\b{re.escape(label)}[\"\s:=]{{1,5}}{number}", shown):
                yield f"{label}: {number}"


def _find_section(text: str, name: str) -> str:
    found = re.search(rf"^{name}:\n((?:- .*(?:\n|\Z))*)", text, re.MULTILINE)
    return found[1] if found else ""
