"""Requests to Gemini's generateContent, and their answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from elision.providers.gemini.live import LiveGemini
from elision.providers.gemini.parse import parse_assistant, parse_usage
from elision.providers.llm.answers import EndpointAnswer, EndpointFault, StopReason
from elision.providers.llm.client import ClientFormat, Json
from elision.providers.llm.request_quirks import ModelQuirks
from elision.providers.shared.json_reading import mapping_in, mappings_in, text_in
from elision.trajectory.content import join_text
from elision.trajectory.plan import LivePrefix

#: Other reasons than these two are the provider's refusals.
_STOPS: Final[Mapping[str, StopReason]] = {"": "end", "STOP": "end", "MAX_TOKENS": "length"}


class GeminiQuirks(ModelQuirks):
    """What a model accepts: this API has the limits in a field of their own."""

    def build_fields(self, max_tokens: int, temperature: float | None = 0) -> dict[str, Any]:
        fields = super().build_fields(max_tokens, temperature)
        return {"generationConfig": fields}


def make_url(base_url: str, model: str) -> str:
    """Return the address of a model. base_url: with or without the version."""
    root = base_url.rstrip("/").removesuffix("/v1beta")
    return f"{root}/v1beta/models/{quote(model.removeprefix('models/'), safe='')}:generateContent"


def make_quirks(model: str, is_official: bool, extra: Mapping[str, Any]) -> ModelQuirks:
    """Return what is known of a model."""
    return GeminiQuirks(limit_field="maxOutputTokens")


def build_conversation(messages: Sequence[Any], system: Any, tools: Sequence[Any]) -> Json:
    """Return the fields of a request that hold the conversation."""
    fields: Json = {"contents": list(messages)}
    if system:
        fields["systemInstruction"] = {"parts": [{"text": system}]} if isinstance(system, str) else system
    if tools:
        fields["tools"] = list(tools)
    return fields


def add_to_extension(live: LivePrefix | None, is_official: bool) -> Json:
    """Return the field that forbids the use of the tools, which are sent unchanged."""
    if live and live.tools:
        return {"toolConfig": {"functionCallingConfig": {"mode": "NONE"}}}
    return {}


def parse_answer(reply: Mapping[str, Any]) -> EndpointAnswer | EndpointFault:
    """Return a response as an answer."""
    candidates = mappings_in(reply.get("candidates"))
    if not candidates:
        reason = text_in(mapping_in(reply.get("promptFeedback")).get("blockReason"))
        words = f"the prompt was blocked ({reason})" if reason else "the answer has no candidates"
        return EndpointFault(cause="rejected" if reason else "malformed", reason=words)
    content = mapping_in(candidates[0].get("content"))
    assistant = parse_assistant(content)
    stop = _STOPS.get(text_in(candidates[0].get("finishReason")), "refusal")
    return EndpointAnswer(
        text=join_text(assistant.content),
        reasoning=assistant.reasoning,
        calls=assistant.actions,
        stop="tool" if assistant.actions else stop,
        message={"role": "model", "parts": [], **content},
        usage=parse_usage(reply.get("usageMetadata")),
        reported=mapping_in(reply.get("usageMetadata")),
    )


CLIENT: Final = ClientFormat(
    make_url=make_url,
    names_model=False,
    make_quirks=make_quirks,
    build_conversation=build_conversation,
    make_user_message=LiveGemini().make_user_message,
    add_to_extension=add_to_extension,
    parse_answer=parse_answer,
)
