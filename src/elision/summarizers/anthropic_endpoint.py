"""Anthropic Messages, at Anthropic or at any server that speaks them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from elision.providers.anthropic.parse import parse_assistant, parse_usage
from elision.providers.shared.json_reading import mapping_in, mappings_in, text_in
from elision.summarizers.http_endpoint import HttpEndpoint
from elision.summarizers.model_endpoint import EndpointAnswer, EndpointFault, EndpointRequest, StopReason
from elision.summarizers.request_quirks import ModelQuirks
from elision.summarizers.transport import Transport
from elision.trajectory.content import join_text

ANTHROPIC: Final = "https://api.anthropic.com"
_VERSION: Final = "2023-06-01"
_STOPS: Final[Mapping[str, StopReason]] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
    "tool_use": "tool",
}


class AnthropicEndpoint(HttpEndpoint):
    """A Claude model at `base_url`.

    key:     sent as `x-api-key`; "" sends none. Never shown.
    headers, extra: further headers and further fields of each request. An agent that sets `thinking` or
             `output_config` has to have them here too, or its cached messages are not read.

    An extending request leaves `tool_choice` alone: changing it would lose the cached messages. A tool call is a
    failed candidate.
    """

    dialect: ClassVar[str] = "anthropic"

    def __init__(
        self,
        model: str,
        *,
        key: str = "",
        base_url: str = ANTHROPIC,
        headers: Mapping[str, str] | None = None,
        extra: Mapping[str, Any] | None = None,
        proxy: str = "",
    ) -> None:
        own = {"anthropic-version": _VERSION, **({"x-api-key": key} if key else {})}
        url = f"{base_url.rstrip('/').removesuffix('/v1')}/v1/messages"
        quirks = ModelQuirks(takes_temperature="thinking" not in (extra or {}))
        super().__init__(model, Transport(url, {**own, **(headers or {})}, proxy=proxy), quirks, extra)

    def _build_body(self, request: EndpointRequest) -> dict[str, Any]:
        limits = self._quirks.build_fields(request.max_tokens, request.temperature)
        return {"model": self.model, **build_messages(request), **limits, **self._extra}

    def _parse_reply(self, reply: Mapping[str, Any]) -> EndpointAnswer | EndpointFault:
        return parse_message(reply)


def build_messages(request: EndpointRequest) -> dict[str, Any]:
    """Return the fields of a request that hold the conversation."""
    messages: list[Any] = []
    fields: dict[str, Any] = {"messages": messages}
    live = request.live
    if live:
        messages.extend(live.messages)
        if live.system:
            fields["system"] = live.system
        if live.tools:
            fields["tools"] = list(live.tools)
        if not _has_cache_marker((live.messages, live.system, live.tools)):
            # The agent has the provider place the markers: only a request that asks for the same reads the cache.
            fields["cache_control"] = {"type": "ephemeral"}
    messages.append({"role": "user", "content": [{"type": "text", "text": request.text}]})
    return fields


def _has_cache_marker(value: Any, depth: int = 0) -> bool:
    """Return whether a request contains a cache marker."""
    if isinstance(value, Mapping):
        if "cache_control" in value:
            return True
        value = value.values()
    elif not isinstance(value, list | tuple):
        return False
    return depth < 8 and any(_has_cache_marker(inner, depth + 1) for inner in value)


def parse_message(reply: Mapping[str, Any]) -> EndpointAnswer | EndpointFault:
    """Return a message as an answer."""
    if "content" not in reply:
        reason = "the answer has no content"
        kind = text_in(mapping_in(reply.get("error")).get("type"))
        if kind:
            reason += f" ({kind})"
        return EndpointFault(cause="malformed", reason=reason)
    stop: StopReason = _STOPS.get(text_in(reply.get("stop_reason")), "end")
    if any(block.get("type") == "tool_use" for block in mappings_in(reply.get("content"))):
        stop = "tool"
    return EndpointAnswer(
        text=join_text(parse_assistant(reply).content), usage=parse_usage(reply.get("usage")), stop=stop
    )
