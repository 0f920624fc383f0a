"""What the calls of one log cost: the newest one is billed when a bill is asked for, since nobody waits for it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from elision.engine.plain_history import PlainHistory
from elision.engine.terms import CallTerms
from elision.errors import BudgetError
from elision.strategies.billing import SessionBill, count_prompt
from elision.strategies.session_costs import BookedCall, SessionCosts
from elision.trajectory.cache import PromptCache
from elision.trajectory.events import PassDecided
from elision.trajectory.prices import Bill, Prices
from elision.trajectory.token_scale import TokenScale
from elision.trajectory.tokens import Sizer
from elision.trajectory.turn import Head, Turn
from elision.trajectory.view import View


@dataclass(frozen=True, slots=True)
class CallResult:
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


class LogBills:
    """The bills of one log: by our count of tokens, and on the provider's scale.

    warm_tokens: tokens at the beginning of the prompt that an earlier run has left in the cache.
    """

    def __init__(self, prices: Prices, scale: TokenScale, sizer: Sizer, warm_tokens: int = 0) -> None:
        self._prices = prices
        self._bill = SessionBill(prices, warm_tokens)
        self._costs = SessionCosts(prices, scale)
        self._plain_history = PlainHistory(sizer)
        self._plain_cache = PromptCache(prices.cache, warm_tokens)
        #: The newest call until it is billed, as it was added.
        self._unbilled: tuple[CallResult, Head | None, bool, bool] | None = None
        #: The call that was billed before the newest.
        self._before: CallResult | None = None

    @property
    def bill(self) -> SessionBill:
        """What the run cost and would have cost, by our count of tokens."""
        self.settle()
        return self._bill

    @property
    def costs(self) -> SessionCosts:
        """The same on the provider's scale."""
        self.settle()
        return self._costs

    def add_call(self, call: CallResult, head: Head | None, *, is_shadow: bool, is_extra: bool) -> None:
        """Have `call`, the newest one, billed later. The one before must be settled.

        head: of the client, where recalls are there only with us; else None. is_shadow: whether the request is sent
        unchanged. is_extra: whether the call does nothing but return what was recalled.
        """
        self._unbilled = call, head, is_shadow, is_extra and head is not None

    def lengthen_lifetime(self, model: str) -> None:
        """Take note that the cache entries of the newest request live an hour, by the provider's report."""
        self.bill.lengthen_lifetime(model)
        self._plain_cache.lengthen_lifetime(model)
        self.costs.lengthen_lifetime()

    def settle(self) -> None:
        """Bill the newest call, unless it is billed."""
        if self._unbilled is None:
            return
        newest, head, is_shadow, is_extra = self._unbilled
        self._unbilled = None
        terms = newest.terms
        self._bill.record_raw_prompt(newest.raw_view, terms.now, terms.model, terms.finding)
        # What people are shown as the bill without us.
        plain = newest.raw_view if head is None else self._plain_history.follow(newest.raw_view, head)
        cached = 0
        if not is_extra:
            cached = self._plain_cache.record_request(plain, terms.now, terms.model, finding=terms.finding)
        ours = self._bill.record_prompt(
            newest.view, terms.now, terms.model, anew=newest.begins_anew, finding=terms.finding
        )
        before, self._before = self._before, newest
        call = BookedCall(
            number=newest.decided.call,
            ours=ours,
            raw=count_prompt(plain, cached),
            has_client_marks=not terms.no_cache_marks,
            is_shadow=is_shadow,
            is_extra=is_extra,
            extends=before is not None and before.model == newest.model and before.view.epoch == newest.view.epoch,
        )
        self._costs.record_call(call)


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
