"""Calls of an agent in short: what was called, in one line, and how it ended; and how texts become lines.

The ledger of attempts says what was tried and failed, and how often, so that "stuck" stays visible in a summary.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from elision.strategies.extractors import BUILT_IN
from elision.strategies.extractors.result_text import (
    find_complaint,
    find_error_line,
    find_exception_line,
    find_informative_line,
    unwrap_output,
)
from elision.strategies.extractors.shell import describe_test_run
from elision.trajectory.turn import Action, Observation, Turn

#: What replaces the text that was cut out.
ELLIPSIS = "…"

_ESCAPE = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|.)")
_FENCE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_TAG = re.compile(r"</?[A-Za-z][\w=:. -]{0,40}>")
_MARKS = re.compile(r"^\s*(?:#{1,6}\s+|[-*•]\s+(?:\[.\]\s+)?|\d{1,2}[.)]\s+|>\s+)|\*\*|__(?=\W)", re.MULTILINE)
# A full stop inside a name or number ("fields.py", "3.11") is followed by no space.
_END = re.compile(r"(?<=[.!?。！？])\s+|\n+|(?<=[。！？])")
# Shorter ones ("Perfect!", "Let me see.") carry nothing that the next turn does not show.
_SHORTEST = 15

_COMMAND_KEYS = ("command", "cmd", "script", "bash_command")
_PATH_KEYS = ("path", "file_path", "filePath", "filename", "file", "absolute_path", "notebook_path", "target_file")
# What agents wrap around a command without changing what it does.
_PRELUDE = re.compile(r"^\s*cd\s+\S+\s*(?:&&|;)\s*")
_PAGER = re.compile(r"\s*(?:2>&1\s*)?(?:\|\s*(?:head|tail)(?:\s+-n?\s*\d+|\s+-\d+)?\s*)?$")
_HEREDOC = re.compile(r"(<<-?\s*['\"]?(\w+)['\"]?[^\n]*)\n.*?(?:\n\2\b|\Z)", re.DOTALL)
#: Characters of a call in one line.
CALL_WIDTH = 90

#: Characters of an error or result line.
RESULT_WIDTH = 110

# Refusals of editors and of environments that state neither an exit status nor an error.
_REFUSED = re.compile(
    r"\s*(?:error|invalid|no replacement|string to replace|no match|could not|your (?:proposed )?edit has introduced"
    r"|usage of command|unknown command|permission denied|.{1,60}: command not found)",
    re.I,
)
_FAILING = re.compile(
    r"""
      ^(?:FAILED|ERROR)\ (\S+::\S+|\S+\.py)
    | ^(?:FAIL|ERROR):\ (\w+\ \([\w.]+\))
    | ^\s*---\ FAIL:\ (\S+)
    | ^test\ (\S+)\ \.\.\.\ FAILED
    | ^\s{0,6}(?:●|✕|×)\ +(\S.{0,80})
    """,
    re.MULTILINE | re.VERBOSE,
)

_ATTEMPT_LINE = re.compile(r"(\d+)x (.*?) -> (.*?) \[(\d+)(?:-(\d+))?\](?:; worked \[(\d+)\])?$")
_DIGITS = re.compile(r"0x[0-9a-f]+|\d+")
#: The error of a call that failed without a word.
NO_OUTPUT = "failed without output"


def join_lines(text: str) -> str:
    """Return `text` with every run of white space made one space, terminal escapes left out."""
    if "\x1b" in text:
        text = _ESCAPE.sub("", text)
    return " ".join(text.split())


def clip_line(text: str, width: int) -> str:
    """Return `text` on one line of at most `width` characters: two thirds head, one third tail."""
    flat = join_lines(text)
    if len(flat) <= width:
        return flat
    tail = (width - 1) // 3
    return (flat[: width - 1 - tail].rstrip() + ELLIPSIS + flat[len(flat) - tail :].lstrip())[:width]


def cut_middle(text: str, width: int, note: str = "\n[... {} characters left out ...]\n") -> str:
    """Return head and tail of `text`, about `width` characters, lines kept, with a note of how much is missing."""
    if len(text) <= width:
        return text
    half = max(1, width // 2)
    return text[:half] + note.format(len(text) - 2 * half) + text[-half:]


def strip_markup(text: str) -> str:
    """Return `text` without code fences, tags and Markdown marks."""
    return _MARKS.sub("", _TAG.sub(" ", _FENCE.sub("\n", text)))


def split_sentences(text: str) -> list[str]:
    """Return the sentences of `text`, each on one line; code and very short ones left out."""
    found = (join_lines(piece) for piece in _END.split(strip_markup(text)))
    return [piece for piece in found if len(piece) >= _SHORTEST]


def drop_duplicates(lines: Sequence[str]) -> tuple[str, ...]:
    """Return `lines`, each once, at its first place."""
    return tuple(dict.fromkeys(lines))


def find_path(action: Action) -> str:
    """Return the file a structured call names; "" if it names none."""
    return _find_first(action.decoded_arguments, _PATH_KEYS)


@lru_cache(maxsize=128)
def find_command(action: Action) -> str:
    """Return the shell command of `action`; "" if it is no shell call.

    The small cache serves the sections of a digest, each of which looks at the same calls again.
    """
    decoded = action.decoded_arguments
    if action.implicit and not decoded:
        return action.arguments
    if _find_first(decoded, _PATH_KEYS):
        return ""
    for key in _COMMAND_KEYS:
        words = decoded.get(key)
        if isinstance(words, list):
            return " ".join(map(str, words))
    return _find_first(decoded, _COMMAND_KEYS)


def find_command_line(action: Action) -> str:
    """Return the command of `action` without the bodies of here-documents: what is run, not what is written."""
    return _HEREDOC.sub(r"\1", find_command(action))


def describe_call(action: Action, width: int = CALL_WIDTH) -> str:
    """Return one line that names `action`: its command, or the tool with its arguments."""
    if command := find_command_line(action):
        return f"`{clip_line(command, width)}`"
    return clip_line(f"{action.name}({_format_arguments(action)})", width)


@lru_cache(maxsize=128)
def identify_call(action: Action) -> str:
    """Return a line that two calls share exactly if they do the same: spacing, `cd` and paging aside.

    A checksum stands for what is not shown in full (long calls, bodies of here-documents), so that two long scripts
    differ.
    """
    command = find_command(action)
    if command:
        whole = _PAGER.sub("", _PRELUDE.sub("", command))
    else:
        whole = f"{action.name}({_format_arguments(action)})"
    line = clip_line(_HEREDOC.sub(r"\1", whole), CALL_WIDTH).replace(" -> ", "->")
    if line != join_lines(whole).replace(" -> ", "->"):
        line += f"~{zlib.crc32(join_lines(whole).encode('utf-8', 'replace')) & 0xFFFF:04x}"
    if command:
        return f"`{line}`"
    return line


def is_coding_action(action: Action) -> bool:
    """Return whether `action` is of the kind only coding agents use: a command, or a file."""
    return bool(find_command(action) or find_path(action))


def _find_first(decoded: Mapping[str, Any], keys: tuple[str, ...]) -> str:
    """Return the first argument of `keys` that is a text and not blank; "" if none is."""
    for key in keys:
        value = decoded.get(key)
        if isinstance(value, str) and value.strip():
            return value
    return ""


def _format_arguments(action: Action) -> str:
    decoded = action.decoded_arguments
    if not decoded:
        if action.arguments.strip() in ("", "{}"):
            return ""
        return join_lines(action.arguments)
    return ", ".join(f"{key}={_format_value(value)}" for key, value in decoded.items())


def _format_value(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if len(text) <= 2 * CALL_WIDTH:
        return clip_line(text, 2 * CALL_WIDTH)
    return f"{clip_line(text, CALL_WIDTH)}{ELLIPSIS}{len(text)} chars"


@lru_cache(maxsize=128)
def find_failure(observation: Observation) -> str | None:
    """Return the error line if the call failed ("" if it shows none), None if it did not.

    A traceback or a bare complaint counts even beside exit status 0: `command | head` hides the status. The small cache
    serves the sections of a digest, each of which looks at the same results again.
    """
    envelope = unwrap_output(observation.text)
    if observation.error or envelope.has_failed or _REFUSED.match(envelope.body[:200]):
        return clip_line(find_error_line(envelope.head_and_tail) or find_informative_line(envelope.body), RESULT_WIDTH)
    if observation.error is False:
        return None
    return clip_line(find_exception_line(envelope.body) or find_complaint(envelope.body), RESULT_WIDTH) or None


def describe_result(turn: Turn, observation: Observation, width: int = RESULT_WIDTH) -> str:
    """Return a result in one line; that of a failed call begins with "failed"."""
    error = find_failure(observation)
    if error is not None:
        return clip_line(f"failed: {error}" if error else "failed, no output", width)
    return clip_line(BUILT_IN.find_outcome(turn, observation).result or "no output", width)


@lru_cache(maxsize=128)
def find_test_totals(action: Action, observation: Observation) -> str:
    """Return the totals that a test runner printed last, on one line; "" if there are none."""
    found = describe_test_run(action, observation, "")
    if found:
        return found.result.partition(", first: ")[0]
    return ""


def list_failing_tests(text: str) -> tuple[str, ...]:
    """Return the names of failing tests that `text` lists, each once."""
    names = ("".join(filter(None, match.groups())) for match in _FAILING.finditer(text))
    return tuple(dict.fromkeys(names))


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One call that failed in one way, `count` times.

    action: the call, as `identify_call` writes it.
    error:  the error line of the newest failure.
    first_turn, last_turn: turns of its first and newest failure.
    worked_turn: the turn where the same call succeeded afterwards; 0 if it did not.
    """

    action: str
    error: str
    count: int = 1
    first_turn: int
    last_turn: int
    worked_turn: int = 0

    @property
    def key(self) -> tuple[str, str]:
        """Return what equal failures share: call and error, without numbers; line numbers and addresses differ."""
        return self.action, _DIGITS.sub("#", self.error)

    def __str__(self) -> str:
        turns = str(self.first_turn)
        if self.last_turn > self.first_turn:
            turns += f"-{self.last_turn}"
        line = f"{self.count}x {self.action} -> {self.error} [{turns}]"
        if self.worked_turn:
            line += f"; worked [{self.worked_turn}]"
        return line


