"""A summary on probation: paid and recorded, held for some calls, and completed by what the agent used meanwhile."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from elision.engine.event_log import Log
from elision.engine.log_bills import bill_summary_call
from elision.strategies.summary_cost import SummaryCall
from elision.summarizers.summary_result import SummaryResult
from elision.summarizers.used_lines import quote_used_lines
from elision.trajectory.plan import Summary


@dataclass(frozen=True, slots=True)
class Probation:
    """The summary that `log` holds, as a pass sees it.

    draft: the summary. is_over: whether its calls have passed. bill: what it cost when it was written.
    """

    log: Log
    draft: Summary
    is_over: bool
    bill: SummaryCall

    @property
    def answer(self) -> SummaryResult:
        """The draft as its writer gave it."""
        return SummaryResult(text=self.draft.text, route=self.draft.route, writer=self.draft.writer)

    def quote_used_lines(self, max_tokens: int) -> list[tuple[str, str]]:
        """Return lines that the agent used since the draft was written, and that it lacks. max_tokens: of a summary."""
        uses = self.log.policy.first_uses
        if uses is None:
            return []
        return quote_used_lines(self.log.state, uses, self.draft, max_tokens)

    def mark_paid(self, summary: Summary) -> Summary:
        """Return `summary`, which the draft became, so that it is not billed again."""
        return msgspec.structs.replace(summary, requested_at=self.draft.requested_at)


def begin_probation(summary: Summary, answer: object, call: int) -> Summary:
    """Return `summary` as a draft, on probation from the call that requested `answer` on; `call` is the present one."""
    requested_at = call
    if isinstance(answer, SummaryResult) and 0 < answer.requested_at < call:
        # It was written in the background meanwhile.
        requested_at = answer.requested_at
    return msgspec.structs.replace(summary, requested_at=requested_at)


def find_probation(log: Log, call: int) -> Probation | None:
    """Return the summary that is on probation at call `call`; None if there is none."""
    draft = log.state.draft
    if draft is None:
        return None
    paid = bill_summary_call(log.prices, draft.input_tokens, draft.cached_tokens, draft.output_tokens, draft.usd)
    bill = SummaryCall(
        route=draft.route,
        input=draft.input_tokens,
        cached=draft.cached_tokens,
        output=draft.output_tokens,
        usd=paid.usd,
    )
    return Probation(log, draft, call >= draft.requested_at + log.strategy.probation, bill)
