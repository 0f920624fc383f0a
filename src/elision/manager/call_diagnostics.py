"""The diagnostics of a call, and the report of a session, from the state of the engine and of the branch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from elision.engine import CallResult, Log
from elision.manager.branch import SessionBranch
from elision.manager.ledger import Ledger
from elision.telemetry.context_report import (
    ContextReport,
    CountBasis,
    FoldFigures,
    PhaseTurns,
    SavingFigures,
    SummaryFigures,
    TrimFigures,
    compute_frequency,
)
from elision.telemetry.diagnostics import Costs, Diagnostics, Fault, Hidden, Savings, Summarized
from elision.trajectory.plan import Edit, make_handle
from elision.trajectory.trajectory import measure_head


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFacts:
    """What is known of a call beside its branch; see `Diagnostics`."""

    session: str
    history: str
    model: str
    faults: tuple[Fault, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    summarizer_seconds: float = 0.0


def build_diagnostics(branch: SessionBranch, ledger: Ledger, facts: CallFacts) -> Diagnostics:
    """Return what the newest call of `branch` did."""
    branch.totals.add_new(branch.log.state.turns)
    log = branch.log
    state = log.state
    newest = log.newest_call
    anchor = log.reports.scale.correction
    assert newest is not None
    costs = compute_costs(log, ledger)
    decided = newest.decided
    return Diagnostics(
        session=facts.session,
        branch=branch.key,
        call=newest.view.call,
        turns=len(state.turns),
        before=log.reports.scale.convert_to_billed(newest.tokens_before),
        after=log.reports.scale.convert_to_billed(newest.view.tokens),
        raw=log.money.count_newest()[1],
        reason=newest.decided.reason,
        phase=ledger.phase,
        epoch=state.epoch,
        masked=tuple(_list_hidden(log, decided.masks)),
        clipped=tuple(_list_hidden(log, decided.clips)),
        folded=tuple(_list_hidden(log, decided.folds)),
        unfolded=tuple(map(make_handle, decided.unfolded)),
        summarized=_describe_summary(log, newest),
        summaries=ledger.summaries,
        summary_tokens=count_message(log, state.summary.block) if state.summary else 0,
        rewrites=dict(ledger.rewrites),
        costs=costs,
        savings=_compute_savings(branch),
        stop=branch.totals.watch.find_stop(costs.ours),
        hint=branch.totals.watch.find_hint(),
        history=facts.history,
        anchor=anchor,
        estimated=not log.sizer.counter.is_exact,
        recalls=ledger.recalls,
        model=facts.model,
        shadow=state.shadow,
        faults=facts.faults,
        notes=facts.notes,
        seconds=facts.seconds,
        summarizer_seconds=facts.summarizer_seconds,
    )


def build_failed_diagnostics(session: str, faults: tuple[Fault, ...], seconds: float) -> Diagnostics:
    """Return the diagnostics of a call whose preparation failed."""
    return Diagnostics(
        session=session,
        branch="",
        call=0,
        turns=0,
        before=0,
        after=0,
        raw=0,
        reason="failed: the request is sent unchanged",
        faults=faults,
        seconds=seconds,
    )


def build_context_report(
    branch: SessionBranch, ledger: Ledger, *, session: str, model: str, strategy: str
) -> ContextReport:
    """Return the report of a session: all of its calls, in USD and in tokens as the provider counts them."""
    branch.totals.add_new(branch.log.state.turns)
    log = branch.log
    state = log.state
    costs = compute_costs(log, ledger)
    prompts = log.money.total
    live = state.summary
    composition = measure_head(state.head, log.sizer) + branch.totals.compositions[-1]
    return ContextReport(
        session=session,
        model=model,
        strategy=strategy,
        phase=ledger.phase,
        calls=ledger.requests,
        turns=len(state.turns),
        phase_turns=PhaseTurns(
            raw=ledger.phase_turns["raw"],
            masking=ledger.phase_turns["masking"],
            summarizing=ledger.phase_turns["summarizing"],
        ),
        summaries=SummaryFigures(
            count=ledger.summaries,
            failed=ledger.attempts,
            covered_turns=live.covers if live else 0,
            tokens=count_message(log, live.block) if live else 0,
            usd=costs.summarizer,
            frequency=compute_frequency(len(state.turns), ledger.summaries),
        ),
        savings=SavingFigures(
            sent_tokens=prompts.ours.prompt_tokens,
            raw_tokens=prompts.raw.prompt_tokens,
            costs=costs,
            basis=_choose_basis(log, ledger),
        ),
        folds=FoldFigures(
            results=ledger.folded_results,
            unfolded=ledger.unfolded_results,
            tokens=log.reports.scale.convert_part(state.folded_tokens),
        ),
        trims=TrimFigures(
            calls=log.client_trims.calls,
            turns=state.dropped_turns,
            tokens=log.client_trims.tokens,
            usd=log.client_trims.usd,
        ),
        composition=composition.scale(log.reports.scale.rate),
        shadow=state.shadow,
    )


def _choose_basis(log: Log, ledger: Ledger) -> CountBasis:
    """Return how the tokens of the calls were counted."""
    if ledger.requests and ledger.reported_calls == ledger.requests:
        return "reported"
    if log.sizer.counter.is_exact:
        return "counted"
    return "estimated"


def compute_costs(log: Log, ledger: Ledger) -> Costs:
    """Return what the session cost so far, and what it would have cost unchanged, in tokens as the provider counts."""
    ledger.fold_new(log.events)
    money = log.money
    prompts = money.total
    return Costs(
        ours=prompts.ours.usd + money.answers.usd + money.summaries.usd,
        raw=prompts.raw.usd + money.plain_answers_usd,
        summarizer=money.summaries.usd,
        recalls=ledger.recall_usd * log.reports.scale.rate,
        caching=prompts.caching_usd,
        billed=ledger.billed_usd,
    )


def count_message(log: Log, text: str) -> int:
    """Return the tokens of a message as the provider counts them."""
    return log.reports.scale.convert_part(log.sizer.count_text(text))


def _list_hidden(log: Log, edits: tuple[Edit, ...]) -> Iterator[Hidden]:
    for edit in edits:
        observation = log.state.find_observation(edit.key)
        yield Hidden(
            handle=make_handle(edit.key),
            tool=observation.tool,
            tokens=log.reports.scale.convert_part(log.sizer.count_observation(observation)),
            left=count_message(log, edit.text),
            text=edit.text,
        )


def _describe_summary(log: Log, newest: CallResult) -> Summarized | None:
    summary = newest.decided.summary
    if summary is None:
        return None
    state = log.state
    covered = state.count_raw_tokens_before(summary.covers + 1) - state.count_raw_tokens_before(
        newest.covered_before + 1
    )
    return Summarized(
        first=newest.covered_before + 1,
        last=summary.covers,
        tokens=log.reports.scale.convert_part(covered),
        left=count_message(log, summary.block),
        usd=newest.summarizer_bill.usd,
        route=summary.route,
        model=summary.writer,
        input=summary.input_tokens,
        cached=summary.cached_tokens,
        output=summary.output_tokens,
    )


def _compute_savings(branch: SessionBranch) -> Savings:
    """Return how much of all observations this call leaves out: covered, masked less placeholders, and folded ones."""
    state = branch.log.state
    tally = branch.totals
    behind = state.covered_turns + 1
    place = state.turn_places.get(behind, len(state.track.segments))
    masked = (state.raw_track.tokens - state.count_raw_tokens_before(behind)) - (
        state.track.tokens - state.track.count_tokens_before(place)
    )
    # What the client itself dropped is none of ours.
    dropped = state.dropped_turns
    hidden = tally.tokens[state.covered_turns] - tally.tokens[dropped] + max(0, masked)
    masked = max(0, masked - state.folded_tokens)
    total = tally.tokens[-1] - tally.tokens[dropped]
    covered = tally.observations[state.covered_turns] - tally.observations[dropped]
    scale = branch.log.reports.scale
    folds = state.edit_counts["fold"]
    masks = len(state.edits) - folds
    return Savings(
        observation_tokens=scale.convert_part(total),
        hidden_tokens=scale.convert_part(hidden),
        masked_tokens=scale.convert_part(masked),
        folded_tokens=scale.convert_part(state.folded_tokens),
        masked=masks,
        folded=folds,
        visible=tally.observations[-1] - tally.observations[dropped] - len(state.edits) - covered,
        covered=covered,
        reduction_pct=100.0 * hidden / total if total else 0.0,
    )
