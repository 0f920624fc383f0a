"""OpenAI chat completions, at OpenAI or at any server that speaks them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from elision.dialects import mapping_in, mappings_in, text_in
from elision.dialects.openai_chat import said, usage
from elision.summarizers.endpoint import Answer, Fault, Question, Stop, refused
from elision.summarizers.manners import Manners
from elision.summarizers.served import Served, bearer
from elision.summarizers.transport import Transport
from elision.trajectory.content import text_of

#: Where OpenAI itself is.
OPENAI: Final = "https://api.openai.com/v1"
# OpenAI's models that think first: no temperature, and what they think counts as output.
_REASONING: Final = re.compile(r"(?:o\d|gpt-[5-9])(?!.*chat)")
_STOPS: Final[Mapping[str, Stop]] = {
    "length": "length",
    "content_filter": "refusal",
    "tool_calls": "tool",
    "function_call": "tool",
}


def reasons(model: str) -> bool:
    """Whether `model` is one of OpenAI's that think first, by its name."""
    return bool(_REASONING.match(model))


class OpenAICompatible(Served):
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
        manners = Manners(temperature=not reasons(model), limit=limit)
        super().__init__(model, Transport(url, {**bearer(key), **(headers or {})}, proxy=proxy), manners, extra)

    def _body(self, question: Question) -> dict[str, Any]:
        if self._official and question.live and question.live.tools:
            silent = {"tool_choice": "none"}
        else:
            silent = {}
        limits = self._manners.fields(question.max_tokens)
        return {"model": self.model, **messages(question), **silent, **limits, **self._extra}

    def _answer(self, reply: Mapping[str, Any]) -> Answer | Fault:
        return answer(reply)


def messages(question: Question) -> dict[str, Any]:
    """The fields of a request that hold the conversation."""
    asked_last = {"role": "user", "content": question.text}
    live = question.live
    if live is None:
        return {"messages": [asked_last]}
    if live.system:
        system = [{"role": "system", "content": live.system}]
    else:
        system = []
    if live.tools:
        tools = {"tools": list(live.tools)}
    else:
        tools = {}
    return {"messages": [*system, *live.messages, asked_last], **tools}


def answer(reply: Mapping[str, Any]) -> Answer | Fault:
    """A chat completion as an answer."""
    choices = mappings_in(reply.get("choices"))
    if not choices:
        # Some routers report their upstream's errors with status 200.
        error = mapping_in(reply.get("error"))
        code = error.get("code")
        if error:
            return refused(code if isinstance(code, int) else 502, text_in(error.get("message")), {})
        return Fault(cause="malformed", reason="the answer has no choices")
    message = mapping_in(choices[0].get("message"))
    stop: Stop = _STOPS.get(text_in(choices[0].get("finish_reason")), "end")
    if message.get("refusal"):
        stop = "refusal"
    elif message.get("tool_calls") or message.get("function_call"):
        stop = "tool"
    return Answer(text=text_of(said(message).content), usage=usage(reply.get("usage")), stop=stop)
