"""Errors of the gateway as OpenAI's chat completions write them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elision.providers.streaming.json_values import dump_json
from elision.providers.streaming.sse import format_event


def make_stream_error(body: Mapping[str, Any], sequence: int) -> bytes:
    """Return the event that ends an incomplete stream; clients raise it. body: of the error."""
    return format_event(dump_json(body))
