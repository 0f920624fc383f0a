"""One recorded run under one strategy: what it would have cost, how large it would have grown, what it would have lost.

For every call the strategy sees only what existed then; the engine is the live one. What the recording says of where
its agent condensed the history, and of what the provider's cache held, holds for the replay as well.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec
from msgspec.structs import replace

from elision.engine import Log, LogSetup, Summarizer, decide, make_plain_terms, run_pass
from elision.lab.calibrate import Calibration, calibrate_run, make_finding
from elision.lab.evidence import Evidence, EvidenceTally
from elision.lab.run_as_recorded import ContextCut, RecordedSizer, calls, is_recorded_on
from elision.strategies.mask_candidates import PlaceholderTexts
from elision.strategies.strategy import Strategy
from elision.summarizers.digest import write_digest
from elision.telemetry.context_report import draw_value
from elision.trajectory.cache import AS_FORESEEN, CacheFinding
from elision.trajectory.events import SummaryFailed
from elision.trajectory.plan import SummaryRequest
from elision.trajectory.price_lookup import bill_reported_usage, find_tokenizer, is_same_model
from elision.trajectory.prices import Bill, Prices
from elision.trajectory.tokens import Sizer
from elision.trajectory.trajectory import Compaction, Trajectory
from elision.trajectory.usage import Usage

#: What happened to the cache because the agent changed its prompt: it happens at every provider.
_OF_THE_AGENT: Final = "changed-prefix"


@dataclass(frozen=True, slots=True, kw_only=True)
class SentRun:
    """What a replay needs to send a run as it was sent.

    cuts, findings: by call. others: the bills of the calls that another model made, where the run is priced as its own
    model. summaries: recorded usage of the calls that wrote the agent's own summaries. unclear: where the agent
    condensed its history, and nothing says to what. billed: what is recorded of the bill, by call; None without it.
    """

    cuts: Mapping[int, ContextCut] = field(default_factory=dict)
    findings: Mapping[int, CacheFinding] = field(default_factory=dict)
    others: Mapping[int, Bill] = field(default_factory=dict)
    summaries: tuple[Usage, ...] = ()
    unclear: tuple[Compaction, ...] = ()
    billed: Calibration | None = None

    def find_cache(self, call: int, *, is_cut: bool) -> CacheFinding:
        """Return what the cache held at `call`. is_cut: whether the run is replayed with its cuts.

        What it held at a cut says nothing about a request that was not cut.
        """
        if call in self.cuts and not is_cut:
            return AS_FORESEEN
        return self.findings.get(call, AS_FORESEEN)


#: Of a run of which nothing but its turns is known.
UNKNOWN_SENT: Final = SentRun()


def describe_sent_run(run: Trajectory, prices: Prices, sizer: Sizer) -> SentRun:
    """Return how `run` was sent, for a replay at `prices`. sizer: counts its messages in that replay."""
    own_tokenizer = find_tokenizer(run.model)
    known = sizer if isinstance(sizer, RecordedSizer) else RecordedSizer(sizer.count_as(own_tokenizer), run)
    billed = calibrate_run(run, Sizer(sizer.counter, reasoning=sizer.reasoning))
    is_own_model = is_recorded_on(run.model, prices)
    scale = prices.tokenizer.tokens_per_counted / own_tokenizer.tokens_per_counted
    findings: dict[int, CacheFinding] = {}
    others: dict[int, Bill] = {}
    for call in billed.calls if billed is not None else ():
        if is_own_model and not is_same_model(call.model, run.model) and call.billed.usd is not None:
            others[call.index] = bill_reported_usage(call.billed, prices)
        if is_own_model or call.cause == _OF_THE_AGENT or call.restart:
            finding = make_finding(call.cause, call.billed, is_restart=bool(call.restart))
            if finding != AS_FORESEEN:
                findings[call.index] = _scale_finding(finding, scale)
    return SentRun(
        cuts={cut.before: cut for cut in known.cuts.cuts},
        findings=findings,
        others=others,
        summaries=tuple(each.usage for each in run.compactions if each.usage is not None),
        unclear=known.cuts.unclear,
        billed=billed,
    )


def _scale_finding(finding: CacheFinding, scale: float) -> CacheFinding:
    """Return `finding` in the tokens of another tokenizer."""
    most = None if finding.most is None else round(finding.most * scale)
    return dataclasses.replace(finding, most=most, warm=round(finding.warm * scale))


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
