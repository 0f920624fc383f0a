"""What a report says of how runs were sent, and of what was paid for them."""

from __future__ import annotations

from collections.abc import Iterator

from elision.lab.report import figures
from elision.lab.results import BILLED, NEAR_COST, RECORDED, Row, Study


def describe_sent(study: Study) -> Iterator[str]:
    """Yield how the rows of what happened came about, and what they lack."""
    sent = study.sent
    if not sent.runs:
        return
    if sent.condensed_runs:
        yield _describe_cuts(study)
    if sent.windowed_runs:
        runs = figures.format_plural(sent.windowed_runs, "run")
        yield f"As recorded: {runs} with the agent's own window of newest results, masked at every turn."
    if sent.unclear:
        times = figures.format_plural(sent.unclear, "time")
        yield (
            f"An agent condensed its history {times} in a way of which the recording does not say what was left:"
            " as recorded goes on there as if nothing had happened, so it is too high."
        )
    yield _describe_bill(study)
    if sent.other_calls:
        calls = figures.format_plural(sent.other_calls, "call")
        yield f"Mixed models: {calls} of other models stand in every row as they were billed."


def _describe_cuts(study: Study) -> str:
    sent = study.sent
    inferred = (
        f", {figures.format_count(sent.inferred_cuts)} of them seen only in the bill" if sent.inferred_cuts else ""
    )
    runs = f"{figures.format_count(sent.condensed_runs)} of {figures.format_plural(sent.runs, 'run')}"
    return (
        f"As recorded: the agents of {runs} condensed their own history ({figures.format_plural(sent.cuts, 'time')}"
        f"{inferred}), so sending everything is a hypothesis there. A strategy works instead of that condensing, and"
        " “on top” after it."
    )


def _describe_bill(study: Study) -> str:
    sent = study.sent
    billed, recorded = (_find_total(study, label) for label in (BILLED, RECORDED))
    if billed is None or recorded is None:
        return "As billed: no recording states a bill, so what was sent is priced by our count of tokens."
    text = f"As billed: {figures.format_usd(billed.usd)} by the providers' own usage"
    if sent.billed_runs < sent.runs:
        runs = f"{figures.format_count(sent.billed_runs)} of {figures.format_plural(sent.runs, 'run')}"
        return f"{text}, in {runs}; the others state none, or no price is known for them."
    if not sent.own_prices:
        return f"{text}, at the prices of the recorded models; here all is priced as {study.prices.name}."
    difference = recorded.usd / billed.usd - 1 if billed.usd else 0.0
    if abs(difference) < NEAR_COST:
        return f"{text}; as recorded, simulated as all other rows are, agrees within 0.1 %."
    sign = figures.MINUS if difference < 0 else "+"
    return f"{text}; as recorded, simulated as all other rows are, is {sign}{100 * abs(difference):.1f} % off."


def _find_total(study: Study, label: str) -> Row | None:
    return next((row for row in study.totals if row.strategy == label), None)
