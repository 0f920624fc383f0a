"""Write a reply as OpenAI chat completions: a whole body, and a stream of chunks. Types as of openai 3.52."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from elision.testing.exchange import ReplySpec, split_text
from elision.testing.recorded_run import RecordedReply
from elision.trajectory.usage import Usage

Json = dict[str, Any]


def build_body(spec: ReplySpec) -> Json:
    """Return the body of a plain answer. Reasoning is `reasoning_content`, as DeepSeek and vLLM call it."""
    reply = spec.reply
    message: Json = {"role": "assistant", "content": reply.text or None, "refusal": None}
    if reply.reasoning:
        message["reasoning_content"] = reply.reasoning
    if reply.calls:
        message["tool_calls"] = [_build_call(call.id, call.name, call.arguments) for call in reply.calls]
    choice = {"index": 0, "message": message, "finish_reason": _choose_finish_reason(reply), "logprobs": None}
    return {**_build_frame(spec, "chat.completion"), "choices": [choice], "usage": dump_usage(spec.usage)}


def build_events(spec: ReplySpec) -> Iterator[Json]:
    """Yield the chunks of a streamed answer, without the closing `[DONE]`. The usage is a last one if asked for."""
    frame = _build_frame(spec, "chat.completion.chunk")
    more = {"usage": None} if spec.include_usage else {}
    for delta in _split_reply(spec.reply):
        yield {**frame, "choices": [_build_choice(delta, None)], **more}
    yield {**frame, "choices": [_build_choice({}, _choose_finish_reason(spec.reply))], **more}
    if spec.include_usage:
        yield {**frame, "choices": [], "usage": dump_usage(spec.usage)}


def _build_frame(spec: ReplySpec, kind: str) -> Json:
    return {"id": f"chatcmpl-{spec.id}", "object": kind, "created": spec.created, "model": spec.model}


def _split_reply(reply: RecordedReply) -> Iterator[Json]:
    yield {"role": "assistant", "content": "", "refusal": None}
    for piece in split_text(reply.reasoning):
        yield {"reasoning_content": piece}
    for piece in split_text(reply.text):
        yield {"content": piece}
    for index, call in enumerate(reply.calls):
        yield {"tool_calls": [{"index": index, **_build_call(call.id, call.name, "")}]}
        for piece in split_text(call.arguments):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _build_choice(delta: Json, finish: str | None) -> Json:
    return {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}


def _build_call(id: str, name: str, arguments: str) -> Json:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _choose_finish_reason(reply: RecordedReply) -> str:
    if reply.calls:
        return "tool_calls"
    return "stop"


def dump_usage(usage: Usage) -> Json:
    """Return `usage` as chat completions report it: the prompt total includes cache reads and writes."""
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
        **({"played": True} if usage.played else {}),
    }
