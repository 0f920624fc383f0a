"""What is known of OpenAI chat completions, the API of many servers besides OpenAI's."""

from __future__ import annotations

import re
from typing import Final

from elision.providers.host import OPENAI
from elision.providers.openai_chat.client import CLIENT
from elision.providers.openai_chat.live import LiveOpenAIChat
from elision.providers.openai_chat.observe import OBSERVER
from elision.providers.openai_chat.parse import defines_tool, parse_usage
from elision.providers.openai_chat.render import OpenAIChatRenderer, render_tool
from elision.providers.openai_chat.stream import ChatFormat, ChatStream
from elision.providers.provider import Provider
from elision.providers.shared.model_names import OPENAI_MODELS

OPENAI_CHAT: Final = Provider(
    name="openai",
    title="OpenAI Chat Completions",
    host=OPENAI,
    paths={re.compile(rb"/chat/completions"): "complete"},
    list_field="messages",
    system_field="",
    own_models=OPENAI_MODELS,
    # What a message of chat looks like is not its own: other APIs and many recorders write the same.
    has_own_signs=lambda messages, request: False,
    defines_tool=defines_tool,
    live=LiveOpenAIChat(),
    make_renderer=OpenAIChatRenderer,
    render_tool=render_tool,
    takes_clear_reasoning=True,
    checks_thinking=False,
    response_format=ChatFormat(),
    unstored_format=ChatFormat(),
    make_stream=ChatStream,
    observer=OBSERVER,
    client=CLIENT,
    usage_signs=frozenset(("prompt_tokens",)),
    parse_usage=parse_usage,
)
