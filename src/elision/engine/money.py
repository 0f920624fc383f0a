"""What the calls of one log cost, and what they would have cost without us: one fold over its events.

It counts twice. Decisions go by our count of tokens, which is all that they need. People read figures beside what the
provider reported, so `newest`, `previous` and `total` are as long as they were billed, or would have been
(`TokenScale`).

Of those, ours is billed as it was reported, and until then as the cache is foreseen to serve it. The raw prompt grows
from call to call by what the provider counted for ours, wherever that adds to the one before it: a result is as long in
the one bill as in the other. Calls that are made only with us are in our bill alone: those that return what was
recalled. An attempt that is made again before anybody reported it was not billed, and is in neither.

What everything would have cost is billed as the client would have sent it. Where the client sets no cache breakpoints
and we do, part of the difference is caching and not hiding: `caching_usd` is that part. `PlainHistory` has the prompts
that an agent would send without us: what only a recall caused is in none of them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from elision.engine.terms import CallTerms
from elision.errors import BudgetError
from elision.providers.shared.json_reading import mapping_in
from elision.trajectory.cache import PromptCache
from elision.trajectory.events import PassDecided
from elision.trajectory.prices import Bill, Prices
from elision.trajectory.tokens import Sizer, TokenScale
from elision.trajectory.tool_definitions import NESTED_TOOL_FIELDS, get_tool_name, reads_handles
from elision.trajectory.turn import Head, Observation, Turn
from elision.trajectory.usage import Usage
from elision.trajectory.view import Segment, Track, View


class CallResult(msgspec.Struct, frozen=True):
    """What the newest pass did: its decision and its view.

    terms:           of the call.
    raw_view:        the view if nothing had ever been hidden.
    tokens_before:   of the view if this pass had hidden nothing.
    covered_before:  the newest turn that a summary covered before this pass.
    begins_anew:     whether the request begins like no earlier one.
    summarizer_bill: of this pass alone.
    budget_error:    why its view does not fit, where that was not to be raised. It is not in the log.
    summary_obstacle: why it made no summary although it had to; "" if it made one, or need not. It is not in the log.
    """

    decided: PassDecided
    terms: CallTerms
    view: View
    raw_view: View
    tokens_before: int
    covered_before: int
    begins_anew: bool
    summarizer_bill: Bill
    budget_error: BudgetError | None = None
    summary_obstacle: str = ""

    @property
    def model(self) -> str:
        return self.terms.model


class CountedPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt by our count, in tokens.

    cached_tokens: read from the cache. has_breakpoints: whether the prompt has cache breakpoints.
    hour_tokens: leading tokens whose cache entries live an hour.
    """

    tokens: int
    cached_tokens: int
    has_breakpoints: bool = True
    hour_tokens: int = 0

    def with_hour_writes(self) -> CountedPrompt:
        """Return the same where all that is written to the cache lives an hour."""
        return replace(self, hour_tokens=self.tokens)

    def with_cached_at_most(self, tokens: int) -> CountedPrompt:
        """Return the same with at most `tokens` read from the cache."""
        return replace(self, cached_tokens=min(self.cached_tokens, tokens))

    def bill_at(self, prices: Prices, tokens: int | None = None, cached: int | None = None) -> Bill:
        """Return its bill; tokens: of the prompt by another count, of which the same shares are cached and kept.

        cached: tokens of it that are read from the cache, where that is known by the other count.
        """
        if tokens is None:
            tokens = self.tokens
        if prices.bypasses_cache(marked=self.has_breakpoints):
            return prices.bill_uncached(tokens)
        share = tokens / self.tokens if self.tokens else 1.0
        if cached is None:
            cached = round(self.cached_tokens * share)
        return prices.bill_call(tokens, min(cached, tokens), hour=round(self.hour_tokens * share))


class CallBills(msgspec.Struct, frozen=True, kw_only=True):
    """The prompt side of one call.

    ours: as it was sent. raw: had nothing ever been hidden, as the client would have sent it.
    caching_usd: USD by which `raw` would cost less with the cache breakpoints of ours.
    """

    ours: Bill = Bill()
    raw: Bill = Bill()
    caching_usd: float = 0.0

    def __add__(self, other: CallBills) -> CallBills:
        return CallBills(
            ours=self.ours + other.ours, raw=self.raw + other.raw, caching_usd=self.caching_usd + other.caching_usd
        )


class CountedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call.

    number:    of the call; one that is made again has the same.
    ours, raw: our prompt, and the raw one with breakpoints where ours has them.
    has_client_marks: whether the client sets any.
    is_shadow: whether the raw prompt is sent. is_extra: whether the call is made only with us.
    extends:   whether our prompt adds to the one before it.
    """

    number: int
    ours: CountedPrompt
    raw: CountedPrompt
    has_client_marks: bool
    is_shadow: bool
    is_extra: bool
    extends: bool

    def follow_attempt(self, attempt: CountedCall) -> CountedCall:
        """Return this call where `attempt`, the same one, failed: it left nothing in the cache to be relied on."""
        return replace(
            self,
            ours=self.ours.with_cached_at_most(attempt.ours.cached_tokens),
            raw=self.raw.with_cached_at_most(attempt.raw.cached_tokens),
            extends=self.extends and attempt.extends,
        )


class _Answer(msgspec.Struct, frozen=True):
    """The answer to the newest call. output: its tokens, as reported or by our count.

    may_recall: whether what it recalls is there only with us.
    """

    turn: Turn
    output: int
    may_recall: bool


class _Request(msgspec.Struct, frozen=True):
    """A call that was sent. head: of the client, where recalls are there only with us; else None.

    answered: the newest turn in it. is_shadow: whether the request is sent unchanged.
    """

    call: CallResult
    head: Head | None
    answered: Turn | None
    is_shadow: bool


class Money:
    """The bills of one log. Read it through `Log.money`, which adds up what happened since.

    By our count of tokens, in USD and tokens: prompts, raw_prompts (of sending everything, with the cache breakpoints
    that our requests had), answers, raw_answers, summaries; newest_prompt and newest_raw_prompt of the newest call.
    cache: what the provider's cache holds of our requests.

    On the provider's scale: newest, previous and total, the prompts of calls; plain_answers_usd, the answers that there
    would be without us. previous is the call before the newest, as it was settled; nothing if the newest is made in its
    place.
    """

    def __init__(self, prices: Prices, scale: TokenScale, sizer: Sizer, warm_tokens: int = 0) -> None:
        """Begin without a call. warm_tokens: of the beginning of the prompt that an earlier run left in the cache.

        scale: changes when usage is reported; `rebill_newest` has to be called then, and `settle` before.
        """
        self.cache = PromptCache(prices.cache, warm_tokens)
        self.prompts = Bill()
        self.raw_prompts = Bill()
        self.answers = Bill()
        self.raw_answers = Bill()
        self.summaries = Bill()
        self.newest_prompt = self.newest_raw_prompt = Bill()
        self.previous = CallBills()
        self.plain_answers_usd = 0.0
        self._prices = prices
        self._scale = scale
        self._sizer = sizer
        self._raw_cache = PromptCache(prices.cache, warm_tokens)
        #: Of what would be sent without us; None as long as that is the raw prompt, and so in the same cache.
        self._plain_cache: PromptCache | None = None
        self._plain_history = PlainHistory(sizer)
        #: What happened since the bills were asked for: nobody waits for them while a call is prepared.
        self._waiting: list[_Answer | _Request] = []
        self._newest_request: CallResult | None = None
        #: Both prompts of the newest call, the raw one with what only recalls caused.
        self._newest_counted = self._newest_raw = CountedPrompt(tokens=0, cached_tokens=0)
        self._call: CountedCall | None = None
        #: The call before it, and the tokens of both its prompts as the provider counts them.
        self._before: tuple[CountedCall, int, int] | None = None
        self._earlier = CallBills()
        self._newest: CallBills | None = None
        self._is_confirmed = False
        #: What was reported of the newest call, where that is of our prompt.
        self._usage: Usage | None = None

    # -- what happened -------------------------------------------------------------------------------------------

    def add_call(self, call: CallResult, head: Head | None, answered: Turn | None, *, is_shadow: bool) -> None:
        """Add a call. The one before is billed by now, so that at most one waits.

        head: of the client, where recalls are there only with us; else None. answered: the newest turn in it.
        is_shadow: whether the request is sent unchanged.
        """
        if any(isinstance(each, _Request) for each in self._waiting):
            self.settle()
        self._waiting.append(_Request(call, head, answered, is_shadow))

    def add_answer(self, turn: Turn, output: int, *, may_recall: bool) -> None:
        """Add the answer to the newest call. output: its tokens, as reported or by our count.

        may_recall: whether what it recalls is there only with us.
        """
        self._waiting.append(_Answer(turn, output, may_recall))

    def add_summary(self, bill: Bill) -> None:
        """Add a summarizer call."""
        self.summaries += bill

    def confirm_newest(self, usage: Usage | None = None) -> None:
        """Take note that the newest call was answered, and billed. usage: of our prompt; None where it is not known."""
        self.settle()
        self._is_confirmed = True
        if self._call is not None and not self._call.is_shadow:
            self._usage = usage
        self._newest = None

    def rebill_newest(self) -> None:
        """Have the newest call billed again: more is known of how the provider counts it."""
        self._newest = None

    def lengthen_lifetime(self, model: str) -> None:
        """Take note that the cache entries of the newest request live an hour, by the provider's report.

        What it wrote is billed again: it cost more.
        """
        self.settle()
        for cache in (self.cache, self._raw_cache, self._plain_cache):
            if cache is not None:
                cache.lengthen_lifetime(model)
        ours = self._newest_counted.with_hour_writes().bill_at(self._prices)
        raw = self._newest_raw.with_hour_writes().bill_at(self._prices)
        self.prompts = self.prompts - self.newest_prompt + ours
        self.raw_prompts = self.raw_prompts - self.newest_raw_prompt + raw
        self.newest_prompt = ours
        self.newest_raw_prompt = raw
        if self._call is not None:
            self._call = replace(
                self._call, ours=self._call.ours.with_hour_writes(), raw=self._call.raw.with_hour_writes()
            )
            self._newest = None

    def settle(self) -> None:
        """Add up what happened since the bills were asked for."""
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if isinstance(each, _Answer):
                self._bill_answer(each)
            else:
                self._bill_request(each)

    def _bill_answer(self, answer: _Answer) -> None:
        """Bill an answer to our prompt, and the same to the raw one: they may be in different price tiers."""
        output = answer.output
        plain = count_plain_answer(answer.turn, output, self._sizer) if answer.may_recall else output
        prompt, raw_prompt = self.count_newest()
        price = self._prices.find_rates(prompt).output
        raw_price = self._prices.find_rates(raw_prompt).output
        self.answers += Bill(output=output, usd=output * price / 1e6)
        self.raw_answers += Bill(output=output, usd=output * raw_price / 1e6)
        self.plain_answers_usd += plain * raw_price / 1e6

    def _bill_request(self, request: _Request) -> None:
        call = request.call
        terms = call.terms
        now, model, finding = terms.now, terms.model, terms.finding
        if request.head is not None and self._plain_cache is None:
            self._plain_cache = self._raw_cache.copy()
        raw = count_prompt(call.raw_view, self._raw_cache.record_request(call.raw_view, now, model, finding=finding))
        self._newest_raw = raw
        self.newest_raw_prompt = raw.bill_at(self._prices)
        self.raw_prompts += self.newest_raw_prompt
        # What people are shown as the bill without us.
        plain, counted_plain = call.raw_view, raw
        is_extra = False
        if request.head is not None:
            plain = self._plain_history.follow(call.raw_view, request.head)
            answered = request.answered
            # Such a request does nothing but return what was recalled.
            is_extra = answered is not None and has_only_recalls(answered) and not answered.interjections
        if self._plain_cache is not None:
            cached = 0 if is_extra else self._plain_cache.record_request(plain, now, model, finding=finding)
            counted_plain = count_prompt(plain, cached)
        read = self.cache.record_request(call.view, now, model, anew=call.begins_anew, finding=finding)
        ours = self._newest_counted = count_prompt(call.view, read)
        self.newest_prompt = ours.bill_at(self._prices)
        self.prompts += self.newest_prompt
        before, self._newest_request = self._newest_request, call
        self.add_counted_call(
            CountedCall(
                number=call.decided.call,
                ours=ours,
                raw=counted_plain,
                has_client_marks=not terms.no_cache_marks,
                is_shadow=request.is_shadow,
                is_extra=is_extra,
                extends=before is not None and before.model == call.model and before.view.epoch == call.view.epoch,
            )
        )

    def add_counted_call(self, call: CountedCall) -> None:
        """Bill a call. One that is made again takes the place of an attempt that nobody reported: it was not billed."""
        attempt = self._call
        if attempt is not None and attempt.number == call.number and not self._is_confirmed:
            self.previous = CallBills()
            call = call.follow_attempt(attempt)
        else:
            self.previous = self.newest
            self._earlier += self.previous
            if attempt is not None:
                self._before = (attempt, *self.count_newest())
        self._call = call
        self._is_confirmed = False
        self._usage = None
        self._newest = None

    # -- reading -------------------------------------------------------------------------------------------------

    @property
    def spent_usd(self) -> float:
        """Our bill so far, by our count of tokens."""
        return self.prompts.usd + self.summaries.usd + self.answers.usd

    @property
    def raw_spent_usd(self) -> float:
        """The bill of sending everything so far, by our count, with the cache breakpoints that our requests had."""
        return self.raw_prompts.usd + self.raw_answers.usd

    def cost_raw_prompt(self, view: View, now: float | None, model: str) -> float:
        """Return what a call would cost, in USD, that sends everything now, without adding it."""
        return count_prompt(view, self._raw_cache.count_cached(view, now, model)).bill_at(self._prices).usd

    @property
    def newest(self) -> CallBills:
        """The newest call, on the scale as it is now."""
        if self._newest is None:
            self._newest = self._bill_newest()
        return self._newest

    @property
    def total(self) -> CallBills:
        """All calls so far."""
        return self._earlier + self.newest

    def count_newest(self) -> tuple[int, int]:
        """Return the tokens of our newest prompt and of the raw one, as the provider counts them."""
        call = self._call
        if call is None:
            return 0, 0
        our_tokens = self._scale.convert_to_billed(call.ours.tokens)
        if self._before is None or call.is_shadow:
            return our_tokens, self._scale.convert_to_billed(call.raw.tokens)
        before, our_before, raw_before = self._before
        grown = call.raw.tokens - before.raw.tokens
        our_growth = call.ours.tokens - before.ours.tokens
        if not call.extends:
            billed = self._scale.convert_part(grown)
        elif 0 <= grown < our_growth:
            # Of what is new, a part is a recall's.
            billed = round((our_tokens - our_before) * grown / our_growth)
        else:
            # What is new and folded at once is longer in the raw prompt.
            billed = our_tokens - our_before + self._scale.convert_part(grown - our_growth)
        return our_tokens, max(0, raw_before + billed)

    def _bill_newest(self) -> CallBills:
        call = self._call
        if call is None:
            return CallBills()
        our_tokens, raw_tokens = self.count_newest()
        our_cached = raw_cached = None
        if self._before is not None:
            before, our_before, raw_before = self._before
            our_cached = self._find_cached(call.ours, before.ours, our_before)
            raw_cached = self._find_cached(call.raw, before.raw, raw_before)
        ours = foreseen = call.ours.bill_at(self._prices, our_tokens, our_cached)
        if self._usage is not None:
            ours = self._bill_report(self._usage)
        if call.is_extra:
            return CallBills(ours=ours)
        if call.raw == call.ours and raw_tokens == our_tokens:
            same = ours
        else:
            same = call.raw.bill_at(self._prices, raw_tokens, raw_cached)
            if call.extends and ours.cache_read < foreseen.cache_read:
                # Entries were gone before their time. Those of the raw prompt would have been, too.
                found = round(same.cache_read * ours.cache_read / foreseen.cache_read)
                same = call.raw.bill_at(self._prices, raw_tokens, found)
        plain = same
        if self._prices.bypasses_cache(marked=call.has_client_marks):
            plain = self._prices.bill_uncached(raw_tokens)
        return CallBills(ours=ours, raw=plain, caching_usd=plain.usd - same.usd)

    def _find_cached(self, prompt: CountedPrompt, before: CountedPrompt, tokens: int) -> int | None:
        """Return how many tokens of a prompt are read from the cache, as the provider counts them; None if unknown.

        It is known where all of the prompt before it was found, of which the provider counted `tokens`.
        """
        cache = self._prices.cache
        if prompt.cached_tokens != cache.count_usable(before.tokens):
            return None
        return cache.count_usable(tokens)

    def _bill_report(self, usage: Usage) -> Bill:
        """Return the prompt of a reported call at the prices at which the raw one is billed too."""
        return Bill(
            input=usage.input,
            cache_write=usage.cache_write,
            cache_read=usage.cache_read,
            cache_write_1h=usage.cache_write_1h,
            usd=self._prices.cost_usage(replace(usage, output=0)),
        )


def count_prompt(view: View, cached: int) -> CountedPrompt:
    """Return the prompt of `view`. cached: tokens of it that are read from the cache."""
    return CountedPrompt(
        tokens=view.tokens, cached_tokens=cached, has_breakpoints=bool(view.marks), hour_tokens=view.hour_tokens
    )


def count_output_tokens(turn: Turn, sizer: Sizer) -> int:
    """Return the output tokens that were recorded, or else those of the assistant message by our count."""
    if turn.usage is not None and turn.usage.output:
        return turn.usage.output
    return sizer.count_assistant(turn)


def bill_summary_call(prices: Prices, input: int, cached: int, output: int, usd: float | None) -> Bill:
    """Return the bill of a summarizer's call. usd: as it was reported; None to price the tokens."""
    bill = prices.bill_call(input, cached, output)
    if usd is None:
        return bill
    return replace(bill, usd=usd)


class PlainHistory:
    """Follows the raw prompts of one log: work O(new segments), unless the client rewrote its history."""

    def __init__(self, sizer: Sizer) -> None:
        self._sizer = sizer
        self._raw = self._track = Track()
        #: Of how many segments of the raw track, in order, each segment of the plain one is the end.
        self._raw_ends: list[int] = []
        self._seen = 0
        #: Segments that hold a recall and more, without the recall: the same one each time, as the cache knows it.
        self._cut: dict[Segment, Segment] = {}

    def follow(self, raw: View, head: Head) -> View:
        """Return the newest raw prompt without what only recalls caused. head: of the client."""
        if raw.track is not self._raw:
            self._raw, self._track = raw.track, Track()
            self._raw_ends, self._seen = [], 0
        for place, segment in enumerate(raw.track.segments[self._seen : raw.length], start=self._seen + 1):
            kept = self._cut_recalls(segment, head)
            if kept is not None:
                self._track.append(kept)
                self._raw_ends.append(place)
        self._seen = raw.length
        marks = sorted({self._count_kept(mark) for mark in raw.marks} - {0})
        hour_length = self._count_kept(raw.hour_length)
        length = len(self._track.segments)
        return replace(raw, track=self._track, length=length, marks=tuple(marks), hour_length=hour_length)

    def _count_kept(self, length: int) -> int:
        """Return how many of the first `length` raw segments are kept."""
        return bisect_left(self._raw_ends, length + 1)

    def _cut_recalls(self, segment: Segment, head: Head) -> Segment | None:
        """Return the segment without recalls: itself if it has none, None if it is nothing else."""
        source = segment.source
        if isinstance(source, Observation):
            return None if reads_handles(source.tool) else segment
        if isinstance(source, Turn):
            if has_only_recalls(source):
                return None
            plain = _drop_recalls(source)
            if plain is source:
                return segment
            tokens = self._sizer.count_assistant(plain)
            return self._cut.setdefault(segment, replace(segment, source=plain, tokens=tokens))
        if segment.kind == "tools":
            tools = tuple(_drop_recall_tools(head.tools))
            if tools == head.tools:
                return segment
            tokens = self._sizer.count_tools(Head(tools=tools))
            return self._cut.setdefault(segment, replace(segment, tokens=tokens)) if tools else None
        return segment


