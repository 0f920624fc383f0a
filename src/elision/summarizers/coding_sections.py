"""What only coding runs have: tests, dependencies and version control, read from commands and their results."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from elision.summarizers.actions import describe_call, find_command_line
from elision.summarizers.outcomes import describe_result, find_failure, find_test_totals, list_failing_tests
from elision.summarizers.prose import clip_line
from elision.trajectory.turn import Action, Observation, Turn

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
_NAMES = 12


def list_test_runs(turns: Sequence[Turn]) -> list[str]:
    """Return one line a test run that printed totals, oldest first; failing tests by name."""
    lines = []
    for turn, action, observation in _find_commands(turns):
        totals = find_test_totals(action, observation)
        if totals:
            line = f"[{turn.index}] {describe_call(action, 70)} -> {clip_line(totals, 100)}"
            failing = list_failing_tests(observation.text)
            if failing:
                line += f"; failing: {', '.join(failing[:_NAMES])}"
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
    """Return the one group that matched, of each match of `pattern`; at most _NAMES."""
    names = ["".join(filter(None, match.groups())) for match in pattern.finditer(text)]
    return names[:_NAMES]
