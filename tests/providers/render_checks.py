"""What a rendered history must be, as checks that raise AssertionError: the provider's types, its rules, and our own.

Types are those of the providers' packages, rules those of `elision.testing.request_rules`. Renderers promise a
little more than what is accepted; that is checked here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from anthropic.types import MessageParam, TextBlockParam
from google.genai.types import Content
from openai.types.chat import ChatCompletionMessageParam
from openai.types.responses import ResponseInputItemParam
from pydantic import TypeAdapter

from elision.providers.provider_table import PROVIDERS
from elision.providers.shared.base_renderer import ViewRenderer
from elision.testing.request_rules import list_violations
from elision.trajectory.turn import Head, Turn
from elision.trajectory.view import View
from tests.properties.builders import run_session

_OPENAI = TypeAdapter(list[ChatCompletionMessageParam])
_RESPONSES = TypeAdapter(list[ResponseInputItemParam])
_ANTHROPIC = TypeAdapter(list[MessageParam])
_SYSTEM = TypeAdapter(list[TextBlockParam])


def check_openai(messages: Sequence[dict[str, Any]]) -> None:
    """And call ids are unique in the whole request: some servers match by them alone."""
    validate_elements(_OPENAI.validate_python(list(messages), strict=True))
    # A run without a head has nothing to send at its first call.
    assert not messages or list_violations("openai", {"messages": messages}) == []
    ids = [call["id"] for message in messages for call in message.get("tool_calls", ())]
    assert len({*ids}) == len(ids), "an id that was there before"


def check_responses(items: Sequence[dict[str, Any]]) -> None:
    """And outputs stand right behind the calls of their turn: some servers of this API want it so."""
    validate_elements(_RESPONSES.validate_python(list(items), strict=True))
    assert not items or list_violations("openai-responses", {"input": items, "store": False}) == []
    waiting: set[str] = set()
    for item in items:
        if item.get("type") == "function_call":
            waiting.add(item["call_id"])
        elif item.get("type") == "function_call_output":
            waiting.discard(item["call_id"])
        else:
            assert not waiting, f"calls left open: {waiting}"


def check_anthropic(messages: Sequence[dict[str, Any]], system: Sequence[dict[str, Any]] = ()) -> None:
    """And roles take turns from user to user, content is a list of blocks, and none is empty."""
    validate_elements(_ANTHROPIC.validate_python(list(messages), strict=True))
    validate_elements(_SYSTEM.validate_python(list(system), strict=True))
    assert list_violations("anthropic", {"messages": messages, "system": system}) == []
    roles = [message["role"] for message in messages]
    assert roles == [("user", "assistant")[place % 2] for place in range(len(roles))]
    assert roles[-1] == "user", "the last message would be the beginning of the answer"
    assert all(isinstance(message["content"], list) for message in messages)
    results = [block for message in messages for block in message["content"] if block["type"] == "tool_result"]
    assert all(block.get("content", ...) for block in results), "an empty result that has content"


def check_contents(contents: Sequence[dict[str, Any]]) -> None:
    """Against the types of Google's package, which know no further fields; bytes are base64 there."""
    for content in contents:
        # Half a character pair, which recordings have, is none of its types.
        written = json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")
        Content.model_validate_json(written, strict=True)


def check_gemini(contents: Sequence[dict[str, Any]]) -> None:
    """And the user speaks first."""
    check_contents(contents)
    assert not contents or list_violations("gemini", {"contents": contents}) == []
    assert not contents or contents[0]["role"] == "user"


def check_messages(api: str, renderer: ViewRenderer, view: View) -> list[dict[str, Any]]:
    """The messages of `view`, which the provider would take."""
    messages = renderer.render_messages(view)
    if api == "anthropic":
        check_anthropic(messages, renderer.render_system(view))
    else:
        {"openai": check_openai, "openai-responses": check_responses, "gemini": check_gemini}[api](messages)
    return messages


def render_run(
    api: str, *turns: Turn, start: Head | None = None, renderer: ViewRenderer | None = None
) -> list[dict[str, Any]]:
    """The messages of a run in which nothing is hidden, which the provider would take; without cache markers."""
    newest = run_session("raw", turns, start=start).newest_call
    assert newest is not None
    renderer = renderer or PROVIDERS[api].make_renderer()
    check_messages(api, renderer, newest.view)
    return renderer.render_unmarked(newest.view)


def validate_elements(value: Any) -> None:
    """Look at every element: pydantic checks iterables (parts, calls) only when they are read."""
    if isinstance(value, dict):
        for each in value.values():
            validate_elements(each)
    elif not isinstance(value, str | bytes | int | float | bool | None):
        for each in value:
            validate_elements(each)
