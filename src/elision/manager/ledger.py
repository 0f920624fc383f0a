"""Totals over a session's log: phases, summaries as values, rewrites by cause, recalls, what the provider billed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from elision.summarizers.summary_acceptance import MODEL_FREE
from elision.telemetry.diagnostics import ContextPhase
from elision.trajectory.events import (
    Event,
    ObservationRecalled,
    PassDecided,
    RequestSent,
    SessionOpened,
    SummaryFailed,
    TurnAdded,
    UsageReported,
    WindowLearned,
)
from elision.trajectory.plan import Key, Summary
from elision.trajectory.price_lookup import cost_reported_usage, find_tokenizer
from elision.trajectory.prices import Prices
from elision.trajectory.tokens import OURS, TokenScale

#: Number of newest calls whose usage is still billed when it is reported late.
REMEMBERED_CALLS: Final = 64


@dataclass(slots=True)
class _BilledCall:
    """A call on the bill.

    prices: of its model. tokens: of its prompt by our count. is_extension: whether it begins with the one before.
    reported_usd: as the provider reported it; None until then. prompt_usd: what counts for it until it is reported.
    """

    prices: Prices
    tokens: int = 0
    is_extension: bool = False
    prompt_usd: float = 0.0
    reported_usd: float | None = None


class Ledger:
    """Totals of a log, added up as it grows; work O(new events). Costs are in USD.

    billed_usd: as the provider reported; None while no usage was reported.
    phase:      of the newest call. phase_turns: turns by the phase of the call that they answer.
    folded_results: those of which repeated lines were folded. unfolded_results: how often one was shown whole again.
    requests:   sent so far; a call may be made again. reported_calls: those whose usage the provider reported.
    due_usd:    what limits are compared with: each call as it was reported, else what its prompt costs.
    prices:     of the session's own model. The prices of any other are looked up; without a lookup all calls are billed
                at `prices`.
    """

    def __init__(self, prices: Prices, priced: Callable[[str], Prices] | None = None) -> None:
        self.prices = prices
        self._find_model_prices = priced
        #: By model. A call that names none is of the session's own.
        self._by_model: dict[str, Prices] = {"": prices}
        self.phase: ContextPhase = "raw"
        self.phase_turns: Counter[ContextPhase] = Counter()
        self.summaries = 0
        self.attempts = 0
        self.rewrites: Counter[str] = Counter()
        self.folded_results = 0
        self.unfolded_results = 0
        self.recalls = 0
        self.recall_usd = 0.0
        self.requests = 0
        self.reported_calls = 0
        self.billed_usd: float | None = None
        self.due_usd = 0.0
        self._recalled_tokens = 0
        self._folded_events = 0
        self._folded: set[Key] = set()
        #: By number, the newest last.
        self._calls: dict[int, _BilledCall] = {}
        #: Tokens of the newest prompt, which the next one to the same model may find in the cache; and that model.
        self._warm_tokens = 0
        self._warm_model = ""
        #: How the provider counts tokens. Unknown in shadow mode, where requests are sent unchanged.
        self._scale = TokenScale()
        self._shadow = False

    def fold_new(self, events: list[Event]) -> None:
        """Add the events of a log that were not added before."""
        for event in events[self._folded_events :]:
            self.fold_event(event)
        self._folded_events = len(events)

    def fold_event(self, event: Event) -> None:
        """Add one event, for callers that do not keep the whole log."""
        match event:
            case TurnAdded():
                self.phase_turns[self.phase] += 1
            case PassDecided():
                self._add_decision(event)
            case SummaryFailed():
                self.attempts += 1
            case ObservationRecalled():
                self._add_recall(event)
            case RequestSent():
                self.requests += 1
                self._add_call(event)
                rates = self.prices.find_rates(event.tokens)
                self.recall_usd += self._recalled_tokens * (rates.cache_read or rates.input) / 1e6
            case UsageReported():
                self._bill_answer(event)
            case SessionOpened():
                self._shadow = event.shadow
            case WindowLearned():
                self._cancel_refused_call(event)
            case _:
                pass

    def _add_call(self, event: RequestSent) -> None:
        prices = self._find_prices(event.model)
        if event.model and self.prices.tokenizer == OURS:
            # The prompt was counted as no model counts.
            self._scale.expected_rate = find_tokenizer(event.model).tokens_per_counted
        tokens = self._scale.convert_to_billed(event.tokens)
        extends = bool(self._warm_tokens) and event.model == self._warm_model
        prompt = self._price_prompt(prices, tokens, event)
        self._calls[event.call] = _BilledCall(prices, event.tokens, extends, prompt)
        self.due_usd += prompt
        if len(self._calls) > REMEMBERED_CALLS:
            oldest = next(iter(self._calls))
            del self._calls[oldest]

    def _price_prompt(self, prices: Prices, tokens: int, event: RequestSent) -> float:
        """Return the cost of a prompt, in USD, where the cache has all of the prompt before it."""
        warm = self._warm_tokens if event.model == self._warm_model else 0
        self._warm_tokens = 0
        self._warm_model = event.model
        if prices.bypasses_cache(marked=not event.unmarked or event.ours == "always"):
            return prices.bill_uncached(tokens).usd
        rates = prices.find_rates(tokens)
        known = min(warm, tokens)
        self._warm_tokens = tokens
        return (known * rates.read_price + (tokens - known) * rates.write_price) / 1e6

    def _find_prices(self, model: str) -> Prices:
        if model not in self._by_model:
            if self._find_model_prices is not None:
                self._by_model[model] = self._find_model_prices(model)
            else:
                self._by_model[model] = self.prices
        return self._by_model[model]

    def _add_recall(self, event: ObservationRecalled) -> None:
        self.recalls += 1
        if event.by == "tool":
            # It is written to the cache once, and each later call reads it. What the caller recalls is in no prompt.
            rates = self.prices.find_rates(event.tokens)
            self.recall_usd += event.tokens * (rates.cache_write or rates.input) / 1e6
            self._recalled_tokens += event.tokens

    def _add_decision(self, event: PassDecided) -> None:
        if event.summary:
            cause = "summary"
        elif event.clips:
            cause = "clip"
        elif event.masks:
            cause = "mask"
        else:
            cause = ""
        if cause:
            self.rewrites[cause] += 1
            self._warm_tokens = 0
        self.summaries += event.summary is not None
        for fold in event.folds:
            # One that names another place was counted before.
            self.folded_results += fold.key not in self._folded
            self._folded.add(fold.key)
        self.unfolded_results += len(event.unfolded)
        if event.summary:
            self.phase = "summarizing"
        elif cause and self.phase == "raw":
            self.phase = "masking"

    def _bill_answer(self, event: UsageReported) -> None:
        call = self._calls.get(event.call) or _BilledCall(self.prices)
        usd = cost_reported_usage(event.usage, call.prices)
        prompt = event.usage.sent_prompt
        if call.tokens and prompt and not self._shadow:
            self._scale.add_report(call.tokens, prompt, extends=call.is_extension)
        self.reported_calls += call.reported_usd is None
        # What is reported again is the same request's.
        self.billed_usd = (self.billed_usd or 0.0) + usd - (call.reported_usd or 0.0)
        self.due_usd += usd - (call.prompt_usd if call.reported_usd is None else call.reported_usd)
        call.reported_usd = usd

    def _cancel_refused_call(self, event: WindowLearned) -> None:
        """Take a call off the bill that the provider refused because its prompt was too long."""
        call = self._calls.get(event.call)
        if call is not None and call.reported_usd is None:
            self.due_usd -= call.prompt_usd
            call.prompt_usd = 0.0


#: The writer of a summary that no model wrote.
DIGEST: Final = "digest"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSummary:
    """One summary of a session.

    text:         as it was written, secrets redacted.
    covers_turns: the first and the last turn that it newly covers; an earlier summary is merged into it.
    call:         at which it entered the view. tokens: of its block in the view.
    writer:       the model that wrote it, "digest" where none did, "" where a function of your own did not name one.
    usd:          what writing it cost, in USD; failed attempts are not part of it.
    """

    text: str
    covers_turns: tuple[int, int]
    call: int
    tokens: int
    writer: str
    usd: float


def list_summaries(events: Sequence[Event], count: Callable[[str], int], prices: Prices) -> list[SessionSummary]:
    """Return the summaries of a log, oldest first.

    count: the tokens of a message. prices: of the summaries whose cost in USD was not recorded.
    """
    found: list[SessionSummary] = []
    covered = 0
    for event in events:
        if not isinstance(event, PassDecided) or event.summary is None:
            continue
        summary = event.summary
        usd = summary.usd
        if usd is None:
            usd = prices.bill_call(summary.input_tokens, summary.cached_tokens, summary.output_tokens).usd
        found.append(make_entry(summary, covered + 1, event.call, count(summary.block), usd))
        covered = summary.covers
    return found


def make_entry(summary: Summary, first: int, call: int, tokens: int, usd: float) -> SessionSummary:
    """Return `summary` as an entry. first: the first turn that it newly covers. tokens: of its block."""
    writer = summary.writer
    if summary.route == MODEL_FREE.route:
        writer = DIGEST
    return SessionSummary(
        text=summary.text, covers_turns=(first, summary.covers), call=call, tokens=tokens, writer=writer, usd=usd
    )
