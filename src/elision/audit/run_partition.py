"""One run's bill, divided by cause: each token of each call has exactly one.

The order of precedence: what happened to the cache (a compaction, a pause, a changed prefix) takes the tokens that had
to be sent again. Of the others, definitions of unused tools, repeated text and dead output come first, in this order.
The rest is the first prompt, growth, or context sent again. Two parts of a price are apart: the answer, and the premium
of writes that live an hour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from itertools import chain
from typing import Final, TypeAlias

from elision.audit.cause_table import (
    AVOIDABLE_REWRITES,
    PLAIN,
    REWRITES,
    WASTE,
    Cause,
    CauseTotal,
    HourPremiums,
    sum_totals,
)
from elision.audit.habits import CallExample, Habit, HabitMeter, pick_examples
from elision.audit.prompt_content import CausedSpan, PromptContent, ToolBill, bill_tools, count_tools
from elision.errors import PriceError
from elision.lab.recorded_requests import RecordedRequest, list_requests
from elision.trajectory.cache import HOUR_SECONDS
from elision.trajectory.price_lookup import find_prices, find_tokenizer
from elision.trajectory.prices import Prices, Rates
from elision.trajectory.run_roles import Role, find_run_role
from elision.trajectory.tokens import Sizer
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.usage import Usage

#: Old tokens of a prompt that may be sent again unnoticed: caches work in blocks of up to so many.
BLOCK_TOKENS: Final = 128

#: What tells a call that two logs have from two calls.
CallSignature: TypeAlias = tuple[str, float, Usage]
#: The price list of a model on a day; None where no price is known.
PriceFinder: TypeAlias = Callable[[str, date | None], Prices | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFinding:
    """One call at which old text was sent again.

    tokens: sent again. place: where in the prompt the first of them is. seconds: since the model's call before, None if
    unknown. is_inferred: a compaction that the log does not state; the prompt fell. changed: what the log says was
    changed before the call, other than turns: "the tools".
    """

    file: str
    trajectory: str
    call: int
    cause: Cause
    tokens: int
    first_token: int
    usd: float
    place: str
    seconds: float | None = None
    is_inferred: bool = False
    changed: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class AuditedCall:
    """One call's bill by cause.

    number: of the call in its run, from 1. signature: what another log's copy of it has as well; None without a time.
    day: of the call, "" if unknown. is_priced: whether its model has a price; if not, `tokens` are all that is known.
    usd, stated_usd: as in `AuditedRun`; the latter None where the log states nothing. habits: they overlap the causes.
    """

    number: int
    signature: CallSignature | None
    model: str
    day: str
    is_priced: bool
    tokens: int
    usd: float = 0.0
    stated_usd: float | None = None
    causes: dict[Cause, CauseTotal] = field(default_factory=dict)
    habits: dict[Habit, CauseTotal] = field(default_factory=dict)
    findings: tuple[AuditFinding, ...] = ()
    tools_usd: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedRun:
    """One run's bill by cause.

    usd: of all calls whose model has a price, at list prices. stated_usd: what the log states, and stated_list_usd: the
    list price of the same calls. unpriced_calls, unpriced_tokens: of models without a price. copied_calls: of which
    another log has a copy; they are in no sum. runs: how many it stands for, in the audit of a study. examples:
     by cause and habit, the calls that show it best, the most expensive first. tools: that it declares, by name.
    role: who made it. first_tokens: of its first prompt; first_read: of these, the ones that other runs had left in the
    cache.
    """

    file: str
    trajectory: str
    reader: str
    model: str
    prices: Prices | None
    calls: int = 0
    usd: float = 0.0
    is_cached: bool = False
    stated_usd: float = 0.0
    stated_list_usd: float = 0.0
    stated_calls: int = 0
    unpriced_calls: int = 0
    unpriced_tokens: int = 0
    copied_calls: int = 0
    causes: dict[Cause, CauseTotal] = field(default_factory=dict)
    habits: dict[Habit, CauseTotal] = field(default_factory=dict)
    examples: dict[Cause | Habit, tuple[CallExample, ...]] = field(default_factory=dict)
    findings: tuple[AuditFinding, ...] = ()
    runs: int = 1
    tools: dict[str, ToolBill] = field(default_factory=dict)
    role: Role = "main"
    first_tokens: int = 0
    first_read: int = 0


def find_role(trajectory: Trajectory) -> Role:
    """Return who made a run. Readers name a fork after what it continues, and that is no other agent."""
    is_started = bool(trajectory.parent) and not trajectory.id.startswith(f"{trajectory.parent} fork ")
    return find_run_role(trajectory.head, trajectory.turns, is_started=is_started, said=trajectory.role)


def find_list_prices(model: str, on: date | None) -> Prices | None:
    """Return the price list of a recorded model; None where there is none."""
    try:
        return find_prices(model, on=on)
    except PriceError:
        return None


def partition_run(
    trajectory: Trajectory,
    sizer: Sizer,
    *,
    price: PriceFinder = find_list_prices,
    known: set[CallSignature] | None = None,
) -> AuditedRun | None:
    """Divide the bill of `trajectory` by cause; None where it records no usage.

    known: calls of other logs, which are not counted again; those of this run are added.
    """
    found = partition_calls(trajectory, sizer, price=price)
    if found is None:
        return None
    run, calls = found
    known = set() if known is None else known
    counted = [call for call in calls if call.signature not in known]
    known.update(call.signature for call in calls if call.signature is not None)
    return replace(_add_up_calls(run, counted), copied_calls=len(calls) - len(counted))


def _add_up_calls(run: AuditedRun, calls: Sequence[AuditedCall]) -> AuditedRun:
    """Return `run` with the sums of `calls`; of those without a price only their number and tokens."""
    priced = [call for call in calls if call.is_priced]
    stated = [(call.stated_usd, call.usd) for call in priced if call.stated_usd is not None]
    return replace(
        run,
        calls=len(priced),
        usd=sum(call.usd for call in priced),
        stated_usd=sum(usd for usd, _ in stated),
        stated_list_usd=sum(usd for _, usd in stated),
        stated_calls=len(stated),
        unpriced_calls=len(calls) - len(priced),
        unpriced_tokens=sum(call.tokens for call in calls) - sum(call.tokens for call in priced),
        causes=sum_totals(call.causes for call in priced),
        habits=sum_totals(call.habits for call in priced),
        tools=bill_tools(run.tools, sum(call.tools_usd for call in priced)),
        examples=_find_examples(run, priced),
        findings=tuple(chain.from_iterable(call.findings for call in priced)),
    )


def _find_examples(run: AuditedRun, calls: Sequence[AuditedCall]) -> dict[Cause | Habit, tuple[CallExample, ...]]:
    """Return the calls that show each cause and habit best."""
    found: dict[Cause | Habit, list[CallExample]] = {}
    for call in calls:
        for what, total in (*call.causes.items(), *call.habits.items()):
            if total.avoidable_usd:
                example = CallExample(run.file, run.trajectory, call.number, total.avoidable_usd)
                found.setdefault(what, []).append(example)
    return {what: pick_examples(examples) for what, examples in found.items()}


def partition_calls(
    trajectory: Trajectory, sizer: Sizer, *, price: PriceFinder = find_list_prices
) -> tuple[AuditedRun, list[AuditedCall]] | None:
    """Return what the calls of `trajectory` share, with no call counted, and its calls; None without recorded usage.

    Copies of other logs' calls are among them: the calls after such a one follow it all the same.
    """
    sizer = sizer.count_as(find_tokenizer(trajectory.model)).take_output()
    sent = list(list_requests(trajectory, sizer))
    return partition_requests(trajectory, sent, sizer, price=price) if sent else None


def partition_requests(
    trajectory: Trajectory, sent: Sequence[RecordedRequest], sizer: Sizer, *, price: PriceFinder = find_list_prices
) -> tuple[AuditedRun, list[AuditedCall]]:
    """Return the same for the requests of `trajectory` as they were `sent`, at least one: a replay's, too."""
    parts = _RunPartition(trajectory, sizer, price, sent)
    for request in sent:
        parts.add_call(request)
    return parts.finish()


