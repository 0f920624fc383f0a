"""A reply as OpenAI Responses say it, whole and as a stream of events. Types as of openai 3.52."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from elision.testing.pieces import pieces
from elision.testing.recorded import Reply
from elision.testing.told import Told
from elision.trajectory.usage import Usage

Json = dict[str, Any]


def whole(told: Told) -> Json:
    """The body of a plain answer."""
    output = items(told.reply, told.id)
    usage = usage_json(told.usage)
    return {**_begun(told), "status": "completed", "output": output, "usage": usage}


def items(reply: Reply, id: str) -> list[Json]:
    """The output items: reasoning, message, calls."""
    found: list[Json] = []
    if reply.reasoning:
        summary = [{"type": "summary_text", "text": reply.reasoning}]
        found.append({"id": f"rs_{id}", "type": "reasoning", "summary": summary, "status": "completed"})
    if reply.text.strip():
        found.append(
            {
                "id": f"msg_{id}",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}],
            }
        )
    found += [
        {
            "id": f"fc_{id}_{place}",
            "type": "function_call",
            "call_id": call.id,
            "name": call.name,
            "arguments": call.arguments,
            "status": "completed",
        }
        for place, call in enumerate(reply.calls)
    ]
    return found


def events(told: Told) -> Iterator[Json]:
    """The events of a streamed answer, response.created to response.completed, numbered from 0."""
    for number, event in enumerate(_events(told)):
        yield {**event, "sequence_number": number}


def _events(told: Told) -> Iterator[Json]:
    begun = _begun(told)
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for index, item in enumerate(items(told.reply, told.id)):
        empty, inner = _STREAMED[item["type"]](item)
        yield {"type": "response.output_item.added", "output_index": index, "item": {**empty, "status": "in_progress"}}
        for event in inner:
            yield {**event, "item_id": item["id"], "output_index": index}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": "response.completed", "response": whole(told)}


def _begun(told: Told) -> Json:
    return {
        "id": f"resp_{told.id}",
        "object": "response",
        "created_at": told.created,
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": told.model,
        "output": [],
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [*told.tools],
        "top_p": 1.0,
        "usage": None,
    }


def _reasoning(item: Json) -> tuple[Json, Iterator[Json]]:
    text = item["summary"][0]["text"]
    prefix = "response.reasoning_summary"

    def inner() -> Iterator[Json]:
        at = {"summary_index": 0}
        yield {"type": f"{prefix}_part.added", **at, "part": {"type": "summary_text", "text": ""}}
        for piece in pieces(text):
            yield {"type": f"{prefix}_text.delta", **at, "delta": piece}
        yield {"type": f"{prefix}_text.done", **at, "text": text}
        yield {"type": f"{prefix}_part.done", **at, "part": {"type": "summary_text", "text": text}}

    return {**item, "summary": []}, inner()


def _message(item: Json) -> tuple[Json, Iterator[Json]]:
    part = item["content"][0]

    def inner() -> Iterator[Json]:
        at = {"content_index": 0}
        yield {"type": "response.content_part.added", **at, "part": {**part, "text": ""}}
        for piece in pieces(part["text"]):
            yield {"type": "response.output_text.delta", **at, "delta": piece, "logprobs": []}
        yield {"type": "response.output_text.done", **at, "text": part["text"], "logprobs": []}
        yield {"type": "response.content_part.done", **at, "part": part}

    return {**item, "content": []}, inner()


def _call(item: Json) -> tuple[Json, Iterator[Json]]:
    def inner() -> Iterator[Json]:
        for piece in pieces(item["arguments"]):
            yield {"type": "response.function_call_arguments.delta", "delta": piece}
        done = {"name": item["name"], "arguments": item["arguments"]}
        yield {"type": "response.function_call_arguments.done", **done}

    return {**item, "arguments": ""}, inner()


_STREAMED = {"reasoning": _reasoning, "message": _message, "function_call": _call}


def usage_json(usage: Usage) -> Json:
    """`usage` as Responses report it: the input total includes cache reads and writes."""
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.prompt + usage.output,
    }
