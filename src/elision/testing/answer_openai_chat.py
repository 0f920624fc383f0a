"""A reply as OpenAI chat completions say it, whole and as a stream of chunks. Types as of openai 3.52."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from elision.testing.pieces import pieces
from elision.testing.recorded import Reply
from elision.testing.told import Told
from elision.trajectory.usage import Usage

Json = dict[str, Any]


def whole(told: Told) -> Json:
    """The body of a plain answer. Reasoning is `reasoning_content`, as DeepSeek and vLLM call it."""
    reply = told.reply
    message: Json = {"role": "assistant", "content": reply.text or None, "refusal": None}
    if reply.reasoning:
        message["reasoning_content"] = reply.reasoning
    if reply.calls:
        message["tool_calls"] = [_call(call.id, call.name, call.arguments) for call in reply.calls]
    choice = {"index": 0, "message": message, "finish_reason": _finish(reply), "logprobs": None}
    return {**_frame(told, "chat.completion"), "choices": [choice], "usage": usage_json(told.usage)}


def events(told: Told) -> Iterator[Json]:
    """The chunks of a streamed answer, without the closing `[DONE]`; the usage stands in a last one if it was asked
    for."""
    frame = _frame(told, "chat.completion.chunk")
    more = {"usage": None} if told.include_usage else {}
    for delta in _deltas(told.reply):
        yield {**frame, "choices": [_choice(delta, None)], **more}
    yield {**frame, "choices": [_choice({}, _finish(told.reply))], **more}
    if told.include_usage:
        yield {**frame, "choices": [], "usage": usage_json(told.usage)}


def _frame(told: Told, kind: str) -> Json:
    return {"id": f"chatcmpl-{told.id}", "object": kind, "created": told.created, "model": told.model}


def _deltas(reply: Reply) -> Iterator[Json]:
    yield {"role": "assistant", "content": "", "refusal": None}
    for piece in pieces(reply.reasoning):
        yield {"reasoning_content": piece}
    for piece in pieces(reply.text):
        yield {"content": piece}
    for index, call in enumerate(reply.calls):
        yield {"tool_calls": [{"index": index, **_call(call.id, call.name, "")}]}
        for piece in pieces(call.arguments):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _choice(delta: Json, finish: str | None) -> Json:
    return {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}


def _call(id: str, name: str, arguments: str) -> Json:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _finish(reply: Reply) -> str:
    if reply.calls:
        return "tool_calls"
    return "stop"


def usage_json(usage: Usage) -> Json:
    """`usage` as chat completions report it: the prompt total includes cache reads and writes."""
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.output,
        "total_tokens": usage.prompt + usage.output,
        "prompt_tokens_details": {
            "cached_tokens": usage.cache_read,
            "cache_write_tokens": usage.cache_write,
            "audio_tokens": 0,
        },
        "completion_tokens_details": {
            "reasoning_tokens": 0,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }
