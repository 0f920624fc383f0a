"""The rows of one run: the figures of a replay, and what happened, as its agent sent it and as it was billed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from elision.engine import Log
from elision.lab.calibrate import sum_usages
from elision.lab.elongation import TurnFactor, price_late_turn, price_turns
from elision.lab.evidence import Evidence, EvidenceTally
from elision.lab.replay import Replay, SentRun, describe_sent_run, replay_run
from elision.lab.results import BILLED, RECORDED, Row, SentSummary, Series
from elision.lab.run_as_recorded import add_recorded_head, is_recorded_on, size_run, sizer
from elision.lab.study_settings import AS_IN_THE_PAPERS
from elision.strategies.spec import parse_strategy
from elision.strategies.strategy import Strategy
from elision.trajectory.price_lookup import bill_reported_usage, is_same_model
from elision.trajectory.prices import Bill, Prices
from elision.trajectory.tokens import Sizer
from elision.trajectory.trajectory import Trajectory


@dataclass(frozen=True, slots=True)
class SentRows:
    """One run as it was sent.

    sent: how. replay: of what its agent sent, as strategies are replayed. condensing: the bill of the calls that wrote
    its agent's own summaries, at the same prices. rows: as billed, where that is known, and as recorded. summary: what
    a study says of it.
    """

    sent: SentRun
    replay: Replay
    condensing: Bill
    rows: tuple[tuple[Row, Series], ...]
    summary: SentSummary

    @property
    def usd(self) -> float:
        """What the run cost as it was sent, with the agent's own summaries."""
        return self.replay.usd + self.condensing.usd


def choose_sent_strategy(run: Trajectory) -> Strategy:
    """Return the strategy under which the agent of `run` sent its requests, its cuts apart."""
    if run.recorded_window is None:
        return parse_strategy("raw")
    return parse_strategy(f"masking(window={run.recorded_window}, {AS_IN_THE_PAPERS})")


def replay_recording(run: Trajectory, prices: Prices, tokens: str = "o200k") -> SentRows:
    """Replay `run`, as it was read, as its agent sent it. tokens: name of the counter. Raises SpecError for another."""
    plain = sizer("openai", tokens)
    told = add_recorded_head(run, size_run(run, prices, plain))
    return replay_as_sent(told, prices, size_run(told, prices, plain))


def replay_as_sent(
    run: Trajectory,
    prices: Prices,
    sizer: Sizer,
    known: Evidence | None = None,
    common: frozenset[str] = frozenset(),
    *,
    watch: Callable[[Log], None] | None = None,
) -> SentRows:
    """Replay `run` as its agent sent it.

    known, common: its evidence, and what of it is common property. watch: called after every pass.
    """
    sent = describe_sent_run(run, prices, sizer)
    tally = EvidenceTally(common=common)
    replayed = replay_run(
        run, choose_sent_strategy(run), prices, sizer, known=known, tally=tally, watch=watch, sent=sent, is_cut=True
    )
    condensing = sum((bill_reported_usage(usage, prices) for usage in sent.summaries), Bill())
    usd = replayed.usd + condensing.usd
    row = build_row(run, RECORDED, replace(replayed, summarizer=condensing), None)
    recorded = replace(row, recorded_usd=usd, summaries=len(sent.cuts))
    rows = [(recorded, build_series(replayed))]
    is_own_model = is_recorded_on(run.model, prices)
    billed = _build_billed_row(run, sent, prices, is_own_model=is_own_model)
    if billed is not None:
        rows.insert(0, (replace(billed[0], recorded_usd=usd if is_own_model else None), billed[1]))
    summary = _sum_up_sending(run, sent, is_billed=billed is not None, is_own_model=is_own_model)
    return SentRows(sent, replayed, condensing, tuple(rows), summary)


