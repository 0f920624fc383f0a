"""Write a reply as OpenAI Responses: a whole body, and a stream of events. Types as of openai 3.52."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from elision.testing.exchange import ReplySpec, split_text
from elision.testing.recorded_run import RecordedReply
from elision.trajectory.usage import Usage

Json = dict[str, Any]


def build_body(spec: ReplySpec) -> Json:
    """Return the body of a plain answer."""
    output = build_items(spec.reply, spec.id)
    usage = dump_usage(spec.usage)
    return {**_build_frame(spec), "status": "completed", "output": output, "usage": usage}


def build_items(reply: RecordedReply, id: str) -> list[Json]:
    """Return the output items: reasoning, message, calls."""
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


def build_events(spec: ReplySpec) -> Iterator[Json]:
    """Yield the events of a streamed answer, response.created to response.completed, numbered from 0."""
    for number, event in enumerate(_list_events(spec)):
        yield {**event, "sequence_number": number}


def _list_events(spec: ReplySpec) -> Iterator[Json]:
    begun = _build_frame(spec)
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for index, item in enumerate(build_items(spec.reply, spec.id)):
        empty, inner = split_item(item)
        yield {"type": "response.output_item.added", "output_index": index, "item": {**empty, "status": "in_progress"}}
        for event in inner:
            yield {**event, "item_id": item["id"], "output_index": index}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": "response.completed", "response": build_body(spec)}


def _build_frame(spec: ReplySpec) -> Json:
    return {
        "id": f"resp_{spec.id}",
        "object": "response",
        "created_at": spec.created,
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": spec.model,
        "output": [],
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [*spec.tools],
        "top_p": 1.0,
        "usage": None,
    }


def _split_reasoning(item: Json) -> tuple[Json, Iterator[Json]]:
    text = item["summary"][0]["text"]
    prefix = "response.reasoning_summary"

    def inner() -> Iterator[Json]:
        at = {"summary_index": 0}
        yield {"type": f"{prefix}_part.added", **at, "part": {"type": "summary_text", "text": ""}}
        for piece in split_text(text):
            yield {"type": f"{prefix}_text.delta", **at, "delta": piece}
        yield {"type": f"{prefix}_text.done", **at, "text": text}
        yield {"type": f"{prefix}_part.done", **at, "part": {"type": "summary_text", "text": text}}

    return {**item, "summary": []}, inner()


def _split_message(item: Json) -> tuple[Json, Iterator[Json]]:
    part = item["content"][0]

    def inner() -> Iterator[Json]:
        at = {"content_index": 0}
        yield {"type": "response.content_part.added", **at, "part": {**part, "text": ""}}
        for piece in split_text(part["text"]):
            yield {"type": "response.output_text.delta", **at, "delta": piece, "logprobs": []}
        yield {"type": "response.output_text.done", **at, "text": part["text"], "logprobs": []}
        yield {"type": "response.content_part.done", **at, "part": part}

    return {**item, "content": []}, inner()


def _split_call(item: Json) -> tuple[Json, Iterator[Json]]:
    def inner() -> Iterator[Json]:
        for piece in split_text(item["arguments"]):
            yield {"type": "response.function_call_arguments.delta", "delta": piece}
        done = {"name": item["name"], "arguments": item["arguments"]}
        yield {"type": "response.function_call_arguments.done", **done}

    return {**item, "arguments": ""}, inner()


def split_item(item: Json) -> tuple[Json, Iterator[Json]]:
    """Return an item as it starts, and the events that follow: none for a kind that comes whole."""
    split = _SPLITTERS.get(item["type"])
    return split(item) if split else (item, iter(()))


_SPLITTERS = {"reasoning": _split_reasoning, "message": _split_message, "function_call": _split_call}


def dump_usage(usage: Usage) -> Json:
    """Return `usage` as Responses report it: the input total includes cache reads and writes."""
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.prompt + usage.output,
        **({"played": True} if usage.played else {}),
    }
