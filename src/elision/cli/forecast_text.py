"""`elision replay --forecast`: when a strategy is expected to act in a typical coding run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from elision.cli.console import open_console
from elision.cli.outputs import print_json
from elision.config import load_settings
from elision.errors import BudgetError
from elision.lab.forecast import CALLS, MEDIAN_CALLS, forecast_session, is_due_by_turns
from elision.lab.report.terminal import print_text
from elision.manager.context_options import Options
from elision.strategies.spec import parse_strategy
from elision.strategies.strategy import Strategy
from elision.trajectory.prices import Prices


def show_forecasts(strategies: Sequence[str], prices: Prices | None, *, as_json: bool) -> None:
    """Print what to expect of each of `strategies`, or of the one in force; without `prices`, at those in force."""
    settings = load_settings()
    chosen = [parse_strategy(text) for text in strategies] or [settings.strategy]
    rates = prices or Options(model=settings.model or "", prices=settings.prices).find_prices()
    if as_json:
        print_json("replay --forecast", {"forecasts": [encode_forecast(each, rates) for each in chosen]})
        return
    for strategy in chosen:
        print_text(open_console(), describe_forecast(strategy, rates))


def describe_forecast(strategy: Strategy, prices: Prices) -> str:
    """Return the sentence that says when `strategy` is expected to act, and how large requests get."""
    session = f"In a typical coding run of {MEDIAN_CALLS} calls at the prices of {prices.name}"
    if not strategy.can_hide:
        return f"{session}: {strategy.name} hides nothing, in any run."
    try:
        forecast = forecast_session(strategy, prices)
    except BudgetError as error:
        return f"{session}: {error}"
    when = "at" if is_due_by_turns(strategy) else "about"
    acts = {"placeholder": forecast.first_placeholder, "summary": forecast.first_summary}
    within = [f"first {act} {when} call {call}" for act, call in acts.items() if call and call <= MEDIAN_CALLS]
    later = [f"first {act} {when} call {call}" for act, call in acts.items() if call and call > MEDIAN_CALLS]
    largest = f"largest request about {round(forecast.largest_tokens, -2):,} tokens"
    words = ", ".join([*(within or ["nothing is hidden"]), largest])
    text = f"{session}: {words} (raw {round(forecast.raw_tokens, -2):,})."
    if later:
        text += f" In a longer one: {', '.join(later)}."
    elif not within:
        text += f" Nor in one of {CALLS} calls."
    return text


def encode_forecast(strategy: Strategy, prices: Prices) -> dict[str, object]:
    """Return what to expect of a typical coding run as JSON; without its figures where it does not fit the budget."""
    figures: dict[str, object] = {"strategy": strategy.name, "prices": prices.name, "calls": MEDIAN_CALLS}
    try:
        return figures | asdict(forecast_session(strategy, prices))
    except BudgetError:
        return figures
