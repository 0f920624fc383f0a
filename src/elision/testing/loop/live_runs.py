"""Runs with a real model: kept in a file as they are paid for, resumed from it, and stopped at a budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from elision.agent.model import Model
from elision.errors import ElisionError, SettingError
from elision.testing.loop.closed_loop import TaskOutcome, Variant, run_task
from elision.testing.loop.task_plan import Knobs
from elision.trajectory.prices import Prices


class BudgetSpentError(ElisionError):
    """The next call might cost more than what is left."""


class _Terms(msgspec.Struct, frozen=True, kw_only=True, tag="terms", tag_field="row"):
    """The first row: what all runs of a file have in common."""

    model: str
    knobs: Knobs


class _Call(msgspec.Struct, frozen=True, kw_only=True, tag="call", tag_field="row"):
    usd: float


class _Outcome(msgspec.Struct, frozen=True, kw_only=True, tag="outcome", tag_field="row"):
    outcome: TaskOutcome


class RunFile:
    """JSON lines: each call with its cost, and each run that ended. No prompt, answer or key is in it.

    budget: USD that all calls of the file may cost, those of earlier commands included.
    Raises SettingError for a file of another model or other knobs, and for one that is damaged before its last line.
    """

    def __init__(self, path: Path, model: str, knobs: Knobs, budget: float) -> None:
        self.path = path
        self.budget = budget
        self.spent = 0.0
        self.outcomes: list[TaskOutcome] = []
        terms = _Terms(model=model, knobs=knobs)
        rows = self._load_rows()
        if not rows:
            self._append(terms)
        elif rows[0] != terms:
            raise SettingError(f"{path} has runs of another model or with other knobs; name another file")
        for row in rows[1:]:
            if isinstance(row, _Call):
                self.spent += row.usd
            elif isinstance(row, _Outcome):
                self.outcomes.append(row.outcome)

    def check_next(self, usd: float) -> None:
        """Raises BudgetSpentError where a call of `usd` would exceed the budget."""
        if self.spent + usd > self.budget:
            raise BudgetSpentError(
                f"${self.spent:.2f} of ${self.budget:.2f} are spent, and the next call may cost ${usd:.2f}"
            )

    def add_call(self, usd: float) -> None:
        self.spent += usd
        self._append(_Call(usd=usd))

    def add_outcome(self, outcome: TaskOutcome) -> None:
        self.outcomes.append(outcome)
        self._append(_Outcome(outcome=outcome))

    def is_done(self, family: str, seed: int, variant: Variant) -> bool:
        name = str(variant)
        return any((each.family, each.seed, each.variant) == (family, seed, name) for each in self.outcomes)

    def _load_rows(self) -> list[_Terms | _Call | _Outcome]:
        if not self.path.exists():
            return []
        data = self.path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if whole != data:
            # Somebody was ended while writing the last line.
            self.path.write_bytes(whole)
        rows = []
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                rows.append(msgspec.json.decode(line, type=_Terms | _Call | _Outcome))
            except msgspec.DecodeError as error:
                raise SettingError(f"{self.path}, line {number}: {error}; name another file") from error
        return rows

    def _append(self, row: _Terms | _Call | _Outcome) -> None:
        with self.path.open("ab") as file:
            file.write(msgspec.json.encode(row) + b"\n")


def run_live_tasks(
    model: Model, tasks: Sequence[tuple[str, int, Variant]], prices: Prices, knobs: Knobs, file: RunFile
) -> Iterator[TaskOutcome]:
    """Run what `file` does not have yet, and yield each outcome when it is in the file.

    tasks: family, seed and variant of each. Raises BudgetSpentError, and EndpointError where the model cannot be asked;
    the run that it happens in is done again by the next command.
    """
    for family, seed, variant in tasks:
        if file.is_done(family, seed, variant):
            continue
        outcome = run_task(family, seed, variant, prices, knobs, model=model, payer=file)
        file.add_outcome(outcome)
        yield outcome
