"""Requests to Anthropic Messages, at Anthropic or at any server that speaks them, and their answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from elision.providers.anthropic.live import LiveAnthropic
from elision.providers.anthropic.parse import parse_assistant, parse_usage
from elision.providers.llm.answers import EndpointAnswer, EndpointFault, StopReason
from elision.providers.llm.client import ClientFormat, Json
from elision.providers.llm.request_quirks import ModelQuirks
from elision.providers.shared.json_reading import mapping_in, mappings_in, text_in
from elision.trajectory.content import join_text
from elision.trajectory.plan import LivePrefix

_STOPS: Final[Mapping[str, StopReason]] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
    "tool_use": "tool",
}


def make_quirks(model: str, is_official: bool, extra: Mapping[str, Any]) -> ModelQuirks:
    """Return what is known of a model: one that thinks takes no temperature."""
    return ModelQuirks(takes_temperature="thinking" not in extra)


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
    make_quirks=make_quirks,
    build_conversation=build_conversation,
    make_user_message=LiveAnthropic().make_user_message,
    add_to_extension=add_to_extension,
    parse_answer=parse_answer,
)
