"""The model as the agent sees it: one method, an answer, one kind of error, and how often it is asked again.

Two are behind HTTP: any OpenAI-compatible server's chat completions, and Anthropic's messages. Their requests go out by
the client that summaries use (`providers/llm/client.py`); keys are given, sent, and never shown.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal, Protocol, TypeAlias

from elision.errors import ElisionError, MissingExtra
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

Json: TypeAlias = Mapping[str, Any]
#: Whose messages the agent and the model exchange.
Shape: TypeAlias = Literal["openai", "anthropic"]
#: What the model said, and why it stopped. The agent sends its `message` back.
ModelAnswer: TypeAlias = EndpointAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What the model is sent, in its own shape.

    system: apart where the shape keeps it apart (Anthropic); else None. extra: more fields of the request.
    betas:  values of the `anthropic-beta` header.
    """

    messages: Sequence[Json]
    tools: Sequence[Json] = ()
    system: Any = None
    extra: Json = field(default_factory=dict)
    betas: Sequence[str] = ()


class Model(Protocol):
    """Any model that answers. shape: of the messages it takes and gives. name: for people, and for prices."""

    @property
    def shape(self) -> Shape: ...

    @property
    def name(self) -> str: ...

    def answer(self, prompt: Prompt) -> ModelAnswer:
        """The answer to `prompt`. Raises ModelError."""
        ...


class ModelError(ElisionError):
    """The model gave no answer.

    is_temporary: whether the same request may succeed later. wait_seconds: what the server asks for, None for nothing.
    sent_tokens, room_tokens: size of a prompt that did not fit, and of the largest that does, where reported.
    """

    def __init__(
        self,
        message: str,
        *,
        is_temporary: bool = False,
        wait_seconds: float | None = None,
        sent_tokens: int | None = None,
        room_tokens: int | None = None,
    ) -> None:
        super().__init__(message)
        self.is_temporary = is_temporary
        self.wait_seconds = wait_seconds
        self.sent_tokens = sent_tokens
        self.room_tokens = room_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often a model is asked for one answer, and how long is waited between requests.

    tries: requests for one answer, 1 or more. first_seconds: before the second request, doubled each time.
    longest_seconds: the longest wait. A longer wait that the server asks for counts, up to `longest_seconds`; where it
    asks for more, the request is not repeated.
    """

    tries: int = 5
    first_seconds: float = 1.0
    longest_seconds: float = 60.0
    sleep: Callable[[float], None] = time.sleep

    def ask_model(self, model: Model, prompt: Prompt) -> ModelAnswer:
        """The model's answer. Raises the last ModelError; one that no waiting mends at once."""
        wait = self.first_seconds
        for _ in range(self.tries - 1):
            try:
                return model.answer(prompt)
            except ModelError as error:
                if not error.is_temporary or (error.wait_seconds or 0.0) > self.longest_seconds:
                    raise
                self.sleep(min(self.longest_seconds, max(wait, error.wait_seconds or 0.0)))
                wait *= 2
        return model.answer(prompt)


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
