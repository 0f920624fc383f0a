"""Anthropic Messages, at Anthropic or at any server that speaks them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from elision.dialects import mapping_in, mappings_in, text_in
from elision.dialects.anthropic import parse_assistant, parse_usage
from elision.summarizers.http_endpoint import HttpEndpoint
from elision.summarizers.model_endpoint import EndpointAnswer, EndpointFault, EndpointRequest, StopReason
from elision.summarizers.request_quirks import ModelQuirks
from elision.summarizers.transport import Transport
from elision.trajectory.content import text_of

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
        manners = ModelQuirks(takes_temperature="thinking" not in (extra or {}))
        super().__init__(model, Transport(url, {**own, **(headers or {})}, proxy=proxy), manners, extra)

    def _build_body(self, question: EndpointRequest) -> dict[str, Any]:
        limits = self._quirks.build_fields(question.max_tokens)
        return {"model": self.model, **build_messages(question), **limits, **self._extra}

    def _parse_reply(self, reply: Mapping[str, Any]) -> EndpointAnswer | EndpointFault:
        return parse_message(reply)


def build_messages(question: EndpointRequest) -> dict[str, Any]:
    """The fields of a request that hold the conversation."""
    asked_last = {"role": "user", "content": [{"type": "text", "text": question.text}]}
    live = question.live
    if live is None:
        return {"messages": [asked_last]}
    system = {"system": live.system} if live.system else {}
    if live.tools:
        tools = {"tools": list(live.tools)}
    else:
        tools = {}
    # Without a marker of its own the agent has the provider place them: only a request that asks likewise reads them.
    if _has_cache_marker((live.messages, live.system, live.tools)):
        automatic = {}
    else:
        automatic = {"cache_control": {"type": "ephemeral"}}
    return {"messages": [*live.messages, asked_last], **system, **tools, **automatic}


def _has_cache_marker(value: Any, depth: int = 0) -> bool:
    """Whether a cache marker stands anywhere in a request."""
    if isinstance(value, Mapping):
        return "cache_control" in value or (
            depth < 8 and any(_has_cache_marker(inner, depth + 1) for inner in value.values())
        )
    return isinstance(value, list | tuple) and depth < 8 and any(_has_cache_marker(inner, depth + 1) for inner in value)


def parse_message(reply: Mapping[str, Any]) -> EndpointAnswer | EndpointFault:
    """A message as an answer."""
    if "content" not in reply:
        kind = text_in(mapping_in(reply.get("error")).get("type"))
        return EndpointFault(cause="malformed", reason=f"the answer has no content{f' ({kind})' if kind else ''}")
    stop: StopReason = _STOPS.get(text_in(reply.get("stop_reason")), "end")
    if any(block.get("type") == "tool_use" for block in mappings_in(reply.get("content"))):
        stop = "tool"
    return EndpointAnswer(
        text=text_of(parse_assistant(reply).content), usage=parse_usage(reply.get("usage")), stop=stop
    )