def has_only_recalls(turn: Turn) -> bool:
    """Return whether a turn does nothing but recall: without us there would be no such turn."""
    return bool(turn.actions) and all(reads_handles(action.name) for action in turn.actions)


def count_plain_answer(turn: Turn, output: int, sizer: Sizer) -> int:
    """Return how many of the `output` tokens of a turn's answer there would be without its recalls."""
    plain = _drop_recalls(turn)
    if plain is turn:
        return output
    if not plain.actions:
        return 0
    return round(output * sizer.count_assistant(plain) / sizer.count_assistant(turn))


def _drop_recalls(turn: Turn) -> Turn:
    actions = tuple(action for action in turn.actions if not reads_handles(action.name))
    if len(actions) == len(turn.actions):
        return turn
    return replace(turn, actions=actions, observations=())


def _drop_recall_tools(tools: Sequence[Any]) -> Iterator[Any]:
    """Yield the tools but for those that recall. A tool of Gemini's declares several functions."""
    for tool in tools:
        # What is no definition is the client's own matter.
        definition = mapping_in(tool)
        if reads_handles(get_tool_name(definition)):
            continue
        nested = {name: each for name in NESTED_TOOL_FIELDS if isinstance(each := definition.get(name), list | tuple)}
        plain = {name: list(_drop_recall_tools(each)) for name, each in nested.items()}
        if all(len(plain[name]) == len(each) for name, each in nested.items()):
            yield tool
        elif any(plain.values()):
            yield {**definition, **plain}
