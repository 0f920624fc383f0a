"""What is known of OpenAI chat completions, the API of many servers besides OpenAI's."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from elision.providers.host import OPENAI
from elision.providers.llm.answers import EndpointAnswer, EndpointFault, StopReason, parse_refusal
from elision.providers.llm.client import ClientFormat, Json, ModelQuirks
from elision.providers.openai_chat.messages import (
    LiveOpenAIChat,
    OpenAIChatRenderer,
    defines_tool,
    parse_assistant,
    parse_usage,
    render_tool,
)
from elision.providers.openai_chat.stream import ChatFormat, ChatStream
from elision.providers.provider import Provider
from elision.providers.shared.capabilities import OPENAI_MODELS, is_reasoning_model
from elision.providers.shared.json_reading import mapping_in, mappings_in, text_in
from elision.providers.streaming.rounds import ApiObserver, ResponseFindings
from elision.providers.streaming.sse import SseFrame
from elision.trajectory.foreign_text import parse_object
from elision.trajectory.plan import LivePrefix
from elision.trajectory.turn import join_text

_STOPS: Final[Mapping[str, StopReason]] = {
    "length": "length",
    "max_tokens": "length",
    "content_filter": "refusal",
    "refusal": "refusal",
    "tool_calls": "tool",
    "function_call": "tool",
}


def build_conversation(messages: Sequence[Any], system: Any, tools: Sequence[Any]) -> Json:
    """Return the fields of a request that hold the conversation."""
    prompt = [{"role": "system", "content": system}] if system else []
    fields: Json = {"messages": [*prompt, *messages]}
    if tools:
        fields["tools"] = list(tools)
    return fields


def add_to_extension(live: LivePrefix | None, is_official: bool) -> Json:
    """Return the fields that forbid the use of the tools, which are sent unchanged.

    `tool_choice: "none"` leaves the cache alone at OpenAI. Elsewhere servers may drop the tools from the prompt for it,
    so it is left out, and a tool call is a failed candidate.
    """
    if is_official and live and live.tools:
        return {"tool_choice": "none"}
    return {}


def parse_answer(reply: Mapping[str, Any]) -> EndpointAnswer | EndpointFault:
    """Return a chat completion as an answer."""
    choices = mappings_in(reply.get("choices"))
    if not choices:
        # Some routers report their upstream's errors with status 200.
        error = mapping_in(reply.get("error"))
        if not error:
            return EndpointFault(cause="malformed", reason="the answer has no choices")
        code = error.get("code")
        status = code if isinstance(code, int) else 502
        return parse_refusal(status, text_in(error.get("message")), {})
    message = mapping_in(choices[0].get("message"))
    stop: StopReason = _STOPS.get(text_in(choices[0].get("finish_reason")), "end")
    if message.get("refusal"):
        stop = "refusal"
    elif message.get("tool_calls") or message.get("function_call"):
        stop = "tool"
    assistant = parse_assistant(message)
    return EndpointAnswer(
        text=join_text(assistant.content),
        reasoning=assistant.reasoning,
        calls=assistant.actions,
        stop=stop,
        message=_make_history_message(message),
        usage=parse_usage(reply.get("usage")),
        reported=mapping_in(reply.get("usage")),
    )


def _make_history_message(message: Mapping[str, Any]) -> Json:
    """Return the message as the next request may have it: without nulls, and without fields that are not accepted."""
    kept = {name: value for name, value in message.items() if value not in (None, []) and name != "annotations"}
    if not kept.get("content") and not kept.get("tool_calls"):
        kept["content"] = ""
    return {"role": "assistant", **kept}


CLIENT: Final = ClientFormat(
    make_url=lambda base_url, model: f"{base_url.rstrip('/')}/chat/completions",
    # The limit has another name at OpenAI than elsewhere.
    make_quirks=lambda model, is_official, extra: ModelQuirks(
        takes_temperature=not is_reasoning_model(model),
        limit_field="max_completion_tokens" if is_official else "max_tokens",
    ),
    build_conversation=build_conversation,
    make_user_message=LiveOpenAIChat().make_user_message,
    add_to_extension=add_to_extension,
    parse_answer=parse_answer,
)


#: With `stream_options.include_usage` every chunk has `"usage":null`, most of them at their end.
_COUNTED: Final = re.compile(rb'"usage"\s*:\s*\{')


def is_useful_frame(found: ResponseFindings, raw: bytes) -> bool:
    """Return whether it is the first chunk, or has counts, a finish reason, an error or the end.

    Text inside a chunk has its quotes escaped, so it matches none of these.
    """
    if not found.response_id or b'"error"' in raw:
        return True
    counts = not raw.endswith(b'"usage":null}\n\n') and b'"usage"' in raw and _COUNTED.search(raw) is not None
    return counts or not (b'finish_reason":null' in raw or b'finish_reason": null' in raw)


def read_event(found: ResponseFindings, frame: SseFrame) -> None:
    """Add what one event of a stream reports."""
    chunk = parse_object(frame.data)
    if chunk is None:
        found.has_ended = found.has_ended or frame.data.startswith(b"[DONE]")
        return
    found.add_response(chunk)
    if chunk.get("error") is not None:
        found.failure = chunk
    read_body(found, chunk)


def read_body(found: ResponseFindings, body: Mapping[str, Any]) -> None:
    """Add what a whole response, or its last event, reports."""
    reasons = [text_in(choice.get("finish_reason")) for choice in mappings_in(body.get("choices"))]
    if any(reasons):
        found.stop_reason = next(filter(None, reasons))
        found.has_ended = True


OBSERVER: Final = ApiObserver(is_useful_frame, read_event, read_body)


OPENAI_CHAT: Final = Provider(
    name="openai",
    title="OpenAI Chat Completions",
    host=OPENAI,
    paths={re.compile(rb"/chat/completions"): "complete"},
    list_field="messages",
    system_field="",
    own_models=OPENAI_MODELS,
    # What a message of chat looks like is not its own: other APIs and many recorders write the same.
    has_own_signs=lambda messages, request: False,
    defines_tool=defines_tool,
    live=LiveOpenAIChat(),
    make_renderer=OpenAIChatRenderer,
    render_tool=render_tool,
    takes_clear_reasoning=True,
    response_format=ChatFormat(),
    unstored_format=ChatFormat(),
    make_stream=ChatStream,
    observer=OBSERVER,
    client=CLIENT,
    usage_signs=frozenset(("prompt_tokens",)),
    parse_usage=parse_usage,
)
