"""What only coding runs have: tests, dependencies and version control, read from commands and their results."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from elision.summarizers.actions import call, command_line
from elision.summarizers.outcomes import failing_tests, failure, result_line, test_totals
from elision.summarizers.prose import clip
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


def tests(turns: Sequence[Turn]) -> list[str]:
    """One line a test run that printed totals, oldest first; failing tests by name."""
    lines = []
    for turn, action, observation in _commands(turns):
        totals = test_totals(action, observation)
        if totals:
            failing = failing_tests(observation.text)
            if failing:
                named = f"; failing: {', '.join(failing[:_NAMES])}"
            else:
                named = ""
            lines.append(f"[{turn.index}] {call(action, 70)} -> {clip(totals, 100)}{named}")
    return lines


def dependencies(turns: Sequence[Turn]) -> list[str]:
    """One line an install, with how it ended."""
    lines = []
    for turn, action, observation in _commands(turns):
        found = _INSTALLS.search(command_line(action))
        if found:
            error = failure(observation)
            ended = "ok" if error is None else f"failed: {error}"
            lines.append(f"[{turn.index}] {clip(found[0], 80)} -> {ended}")
    return lines


def version_control(turns: Sequence[Turn]) -> list[str]:
    """What git was told, one line a command; the branch and the changed files as git showed them last."""
    lines: list[str] = []
    branch = ""
    changed = ""
    for turn, action, observation in _commands(turns):
        command = command_line(action)
        if "git" not in command:
            continue
        found = _GIT.findall(command)
        if found:
            lines.append(f"[{turn.index}] {clip('; '.join(found), 90)} -> {result_line(turn, observation, 70)}")
        branch = next(iter(_group(_BRANCH, observation.text)), branch)
        if _SHOWS_STATUS.search(command):
            if files := _group(_CHANGED, observation.text):
                changed = f"[{turn.index}] changed: {', '.join(files)}"
            else:
                changed = changed
    return [*lines, *([f"branch: {branch}"] if branch else []), *([clip(changed, 200)] if changed else [])]


def _commands(turns: Sequence[Turn]) -> Iterator[tuple[Turn, Action, Observation]]:
    for turn in turns:
        for observation in turn.observations:
            action = turn.action_of(observation)
            if action is not None and command_line(action):
                yield turn, action, observation


def _group(pattern: re.Pattern[str], text: str) -> list[str]:
    return [next(group for group in match.groups() if group) for match in pattern.finditer(text)][:_NAMES]
