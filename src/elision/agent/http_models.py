"""Models behind HTTP: any OpenAI-compatible server's chat completions, and Anthropic's messages.

Requests go out by the client that summaries use (`providers/llm/client.py`); keys are given, sent, and never shown.
"""

from __future__ import annotations

from typing import ClassVar, Final

from elision.agent.model import Json, ModelAnswer, ModelError, Prompt, Shape
from elision.errors import MissingExtra
from elision.providers.llm.answers import EndpointAnswer, EndpointFault
from elision.providers.llm.client import LlmClient
from elision.providers.provider_table import PROVIDERS

#: Seconds that an answer may take; models that think take minutes.
ANSWER_SECONDS = 600.0
#: Tokens of an answer where nobody says otherwise; Anthropic wants a number.
MAX_TOKENS = 8_192
#: Bytes of an answer that are read.
LARGEST_ANSWER_BYTES = 20_000_000
#: Causes that may be gone when the same request is sent again.
_TEMPORARY_CAUSES: Final = frozenset(("timeout", "connection", "rate-limited", "server", "malformed"))


class _HttpModel:
    """A model behind HTTP. base_url: as the provider's own clients take it. fields: more fields of every request."""

    shape: ClassVar[Shape]
    own_fields: ClassVar[Json] = {}

    def __init__(
        self, name: str, *, key: str = "", base_url: str, fields: Json | None = None, seconds: float = ANSWER_SECONDS
    ) -> None:
        provider = PROVIDERS[self.shape]
        self.name = name
        self._fields = {**self.own_fields, **(fields or {})}
        self._seconds = seconds
        try:
            self._client = LlmClient(
                provider.client, provider.host, name, key=key, base_url=base_url, largest=LARGEST_ANSWER_BYTES
            )
        except MissingExtra as error:
            raise MissingExtra("a model behind HTTP", error.extra) from error
        self.url = self._client.url

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.url!r})"

    def answer(self, prompt: Prompt) -> ModelAnswer:
        """Return the answer to `prompt`. Raises ModelError."""
        conversation = self._client.format.build_conversation(prompt.messages, prompt.system, prompt.tools)
        body = {"model": self.name, **self._fields, **conversation, **prompt.extra}
        headers = {"anthropic-beta": ",".join(prompt.betas)} if prompt.betas else {}
        return _make_model_answer(self._client.ask(lambda: body, self._seconds, headers), f"{self.name} at {self.url}")


class OpenAIModel(_HttpModel):
    """A model behind `/chat/completions`.

    base_url: with its version, such as https://api.openai.com/v1. fields: more fields of every request.
    """

    shape = "openai"


class AnthropicModel(_HttpModel):
    """A model behind `/v1/messages`. base_url: such as https://api.anthropic.com. fields: more of every request."""

    shape = "anthropic"
    own_fields: ClassVar[Json] = {"max_tokens": MAX_TOKENS}


def parse_model_answer(shape: Shape, body: Json) -> ModelAnswer:
    """Return the answer in the body of a response. Raises ModelError where it has none."""
    return _make_model_answer(PROVIDERS[shape].client.parse_answer(body), shape)


def _make_model_answer(answer: EndpointAnswer | EndpointFault, whose: str) -> ModelAnswer:
    """Return what the agent sees of an answer. Raises ModelError for a fault. whose: in front of its reason."""
    if isinstance(answer, EndpointFault):
        raise ModelError(
            f"{whose}: {answer.reason}",
            is_temporary=answer.cause in _TEMPORARY_CAUSES,
            wait_seconds=answer.wait_seconds,
            sent_tokens=answer.prompt_tokens,
            room_tokens=answer.window_tokens,
        )
    return answer
