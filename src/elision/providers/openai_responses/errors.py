"""Errors of the gateway as OpenAI Responses write them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elision.providers.streaming.json_values import dump_json
from elision.providers.streaming.sse import format_event


def make_stream_error(body: Mapping[str, Any], sequence: int) -> bytes:
    """Return the event that ends an incomplete stream; clients raise it. body: of the error. sequence: its number.

    It has the fields as the types of the service say, and as they are: with an `error` inside, which clients look for.
    """
    error = body["error"]
    fields = {name: error[name] for name in ("code", "message", "param")}
    event = {"type": "error", **fields, "error": error, "sequence_number": sequence}
    return format_event(dump_json(event), "error")