def parse_attempt(line: str) -> Attempt | None:
    """Return the attempt that `str()` wrote as `line`; None if it is none."""
    match = _ATTEMPT_LINE.fullmatch(line)
    if not match:
        return None
    count, action, error, first, last, worked = match.groups()
    return Attempt(
        action=action,
        error=error,
        count=int(count),
        first_turn=int(first),
        last_turn=int(last or first),
        worked_turn=int(worked or 0),
    )


def update_ledger(turns: Iterable[Turn], before: Sequence[Attempt] = ()) -> tuple[Attempt, ...]:
    """Return the ledger `before` with `turns` added: counts add up, a call that worked since is marked."""
    ledger = {attempt.key: attempt for attempt in before}
    for turn in turns:
        for observation in turn.observations:
            action = turn.find_action(observation)
            if action is None:
                continue
            name = identify_call(action)
            error = find_failure(observation)
            if error is None:
                for key, attempt in ledger.items():
                    if attempt.action == name and not attempt.worked_turn:
                        ledger[key] = replace(attempt, worked_turn=turn.index)
                continue
            new = Attempt(action=name, error=error or NO_OUTPUT, first_turn=turn.index, last_turn=turn.index)
            old = ledger.get(new.key)
            if old is not None:
                new = replace(new, count=old.count + 1, first_turn=old.first_turn)
            ledger[new.key] = new
    return tuple(ledger.values())


def count_failures(attempts: Iterable[Attempt]) -> int:
    """Return how many failing results the ledger counts."""
    return sum(attempt.count for attempt in attempts)


def rank_attempts(attempts: Iterable[Attempt]) -> list[Attempt]:
    """Return the attempts that matter most first: those that did not work since, then by count, then the newest."""
    return sorted(
        attempts,
        key=lambda attempt: (bool(attempt.worked_turn), -min(attempt.count, 5), -attempt.last_turn, attempt.key),
    )
