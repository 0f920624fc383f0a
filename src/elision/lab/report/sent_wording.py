"""What a report says of how runs were sent, and of what was paid for them."""

from __future__ import annotations

from collections.abc import Iterator

from elision.lab.report.figures import format_count, format_plural, format_usd, shorten_strategies
from elision.lab.results import BILLED, NEAR_COST, RECORDED, SentSummary, Study
from elision.telemetry.context_report import format_signed_percent


def name_rows(study: Study) -> dict[str, str]:
    """Return a short and unique name for each row of `study`; those of what happened say what they lack."""
    return {**shorten_strategies(study.strategies), **label_sent_rows(study.sent)}


def label_sent_rows(sent: SentSummary) -> dict[str, str]:
    """Return what the rows of what happened are called: with what is missing for them in the recordings."""
    marks = list_marks(sent)
    billed = BILLED
    if 0 < sent.billed_runs < sent.runs:
        billed = f"{BILLED} ({format_count(sent.billed_runs)} of {format_plural(sent.runs, 'run')})"
    return {RECORDED: f"{RECORDED} ({', '.join(marks)})" if marks else RECORDED, BILLED: billed}


def list_marks(sent: SentSummary) -> list[str]:
    """Return what the recordings lack, a word or two each, for the name of a row."""
    return [
        mark
        for mark, applies in (
            ("no usage", sent.runs and sent.silent_runs == sent.runs),
            ("no bill", not sent.billed_runs and sent.silent_runs < sent.runs),
            ("mixed models", sent.mixed_runs),
            ("at most", sent.unclear),
            ("cuts by the bill", sent.unnamed_cuts and not sent.unclear),
        )
        if applies
    ]


def describe_sent(
    sent: SentSummary,
    billed: float | None,
    recorded: float | None,
    priced_as: str,
    *,
    is_also_on_top: bool = False,
) -> Iterator[str]:
    """Yield how what was sent is known, and what the recordings lack.

    billed, recorded: what the runs cost so, in USD; None where it is not known. priced_as: the name of the prices.
    is_also_on_top: whether strategies are shown on top of the agents' own condensing too.
    """
    if not sent.runs:
        return
    if sent.condensed_runs:
        yield f"{_describe_cuts(sent)}{', and “on top” after it' if is_also_on_top else ''}."
    yield from describe_uncertain_cuts(sent)
    yield _describe_bill(sent, billed, recorded, priced_as)
    yield from describe_mixture(sent)


def describe_uncertain_cuts(sent: SentSummary) -> Iterator[str]:
    """Yield where an agent saw less than its history, and the recording does not say of what it was left."""
    if sent.windowed_runs:
        runs = format_plural(sent.windowed_runs, "run")
        yield f"As recorded: {runs} with the agent's own window of newest results, masked at every turn."
    if sent.unnamed_cuts:
        times = format_plural(sent.unnamed_cuts, "time")
        yield (
            f"An agent condensed its history {times} in a way that the recording does not describe: as recorded keeps"
            " as many of the newest turns there as the billed prompt has room for."
        )
    if sent.unclear:
        times = format_plural(sent.unclear, "time")
        yield (
            f"An agent condensed its history {times} in a way that the recording does not describe: as "
            f"recorded continues there as if nothing had happened, so it is too high."
        )


def _describe_cuts(sent: SentSummary) -> str:
    inferred = f", {format_count(sent.inferred_cuts)} of them seen only in the bill" if sent.inferred_cuts else ""
    runs = f"{format_count(sent.condensed_runs)} of {format_plural(sent.runs, 'run')}"
    return (
        f"As recorded: the agents of {runs} condensed their own history ({format_plural(sent.cuts, 'time')}"
        f"{inferred}), so sending everything is a hypothesis there. A strategy works instead of that condensing"
    )


def _describe_bill(sent: SentSummary, billed: float | None, recorded: float | None, priced_as: str) -> str:
    missing = "; ".join(list_missing_bills(sent))
    if not sent.billed_runs or billed is None or recorded is None:
        if sent.silent_runs == sent.runs:
            return "As billed: no recording has usage, so what was sent is priced by our count of tokens."
        return f"As billed: unknown ({missing}), so what was sent is priced by our count of tokens."
    text = f"As billed: {format_usd(billed)} by the providers' own usage"
    if sent.billed_runs < sent.runs:
        runs = f"{format_count(sent.billed_runs)} of {format_plural(sent.runs, 'run')}"
        return f"{text}, in {runs} ({missing})."
    if not sent.own_prices:
        return f"{text}, at the prices of the recorded models; here all is priced as {priced_as}."
    difference = recorded / billed - 1 if billed else 0.0
    if abs(difference) < NEAR_COST:
        return f"{text}; as recorded, simulated as all other rows are, agrees within 0.1 %."
    return f"{text}; as recorded, simulated as all other rows are, is {format_signed_percent(difference)} off."


def list_missing_bills(sent: SentSummary) -> Iterator[str]:
    """Yield how many runs have no bill, and why."""
    for runs, what in (
        (sent.silent_runs, "without usage"),
        (sent.partial_runs, "with the usage of some calls only"),
        (sent.unpriced_runs, "of a model without a known price"),
    ):
        if runs:
            yield f"{format_plural(runs, 'run')} {what}"


def describe_mixture(sent: SentSummary) -> Iterator[str]:
    """Yield what became of the calls of other models than their run's."""
    if not sent.mixed_runs:
        return
    runs = f"Mixed models in {format_plural(sent.mixed_runs, 'run')}"
    if sent.other_calls:
        calls = format_plural(sent.other_calls, "call")
        yield f"{runs}: {calls} of other models appear in every row as billed."
    if sent.blended_calls:
        calls = format_plural(sent.blended_calls, "call")
        yield f"{runs}: {calls} of other models, without a bill, are priced like the others of their run."
