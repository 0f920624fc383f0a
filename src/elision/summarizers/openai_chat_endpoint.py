"""OpenAI chat completions, at OpenAI or at any server that speaks them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from elision.providers.openai_chat.parse import parse_assistant, parse_usage
from elision.providers.shared.json_reading import mapping_in, mappings_in, text_in
from elision.summarizers.http_endpoint import HttpEndpoint, make_bearer_header
from elision.summarizers.model_endpoint import EndpointAnswer, EndpointFault, EndpointRequest, StopReason, parse_refusal
from elision.summarizers.request_quirks import ModelQuirks
from elision.summarizers.transport import Transport
from elision.trajectory.content import join_text

#: Where OpenAI itself is.
OPENAI: Final = "https://api.openai.com/v1"
# OpenAI's models that think first: no temperature, and what they think counts as output.
_REASONING: Final = re.compile(r"(?:o\d|gpt-[5-9])(?!.*chat)")
_STOPS: Final[Mapping[str, StopReason]] = {
    "length": "length",
    "content_filter": "refusal",
    "tool_calls": "tool",
    "function_call": "tool",
}


def is_reasoning_model(model: str) -> bool:
    """Return whether `model` is one of OpenAI's that think first, by its name."""
    return bool(_REASONING.match(model))


class OpenAIChatEndpoint(HttpEndpoint):
    """A chat model at `base_url`.

    key:     sent as a bearer token; "" sends none (local servers). Never shown.
    headers, extra: further headers and further fields of each request (`prompt_cache_key`, `reasoning_effort` ...).

    An extending request carries the tools unchanged. `tool_choice: "none"` forbids their use at OpenAI, where it
    leaves the cache alone; elsewhere servers may drop the tools from the prompt for it, so it is left out, and a tool
    call is a failed candidate.
    """

    dialect: ClassVar[str] = "openai"

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
        self._official = base_url.rstrip("/") == OPENAI
        url = f"{base_url.rstrip('/')}/chat/completions"
        if self._official:
            limit = "max_completion_tokens"
        else:
            limit = "max_tokens"
        quirks = ModelQuirks(takes_temperature=not is_reasoning_model(model), limit_field=limit)
        super().__init__(
            model, Transport(url, {**make_bearer_header(key), **(headers or {})}, proxy=proxy), quirks, extra
        )

    def _build_body(self, request: EndpointRequest) -> dict[str, Any]:
        body = {"model": self.model, **build_messages(request)}
        if self._official and request.live and request.live.tools:
            body["tool_choice"] = "none"
        return {**body, **self._quirks.build_fields(request.max_tokens, request.temperature), **self._extra}

    def _parse_reply(self, reply: Mapping[str, Any]) -> EndpointAnswer | EndpointFault:
        return parse_completion(reply)


def build_messages(request: EndpointRequest) -> dict[str, Any]:
    """Return the fields of a request that hold the conversation."""
    messages: list[Any] = []
    fields: dict[str, Any] = {"messages": messages}
    live = request.live
    if live:
        if live.system:
            messages.append({"role": "system", "content": live.system})
        messages.extend(live.messages)
        if live.tools:
            fields["tools"] = list(live.tools)
    messages.append({"role": "user", "content": request.text})
    return fields


def parse_completion(reply: Mapping[str, Any]) -> EndpointAnswer | EndpointFault:
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
    return EndpointAnswer(
        text=join_text(parse_assistant(message).content), usage=parse_usage(reply.get("usage")), stop=stop
    )
