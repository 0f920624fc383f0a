"""What is known of Gemini's generateContent."""

from __future__ import annotations

import re
from typing import Final

from elision.providers.gemini.client import CLIENT
from elision.providers.gemini.errors import make_error_body
from elision.providers.gemini.live import LiveGemini
from elision.providers.gemini.observe import OBSERVER
from elision.providers.gemini.parse import defines_tool, has_own_signs, parse_usage
from elision.providers.gemini.render import GeminiRenderer, render_tool
from elision.providers.gemini.stream import GeminiFormat, GeminiStream
from elision.providers.host import Host
from elision.providers.provider import Provider, Target

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
    takes_clear_reasoning=False,
    checks_thinking=False,
    response_format=GeminiFormat(),
    unstored_format=GeminiFormat(),
    make_stream=GeminiStream,
    observer=OBSERVER,
    client=CLIENT,
    usage_fields=("usageMetadata", "usage_metadata"),
    usage_signs=frozenset(("promptTokenCount", "prompt_token_count")),
    parse_usage=parse_usage,
)
