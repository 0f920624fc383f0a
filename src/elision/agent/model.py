"""The model as the agent sees it: one method, an answer, one kind of error, and how often it is asked again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from elision.errors import ElisionError
from elision.providers.llm.answers import EndpointAnswer

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
