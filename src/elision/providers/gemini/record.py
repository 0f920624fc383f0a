"""What is known of Gemini's generateContent."""

from __future__ import annotations

import re
from typing import Final

from elision.providers.gemini.errors import make_stream_error
from elision.providers.gemini.live import LiveGemini
from elision.providers.gemini.observe import OBSERVER
from elision.providers.gemini.parse import defines_tool, has_own_signs, parse_usage
from elision.providers.gemini.render import GeminiRenderer, render_tool
from elision.providers.gemini.rules import RULES
from elision.providers.gemini.stream import GeminiFormat, GeminiStream
from elision.providers.host import Host
from elision.providers.provider import Provider

_HOST: Final = Host(
    name="gemini",
    url="https://generativelanguage.googleapis.com",
    key_variable="GEMINI_API_KEY",
    url_variable="GOOGLE_GEMINI_BASE_URL",
    make_key_headers=lambda key: {"x-goog-api-key": key},
    make_error_body=make_error_body,
    own_headers=("x-goog-api-key", "x-goog-api-client"),
    own_paths=(b"/models/",),
)
GEMINI: Final = Provider(
    name="gemini",
    title="Gemini generateContent",
    host=_HOST,
    paths={
        re.compile(rb"/models/[^/:]+:(?:streamG|g)enerateContent"): "complete",
        re.compile(rb"/models/[^/:]+:countTokens"): "count",
    },
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
    rules=RULES,
    read_for_rules=lambda request: request,
    response_format=GeminiFormat(),
    unstored_format=GeminiFormat(),
    make_stream=GeminiStream,
    observer=OBSERVER,
    make_stream_error=make_stream_error,
    usage_fields=("usageMetadata", "usage_metadata"),
    usage_signs=frozenset(("promptTokenCount", "prompt_token_count")),
    parse_usage=parse_usage,
)
