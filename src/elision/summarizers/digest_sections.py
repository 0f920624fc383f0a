"""The sections of a digest: sentences of the agent and its user, and of coding runs the commands with their results."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from elision.summarizers.call_lines import (
    clip_line,
    describe_call,
    describe_result,
    drop_duplicates,
    find_command,
    find_command_line,
    find_failure,
    find_test_totals,
    join_lines,
    list_failing_tests,
    split_sentences,
)
from elision.trajectory.turn import Action, Observation, Turn

#: Characters of a quoted sentence.
SENTENCE_WIDTH = 180
#: Characters of the task at either end; the task itself stays in the head, word for word.
TASK_WIDTH = 140

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
#: What a line says that the next turn may deny: the result of a call, or that something works.
_CLAIMS = re.compile(
    r" -> (?!failed)|\b(?:fixed|resolved|works?|working|passe[sd]|confirm(?:s|ed)|successfully|implemented)\b"
    r"|\bcorrect(?:ly)?\b",
    re.IGNORECASE,
)
_DENIES = re.compile(
    r"(?:n't|\bnot)(?: \w+){0,3} (?:work|fix|solve|resolve|address|help|take effect|apply|succeed|correct)"
    r"|\bnot (?:as |what )?(?:\w+ ){0,2}(?:expected|desired|want)"
    r"|\bstill (?:not|fail|return|wrong|broken|get|see|ha[sv]|show|rais|the same|the case|an? )"
    r"|\b(?:is|was|are|were) (?:wrong|incorrect)\b|^despite\b|\bsame (?:error|problem|issue|result)\b",
    re.IGNORECASE,
)
_TURN_LINE = re.compile(r"\[(\d{1,9})\] (.*)")
_AHEAD = re.compile(
    r"\b(?:let me|let's|I'll|I will|going to|would you like|please confirm|do you want|could you)\b", re.IGNORECASE
)
_STILL = re.compile(r"\b(?:needs? to|should|must|todo|remaining|still|next step|not yet)\b", re.IGNORECASE)
_TODO_TOOLS = ("todo", "task_tracker", "update_plan", "plan")
_TITLE_KEYS = ("content", "title", "step", "task", "text")
#: Statuses of to-do items that are not open any more.
_CLOSED = ("completed", "done", "cancelled")
_CWD = (
    re.compile(r"^\(Current directory: (/\S+)\)", re.MULTILINE),
    re.compile(r"\[Current working directory: (/\S+)\]"),
)
_CD = re.compile(r"(?:^|&&|;)\s*cd\s+(/[\w./~+@-]+)")
_OPEN = re.compile(r"^\(Open file: (/\S+)\)", re.MULTILINE)

_INSTALLS = re.compile(
    r"\b(?:(?:uv )?pip3?|npm|yarn|pnpm|cargo|apt(?:-get)?|go|conda|poetry|gem|bundle|brew|uv)"
    r"\s+(?:install|add|get|ci|i|sync)\b[^&|;\n]*"
)
_GIT = re.compile(
    r"\bgit\s+(?:-C \S+ |--no-pager )?(?:commit|checkout|switch|branch|merge|rebase|reset|restore|stash|push|pull|"
    r"add|rm|mv|apply|tag|cherry-pick|revert|init|clone|worktree)\b[^&|;\n]*"
)
_SHOWS_STATUS = re.compile(r"\bgit\s+(?:-C \S+ |--no-pager )?(?:status|diff --stat|diff --name-only|log)\b")
_BRANCH = re.compile(r"^On branch (\S+)|^\* (\S+)$|Switched to (?:a new )?branch '([^']+)'", re.MULTILINE)
_CHANGED = re.compile(
    r"^\s*(?:modified|new file|deleted|renamed):\s+(\S+)|^(?:[ MADRC?]{2}) (\S+)$|^\s(\S+)\s+\|\s+\d+", re.MULTILINE
)
#: Failing tests named in one line, at most.
_MOST_NAMES = 12


def list_user_context(task: str, turns: Sequence[Turn]) -> list[str]:
    """Return what the user wants: the first and the last lines of the task, then every later message of a user."""
    lines = []
    for line in task.splitlines():
        if len(line.strip()) > 3 and not re.fullmatch(r"\s*</?\w+>\s*", line):
            lines.append(join_lines(line))
    quotes = [clip_line(" / ".join(lines[:3]), TASK_WIDTH)]
    if len(lines) > 4:
        quotes.append(clip_line(" / ".join(lines[-2:]), TASK_WIDTH))
    context = [f'task: "{quote}"' for quote in quotes if quote]
    for turn in turns:
        for message in turn.interjections:
            if message.role == "user" and message.text.strip():
                context.append(f'[{turn.index}] user: "{clip_line(message.text, SENTENCE_WIDTH)}"')
    return context


def list_completed(turns: Sequence[Turn]) -> list[str]:
    """Return one line a turn that says what the turn found or did."""
    lines = []
    for turn in turns:
        line = _describe_turn(turn)
        if line:
            lines.append(f"[{turn.index}] {line}")
    return lines


def correct_claims(lines: Sequence[str], turns: Sequence[Turn]) -> tuple[str, ...]:
    """Return the `lines` of COMPLETED, with what the agent said next where that denies a line's result or claim."""
    by_index = {turn.index: turn for turn in turns}
    corrected = []
    for line in lines:
        found = _TURN_LINE.match(line)
        following = by_index.get(int(found[1]) + 1) if found and _CLAIMS.search(line) else None
        said = _extract_sentences(following)[:2] if following else []
        denial = next(filter(_DENIES.search, said), "")
        if found and denial:
            call, arrow, _ = found[2].rpartition(" -> ")
            line = clip_line(f"[{found[1]}] {call}{arrow}{denial}", SENTENCE_WIDTH)
        corrected.append(line)
    return tuple(corrected)


