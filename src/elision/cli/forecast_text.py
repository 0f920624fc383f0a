"""When the strategy in force is to be expected to act: a sentence, and the figures."""

from __future__ import annotations

from dataclasses import asdict

from elision.config import Settings
from elision.errors import BudgetError
from elision.lab.forecast import CALLS, MEDIAN_CALLS, forecast_session, is_due_by_turns
from elision.manager.context_options import Options
from elision.trajectory.prices import Prices


def describe_forecast(found: Settings) -> str:
    """Return the sentence that says when the strategy in force is to be expected to act, and how large requests get."""
    prices = _find_prices(found)
    session = f"In a typical coding run of {MEDIAN_CALLS} calls at the prices of {prices.name}"
    if not found.strategy.can_hide:
        return f"{session}: {found.strategy.name} hides nothing, in any run."
    try:
        forecast = forecast_session(found.strategy, prices)
    except BudgetError as error:
        return f"{session}: {error}"
    when = "at" if is_due_by_turns(found.strategy) else "about"
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


def _find_prices(found: Settings) -> Prices:
    return Options(model=found.model or "", prices=found.prices).find_prices()


def forecast_json(found: Settings) -> dict[str, object] | None:
    """Return what is to be expected of a typical coding run; None where it does not fit the budget."""
    prices = _find_prices(found)
    try:
        forecast = forecast_session(found.strategy, prices)
    except BudgetError:
        return None
    return {"prices": prices.name, "calls": MEDIAN_CALLS} | asdict(forecast)
