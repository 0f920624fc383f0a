"""What is known of OpenAI Responses."""

from __future__ import annotations

import re
from typing import Final

from elision.providers.host import OPENAI
from elision.providers.openai_responses.client import CLIENT
from elision.providers.openai_responses.errors import make_stream_error
from elision.providers.openai_responses.live import LiveOpenAIResponses
from elision.providers.openai_responses.observe import OBSERVER
from elision.providers.openai_responses.parse import defines_tool, has_own_signs, parse_usage
from elision.providers.openai_responses.render import OpenAIResponsesRenderer, render_tool
from elision.providers.openai_responses.stream import ResponsesFormat, ResponsesStream
from elision.providers.provider import Provider
from elision.providers.shared.model_names import OPENAI_MODELS

OPENAI_RESPONSES: Final = Provider(
    name="openai-responses",
    title="OpenAI Responses",
    host=OPENAI,
    paths={re.compile(rb"/responses"): "complete"},
    list_field="input",
    system_field="instructions",
    own_models=OPENAI_MODELS,
    has_own_signs=has_own_signs,
    defines_tool=defines_tool,
    live=LiveOpenAIResponses(),
    make_renderer=OpenAIResponsesRenderer,
    render_tool=render_tool,
    search_tool={"type": "tool_search"},
    list_seen_deferred=lambda tool: [{name: tool[name] for name in ("name", "description") if name in tool}],
    takes_clear_reasoning=False,
    checks_thinking=False,
    response_format=ResponsesFormat(),
    unstored_format=ResponsesFormat(stored=False),
    make_stream=ResponsesStream,
    observer=OBSERVER,
    make_stream_error=make_stream_error,
    client=CLIENT,
    usage_signs=frozenset(("input_tokens_details",)),
    parse_usage=parse_usage,
)