def score_conclusion(line: str) -> float:
    """Return how much `line` says what was found or done, rather than what comes next: 0 ... 1."""
    return 0.5 * bool(_CONCLUDES.search(line)) + 0.5 * bool(_SETTLES.search(line))


def list_pending(turns: Sequence[Turn]) -> list[str]:
    """Return open items of the agent's to-do list, then what it said is still to be done, newest first.

    The turn that says "Let me ..." does it; only that of the newest turn may still be open.
    """
    todos: list[str] = []
    for turn in reversed(turns):
        todos = list(_find_todos(turn))
        if todos:
            break
    sentences = []
    for turn in reversed(turns[-4:]):
        for line in reversed(_extract_sentences(turn)):
            is_unfinished = _STILL.search(line) and not line.endswith(":")
            if is_unfinished or (turn is turns[-1] and _AHEAD.search(line)):
                sentences.append(f"[{turn.index}] {line}")
    return [clip_line(line, SENTENCE_WIDTH) for line in drop_duplicates([*todos[:8], *sentences[:4]])]


def describe_current_state(turns: Sequence[Turn]) -> list[str]:
    """Return what the last turn did and said, the directory and the open file."""
    if not turns:
        return []
    last = turns[-1]
    lines = [f"[{last.index}] did {line}" for line in describe_calls(last)]
    sentences = _extract_sentences(last) or split_sentences(last.reasoning)
    for sentence in drop_duplicates(sentences[:1] + sentences[-1:]):
        lines.append(f"[{last.index}] said: {clip_line(sentence, SENTENCE_WIDTH)}")
    directory = find_directory(turns)
    if directory:
        lines.append(f"directory: {directory}")
    open_file = _find_last(_OPEN, turns)
    if open_file:
        lines.append(f"open file: {open_file}")
    return lines


def describe_calls(turn: Turn) -> Iterator[str]:
    """Yield the calls of `turn`, each with one line of its result."""
    for observation in turn.observations:
        action = turn.find_action(observation)
        name = describe_call(action, 70) if action else observation.tool
        yield f"{name} -> {describe_result(turn, observation)}"
    answered = {observation.action_id for observation in turn.observations}
    for action in turn.actions:
        if action.id not in answered:
            yield f"{describe_call(action)} -> (no result yet)"


def find_directory(turns: Sequence[Turn]) -> str:
    """Return the newest working directory that a result or a `cd` names; "" if none does."""
    for turn in reversed(turns):
        for observation in turn.observations:
            tail = observation.text[-400:]
            for pattern in _CWD:
                shown = pattern.findall(tail)
                if shown:
                    return str(shown[-1])
        for action in turn.actions:
            entered = _CD.findall(find_command(action))
            if entered:
                return str(entered[-1])
    return ""


