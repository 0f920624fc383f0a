"""The figures of one replay, as a row of a study and call by call."""

from __future__ import annotations

from elision.lab.elongation import TurnFactor, price_late_turn, price_turns
from elision.lab.replay import Replay
from elision.lab.results import Row, Series
from elision.trajectory.trajectory import Trajectory


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
