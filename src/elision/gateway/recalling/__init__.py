"""Answers that call the recall tools: the gateway answers the calls, the client sees one answer of its own shape.

    begin_round, feed ..., end_round -> calls? -> answered, begin_round ... -> done

No I/O in here: bytes and values in, bytes and values out. `relay.py` is the way in; an API a file says what its events
mean.
"""

from __future__ import annotations

from elision.gateway.recalling.response_merger import RECALL_TOOL_NAMES, ResponseMerger, render_results
from elision.gateway.recalling.rounds import RecallCall, Replacement, RoundOutcome

__all__ = ["RECALL_TOOL_NAMES", "RecallCall", "Replacement", "ResponseMerger", "RoundOutcome", "render_results"]