class _RunPartition:
    """Divides the calls of one run."""

    def __init__(
        self, trajectory: Trajectory, sizer: Sizer, price: PriceFinder, sent: Sequence[RecordedRequest]
    ) -> None:
        self._trajectory = trajectory
        self._tools = count_tools(trajectory, sizer)
        self._content = PromptContent(trajectory, self._tools)
        self._habits = HabitMeter(trajectory, sizer)
        #: The prices of each model on the day of its first call, in the order of the calls.
        self._prices: dict[str, Prices | None] = {}
        for request in sent:
            if request.model not in self._prices:
                self._prices[request.model] = price(request.model, request.day)
        self._is_cached = any(request.usage.cache_read or request.usage.cache_write for request in sent)
        self._reports_writes = any(request.usage.cache_write for request in sent)
        self._before: dict[str, RecordedRequest] = {}
        self._newest: RecordedRequest | None = None
        self._first = sent[0].usage
        self._premiums: dict[str, HourPremiums] = {}
        self._calls: list[AuditedCall] = []

    def add_call(self, request: RecordedRequest) -> None:
        prices = self._prices[request.model]
        usage = request.usage
        call = AuditedCall(
            number=request.call,
            signature=None if request.now is None else (request.model, request.now, usage),
            model=request.model,
            day=str(request.day or ""),
            is_priced=prices is not None,
            tokens=usage.prompt + usage.output,
            stated_usd=usage.usd,
        )
        # The content is looked at in any case: each call's places follow from those of the call before.
        spans = self._content.list_spans(request)
        if prices is not None:
            self._price_call(call, request, prices, spans)
        self._calls.append(call)
        self._before[request.model] = self._newest = request

    def finish(self) -> tuple[AuditedRun, list[AuditedCall]]:
        for premiums in self._premiums.values():
            premiums.close()
            for place, lost in premiums.lost.items():
                if lost > 0:
                    self._calls[place].causes["hour-unpaid"] = CauseTotal(0, lost, lost, 1)
            for place, paid in premiums.paid.items():
                if paid > 0:
                    self._calls[place].causes["hour-paid"] = CauseTotal(0, paid, 0.0, 1)
        run = self._trajectory
        first = next(iter(self._prices))
        found = AuditedRun(
            file=run.file,
            trajectory=run.id,
            reader=run.format,
            model=run.model,
            prices=self._prices.get(run.model) or self._prices[first],
            is_cached=self._is_cached,
            tools=self._tools,
            role=find_role(run),
            first_tokens=self._first.prompt,
            first_read=self._first.cache_read,
        )
        return found, self._calls

    def _price_call(self, call: AuditedCall, request: RecordedRequest, prices: Prices, spans: list[CausedSpan]) -> None:
        usage, helpers_usd, helpers_tokens = _split_helpers(request.usage, prices)
        rates = prices.find_rates(request.usage.sent_prompt)
        curve = _PriceCurve(usage, rates)
        found: dict[Cause, CauseTotal] = {}
        findings = []
        for region in self._list_regions(request, usage, prices):
            pieces = _cut_by_content(region, spans) if region.cause in PLAIN else [region]
            for piece in pieces:
                total = _total_piece(piece, curve, rates)
                found[piece.cause] = found.get(piece.cause, CauseTotal()) + total
            if region.cause in REWRITES and region.start < region.stop:
                findings.append(self._describe_rewrite(request, region, curve))
        found["answer"] = CauseTotal(usage.output, usage.output * rates.output / 1e6)
        if helpers_tokens:
            found["other-model"] = CauseTotal(helpers_tokens, helpers_usd)
        # What the writes for an hour cost more.
        rate = max(0.0, rates.write_price_1h - rates.write_price) / 1e6
        premiums = self._premiums.setdefault(request.model, HourPremiums(prices.cache.ttl))
        premiums.add_call(len(self._calls), request.now, usage.cache_read, usage.cache_write_1h, rate)
        call.causes = {cause: replace(total, calls=1) for cause, total in found.items() if total.tokens or total.usd}
        call.usd = sum(total.usd for total in found.values()) + usage.cache_write_1h * rate
        call.findings = tuple(findings)
        call.tools_usd = curve.cost(*self._content.find_tools(request))
        before = self._before.get(request.model) or self._newest
        old = 0 if before is None or request.restart else min(usage.prompt, before.usage.prompt)
        ends = self._content.find_ends(request)
        call.habits = self._habits.measure_call(request, ends, old, curve.cost, rates.output)

    def _list_regions(self, request: RecordedRequest, usage: Usage, prices: Prices) -> Iterator[CausedSpan]:
        """Yield the whole prompt in stretches of one cause, by what the cache did."""
        read, prompt = usage.cache_read, usage.prompt
        yield CausedSpan(0, read, "context")
        before = self._before.get(request.model)
        old = before or self._newest
        if request.restart:
            yield CausedSpan(read, prompt, "compaction")
            return
        if old is None:
            yield CausedSpan(read, prompt, "first-write")
            return
        sent = max(read, min(prompt, old.usage.prompt))
        if not prices.has_cache or sent < prices.cache.minimum:
            # No cache keeps it: nothing went wrong.
            yield CausedSpan(read, sent, "context")
        elif not self._is_cached:
            yield CausedSpan(read, sent, "not-cached")
        elif before is None:
            yield CausedSpan(read, sent, "model-switch")
        else:
            # How many leading tokens the call before left in the cache.
            cached = before.usage.prompt
            if self._reports_writes:
                cached = before.usage.cache_read + before.usage.cache_write
            kept = max(read, min(sent, cached))
            if kept - read <= BLOCK_TOKENS:
                kept = read
            yield from self._list_lost(request, before, CausedSpan(read, kept, "missed"), prices)
            if sent - kept > BLOCK_TOKENS:
                yield CausedSpan(kept, sent, "not-cached")
            else:
                sent = kept
        yield CausedSpan(sent, prompt, "growth")

    def _list_lost(
        self, request: RecordedRequest, before: RecordedRequest, lost: CausedSpan, prices: Prices
    ) -> Iterator[CausedSpan]:
        """Yield what was cached and not read, with the causes: entries for an hour are in front of the others."""
        if lost.start >= lost.stop:
            return
        pause = 0.0 if request.now is None or before.now is None else request.now - before.now
        changed: Cause = "missed" if prices.cache.kind == "prefix" else "prefix-changed"
        hour = min(lost.stop, max(lost.start, before.billed.hour_tokens))
        if hour > lost.start:
            yield CausedSpan(lost.start, hour, "expired-1h" if pause > HOUR_SECONDS else changed)
        if hour < lost.stop:
            expired: Cause = "expired-1h" if prices.cache.ttl >= HOUR_SECONDS else "expired-5m"
            yield CausedSpan(hour, lost.stop, expired if pause > prices.cache.ttl else changed)

    def _describe_rewrite(self, request: RecordedRequest, region: CausedSpan, curve: _PriceCurve) -> AuditFinding:
        before = self._before.get(request.model)
        seconds = None
        if before is not None and before.now is not None and request.now is not None:
            seconds = request.now - before.now
        return AuditFinding(
            file=self._trajectory.file,
            trajectory=self._trajectory.id,
            call=request.call,
            cause=region.cause,
            tokens=region.stop - region.start,
            first_token=region.start,
            usd=curve.cost(region.start, region.stop),
            place=self._content.describe_place(request, region.start),
            seconds=seconds,
            is_inferred=request.restart == "inferred",
            changed=tuple(each.what for each in self._trajectory.changes if each.before == request.call),
        )


