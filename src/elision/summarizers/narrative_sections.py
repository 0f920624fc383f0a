"""The story of a run in the agent's and its user's own sentences: what was asked, done, left, and where it stands."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from elision.summarizers.actions import describe_call, find_command
from elision.summarizers.outcomes import describe_result
from elision.summarizers.prose import clip_line, drop_duplicates, join_lines, split_sentences
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


def list_user_context(task: str, turns: Sequence[Turn]) -> list[str]:
    """What the user wants: the first and the last lines of the task, then every later message of a user."""
    lines = [
        join_lines(line)
        for line in task.splitlines()
        if len(line.strip()) > 3 and not re.fullmatch(r"\s*</?\w+>\s*", line)
    ]
    told = [
        clip_line(" / ".join(lines[:3]), TASK),
        *([clip_line(" / ".join(lines[-2:]), TASK)] if len(lines) > 4 else []),
    ]
    quoted = [f'task: "{line}"' for line in told if line]
    return quoted + [f'[{index}] user: "{text}"' for index, text in _find_user_messages(turns)]


def list_completed(turns: Sequence[Turn]) -> list[str]:
    """One line a turn that says what it found or did."""
    return [f"[{turn.index}] {line}" for turn in turns if (line := _describe_turn(turn))]


def score_conclusion(line: str) -> float:
    """How much `line` says what was found or done, rather than what is about to be looked at: 0 ... 1."""
    return 0.5 * bool(_CONCLUDES.search(line)) + 0.5 * bool(_SETTLES.search(line))


def list_pending(turns: Sequence[Turn]) -> list[str]:
    """Open items of the agent's to-do list, then what it said is still to be done, newest first.

    "Let me ..." was acted upon in the turn that said it; only the newest turn's may still be open.
    """
    todos = next((found for turn in reversed(turns) if (found := list(_find_todos(turn)))), [])
    said = [
        f"[{turn.index}] {line}"
        for turn in reversed(turns[-4:])
        for line in reversed(_extract_sentences(turn))
        if _is_pending(turn is turns[-1], line)
    ]
    return [clip_line(line, WIDTH) for line in drop_duplicates([*todos[:8], *said[:4]])]


def describe_current_state(turns: Sequence[Turn]) -> list[str]:
    """Where the run stands: what the last turn did and said, the directory, the open file."""
    if not turns:
        return []
    last = turns[-1]
    lines = [
        *(f"[{last.index}] did {line}" for line in describe_calls(last)),
        *(f"[{last.index}] said: {line}" for line in _pick_first_and_last(last)),
    ]
    lines += [f"directory: {place}" for place in [find_directory(turns)] if place]
    return lines + [f"open file: {name}" for name in [_find_last(_OPEN, turns)] if name]


def describe_calls(turn: Turn) -> Iterator[str]:
    """The calls of `turn`, each with one line of its result."""
    for observation in turn.observations:
        action = turn.action_of(observation)
        name = describe_call(action, 70) if action else observation.tool
        yield f"{name} -> {describe_result(turn, observation)}"
    answered = {observation.action_id for observation in turn.observations}
    yield from (f"{describe_call(action)} -> (no result yet)" for action in turn.actions if action.id not in answered)


def find_directory(turns: Sequence[Turn]) -> str:
    """The newest working directory that a result or a `cd` names; "" if none does."""
    for turn in reversed(turns):
        for observation in turn.observations:
            tail = observation.text[-400:]
            shown = next((found[-1] for pattern in _CWD if (found := pattern.findall(tail))), "")
            if shown:
                return str(shown)
        for action in turn.actions:
            if moved := _CD.findall(find_command(action)):
                return str(moved[-1])
    return ""


def _find_user_messages(turns: Sequence[Turn]) -> Iterator[tuple[int, str]]:
    for turn in turns:
        for message in turn.interjections:
            if message.role == "user" and message.text.strip():
                yield turn.index, clip_line(message.text, WIDTH)


def _extract_sentences(turn: Turn) -> list[str]:
    text = turn.text
    for action in turn.actions:
        if action.implicit and action.arguments:
            text = text.replace(action.arguments, " ")
        else:
            text = text
    return split_sentences(text)


def _is_pending(newest: bool, line: str) -> bool:
    return bool((_STILL.search(line) and not line.endswith(":")) or (newest and _AHEAD.search(line)))


def _pick_first_and_last(turn: Turn) -> list[str]:
    said = _extract_sentences(turn) or split_sentences(turn.reasoning)
    return [clip_line(line, WIDTH) for line in drop_duplicates(said[:1] + said[-1:])]


def _describe_turn(turn: Turn) -> str:
    said = _extract_sentences(turn)
    concluded = [line for line in said if _CONCLUDES.search(line) and not line.endswith(":")]
    if concluded:
        return clip_line(concluded[-1], WIDTH)
    if said and not turn.observations:
        return clip_line(said[0], WIDTH)
    return clip_line("; ".join(describe_calls(turn)), WIDTH)


def _find_todos(turn: Turn) -> Iterator[str]:
    for action in turn.actions:
        if any(word in action.name.lower() for word in _TODO_TOOLS):
            yield from (f"to do: {name}" for name in _find_open_items(action))


def _find_open_items(action: Action) -> Iterator[str]:
    for value in action.decoded.values():
        for item in value if isinstance(value, list) else ():
            if isinstance(item, dict) and str(item.get("status", "")).lower() not in ("completed", "done", "cancelled"):
                yield join_lines(str(_find_title(item)))


def _find_title(item: dict[str, Any]) -> object:
    return next((item[key] for key in ("content", "title", "step", "task", "text") if item.get(key)), "")


def _find_last(pattern: re.Pattern[str], turns: Sequence[Turn]) -> str:
    for turn in reversed(turns):
        for observation in turn.observations:
            if found := pattern.findall(observation.text[-400:]):
                return str(found[-1])
    return ""
