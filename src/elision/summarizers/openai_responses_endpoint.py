"""OpenAI Responses: for agents that speak them, so that their prompt cache can be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from elision.providers.openai_responses.parse import parse_item, parse_usage
from elision.providers.shared.json_reading import mapping_in, mappings_in, text_in
from elision.summarizers.http_endpoint import HttpEndpoint, make_bearer_header
from elision.summarizers.model_endpoint import EndpointAnswer, EndpointFault, EndpointRequest, StopReason
from elision.summarizers.openai_chat_endpoint import OPENAI, is_reasoning_model
from elision.summarizers.request_quirks import ModelQuirks
from elision.summarizers.transport import Transport
from elision.trajectory.content import join_text


class OpenAIResponsesEndpoint(HttpEndpoint):
    """A model behind `base_url`/responses; nothing is stored there.

    key, headers, extra: as for `OpenAIChatEndpoint`.
    """

    dialect: ClassVar[str] = "openai-responses"

    def __init__(
        self,
        model: str,
        *,
        key: str = "",
        base_url: str = OPENAI,
        headers: Mapping[str, str] | None = None,
        extra: Mapping[str, Any] | None = None,
        proxy: str = "",
    ) -> None:
        url = f"{base_url.rstrip('/')}/responses"
        quirks = ModelQuirks(takes_temperature=not is_reasoning_model(model), limit_field="max_output_tokens")
        super().__init__(
            model, Transport(url, {**make_bearer_header(key), **(headers or {})}, proxy=proxy), quirks, extra
        )

    def _build_body(self, request: EndpointRequest) -> dict[str, Any]:
        limits = self._quirks.build_fields(request.max_tokens, request.temperature)
        return {"model": self.model, "store": False, **_build_input(request), **limits, **self._extra}

    def _parse_reply(self, reply: Mapping[str, Any]) -> EndpointAnswer | EndpointFault:
        return parse_response(reply)


def _build_input(request: EndpointRequest) -> dict[str, Any]:
    items: list[Any] = []
    fields: dict[str, Any] = {"input": items}
    live = request.live
    if live:
        items.extend(live.messages)
        if live.system:
            fields["instructions"] = live.system
        if live.tools:
            fields["tools"] = list(live.tools)
            fields["tool_choice"] = "none"
    items.append({"role": "user", "content": [{"type": "input_text", "text": request.text}]})
    return fields


def parse_response(reply: Mapping[str, Any]) -> EndpointAnswer | EndpointFault:
    """Return a response as an answer."""
    if "output" not in reply:
        return EndpointFault(cause="malformed", reason="the answer has no output")
    items = mappings_in(reply.get("output"))
    messages = [item for item in items if item.get("type") == "message"]
    text = "\n".join(filter(None, (join_text(parse_item(message).content) for message in messages)))
    return EndpointAnswer(text=text, usage=parse_usage(reply.get("usage")), stop=_find_stop(reply, items, messages))


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
