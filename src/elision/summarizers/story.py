"""The story of a run in the agent's and its user's own sentences: what was asked, done, left, and where it stands."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from elision.summarizers.actions import call, command_of
from elision.summarizers.outcomes import result_line
from elision.summarizers.prose import clip, one_line, sentences, unique
from elision.trajectory.turn import Action, Turn

#: Characters of a quoted sentence.
WIDTH = 180
#: Characters of the task at either end; the task itself stays in the head, word for word.
TASK = 140

_CONCLUDES = re.compile(
    r"\b(found|because|issue is|problem is|cause|caused|fixed|works?\b|working|pass(?:es|ed)?\b|fails?\b|shows? that|"
    r"means|confirmed|successfully|implemented|created|added|updated|changed|removed|turns out|instead|"
    r"I see|I can see|has been|booked|cancelled|total|cannot|can't|unable|not allowed|answer)\b",
    re.IGNORECASE,
)
_SETTLES = re.compile(
    r"\b(?:issue is|problem is|root cause|because|fixed|pass(?:es|ed)|confirmed|booked|cancelled|implemented|"
    r"found that|turns out|successfully|has been|cannot|can't|not allowed)\b",
    re.IGNORECASE,
)
_AHEAD = re.compile(
    r"\b(?:let me|let's|I'll|I will|going to|would you like|please confirm|do you want|could you)\b", re.IGNORECASE
)
_STILL = re.compile(r"\b(?:needs? to|should|must|todo|remaining|still|next step|not yet)\b", re.IGNORECASE)
_TODO_TOOLS = ("todo", "task_tracker", "update_plan", "plan")
_CWD = (
    re.compile(r"^\(Current directory: (/\S+)\)", re.MULTILINE),
    re.compile(r"\[Current working directory: (/\S+)\]"),
)
_CD = re.compile(r"(?:^|&&|;)\s*cd\s+(/[\w./~+@-]+)")
_OPEN = re.compile(r"^\(Open file: (/\S+)\)", re.MULTILINE)


def context(task: str, turns: Sequence[Turn]) -> list[str]:
    """What the user wants: the first and the last lines of the task, then every later message of a user."""
    lines = [
        one_line(line)
        for line in task.splitlines()
        if len(line.strip()) > 3 and not re.fullmatch(r"\s*</?\w+>\s*", line)
    ]
    told = [clip(" / ".join(lines[:3]), TASK), *([clip(" / ".join(lines[-2:]), TASK)] if len(lines) > 4 else [])]
    quoted = [f'task: "{line}"' for line in told if line]
    return quoted + [f'[{index}] user: "{text}"' for index, text in _asked(turns)]


def done(turns: Sequence[Turn]) -> list[str]:
    """One line a turn that says what it found or did."""
    return [f"[{turn.index}] {line}" for turn in turns if (line := _told(turn))]


def conclusive(line: str) -> float:
    """How much `line` says what was found or done, rather than what is about to be looked at: 0 ... 1."""
    return 0.5 * bool(_CONCLUDES.search(line)) + 0.5 * bool(_SETTLES.search(line))


def ahead(turns: Sequence[Turn]) -> list[str]:
    """Open items of the agent's to-do list, then what it said is still to be done, newest first.

    "Let me ..." was acted upon in the turn that said it; only the newest turn's may still be open.
    """
    todos = next((found for turn in reversed(turns) if (found := list(_todos(turn)))), [])
    said = [
        f"[{turn.index}] {line}"
        for turn in reversed(turns[-4:])
        for line in reversed(_said(turn))
        if _open(turn is turns[-1], line)
    ]
    return [clip(line, WIDTH) for line in unique([*todos[:8], *said[:4]])]


def state(turns: Sequence[Turn]) -> list[str]:
    """Where the run stands: what the last turn did and said, the directory, the open file."""
    if not turns:
        return []
    last = turns[-1]
    lines = [
        *(f"[{last.index}] did {line}" for line in results(last)),
        *(f"[{last.index}] said: {line}" for line in _edges(last)),
    ]
    lines += [f"directory: {place}" for place in [directory(turns)] if place]
    return lines + [f"open file: {name}" for name in [_last(_OPEN, turns)] if name]


def results(turn: Turn) -> Iterator[str]:
    """The calls of `turn`, each with one line of its result."""
    for observation in turn.observations:
        action = turn.action_of(observation)
        name = call(action, 70) if action else observation.tool
        yield f"{name} -> {result_line(turn, observation)}"
    answered = {observation.action_id for observation in turn.observations}
    yield from (f"{call(action)} -> (no result yet)" for action in turn.actions if action.id not in answered)


def directory(turns: Sequence[Turn]) -> str:
    """The newest working directory that a result or a `cd` names; "" if none does."""
    for turn in reversed(turns):
        for observation in turn.observations:
            tail = observation.text[-400:]
            shown = next((found[-1] for pattern in _CWD if (found := pattern.findall(tail))), "")
            if shown:
                return str(shown)
        for action in turn.actions:
            if moved := _CD.findall(command_of(action)):
                return str(moved[-1])
    return ""


def _asked(turns: Sequence[Turn]) -> Iterator[tuple[int, str]]:
    for turn in turns:
        for message in turn.interjections:
            if message.role == "user" and message.text.strip():
                yield turn.index, clip(message.text, WIDTH)


def _said(turn: Turn) -> list[str]:
    text = turn.text
    for action in turn.actions:
        if action.implicit and action.arguments:
            text = text.replace(action.arguments, " ")
        else:
            text = text
    return sentences(text)


def _open(newest: bool, line: str) -> bool:
    return bool((_STILL.search(line) and not line.endswith(":")) or (newest and _AHEAD.search(line)))


def _edges(turn: Turn) -> list[str]:
    said = _said(turn) or sentences(turn.reasoning)
    return [clip(line, WIDTH) for line in unique(said[:1] + said[-1:])]


def _told(turn: Turn) -> str:
    said = _said(turn)
    concluded = [line for line in said if _CONCLUDES.search(line) and not line.endswith(":")]
    if concluded:
        return clip(concluded[-1], WIDTH)
    if said and not turn.observations:
        return clip(said[0], WIDTH)
    return clip("; ".join(results(turn)), WIDTH)


def _todos(turn: Turn) -> Iterator[str]:
    for action in turn.actions:
        if any(word in action.name.lower() for word in _TODO_TOOLS):
            yield from (f"to do: {name}" for name in _open_items(action))


def _open_items(action: Action) -> Iterator[str]:
    for value in action.decoded.values():
        for item in value if isinstance(value, list) else ():
            if isinstance(item, dict) and str(item.get("status", "")).lower() not in ("completed", "done", "cancelled"):
                yield one_line(str(_title(item)))


def _title(item: dict[str, Any]) -> object:
    return next((item[key] for key in ("content", "title", "step", "task", "text") if item.get(key)), "")


def _last(pattern: re.Pattern[str], turns: Sequence[Turn]) -> str:
    for turn in reversed(turns):
        for observation in turn.observations:
            if found := pattern.findall(observation.text[-400:]):
                return str(found[-1])
    return ""
