"""Requests to OpenAI Responses and their answers; nothing is stored there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from elision.providers.llm.answers import EndpointAnswer, EndpointFault, StopReason
from elision.providers.llm.client import ClientFormat, Json
from elision.providers.llm.request_quirks import ModelQuirks
from elision.providers.openai_responses.parse import parse_item, parse_usage
from elision.providers.shared.json_reading import mapping_in, mappings_in, text_in
from elision.providers.shared.model_names import is_reasoning_model
from elision.trajectory.content import join_text
from elision.trajectory.plan import LivePrefix


def make_quirks(model: str, is_official: bool, extra: Mapping[str, Any]) -> ModelQuirks:
    """Return what is known of a model."""
    return ModelQuirks(takes_temperature=not is_reasoning_model(model), limit_field="max_output_tokens")


def build_conversation(messages: Sequence[Any], system: Any, tools: Sequence[Any]) -> Json:
    """Return the fields of a request that hold the conversation."""
    fields: Json = {"input": list(messages)}
    if system:
        fields["instructions"] = system
    if tools:
        fields["tools"] = list(tools)
    return fields


def make_user_message(text: str) -> Json:
    """Return a message of the user."""
    return {"role": "user", "content": [{"type": "input_text", "text": text}]}


def add_to_extension(live: LivePrefix | None, is_official: bool) -> Json:
    """Return the fields that keep the request from being stored, and the tools from being used."""
    if live and live.tools:
        return {"store": False, "tool_choice": "none"}
    return {"store": False}


def parse_answer(reply: Mapping[str, Any]) -> EndpointAnswer | EndpointFault:
    """Return a response as an answer."""
    if "output" not in reply:
        return EndpointFault(cause="malformed", reason="the answer has no output")
    items = mappings_in(reply.get("output"))
    messages = [item for item in items if item.get("type") == "message"]
    text = "\n".join(filter(None, (join_text(parse_item(message).content) for message in messages)))
    return EndpointAnswer(
        text=text,
        stop=_find_stop(reply, items, messages),
        usage=parse_usage(reply.get("usage")),
        reported=mapping_in(reply.get("usage")),
    )


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


CLIENT: Final = ClientFormat(
    make_url=lambda base_url, model: f"{base_url.rstrip('/')}/responses",
    make_quirks=make_quirks,
    build_conversation=build_conversation,
    make_user_message=make_user_message,
    add_to_extension=add_to_extension,
    parse_answer=parse_answer,
)
