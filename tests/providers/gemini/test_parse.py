"""Gemini's contents read into values."""

from __future__ import annotations

from typing import Any

import pytest

from elision.providers.gemini.messages import defines_tool, has_own_signs, parse_assistant, parse_response, parse_usage
from elision.trajectory.turn import Action, Opaque, join_text

CALL = {"functionCall": {"name": "bash", "args": {"cmd": "ls"}}, "thoughtSignature": "c2lnbmVk" * 4}


def test_a_message_of_the_model() -> None:
    """Thoughts are reasoning, calls are actions, and a signature is kept and counted."""
    message = {
        "role": "model",
        "parts": [
            {"text": "I think.", "thought": True},
            {"text": "I look."},
            CALL,
            {"executableCode": {"code": "1+1"}},
        ],
    }
    found = parse_assistant(message)
    assert found.reasoning == "I think."
    assert join_text(found.content) == "I look."
    assert found.actions == (Action(id="bash", name="bash", arguments='{"cmd": "ls"}'),)
    kinds = [part.kind for part in found.content if isinstance(part, Opaque)]
    assert kinds == ["thinking", "executableCode"]


def test_both_spellings_are_read() -> None:
    """The API takes both, and Google's Python package dumps the second."""
    call = {"id": "c1", "name": "bash", "args": {"cmd": "ls"}}
    parts = [
        [{"functionCall": call, "thoughtSignature": "YQ=="}],
        [{"function_call": call, "thought_signature": "YQ=="}],
    ]
    one, other = (parse_assistant({"role": "model", "parts": each}) for each in parts)
    assert one == other
    assert one.actions[0].id == "c1"


@pytest.mark.parametrize(
    ("response", "text", "error"),
    [
        ({"output": "ok"}, "ok", None),
        ({"result": "ok"}, "ok", None),
        ({"error": "no such file"}, "no such file", True),
        ({"output": "ok", "code": 0}, '{"output": "ok", "code": 0}', None),
        ({"files": ["a"]}, '{"files": ["a"]}', None),
        ({}, "{}", None),
        (None, "", None),
        ("text", "text", None),
    ],
)
def test_a_function_response(response: Any, text: str, error: bool | None) -> None:
    """A response of one text is that text; any other is read as its JSON."""
    found = parse_response({"functionResponse": {"name": "bash", "response": response}})
    assert (join_text(found.content), found.error) == (text, error)
    assert (found.action_id, found.tool) == ("bash", "bash")


def test_media_of_a_response_are_kept() -> None:
    """As opaque parts, by the kind of their bytes."""
    media = [{"inlineData": {"mimeType": "image/png", "data": "AA=="}}, {"fileData": {"fileUri": "u"}}]
    answer = {"id": "c1", "name": "shot", "response": {"output": "seen"}, "parts": media}
    found = parse_response({"functionResponse": answer})
    assert [part.kind for part in found.content if isinstance(part, Opaque)] == ["image", "document"]
    assert found.action_id == "c1"


def test_usage() -> None:
    """Cached tokens are part of the prompt; thoughts are output; what Google's tools add is input."""
    found = parse_usage(
        {
            "promptTokenCount": 1000,
            "cachedContentTokenCount": 800,
            "candidatesTokenCount": 20,
            "thoughtsTokenCount": 30,
            "toolUsePromptTokenCount": 50,
            "totalTokenCount": 1100,
        }
    )
    assert found is not None
    assert (found.input, found.cache_read, found.cache_write, found.output) == (250, 800, 0, 50)
    assert parse_usage({"prompt_token_count": 7}) is not None
    assert parse_usage({"totalTokenCount": 1}) is parse_usage(None) is None


def test_signs() -> None:
    """Messages of parts, and tools that are lists of functions; not the parts of other packages."""
    assert has_own_signs([{"role": "user", "parts": [{"text": "Hi."}]}], {})
    assert has_own_signs([], {"tools": [{"functionDeclarations": []}]})
    assert has_own_signs([], {"tools": [{"google_search": {}}]})
    assert not has_own_signs([{"role": "user", "parts": [{"type": "text", "text": "Hi."}]}], {})
    assert not has_own_signs([{"role": "user", "content": "Hi."}], {"tools": [{"name": "f", "input_schema": {}}]})
    assert not defines_tool({"type": "function", "function": {"name": "f"}})