def _sum_up_sending(run: Trajectory, sent: SentRun, *, is_billed: bool, is_own_model: bool) -> SentSummary:
    """Return what a study says of how `run` was sent."""
    reported = sum(turn.usage is not None for turn in run.turns)
    others = sum(bool(turn.model and run.model) and not is_same_model(turn.model, run.model) for turn in run.turns)
    # The readers know no more of such a one than that it was.
    unnamed = {each.before for each in run.compactions if not each.summary and each.kept_from is None}
    return SentSummary(
        runs=1,
        condensed_runs=int(bool(sent.cuts)),
        cuts=len(sent.cuts),
        inferred_cuts=sum(cut.source == "inferred" for cut in sent.cuts.values()),
        unnamed_cuts=len(unnamed & sent.cuts.keys()),
        windowed_runs=int(run.recorded_window is not None),
        unclear=len(sent.unclear),
        billed_runs=int(is_billed),
        silent_runs=int(not reported),
        partial_runs=int(0 < reported < len(run.turns)),
        unpriced_runs=int(not is_billed and reported == len(run.turns)),
        own_prices=not is_billed or is_own_model,
        mixed_runs=int(others > 0),
        other_calls=len(sent.others),
        blended_calls=others - len(sent.others),
    )


def _build_billed_row(
    run: Trajectory, sent: SentRun, prices: Prices, *, is_own_model: bool
) -> tuple[Row, Series] | None:
    """Return the recorded bill, at the prices of the model that it is of; None where it has no amount."""
    if sent.billed is None:
        return None
    calls = sent.billed.calls
    usage = sum_usages(call.billed for call in calls)
    if usage.usd is None or len(calls) < len(run.turns):
        return None
    own = prices if is_own_model or sent.billed.prices is None else sent.billed.prices
    row = Row(
        file=run.file,
        trajectory=run.id,
        reader=run.format,
        strategy=BILLED,
        turns=len(run.turns),
        tool_turns=run.tool_turns,
        calls=len(calls),
        bill=bill_reported_usage(usage, own),
        summarizer=sum((bill_reported_usage(each, own) for each in sent.summaries), Bill()),
        peak=max(call.billed.prompt for call in calls),
        summaries=len(sent.summaries),
    )
    return row, Series(tokens=tuple(call.billed.prompt for call in calls))


# -- a replay as a row ------------------------------------------------------------------------------------------------


def build_row(
    run: Trajectory, label: str, result: Replay, turns: TurnFactor | None, recorded_usd: float | None = None
) -> Row:
    """Return the row of `result`. turns: what is assumed of their number. recorded_usd: the run as it was sent."""
    tally = result.evidence
    costs = [call.usd for call in result.calls]
    return Row(
        file=run.file,
        trajectory=run.id,
        reader=run.format,
        strategy=label,
        turns=len(run.turns),
        tool_turns=run.tool_turns,
        calls=len(result.calls),
        bill=result.bill,
        summarizer=result.summarizer,
        raw_usd=result.raw.usd,
        recorded_usd=recorded_usd,
        late_usd=price_late_turn(costs),
        extended_usd=(price_turns(costs, turns.low), price_turns(costs, turns.high)) if turns else None,
        peak=result.peak,
        worst_ratio=max((call.ratio for call in result.calls), default=0.0),
        epochs=result.epochs,
        summaries=result.summaries,
        masked=result.masked,
        folded=result.folded,
        folded_tokens=result.folded_tokens,
        evidence_items=tally.items,
        evidence_found=tally.found,
        evidence_found_plain=tally.found_without_summary,
        evidence_items_filtered=tally.items_filtered,
        evidence_found_filtered=tally.found_filtered,
        regret_turns=tally.regret_turns,
        regret_turns_filtered=tally.regret_turns_filtered,
        own_items=tally.own_items,
        own_found=tally.own_found,
        own_missing_turns=tally.own_missing_turns,
        repeats=tally.repeats,
        repeats_hidden=tally.repeats_hidden,
    )


def build_series(result: Replay) -> Series:
    numbered = list(enumerate(result.calls, start=1))
    return Series(
        tokens=tuple(call.tokens for call in result.calls),
        rewrites=tuple(
            number
            for (number, call), before in zip(numbered[1:], result.calls, strict=False)
            if call.epoch > before.epoch
        ),
        summaries=tuple(number for number, call in numbered if call.summary),
    )
