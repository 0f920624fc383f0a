"""OpenAI Responses: for agents that speak them, so that their prompt cache can be read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from elision.dialects import mapping_in, mappings_in, text_in
from elision.dialects.openai_responses import said, usage
from elision.summarizers.endpoint import Answer, Fault, Question, Stop
from elision.summarizers.manners import Manners
from elision.summarizers.openai_compatible import OPENAI, reasons
from elision.summarizers.served import Served, bearer
from elision.summarizers.transport import Transport
from elision.trajectory.content import text_of


class OpenAIResponses(Served):
    """A model behind `base_url`/responses; nothing is stored there.

    key, headers, extra: as for `OpenAICompatible`.
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
        manners = Manners(temperature=not reasons(model), limit="max_output_tokens")
        super().__init__(model, Transport(url, {**bearer(key), **(headers or {})}, proxy=proxy), manners, extra)

    def _body(self, question: Question) -> dict[str, Any]:
        limits = self._manners.fields(question.max_tokens)
        return {"model": self.model, "store": False, **_input(question), **limits, **self._extra}

    def _answer(self, reply: Mapping[str, Any]) -> Answer | Fault:
        return answer(reply)


def _input(question: Question) -> dict[str, Any]:
    asked_last = {"role": "user", "content": [{"type": "input_text", "text": question.text}]}
    live = question.live
    if live is None:
        return {"input": [asked_last]}
    if live.system:
        instructions = {"instructions": live.system}
    else:
        instructions = {}
    if live.tools:
        tools = {"tools": list(live.tools), "tool_choice": "none"}
    else:
        tools = {}
    return {"input": [*live.messages, asked_last], **instructions, **tools}


def answer(reply: Mapping[str, Any]) -> Answer | Fault:
    """A response as an answer."""
    if "output" not in reply:
        return Fault(cause="malformed", reason="the answer has no output")
    items = mappings_in(reply.get("output"))
    spoken = [item for item in items if item.get("type") == "message"]
    text = "\n".join(filter(None, (text_of(said(item).content) for item in spoken)))
    return Answer(text=text, usage=usage(reply.get("usage")), stop=_stop(reply, items, spoken))


def _stop(reply: Mapping[str, Any], items: list[Mapping[str, Any]], spoken: list[Mapping[str, Any]]) -> Stop:
    why = text_in(mapping_in(reply.get("incomplete_details")).get("reason"))
    parts = [part for item in spoken for part in mappings_in(item.get("content"))]
    if why == "content_filter" or any(part.get("type") == "refusal" for part in parts):
        return "refusal"
    if any(text_in(item.get("type")).endswith("_call") for item in items):
        return "tool"
    if why == "max_output_tokens":
        return "length"
    return "end"
