"""One recorded run under one strategy: what it would have cost, how large it would have grown, what it would have lost.

For every call the strategy sees only what existed then; the engine is the live one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from elision.engine import Log, LogSetup, Summarizer, decide, make_plain_terms, run_pass
from elision.lab.evidence import Evidence, EvidenceTally
from elision.lab.run_as_recorded import calls
from elision.lab.sent_run import UNKNOWN_SENT, SentRun
from elision.strategies.mask_candidates import PlaceholderTexts
from elision.strategies.strategy import Strategy
from elision.summarizers.digest import write_digest
from elision.telemetry.notebook_display import draw_value
from elision.trajectory.events import SummaryFailed
from elision.trajectory.plan import SummaryRequest
from elision.trajectory.prices import Bill, Prices
from elision.trajectory.tokens import Sizer
from elision.trajectory.trajectory import Trajectory


class ReplayedCall(msgspec.Struct, frozen=True):
    """One call of a replay. usd: this call with output and summarizer. ratio: our bill so far / sending everything.

    raw_tokens, raw_cached, raw_usd: of sending everything: the prompt, what of it is read from the cache, all calls so
    far.
    """

    tokens: int
    cached: int
    epoch: int
    usd: float
    ratio: float
    reason: str
    summary: bool
    raw_tokens: int
    raw_cached: int
    raw_usd: float


@dataclass(slots=True)
class Replay:
    """The result of one run. bill excludes the summarizer; raw is the bill of sending everything; both with output.

    folded, folded_tokens: results folded as they arrived, and what that left out of their first request.
    failed_summaries: those that were asked for and not taken, by cause.
    """

    bill: Bill = field(default_factory=Bill)
    summarizer: Bill = field(default_factory=Bill)
    raw: Bill = field(default_factory=Bill)
    calls: list[ReplayedCall] = field(default_factory=list)
    evidence: EvidenceTally = field(default_factory=EvidenceTally)
    summaries: int = 0
    epochs: int = 1
    peak: int = 0
    masked: int = 0
    folded: int = 0
    folded_tokens: int = 0
    failed_summaries: dict[str, int] = field(default_factory=dict)
    #: What the calls of another model were billed, less what they would be at the prices of the run.
    others_bill: Bill = field(default_factory=Bill)
    others_raw: Bill = field(default_factory=Bill)

    @property
    def usd(self) -> float:
        """All of it, in USD."""
        return self.bill.usd + self.summarizer.usd

    def __str__(self) -> str:
        rewrites = f"{self.epochs - 1} cache rewrites"
        bill = f"${self.usd:.4f} instead of ${self.raw.usd:.4f} for sending everything"
        return f"{len(self.calls)} calls: {bill}; {self.masked} results hidden, {self.summaries} summaries, {rewrites}"

    def _repr_html_(self) -> str:
        return draw_value(self)


def model_free_summarizer(sizer: Sizer) -> Summarizer:
    """The digest, as the summarizer of a replay."""

    def write(request: SummaryRequest) -> str:
        return write_digest(request, sizer.count)

    return write


def replay_run(
    trajectory: Trajectory,
    strategy: Strategy,
    prices: Prices,
    sizer: Sizer,
    *,
    known: Evidence | None = None,
    tally: EvidenceTally | None = None,
    watch: Callable[[Log], None] | None = None,
    summarizer: Summarizer | None = None,
    is_bound: bool = False,
    sent: SentRun = UNKNOWN_SENT,
    is_cut: bool = False,
    lasts_hour: Callable[[float | None], bool] | None = None,
    texts: PlaceholderTexts | None = None,
) -> Replay:
    """Run `trajectory` through the engine under `strategy`.

    known, tally: the run's evidence and where to count what of it was lost. watch: called after every pass.
    summarizer: writes the summaries; None for the digest. is_bound: whether thinking is bound and the provider clears
    results itself, so that there are no summaries, and folds stay. sent: how the run was sent. is_cut: whether its
    agent condenses its history here too; then `raw` is the bill of what it sent, and that of the calls that wrote its
    summaries belongs to all. lasts_hour: asked with the time of each call whether what it writes shall live an hour.
    texts: the placeholders of the run, where it is replayed under several strategies; those that are new are added.
    """
    session = Log.fold((), LogSetup(strategy, prices, sizer, texts=texts))
    session.set_head(trajectory.head)
    result = Replay(evidence=tally or EvidenceTally())
    summarizer = summarizer or model_free_summarizer(session.sizer)
    for turn, (now, model) in zip(trajectory.turns, calls(trajectory), strict=True):
        if is_cut and turn.index in sent.cuts:
            session.drop_turns(sent.cuts[turn.index].through, sent.cuts[turn.index].words)
        finding = sent.find_cache(turn.index, is_cut=is_cut)
        terms = replace(make_plain_terms(now, model), may_summarize=not is_bound, finding=finding)
        if lasts_hour is not None and lasts_hour(now):
            terms = replace(terms, hour_turn=len(session.state.turns))
        run_pass(decide(session, terms), summarizer)
        if known is not None:
            result.evidence.count_turn(known, turn.index, session.state)
        if watch is not None:
            watch(session)
        session.add_turn(turn)
        _record_call(result, session, sent.others.get(turn.index))
    result.epochs = session.state.epoch
    failed = (event.cause for event in session.events if isinstance(event, SummaryFailed))
    result.failed_summaries = dict(Counter(failed))
    return result


def _record_call(result: Replay, session: Log, billed: Bill | None) -> None:
    """Book the newest call. billed: what it was billed, where another model made it; then that stands in all bills."""
    newest = session.newest_call
    books = session.money
    assert newest is not None
    before = result.usd
    if billed is not None:
        result.others_bill += billed - (books.prompts + books.answers + result.others_bill - result.bill)
        result.others_raw += billed - (books.raw_prompts + books.raw_answers + result.others_raw - result.raw)
    result.bill = books.prompts + books.answers + result.others_bill
    result.raw = books.raw_prompts + books.raw_answers + result.others_raw
    result.summarizer = books.summaries
    result.summaries += newest.decided.summary is not None
    result.masked += len(newest.decided.masks)
    for fold in newest.decided.folds:
        # Later ones move the references of an old result.
        if fold.key[0] == newest.decided.call - 1:
            result.folded += 1
            result.folded_tokens += session.state.count_own_tokens(fold.key) - session.sizer.count_text(fold.text)
    result.peak = max(result.peak, newest.view.tokens)
    result.calls.append(
        ReplayedCall(
            tokens=newest.view.tokens,
            cached=books.newest_prompt.cache_read,
            epoch=newest.view.epoch,
            usd=result.usd - before,
            ratio=result.usd / result.raw.usd if result.raw.usd else 1.0,
            reason=newest.decided.reason,
            summary=newest.decided.summary is not None,
            raw_tokens=books.newest_raw_prompt.prompt_tokens,
            raw_cached=books.newest_raw_prompt.cache_read,
            raw_usd=result.raw.usd,
        )
    )
