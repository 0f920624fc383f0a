"""`create(**view.request)` has the type that the provider's package gives its response, streamed or not.

mypy reads this file with `make check`, and pyright in `tests/test_typed.py`. Nothing runs it.
"""

from __future__ import annotations

from typing import Any, assert_type

from anthropic import Anthropic
from anthropic.types import Message
from google.genai import Client
from google.genai.types import GenerateContentResponse
from openai import OpenAI, Stream
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response

from elision import ContextView


def responses(view: ContextView, claude: Anthropic, gpt: OpenAI, gemini: Client) -> None:
    assert_type(claude.messages.create(model="claude-sonnet-4-5", max_tokens=1000, **view.request), Message)
    assert_type(gpt.chat.completions.create(model="gpt-5", **view.request), ChatCompletion)
    streamed = gpt.chat.completions.create(model="gpt-5", stream=True, **view.request)
    assert_type(streamed, Stream[ChatCompletionChunk])
    assert_type(gpt.responses.create(model="gpt-5", **view.request), Response)
    assert_type(gemini.models.generate_content(model="gemini-3-pro", **view.request), GenerateContentResponse)


def fields(view: ContextView) -> None:
    assert_type(view.request["messages"], list[Any])
    plain: dict[str, Any] = view.request
    print(plain)
