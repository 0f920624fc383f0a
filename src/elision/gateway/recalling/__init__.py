"""Responses that call the recall tools: the gateway answers the calls, the client gets one response of its own API.

    begin_round, feed ..., end_round -> recall calls? -> add_results, begin_round ... -> done

No I/O in here: bytes and values in, bytes and values out. Start at `response_merger.py`; there is one file for the
events of each API.
"""

from __future__ import annotations

from elision.gateway.recalling.response_merger import RECALL_TOOL_NAMES, ResponseMerger, render_results
from elision.gateway.recalling.rounds import RecallCall, Replacement, RoundOutcome

__all__ = ["RECALL_TOOL_NAMES", "RecallCall", "Replacement", "ResponseMerger", "RoundOutcome", "render_results"]
