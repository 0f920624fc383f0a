"""Models behind HTTP: any OpenAI-compatible server's chat completions, and Anthropic's messages.

Plain requests over the same way out as summaries (`summarizers/transport.py`); keys are given, sent, and never shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from elision.agent.model import Finish, Json, ModelAnswer, ModelError, Prompt, Shape
from elision.errors import MissingExtra
from elision.providers.anthropic import parse as anthropic
from elision.providers.openai_chat import parse as openai_chat
from elision.providers.shared.json_reading import mapping_in, mappings_in, text_in
from elision.summarizers.model_endpoint import EndpointFault
from elision.summarizers.transport import Transport
from elision.trajectory.content import join_text

#: Seconds that an answer may take; models that think take minutes.
ANSWER_SECONDS = 600.0
#: Tokens of an answer where nobody says otherwise; Anthropic wants a number.
MAX_TOKENS = 8_192
#: Bytes of an answer that are read.
LARGEST_ANSWER_BYTES = 20_000_000
#: Causes that may be gone when the same request is sent again.
_TEMPORARY_CAUSES: Final = frozenset(("timeout", "connection", "rate-limited", "server", "malformed"))
#: What each provider says -> why it stopped; what is not listed is "end".
_FINISH_REASONS: Final[Mapping[str, Finish]] = {
    "tool_calls": "tools",
    "function_call": "tools",
    "tool_use": "tools",
    "length": "length",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "content_filter": "refusal",
    "refusal": "refusal",
}


class _HttpModel:
    """What both share: a name, a way out, and errors."""

    def __init__(self, name: str, url: str, headers: Mapping[str, str], fields: Json, seconds: float) -> None:
        self.name = name
        self.url = url
        self._headers = dict(headers)
        self._fields = dict(fields)
        self._seconds = seconds
        #: By the headers that a request adds; they seldom change.
        self._transports: dict[tuple[tuple[str, str], ...], Transport] = {(): self._make_transport({})}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.url!r})"

    def _make_transport(self, extra_headers: Mapping[str, str]) -> Transport:
        try:
            return Transport(self.url, {**self._headers, **extra_headers}, largest=LARGEST_ANSWER_BYTES)
        except MissingExtra as error:
            raise MissingExtra("a model behind HTTP", error.extra) from error

    def _post_body(self, body: dict[str, Any], extra_headers: Mapping[str, str] | None = None) -> Json:
        added = tuple((extra_headers or {}).items())
        if added not in self._transports:
            self._transports[added] = self._make_transport(dict(added))
        answer = self._transports[added].post_json(body, self._seconds)
        if isinstance(answer, EndpointFault):
            raise ModelError(
                f"{self.name} at {self.url}: {answer.reason}",
                is_temporary=answer.cause in _TEMPORARY_CAUSES,
                wait_seconds=answer.wait_seconds,
                sent_tokens=answer.prompt_tokens,
                room_tokens=answer.window_tokens,
            )
        return answer


class OpenAIModel(_HttpModel):
    """A model behind `/chat/completions`.

    base_url: with its version, such as https://api.openai.com/v1. fields: more fields of every request.
    """

    shape: Shape = "openai"

    def __init__(
        self, name: str, *, key: str = "", base_url: str, fields: Json | None = None, seconds: float = ANSWER_SECONDS
    ) -> None:
        if key:
            headers = {"authorization": f"Bearer {key}"}
        else:
            headers = {}
        super().__init__(name, f"{base_url.rstrip('/')}/chat/completions", headers, fields or {}, seconds)

    def answer(self, prompt: Prompt) -> ModelAnswer:
        if prompt.tools:
            tools = {"tools": [*prompt.tools]}
        else:
            tools = {}
        body = {"model": self.name, **self._fields, "messages": [*prompt.messages], **tools, **prompt.extra}
        return parse_openai_answer(self._post_body(body))


def parse_openai_answer(body: Json) -> ModelAnswer:
    """Return the answer in the body of a chat completion. Raises ModelError where it has none."""
    choice = next(iter(mappings_in(body.get("choices"))), None)
    if choice is None:
        raise ModelError("the answer has no choices", is_temporary=True)
    message = mapping_in(choice.get("message"))
    assistant = openai_chat.parse_assistant(message)
    return ModelAnswer(
        text=join_text(assistant.content),
        reasoning=assistant.reasoning,
        calls=assistant.actions,
        finish=_FINISH_REASONS.get(text_in(choice.get("finish_reason")), "end"),
        message=_make_history_message(message),
        usage=openai_chat.parse_usage(body.get("usage")),
        reported=mapping_in(body.get("usage")),
    )


def _make_history_message(message: Json) -> Json:
    """Return the message as the next request may have it: without nulls, and without fields that are not accepted."""
    kept = {name: value for name, value in message.items() if value not in (None, []) and name not in ("annotations",)}
    if kept.get("content") or kept.get("tool_calls"):
        content = {}
    else:
        content = {"content": ""}
    return {"role": "assistant", **kept, **content}


class AnthropicModel(_HttpModel):
    """A model behind `/v1/messages`. base_url: such as https://api.anthropic.com. fields: more of every request."""

    shape: Shape = "anthropic"

    def __init__(
        self, name: str, *, key: str = "", base_url: str, fields: Json | None = None, seconds: float = ANSWER_SECONDS
    ) -> None:
        headers = {"anthropic-version": "2023-06-01", **({"x-api-key": key} if key else {})}
        url = f"{base_url.rstrip('/').removesuffix('/v1')}/v1/messages"
        super().__init__(name, url, headers, {"max_tokens": MAX_TOKENS, **(fields or {})}, seconds)

    def answer(self, prompt: Prompt) -> ModelAnswer:
        if prompt.tools:
            tools = {"tools": [*prompt.tools]}
        else:
            tools = {}
        if prompt.system:
            system = {"system": prompt.system}
        else:
            system = {}
        body = {"model": self.name, **self._fields, **system, "messages": [*prompt.messages], **tools, **prompt.extra}
        return parse_anthropic_answer(
            self._post_body(body, {"anthropic-beta": ",".join(prompt.betas)} if prompt.betas else {})
        )


def parse_anthropic_answer(body: Json) -> ModelAnswer:
    """Return the answer in the body of a message. Raises ModelError where it has none."""
    if not isinstance(body.get("content"), list):
        raise ModelError("the answer has no content", is_temporary=True)
    assistant = anthropic.parse_assistant(body)
    return ModelAnswer(
        text=join_text(assistant.content),
        reasoning=assistant.reasoning,
        calls=assistant.actions,
        finish=_FINISH_REASONS.get(text_in(body.get("stop_reason")), "end"),
        message={"role": "assistant", "content": body["content"]},
        usage=anthropic.parse_usage(body.get("usage")),
        reported=mapping_in(body.get("usage")),
    )
