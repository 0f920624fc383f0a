"""Records of summaries that were requested and not used: why, and what they cost all the same."""

from __future__ import annotations

from typing import Final, get_args

import msgspec

from elision.engine.event_log import Log
from elision.engine.money import bill_summary_call
from elision.errors import SummaryCause, SummaryError, describe_error, words_of_error
from elision.strategies.summary_cost import SummaryCall
from elision.trajectory.encodable import make_encodable
from elision.trajectory.events import PassDecided, SummaryFailed

#: Most characters of the reason why a summary failed.
_REASON: Final = 500


def describe_failure(log: Log, error: Exception, used: SummaryCall, call: int) -> SummaryFailed:
    """Return the record that the summary that call `call` asked for failed with `error`. used: what it cost."""
    cause: SummaryCause = "other"
    message = f"it could not be used: {describe_error(error)}"
    if isinstance(error, SummaryError):
        cause = error.cause if error.cause in get_args(SummaryCause) else cause
        message = words_of_error(error)
    cost = bill_summary_call(log.prices, used.input, used.cached, used.output, used.usd)
    return SummaryFailed(
        call=call,
        cause=cause,
        reason=log.setup.redaction.redact_text(make_encodable(message[: 4 * _REASON]))[:_REASON],
        input=used.input,
        cached=used.cached,
        output=used.output,
        usd=cost.usd,
        retry_at=log.breaker.find_retry(call),
    )


def write_off_attempt(log: Log, event: SummaryFailed | PassDecided) -> None:
    """Record that a summary was paid for in a pass that was not stored; the breaker delays the next request.

    event: what that pass recorded. Nothing happens if it is in the log after all.
    """
    if event in log.events:
        return
    if isinstance(event, SummaryFailed):
        log.write_off_summary(msgspec.structs.replace(event, retry_at=log.breaker.find_retry(event.call)))
    elif (made := event.summary) is not None:
        used = SummaryCall(
            route=made.route,
            input=made.input_tokens,
            cached=made.cached_tokens,
            output=made.output_tokens,
            usd=bill_summary_call(log.prices, made.input_tokens, made.cached_tokens, made.output_tokens, made.usd).usd,
        )
        error = SummaryError("it was not stored, and is not used")
        log.write_off_summary(describe_failure(log, error, used, event.call))
