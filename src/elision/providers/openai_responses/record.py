"""What is known of OpenAI Responses."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from elision.providers.host import OPENAI
from elision.providers.llm.answers import EndpointAnswer, EndpointFault, StopReason
from elision.providers.llm.client import ClientFormat, Json, ModelQuirks
from elision.providers.openai_responses.messages import (
    LiveOpenAIResponses,
    OpenAIResponsesRenderer,
    defines_tool,
    has_own_signs,
    parse_item,
    parse_usage,
    render_tool,
)
from elision.providers.openai_responses.stream import ResponsesFormat, ResponsesStream
from elision.providers.provider import Provider
from elision.providers.shared.capabilities import OPENAI_MODELS, is_reasoning_model
from elision.providers.shared.json_reading import mapping_in, mappings_in, text_in
from elision.providers.streaming.rounds import ApiObserver, ResponseFindings, dump_json
from elision.providers.streaming.sse import SseFrame, format_event
from elision.trajectory.foreign_text import parse_object
from elision.trajectory.plan import LivePrefix
from elision.trajectory.turn import join_text


def build_conversation(messages: Sequence[Any], system: Any, tools: Sequence[Any]) -> Json:
    """Return the fields of a request that hold the conversation."""
    fields: Json = {"input": list(messages)}
    if system:
        fields["instructions"] = system
    if tools:
        fields["tools"] = list(tools)
    return fields


def make_user_message(text: str) -> Json:
    """Return a message of the user."""
    return {"role": "user", "content": [{"type": "input_text", "text": text}]}


def add_to_extension(live: LivePrefix | None, is_official: bool) -> Json:
    """Return the fields that keep the request from being stored, and the tools from being used."""
    if live and live.tools:
        return {"store": False, "tool_choice": "none"}
    return {"store": False}


def parse_answer(reply: Mapping[str, Any]) -> EndpointAnswer | EndpointFault:
    """Return a response as an answer."""
    if "output" not in reply:
        return EndpointFault(cause="malformed", reason="the answer has no output")
    items = mappings_in(reply.get("output"))
    messages = [item for item in items if item.get("type") == "message"]
    text = "\n".join(filter(None, (join_text(parse_item(message).content) for message in messages)))
    return EndpointAnswer(
        text=text,
        calls=tuple(call for item in items for call in parse_item(item).actions),
        stop=_find_stop(reply, items, messages),
        usage=parse_usage(reply.get("usage")),
        reported=mapping_in(reply.get("usage")),
    )


def _find_stop(
    reply: Mapping[str, Any], items: Sequence[Mapping[str, Any]], messages: Sequence[Mapping[str, Any]]
) -> StopReason:
    reason = text_in(mapping_in(reply.get("incomplete_details")).get("reason"))
    if reason == "content_filter":
        return "refusal"
    for message in messages:
        if any(part.get("type") == "refusal" for part in mappings_in(message.get("content"))):
            return "refusal"
    if any(text_in(item.get("type")).endswith("_call") for item in items):
        return "tool"
    if reason == "max_output_tokens":
        return "length"
    return "end"


CLIENT: Final = ClientFormat(
    make_url=lambda base_url, model: f"{base_url.rstrip('/')}/responses",
    make_quirks=lambda model, is_official, extra: ModelQuirks(
        takes_temperature=not is_reasoning_model(model), limit_field="max_output_tokens"
    ),
    build_conversation=build_conversation,
    make_user_message=make_user_message,
    add_to_extension=add_to_extension,
    parse_answer=parse_answer,
)


#: The last event of a stream is one of these. Servers that name no events are known by the bytes of their data.
_LAST: Final = frozenset(("response.completed", "response.incomplete", "response.failed", "error"))
_LAST_TYPE: Final = re.compile(rb'"type"\s*:\s*"(?:response\.(?:completed|incomplete|failed)|error)"')


def is_useful_frame(found: ResponseFindings, raw: bytes) -> bool:
    """Return whether a frame may report something, by its bytes."""
    return b"response.completed" in raw or b"response.incomplete" in raw or b"response.failed" in raw or b"error" in raw


def read_event(found: ResponseFindings, frame: SseFrame) -> None:
    """Add what one event of a stream reports."""
    if frame.event:
        last = frame.event in _LAST
    else:
        last = _LAST_TYPE.search(frame.data) is not None
    event = parse_object(frame.data) if last else None
    if event is None:
        return
    if event.get("type") == "error":
        found.failure = event
        return
    response = mapping_in(event.get("response"))
    found.add_response(response)
    read_body(found, response)


def read_body(found: ResponseFindings, body: Mapping[str, Any]) -> None:
    """Read `status`, which says how the response ended; one that is queued or in progress did not."""
    status = text_in(body.get("status"))
    found.stop_reason = text_in(mapping_in(body.get("incomplete_details")).get("reason")) or status
    found.has_ended = status in ("completed", "incomplete")
    if status == "failed":
        found.failure = body


OBSERVER: Final = ApiObserver(is_useful_frame, read_event, read_body)


def make_stream_error(body: Mapping[str, Any], sequence: int) -> bytes:
    """Return the event that ends an incomplete stream; clients raise it. body: of the error. sequence: its number.

    It has the fields as the types of the service say, and as they are: with an `error` inside, which clients look for.
    """
    error = body["error"]
    fields = {name: error[name] for name in ("code", "message", "param")}
    event = {"type": "error", **fields, "error": error, "sequence_number": sequence}
    return format_event(dump_json(event), "error")


OPENAI_RESPONSES: Final = Provider(
    name="openai-responses",
    title="OpenAI Responses",
    host=OPENAI,
    paths={re.compile(rb"/responses"): "complete"},
    list_field="input",
    system_field="instructions",
    own_models=OPENAI_MODELS,
    has_own_signs=has_own_signs,
    defines_tool=defines_tool,
    live=LiveOpenAIResponses(),
    make_renderer=OpenAIResponsesRenderer,
    render_tool=render_tool,
    search_tool={"type": "tool_search"},
    list_seen_deferred=lambda tool: [{name: tool[name] for name in ("name", "description") if name in tool}],
    response_format=ResponsesFormat(),
    unstored_format=ResponsesFormat(stored=False),
    make_stream=ResponsesStream,
    observer=OBSERVER,
    make_stream_error=make_stream_error,
    client=CLIENT,
    usage_signs=frozenset(("input_tokens_details",)),
    parse_usage=parse_usage,
)
