"""What is known of Anthropic Messages."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from elision.providers.anthropic.messages import (
    AnthropicRenderer,
    LiveAnthropic,
    defines_tool,
    has_own_signs,
    parse_assistant,
    parse_usage,
    render_tool,
)
from elision.providers.anthropic.stream import AnthropicFormat, AnthropicStream
from elision.providers.host import Host
from elision.providers.llm.answers import EndpointAnswer, EndpointFault, StopReason
from elision.providers.llm.client import ClientFormat, Json, ModelQuirks
from elision.providers.provider import Provider
from elision.providers.shared.json_reading import mapping_in, mappings_in, text_in
from elision.providers.streaming.rounds import ApiObserver, ResponseFindings, dump_json
from elision.providers.streaming.sse import SseFrame, format_event
from elision.trajectory.foreign_text import parse_object
from elision.trajectory.plan import LivePrefix
from elision.trajectory.turn import join_text

_STOPS: Final[Mapping[str, StopReason]] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
    "tool_use": "tool",
}


def build_conversation(messages: Sequence[Any], system: Any, tools: Sequence[Any]) -> Json:
    """Return the fields of a request that hold the conversation."""
    fields: Json = {}
    if system:
        fields["system"] = system
    fields["messages"] = list(messages)
    if tools:
        fields["tools"] = list(tools)
    return fields


def add_to_extension(live: LivePrefix | None, is_official: bool) -> Json:
    """Return the mark that the agent leaves to the provider: only a request that asks for the same reads the cache.

    `tool_choice` is left alone: changing it would lose the cached messages. A tool call is a failed candidate.
    """
    if live and not _has_cache_marker((live.messages, live.system, live.tools)):
        return {"cache_control": {"type": "ephemeral"}}
    return {}


def _has_cache_marker(value: Any, depth: int = 0) -> bool:
    """Return whether a request contains a cache marker."""
    if isinstance(value, Mapping):
        if "cache_control" in value:
            return True
        value = value.values()
    elif not isinstance(value, list | tuple):
        return False
    return depth < 8 and any(_has_cache_marker(inner, depth + 1) for inner in value)


def parse_answer(reply: Mapping[str, Any]) -> EndpointAnswer | EndpointFault:
    """Return a message as an answer."""
    if not isinstance(reply.get("content"), list):
        reason = "the answer has no content"
        kind = text_in(mapping_in(reply.get("error")).get("type"))
        if kind:
            reason += f" ({kind})"
        return EndpointFault(cause="malformed", reason=reason)
    stop: StopReason = _STOPS.get(text_in(reply.get("stop_reason")), "end")
    if any(block.get("type") == "tool_use" for block in mappings_in(reply.get("content"))):
        stop = "tool"
    assistant = parse_assistant(reply)
    return EndpointAnswer(
        text=join_text(assistant.content),
        reasoning=assistant.reasoning,
        calls=assistant.actions,
        stop=stop,
        message={"role": "assistant", "content": reply["content"]},
        usage=parse_usage(reply.get("usage")),
        reported=mapping_in(reply.get("usage")),
    )


CLIENT: Final = ClientFormat(
    make_url=lambda base_url, model: f"{base_url.rstrip('/').removesuffix('/v1')}/v1/messages",
    # A model that thinks takes no temperature.
    make_quirks=lambda model, is_official, extra: ModelQuirks(takes_temperature="thinking" not in extra),
    build_conversation=build_conversation,
    make_user_message=LiveAnthropic().make_user_message,
    add_to_extension=add_to_extension,
    parse_answer=parse_answer,
)


_EVENTS: Final = frozenset(("message_start", "message_delta", "message_stop", "error"))


def is_useful_frame(found: ResponseFindings, raw: bytes) -> bool:
    """Return whether a frame may report something, by its bytes."""
    return b"message_" in raw or b"error" in raw


def read_event(found: ResponseFindings, frame: SseFrame) -> None:
    """Add what one event of a stream reports. Clients know events by their names, so they have them."""
    if frame.event not in _EVENTS or (event := parse_object(frame.data)) is None:
        return
    match frame.event:
        case "message_start":
            found.add_response(mapping_in(event.get("message")))
        case "message_delta":
            # Counts and edits are in the event itself, the stop reason in its delta.
            found.add_response(event)
            found.stop_reason = text_in(mapping_in(event.get("delta")).get("stop_reason")) or found.stop_reason
        case "message_stop":
            found.has_ended = True
        case "error":
            found.failure = event


def read_body(found: ResponseFindings, body: Mapping[str, Any]) -> None:
    """Add what a whole response, or its last event, reports."""
    found.stop_reason = text_in(body.get("stop_reason"))
    found.has_ended = True


OBSERVER: Final = ApiObserver(is_useful_frame, read_event, read_body)


#: Status -> type: anthropic 2.12 `ErrorType`, and the documented "request_too_large".
_TYPES: Final[Mapping[int, str]] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def make_error_body(status: int, message: str, code: str) -> dict[str, Any]:
    """Return the body of an error. code: one word; this API has no place for it."""
    usual = "invalid_request_error" if status < 500 else "api_error"
    return {"type": "error", "error": {"type": _TYPES.get(status, usual), "message": message}}


_HOST: Final = Host(
    name="anthropic",
    title="Anthropic",
    url="https://api.anthropic.com",
    key_variable="ANTHROPIC_API_KEY",
    url_variable="ANTHROPIC_BASE_URL",
    old_url_variables=("ANTHROPIC_API_BASE",),
    make_key_headers=lambda key: {"x-api-key": key},
    make_error_body=make_error_body,
    busy_status=529,
    headers={"anthropic-version": "2023-06-01"},
    own_headers=("anthropic-version", "anthropic-beta", "x-api-key"),
    own_paths=(b"/messages/",),
)
ANTHROPIC: Final = Provider(
    name="anthropic",
    title="Anthropic Messages",
    host=_HOST,
    paths={re.compile(rb"/messages"): "complete", re.compile(rb"/messages/count_tokens"): "count"},
    list_field="messages",
    system_field="system",
    own_models=re.compile(r".*claude"),
    has_own_signs=has_own_signs,
    defines_tool=defines_tool,
    live=LiveAnthropic(),
    make_renderer=AnthropicRenderer,
    render_tool=render_tool,
    search_tool={"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"},
    checks_thinking=True,
    response_format=AnthropicFormat(),
    unstored_format=AnthropicFormat(),
    make_stream=AnthropicStream,
    observer=OBSERVER,
    make_stream_error=lambda body, sequence: format_event(dump_json(body), "error"),
    client=CLIENT,
    usage_signs=frozenset(("input_tokens",)),
    parse_usage=parse_usage,
)
