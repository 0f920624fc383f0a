"""Requests to OpenAI chat completions, at OpenAI or at any server that speaks them, and their answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from elision.providers.llm.answers import EndpointAnswer, EndpointFault, StopReason, parse_refusal
from elision.providers.llm.client import ClientFormat, Json
from elision.providers.llm.request_quirks import ModelQuirks
from elision.providers.openai_chat.live import LiveOpenAIChat
from elision.providers.openai_chat.parse import parse_assistant, parse_usage
from elision.providers.shared.json_reading import mapping_in, mappings_in, text_in
from elision.providers.shared.model_names import is_reasoning_model
from elision.trajectory.content import join_text
from elision.trajectory.plan import LivePrefix

_STOPS: Final[Mapping[str, StopReason]] = {
    "length": "length",
    "max_tokens": "length",
    "content_filter": "refusal",
    "refusal": "refusal",
    "tool_calls": "tool",
    "function_call": "tool",
}


def make_quirks(model: str, is_official: bool, extra: Mapping[str, Any]) -> ModelQuirks:
    """Return what is known of a model: the limit has another name at OpenAI than elsewhere."""
    limit = "max_completion_tokens" if is_official else "max_tokens"
    return ModelQuirks(takes_temperature=not is_reasoning_model(model), limit_field=limit)


def build_conversation(messages: Sequence[Any], system: Any, tools: Sequence[Any]) -> Json:
    """Return the fields of a request that hold the conversation."""
    prompt = [{"role": "system", "content": system}] if system else []
    fields: Json = {"messages": [*prompt, *messages]}
    if tools:
        fields["tools"] = list(tools)
    return fields


def add_to_extension(live: LivePrefix | None, is_official: bool) -> Json:
    """Return the fields that forbid the use of the tools, which are sent unchanged.

    `tool_choice: "none"` leaves the cache alone at OpenAI. Elsewhere servers may drop the tools from the prompt for it,
    so it is left out, and a tool call is a failed candidate.
    """
    if is_official and live and live.tools:
        return {"tool_choice": "none"}
    return {}


def parse_answer(reply: Mapping[str, Any]) -> EndpointAnswer | EndpointFault:
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
    assistant = parse_assistant(message)
    return EndpointAnswer(
        text=join_text(assistant.content),
        reasoning=assistant.reasoning,
        calls=assistant.actions,
        stop=stop,
        message=_make_history_message(message),
        usage=parse_usage(reply.get("usage")),
        reported=mapping_in(reply.get("usage")),
    )


def _make_history_message(message: Mapping[str, Any]) -> Json:
    """Return the message as the next request may have it: without nulls, and without fields that are not accepted."""
    kept = {name: value for name, value in message.items() if value not in (None, []) and name != "annotations"}
    if not kept.get("content") and not kept.get("tool_calls"):
        kept["content"] = ""
    return {"role": "assistant", **kept}


CLIENT: Final = ClientFormat(
    make_url=lambda base_url, model: f"{base_url.rstrip('/')}/chat/completions",
    make_quirks=make_quirks,
    build_conversation=build_conversation,
    make_user_message=LiveOpenAIChat().make_user_message,
    add_to_extension=add_to_extension,
    parse_answer=parse_answer,
)
