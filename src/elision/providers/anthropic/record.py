"""What is known of Anthropic Messages."""

from __future__ import annotations

import re
from typing import Final

from elision.providers.anthropic.client import CLIENT
from elision.providers.anthropic.errors import make_error_body
from elision.providers.anthropic.live import LiveAnthropic
from elision.providers.anthropic.observe import OBSERVER
from elision.providers.anthropic.parse import defines_tool, has_own_signs, parse_usage
from elision.providers.anthropic.render import AnthropicRenderer, render_tool
from elision.providers.anthropic.stream import AnthropicFormat, AnthropicStream
from elision.providers.host import Host
from elision.providers.provider import Provider
from elision.providers.streaming.json_values import dump_json
from elision.providers.streaming.sse import format_event

_HOST: Final = Host(
    name="anthropic",
    url="https://api.anthropic.com",
    key_variable="ANTHROPIC_API_KEY",
    url_variable="ANTHROPIC_BASE_URL",
    make_key_headers=lambda key: {"x-api-key": key},
    make_error_body=make_error_body,
    busy_status=529,
    headers={"anthropic-version": "2023-06-01"},
    own_headers=("anthropic-version", "anthropic-beta", "x-api-key"),
    own_paths=(b"/messages/",),
)
ANTHROPIC: Final = Provider(
    name="anthropic",
    title="Anthropic Messages",
    host=_HOST,
    paths={re.compile(rb"/messages"): "complete", re.compile(rb"/messages/count_tokens"): "count"},
    list_field="messages",
    system_field="system",
    own_models=re.compile(r".*claude"),
    has_own_signs=has_own_signs,
    defines_tool=defines_tool,
    live=LiveAnthropic(),
    make_renderer=AnthropicRenderer,
    render_tool=render_tool,
    search_tool={"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"},
    takes_clear_reasoning=False,
    checks_thinking=True,
    response_format=AnthropicFormat(),
    unstored_format=AnthropicFormat(),
    make_stream=AnthropicStream,
    observer=OBSERVER,
    make_stream_error=lambda body, sequence: format_event(dump_json(body), "error"),
    client=CLIENT,
    usage_signs=frozenset(("input_tokens",)),
    parse_usage=parse_usage,
)
