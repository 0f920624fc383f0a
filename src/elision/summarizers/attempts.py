"""The attempts ledger: what was tried and failed, and how often, so that "stuck" stays visible in a summary."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from elision.summarizers.call_lines import find_failure, identify_call
from elision.trajectory.turn import Turn

_LINE = re.compile(r"(\d+)x (.*?) -> (.*?) \[(\d+)(?:-(\d+))?\](?:; worked \[(\d+)\])?$")
_DIGITS = re.compile(r"0x[0-9a-f]+|\d+")
#: The error of a call that failed without a word.
NO_OUTPUT = "failed without output"


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
    match = _LINE.fullmatch(line)
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
