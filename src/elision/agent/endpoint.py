"""Models behind HTTP: any OpenAI-compatible server's chat completions, and Anthropic's messages.

Plain requests over the same way out as summaries (`summarizers/transport.py`); keys are given, sent, and never shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from elision.agent.model import Answer, Finish, Json, ModelError, Prompt, Shape
from elision.dialects import anthropic, mapping_in, mappings_in, openai_chat, text_in
from elision.errors import MissingExtra
from elision.summarizers.endpoint import Fault
from elision.summarizers.transport import Transport
from elision.trajectory.content import text_of

#: Seconds that an answer may take; models that think take minutes.
SECONDS = 600.0
#: Tokens of an answer where nobody says otherwise; Anthropic wants a number.
MAX_TOKENS = 8_192
#: Bytes of an answer that are read.
LARGEST = 20_000_000
#: Causes that may be gone when the same request is sent again.
_PASSING: Final = frozenset(("timeout", "connection", "rate-limited", "server", "malformed"))
#: What each provider says -> why it stopped; what is not listed is "end".
_FINISHES: Final[Mapping[str, Finish]] = {
    "tool_calls": "tools",
    "function_call": "tools",
    "tool_use": "tools",
    "length": "length",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "content_filter": "refusal",
    "refusal": "refusal",
}


class _Endpoint:
    """What both share: a name, a way out, and errors."""

    def __init__(self, name: str, url: str, headers: Mapping[str, str], fields: Json, seconds: float) -> None:
        self.name = name
        self.url = url
        self._headers = dict(headers)
        self._fields = dict(fields)
        self._seconds = seconds
        #: By the headers that a request adds; they seldom change.
        self._ways: dict[tuple[tuple[str, str], ...], Transport] = {(): self._way({})}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.url!r})"

    def _way(self, more: Mapping[str, str]) -> Transport:
        try:
            return Transport(self.url, {**self._headers, **more}, largest=LARGEST)
        except MissingExtra as error:
            raise MissingExtra("a model behind HTTP", error.extra) from error

    def _post(self, body: dict[str, Any], more: Mapping[str, str] | None = None) -> Json:
        added = tuple((more or {}).items())
        if added not in self._ways:
            self._ways[added] = self._way(dict(added))
        answer = self._ways[added].post(body, self._seconds)
        if isinstance(answer, Fault):
            raise ModelError(
                f"{self.name} at {self.url}: {answer.reason}",
                passing=answer.cause in _PASSING,
                wait=answer.wait,
                sent=answer.sent,
                room=answer.room,
            )
        return answer


class OpenAIModel(_Endpoint):
    """A model behind `/chat/completions`.

    base_url: with its version, such as https://api.openai.com/v1. fields: more fields of every request.
    """

    shape: Shape = "openai"

    def __init__(
        self, name: str, *, key: str = "", base_url: str, fields: Json | None = None, seconds: float = SECONDS
    ) -> None:
        if key:
            headers = {"authorization": f"Bearer {key}"}
        else:
            headers = {}
        super().__init__(name, f"{base_url.rstrip('/')}/chat/completions", headers, fields or {}, seconds)

    def answer(self, prompt: Prompt) -> Answer:
        if prompt.tools:
            tools = {"tools": [*prompt.tools]}
        else:
            tools = {}
        body = {"model": self.name, **self._fields, "messages": [*prompt.messages], **tools, **prompt.extra}
        return openai_answer(self._post(body))


def openai_answer(given: Json) -> Answer:
    """The body of a chat completion as an answer. Raises ModelError where it holds none."""
    choice = next(iter(mappings_in(given.get("choices"))), None)
    if choice is None:
        raise ModelError("the answer has no choices", passing=True)
    message = mapping_in(choice.get("message"))
    said = openai_chat.said(message)
    return Answer(
        text=text_of(said.content),
        reasoning=said.reasoning,
        calls=said.actions,
        finish=_FINISHES.get(text_in(choice.get("finish_reason")), "end"),
        message=_taken_back(message),
        usage=openai_chat.usage(given.get("usage")),
        reported=mapping_in(given.get("usage")),
    )


def _taken_back(message: Json) -> Json:
    """The message as the next request may hold it: nulls are of no use, and a few fields are not taken back."""
    kept = {name: value for name, value in message.items() if value not in (None, []) and name not in ("annotations",)}
    if kept.get("content") or kept.get("tool_calls"):
        content = {}
    else:
        content = {"content": ""}
    return {"role": "assistant", **kept, **content}


class AnthropicModel(_Endpoint):
    """A model behind `/v1/messages`. base_url: such as https://api.anthropic.com. fields: more of every request."""

    shape: Shape = "anthropic"

    def __init__(
        self, name: str, *, key: str = "", base_url: str, fields: Json | None = None, seconds: float = SECONDS
    ) -> None:
        headers = {"anthropic-version": "2023-06-01", **({"x-api-key": key} if key else {})}
        url = f"{base_url.rstrip('/').removesuffix('/v1')}/v1/messages"
        super().__init__(name, url, headers, {"max_tokens": MAX_TOKENS, **(fields or {})}, seconds)

    def answer(self, prompt: Prompt) -> Answer:
        if prompt.tools:
            tools = {"tools": [*prompt.tools]}
        else:
            tools = {}
        if prompt.system:
            system = {"system": prompt.system}
        else:
            system = {}
        body = {"model": self.name, **self._fields, **system, "messages": [*prompt.messages], **tools, **prompt.extra}
        return anthropic_answer(self._post(body, {"anthropic-beta": ",".join(prompt.betas)} if prompt.betas else {}))


def anthropic_answer(given: Json) -> Answer:
    """The body of a message as an answer. Raises ModelError where it holds none."""
    if not isinstance(given.get("content"), list):
        raise ModelError("the answer has no content", passing=True)
    said = anthropic.said(given)
    return Answer(
        text=text_of(said.content),
        reasoning=said.reasoning,
        calls=said.actions,
        finish=_FINISHES.get(text_in(given.get("stop_reason")), "end"),
        message={"role": "assistant", "content": given["content"]},
        usage=anthropic.usage(given.get("usage")),
        reported=mapping_in(given.get("usage")),
    )
