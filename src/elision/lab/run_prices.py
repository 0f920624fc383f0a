"""Which prices a recorded run is replayed at: one list for all runs, or each at that of the model that was recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Final

from elision.errors import PriceError
from elision.trajectory.price_lookup import find_prices
from elision.trajectory.prices import Prices
from elision.trajectory.trajectory import Problem, Trajectory

#: What `--model` says for each run's own model.
RECORDED: Final = "recorded"
#: What a heading calls the prices of several recorded models.
SEVERAL: Final = "the recorded models"
#: Models that a heading names.
NAMED: Final = 4


def find_recorded_prices(run: Trajectory) -> Prices:
    """Return the prices of the recorded model on the day of the run. Raises PriceError where none is known."""
    if not run.model:
        raise PriceError("the recording names no model")
    return find_prices(run.model, on=_find_day(run))


def _find_day(run: Trajectory) -> date | None:
    first = next((turn.at for turn in run.turns if turn.at is not None), None)
    return None if first is None else datetime.fromtimestamp(first, UTC).date()


def leave_out_unpriced(runs: Sequence[Trajectory]) -> tuple[list[Trajectory], list[Problem]]:
    """Return the runs whose recorded model has a price, and a problem for each of the others. Raises PriceError if
    none has one."""
    priced: list[Trajectory] = []
    problems: list[Problem] = []
    for run in runs:
        try:
            find_recorded_prices(run)
        except PriceError:
            model = f"its model {run.model[:80]!r}" if run.model else "it, since it names no model"
            reason = f"{run.id}: left out: no price is known for {model}; give --model NAME or --prices SET"
            problems.append(Problem(file=run.file, line=None, reason=reason))
        else:
            priced.append(run)
    if runs and not priced:
        raise PriceError(f"--model {RECORDED}: no run has a model with a known price; first: {problems[0]}")
    return priced, problems


def sum_up_prices(runs: Sequence[Trajectory]) -> Prices:
    """Return a list for headings: that of all runs, or of the model with the most calls, under the names of all."""
    found: dict[str, Prices] = {}
    calls: dict[str, int] = {}
    for run in runs:
        prices = find_recorded_prices(run)
        found.setdefault(prices.name, prices)
        calls[prices.name] = calls.get(prices.name, 0) + len(run.turns)
    names = sorted(found, key=lambda name: (-calls[name], name))
    first = found[names[0]]
    if len(names) == 1:
        return first
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    models = f"{', '.join(names[:NAMED])}{more}, each run at its own model's; the rates of {names[0]}"
    return replace(first, name=SEVERAL, source=f"{models}: {first.source}")
