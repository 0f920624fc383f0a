"""Write a reply as Gemini's generateContent: a whole body, and a stream of chunks. Types as of google-genai 3.4."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from elision.testing.exchange import ReplySpec, decode_input, split_text
from elision.trajectory.usage import Usage

Json = dict[str, Any]

#: What stands for a sealed thought, in base64. Google signs the first call of each message.
SIGNATURE: Final = "c2lnbmVk"


def build_body(spec: ReplySpec) -> Json:
    """Return the body of a plain answer."""
    return _build_response(spec, _build_parts(spec), "STOP")


def build_events(spec: ReplySpec) -> Iterator[Json]:
    """Yield the chunks of a streamed answer; the last says why it ended, and nothing else. A call comes whole."""
    pieces: list[Json] = []
    for part in _build_parts(spec):
        if "text" in part:
            pieces += [{**part, "text": piece} for piece in split_text(part["text"])]
        else:
            pieces.append(part)
    for piece in pieces:
        yield _build_response(spec, [piece], None)
    yield _build_response(spec, [{"text": ""}], "STOP")


def _build_parts(spec: ReplySpec) -> list[Json]:
    parts: list[Json] = []
    if spec.reply.reasoning:
        parts.append({"text": spec.reply.reasoning, "thought": True})
    if spec.reply.text.strip():
        parts.append({"text": spec.reply.text})
    for place, call in enumerate(spec.reply.calls):
        made: Json = {"functionCall": {"id": call.id, "name": call.name, "args": decode_input(call)}}
        if place == 0:
            made["thoughtSignature"] = SIGNATURE
        parts.append(made)
    return parts


def _build_response(spec: ReplySpec, parts: list[Json], finish_reason: str | None) -> Json:
    candidate: Json = {"content": {"role": "model", "parts": parts}, "index": 0}
    if finish_reason is not None:
        candidate["finishReason"] = finish_reason
    return {
        "candidates": [candidate],
        "usageMetadata": dump_usage(spec.usage),
        "modelVersion": spec.model,
        "responseId": spec.id,
    }


def dump_usage(usage: Usage) -> Json:
    """Return `usage` as generateContent reports it: `promptTokenCount` includes what was read from a cache."""
    return {
        "promptTokenCount": usage.prompt,
        "cachedContentTokenCount": usage.cache_read,
        "candidatesTokenCount": usage.output,
        "totalTokenCount": usage.prompt + usage.output,
        **({"played": True} if usage.played else {}),
    }
