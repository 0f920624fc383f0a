"""What is known of Gemini's generateContent."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from elision.providers.gemini.messages import (
    GeminiRenderer,
    LiveGemini,
    defines_tool,
    has_own_signs,
    parse_assistant,
    parse_usage,
    render_tool,
)
from elision.providers.gemini.stream import GeminiFormat, GeminiStream
from elision.providers.host import Host
from elision.providers.llm.answers import EndpointAnswer, EndpointFault, StopReason
from elision.providers.llm.client import ClientFormat, Json, ModelQuirks
from elision.providers.provider import Provider, Target
from elision.providers.shared.json_reading import mapping_in, mappings_in, text_in
from elision.providers.streaming.rounds import ApiObserver, ResponseFindings
from elision.providers.streaming.sse import SseFrame
from elision.trajectory.foreign_text import parse_object
from elision.trajectory.plan import LivePrefix
from elision.trajectory.turn import join_text

#: Other reasons than these two are the provider's refusals.
_STOPS: Final[Mapping[str, StopReason]] = {"": "end", "STOP": "end", "MAX_TOKENS": "length"}


def make_url(base_url: str, model: str) -> str:
    """Return the address of a model. base_url: with or without the version."""
    root = base_url.rstrip("/").removesuffix("/v1beta")
    return f"{root}/v1beta/models/{quote(model.removeprefix('models/'), safe='')}:generateContent"


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
    make_quirks=lambda model, is_official, extra: ModelQuirks(limit_field="maxOutputTokens", group="generationConfig"),
    build_conversation=build_conversation,
    make_user_message=LiveGemini().make_user_message,
    add_to_extension=add_to_extension,
    parse_answer=parse_answer,
)


def is_useful_frame(found: ResponseFindings, raw: bytes) -> bool:
    """Return whether it is the first chunk, has the end or an error. Every chunk has counts; the last has all."""
    return not found.response_id or b'"finishReason"' in raw or b'"error"' in raw or b'"promptFeedback"' in raw


def read_event(found: ResponseFindings, frame: SseFrame) -> None:
    """Add what one event of a stream reports."""
    chunk = parse_object(frame.data)
    if chunk is None:
        return
    if chunk.get("error") is not None:
        found.failure = chunk
    read_body(found, chunk)


def read_body(found: ResponseFindings, body: Mapping[str, Any]) -> None:
    """Add what a whole response, or a chunk of one, reports."""
    found.add_counts(body.get("usageMetadata"))
    found.response_id = text_in(body.get("responseId")) or found.response_id
    found.model = text_in(body.get("modelVersion")) or found.model
    reasons = [text_in(each.get("finishReason")) for each in mappings_in(body.get("candidates"))]
    # A prompt that was blocked has no candidates.
    reasons.append(text_in(mapping_in(body.get("promptFeedback")).get("blockReason")))
    if any(reasons):
        found.stop_reason = next(filter(None, reasons))
        found.has_ended = True


OBSERVER: Final = ApiObserver(is_useful_frame, read_event, read_body)


#: HTTP status -> Google's status: https://cloud.google.com/apis/design/errors
_STATUSES: Final[Mapping[int, str]] = {
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    408: "DEADLINE_EXCEEDED",
    429: "RESOURCE_EXHAUSTED",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


def make_error_body(status: int, message: str, code: str) -> dict[str, Any]:
    """Return the body of an error. code: one word, which is the reason in its details."""
    usual = "INVALID_ARGUMENT" if status < 500 else "INTERNAL"
    info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": code, "domain": "elision"}
    return {"error": {"code": status, "message": message, "status": _STATUSES.get(status, usual), "details": [info]}}


#: A model, the method, and whether it streams. A resource of a stored cache or a tuned model has other paths.
_TARGET: Final = re.compile(rb"/models/([^/:]+):(streamG|g)enerateContent")
#: What clients add to a stream: without it the answer is one list in JSON, which comes in pieces.
_EVENTS: Final = re.compile(rb"(?:^|&)alt=sse(?:&|$)")


def read_target(path: bytes, query: bytes) -> Target | None:
    """Return which model a path asks, and how; None where the answer would be no stream of events, nor one body."""
    found = _TARGET.fullmatch(path)
    if found is None:
        return None
    streams = found[2] == b"streamG"
    if streams != (_EVENTS.search(query) is not None):
        return None
    return Target(model=found[1].decode("utf-8", "replace"), stream=streams)


_HOST: Final = Host(
    name="gemini",
    title="Gemini",
    url="https://generativelanguage.googleapis.com",
    key_variable="GEMINI_API_KEY",
    url_variable="GOOGLE_GEMINI_BASE_URL",
    make_key_headers=lambda key: {"x-goog-api-key": key},
    make_error_body=make_error_body,
    own_headers=("x-goog-api-key", "x-goog-api-client"),
    versions=(b"v1beta", b"v1"),
)
GEMINI: Final = Provider(
    name="gemini",
    title="Gemini generateContent",
    host=_HOST,
    paths={
        _TARGET: "complete",
        re.compile(rb"/models/[^/:]+:countTokens"): "count",
    },
    read_target=read_target,
    list_field="contents",
    system_field="systemInstruction",
    own_models=re.compile(r"(?:.*/)?gemini"),
    has_own_signs=has_own_signs,
    defines_tool=defines_tool,
    live=LiveGemini(),
    make_renderer=GeminiRenderer,
    render_tool=render_tool,
    response_format=GeminiFormat(),
    unstored_format=GeminiFormat(),
    make_stream=GeminiStream,
    observer=OBSERVER,
    client=CLIENT,
    usage_fields=("usageMetadata", "usage_metadata"),
    usage_signs=frozenset(("promptTokenCount", "prompt_token_count")),
    parse_usage=parse_usage,
)
