"""Which prices a recorded run is replayed at: one list for all runs, or each at that of the model that was recorded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Final

from elision.errors import PriceError
from elision.trajectory.price_lookup import find_flagship_prices, find_prices
from elision.trajectory.prices import Prices
from elision.trajectory.trajectory import Trajectory

#: What a heading calls the prices of several recorded models.
SEVERAL: Final = "the recorded models"
#: Models that a heading or a sentence names.
NAMED: Final = 4


def find_recorded_prices(run: Trajectory) -> Prices:
    """Return the prices of the recorded model on the day of the run; of the newest flagship where none is known."""
    try:
        return find_prices(run.model, on=_find_day(run))
    except PriceError:
        return find_flagship_prices(run.model)


def describe_prices_of(runs: Sequence[Trajectory], prices: Prices | None) -> str:
    """Return as which model the runs are priced, where it is not their own. prices: that were asked for, if any."""
    name = (prices or sum_up_prices(runs)).name
    unpriced = describe_unpriced(runs) if prices is None else ""
    return f"{name} ({unpriced})" if unpriced else name


def list_recorded_models(runs: Sequence[Trajectory]) -> str:
    """Return the models of the recordings with their bills, which hold whatever prices the user asked for."""
    bills: dict[str, list[float | None]] = defaultdict(list)
    for run in runs:
        stated = [turn.usage.usd for turn in run.turns if turn.usage is not None and turn.usage.usd is not None]
        bills[run.model or "an unknown model"].append(sum(stated) if len(stated) == len(run.turns) else None)
    models = []
    for model, usd in sorted(bills.items(), key=lambda item: -len(item[1])):
        known = [value for value in usd if value]
        billed = f", billed ${sum(known):,.2f}" if len(known) == len(usd) else ""
        models.append(f"{model} ({_count_runs(len(usd))}{billed})")
    more = f" and {len(models) - NAMED} more" if len(models) > NAMED else ""
    return f"{', '.join(models[:NAMED])}{more}"


def describe_unpriced(runs: Sequence[Trajectory]) -> str:
    """Return which runs are billed as a flagship, since the price of their own model is not known; "" for none."""
    found: dict[str, dict[str, int]] = {}
    for run in runs:
        if not _has_known_price(run):
            models = found.setdefault(find_recorded_prices(run).name, {})
            models[run.model] = models.get(run.model, 0) + 1
    return "; ".join(
        f"{', '.join(_describe_model(*each) for each in models.items())} as {flagship}, the newest flagship"
        for flagship, models in found.items()
    )


def _describe_model(model: str, runs: int) -> str:
    return f"{_count_runs(runs)} of {model[:80]!r}" if model else f"{_count_runs(runs)} without a model's name"


def _count_runs(runs: int) -> str:
    return f"{runs:,} run{'s' if runs > 1 else ''}"


def _has_known_price(run: Trajectory) -> bool:
    try:
        find_prices(run.model, on=_find_day(run))
    except PriceError:
        return False
    return True


def _find_day(run: Trajectory) -> date | None:
    first = next((turn.at for turn in run.turns if turn.at is not None), None)
    return None if first is None else datetime.fromtimestamp(first, UTC).date()


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
