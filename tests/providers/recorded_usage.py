"""Usage as Anthropic really reported it.

Excerpts of recorded exchanges of pydantic-ai at 4fda38988f2939fa6ea9cdefcf120693e10ef491, `tests/models/cassettes/
test_anthropic/*.yaml` (MIT, Copyright (c) Pydantic Services Inc. 2024 to present), each named in front of it.
"""

from __future__ import annotations

from typing import Any


def tier(minutes: int = 0, hour: int = 0) -> dict[str, int]:
    return {"ephemeral_5m_input_tokens": minutes, "ephemeral_1h_input_tokens": hour}


def bill(kind: str, input: int, output: int, *, read: int = 0, written: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "type": kind,
        "input_tokens": input,
        "output_tokens": output,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": written,
        "cache_creation": tier(written),
        **more,
    }


#: test_anthropic_compaction_usage_with_cache.yaml
COMPACTED = {
    "cache_creation": tier(),
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
    "inference_geo": "global",
    "input_tokens": 229,
    "iterations": [bill("compaction", 100, 131, written=55_096), bill("message", 229, 5)],
    "output_tokens": 5,
    "service_tier": "standard",
}
#: test_anthropic_compaction_usage_with_cache_streaming.yaml: `message_start`, then `message_delta`.
STREAMED = (
    {
        "input_tokens": 100,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 55_096,
        "cache_creation": tier(),
        "output_tokens": 7,
        "service_tier": "standard",
    },
    {
        "input_tokens": 181,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": 8,
        "iterations": [bill("compaction", 100, 83, read=55_096), bill("message", 181, 8)],
    },
)
#: test_anthropic_advisor_tool_redacted.yaml
ADVISED = {
    "cache_creation": tier(),
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
    "input_tokens": 2_482,
    "iterations": [
        bill("message", 1_128, 155),
        bill("advisor_message", 2_564, 99, model="claude-fable-5"),
        bill("message", 1_354, 11),
    ],
    "output_tokens": 166,
    "output_tokens_details": {"thinking_tokens": 71},
}
