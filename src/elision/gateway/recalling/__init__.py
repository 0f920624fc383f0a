"""Answers that call the recall tools: the gateway answers the calls, the client sees one answer of its own shape.

    begin_round, feed ..., end_round -> calls? -> answered, begin_round ... -> done

No I/O in here: bytes and values in, bytes and values out. `relay.py` is the way in; an API a file says what its events
mean.
"""

from __future__ import annotations

from elision.gateway.recalling.outcome import Outcome, RecallCall, Replacement
from elision.gateway.recalling.relay import NAMES, Relay, results

__all__ = ["NAMES", "Outcome", "RecallCall", "Relay", "Replacement", "results"]