def _split_helpers(usage: Usage, prices: Prices) -> tuple[Usage, float, int]:
    """Return the usage of the model that was asked, and the USD and tokens of others that worked on the call."""
    usd = 0.0
    tokens = 0
    own = usage
    for other in usage.others:
        part = other.usage
        usd += (find_list_prices(other.model, None) or prices).cost_usage(part)
        tokens += part.prompt + part.output
        written = max(0, own.cache_write - part.cache_write)
        own = Usage(
            input=max(0, own.input - part.input),
            cache_read=max(0, own.cache_read - part.cache_read),
            cache_write=written,
            cache_write_1h=min(written, max(0, own.cache_write_1h - part.cache_write_1h)),
            output=max(0, own.output - part.output),
        )
    return own, usd, tokens


class _PriceCurve:
    """What leading tokens of a prompt cost: reads come first, then writes for an hour, other writes, plain input.

    A write for an hour costs here what one for 5 minutes does; its premium is apart.
    """

    def __init__(self, usage: Usage, rates: Rates) -> None:
        self._bands = (
            (usage.cache_read, rates.read_price),
            (usage.cache_write, rates.write_price),
            (usage.input, rates.input),
        )

    def cost(self, start: int, stop: int) -> float:
        """Return what tokens `start` to `stop` of the prompt cost, in USD."""
        usd = 0.0
        begin = 0
        for tokens, rate in self._bands:
            inside = min(stop, begin + tokens) - max(start, begin)
            usd += max(0, inside) * rate
            begin += tokens
        return usd / 1e6


def _total_piece(piece: CausedSpan, curve: _PriceCurve, rates: Rates) -> CauseTotal:
    tokens = piece.stop - piece.start
    usd = curve.cost(piece.start, piece.stop)
    avoidable = 0.0
    if piece.cause in WASTE:
        avoidable = usd
    elif piece.cause in AVOIDABLE_REWRITES:
        avoidable = max(0.0, usd - tokens * rates.read_price / 1e6)
    return CauseTotal(tokens, usd, avoidable)


def _cut_by_content(region: CausedSpan, spans: list[CausedSpan]) -> list[CausedSpan]:
    """Return `region` in pieces: those that `spans`, in order, give another cause, and the rest."""
    pieces: list[CausedSpan] = []
    place = region.start
    for span in spans:
        start, stop = max(place, span.start), min(region.stop, span.stop)
        if start < stop:
            pieces.append(CausedSpan(place, start, region.cause))
            pieces.append(CausedSpan(start, stop, span.cause))
            place = stop
    pieces.append(CausedSpan(place, region.stop, region.cause))
    return [piece for piece in pieces if piece.start < piece.stop]