def _extract_sentences(turn: Turn) -> list[str]:
    """Return the sentences of what the agent said, without the text that a harness parsed as its call."""
    text = turn.text
    for action in turn.actions:
        if action.implicit and action.arguments:
            text = text.replace(action.arguments, " ")
    return split_sentences(text)


@lru_cache(maxsize=128)
def _describe_turn(turn: Turn) -> str:
    sentences = _extract_sentences(turn)
    for line in reversed(sentences):
        if _CONCLUDES.search(line) and not line.endswith(":"):
            return clip_line(line, SENTENCE_WIDTH)
    if sentences and not turn.observations:
        return clip_line(sentences[0], SENTENCE_WIDTH)
    return clip_line("; ".join(describe_calls(turn)), SENTENCE_WIDTH)


def _find_todos(turn: Turn) -> Iterator[str]:
    """Yield the open items of the to-do lists that `turn` wrote."""
    for action in turn.actions:
        if not any(word in action.name.lower() for word in _TODO_TOOLS):
            continue
        for value in action.decoded_arguments.values():
            if isinstance(value, list):
                yield from (f"to do: {title}" for title in _find_open_titles(value))


def _find_open_titles(values: list[Any]) -> Iterator[str]:
    for item in values:
        if not isinstance(item, dict) or str(item.get("status", "")).lower() in _CLOSED:
            continue
        title: object = ""
        for key in _TITLE_KEYS:
            if item.get(key):
                title = item[key]
                break
        yield join_lines(str(title))


def _find_last(pattern: re.Pattern[str], turns: Sequence[Turn]) -> str:
    for turn in reversed(turns):
        for observation in turn.observations:
            names = pattern.findall(observation.text[-400:])
            if names:
                return str(names[-1])
    return ""


def list_test_runs(turns: Sequence[Turn]) -> list[str]:
    """Return one line a test run that printed totals, oldest first; failing tests by name."""
    lines = []
    for turn, action, observation in _find_commands(turns):
        totals = find_test_totals(action, observation)
        if totals:
            line = f"[{turn.index}] {describe_call(action, 70)} -> {clip_line(totals, 100)}"
            failing = list_failing_tests(observation.text)
            if failing:
                line += f"; failing: {', '.join(failing[:_MOST_NAMES])}"
            lines.append(line)
    return lines


def list_installs(turns: Sequence[Turn]) -> list[str]:
    """Return one line an install, with how it ended."""
    lines = []
    for turn, action, observation in _find_commands(turns):
        install = _INSTALLS.search(find_command_line(action))
        if install:
            error = find_failure(observation)
            outcome = "ok" if error is None else f"failed: {error}"
            lines.append(f"[{turn.index}] {clip_line(install[0], 80)} -> {outcome}")
    return lines


def list_git_commands(turns: Sequence[Turn]) -> list[str]:
    """Return one line a git command that changes something, then branch and changed files as git last showed them."""
    lines: list[str] = []
    branch = ""
    changed = ""
    for turn, action, observation in _find_commands(turns):
        command = find_command_line(action)
        if "git" not in command:
            continue
        commands = _GIT.findall(command)
        if commands:
            text = clip_line("; ".join(commands), 90)
            lines.append(f"[{turn.index}] {text} -> {describe_result(turn, observation, 70)}")
        branches = _find_groups(_BRANCH, observation.text)
        if branches:
            branch = branches[0]
        if _SHOWS_STATUS.search(command):
            files = _find_groups(_CHANGED, observation.text)
            if files:
                changed = f"[{turn.index}] changed: {', '.join(files)}"
    if branch:
        lines.append(f"branch: {branch}")
    if changed:
        lines.append(clip_line(changed, 200))
    return lines


def _find_commands(turns: Sequence[Turn]) -> Iterator[tuple[Turn, Action, Observation]]:
    """Yield each shell command of `turns` with its turn and its result."""
    for turn in turns:
        for observation in turn.observations:
            action = turn.find_action(observation)
            if action is not None and find_command_line(action):
                yield turn, action, observation


def _find_groups(pattern: re.Pattern[str], text: str) -> list[str]:
    """Return the one group that matched, of each match of `pattern`; at most _MOST_NAMES."""
    names = ["".join(filter(None, match.groups())) for match in pattern.finditer(text)]
    return names[:_MOST_NAMES]
