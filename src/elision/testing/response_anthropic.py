"""Write a reply as Anthropic Messages: a whole body, and a stream of events. Types as of anthropic 2.11."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec

from elision.testing.exchange import ReplySpec, decode_input, split_text
from elision.testing.recorded_run import RecordedReply
from elision.trajectory.turn import Action
from elision.trajectory.usage import Usage

Json = dict[str, Any]


def build_body(spec: ReplySpec) -> Json:
    """Return the body of a plain answer."""
    if spec.dropped:
        dropped = {"input_transformations": [*spec.dropped]}
    else:
        dropped = {}
    return {
        "id": f"msg_{spec.id}",
        "type": "message",
        "role": "assistant",
        "model": spec.model,
        "content": _build_blocks(spec.reply, spec.signature),
        "stop_reason": _choose_stop_reason(spec.reply),
        "stop_sequence": None,
        "usage": dump_usage(spec.usage),
        **dropped,
    }


def build_events(spec: ReplySpec) -> Iterator[Json]:
    """Yield the events of a streamed answer, message_start to message_stop; each has its name as "type"."""
    begun = build_body(replace(spec, usage=msgspec.structs.replace(spec.usage, output=1)))
    yield {"type": "message_start", "message": {**begun, "content": [], "stop_reason": None}}
    for index, block in enumerate(begun["content"]):
        empty, deltas = split_block(block)
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        if index == 0:
            yield {"type": "ping"}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    counts = {name: value for name, value in dump_usage(spec.usage).items() if isinstance(value, int)}
    ended = {"stop_reason": _choose_stop_reason(spec.reply), "stop_sequence": None}
    yield {"type": "message_delta", "delta": ended, "usage": counts}
    yield {"type": "message_stop"}


def _build_blocks(reply: RecordedReply, signature: str) -> list[Json]:
    if reply.reasoning:
        thought = [{"type": "thinking", "thinking": reply.reasoning, "signature": signature}]
    else:
        thought = []
    # A text block without a letter in it is taken back by no provider.
    if reply.text.strip():
        text = [{"type": "text", "text": reply.text}]
    else:
        text = []
    return [*thought, *text, *map(_build_call, reply.calls)]


def _build_call(call: Action) -> Json:
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": decode_input(call)}


def split_block(block: Json) -> tuple[Json, Iterator[Json]]:
    """Return a block as it starts, and the deltas that follow."""
    if block["type"] == "thinking":
        return {"type": "thinking", "thinking": "", "signature": ""}, _split_thinking(block)
    if block["type"] == "text":
        deltas = ({"type": "text_delta", "text": piece} for piece in split_text(block["text"]))
        return {"type": "text", "text": ""}, deltas
    written = json.dumps(block["input"], ensure_ascii=False)
    parts = ({"type": "input_json_delta", "partial_json": piece} for piece in ("", *split_text(written)))
    return {**block, "input": {}}, parts


def _split_thinking(block: Json) -> Iterator[Json]:
    for piece in split_text(block["thinking"]):
        yield {"type": "thinking_delta", "thinking": piece}
    yield {"type": "signature_delta", "signature": block["signature"]}


def _choose_stop_reason(reply: RecordedReply) -> str:
    if reply.calls:
        return "tool_use"
    return "end_turn"


def dump_usage(usage: Usage) -> Json:
    """Return `usage` as Messages report it: `input_tokens` exclude cache reads and writes."""
    return {
        "input_tokens": usage.input,
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cache_read,
        "cache_creation": {
            "ephemeral_5m_input_tokens": usage.cache_write - usage.cache_write_1h,
            "ephemeral_1h_input_tokens": usage.cache_write_1h,
        },
        "output_tokens": usage.output,
        **({"played": True} if usage.played else {}),
    }
