"""What OpenAI's chat completions reject: one broken request for each rule, and what looks broken and is not."""

from __future__ import annotations

from typing import Any

from elision.testing.request_rules import list_violations

ASKED = {"role": "user", "content": "List."}
AUDIO = {"type": "input_audio", "input_audio": {"data": "SUQz", "format": "mp3"}}
TOOL = {"type": "function", "function": {"name": "ls", "parameters": {}}}


def calls(*ids: str, **fields: Any) -> dict[str, Any]:
    listed = [{"id": id, "type": "function", "function": {"name": "ls", "arguments": "{}"}} for id in ids]
    return {"role": "assistant", "content": None, "tool_calls": listed, **fields}


def result(id: str = "a") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": "a.py"}


def request(*messages: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"model": "gpt-5", "messages": list(messages), **fields}


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "there-are-messages": (request(), "messages"),
    "roles-are-known": (request(ASKED, {"role": "bot", "content": "x"}), "messages.1.role"),
    "content-is-there": (request({"role": "user", "content": []}), "messages.0.content"),
    "assistants-say-something": (request(ASKED, {"role": "assistant", "content": None}), "messages.1"),
    "calls-are-answered": (request(ASKED, calls("a", "b"), result("a"), ASKED), "messages.1.tool_calls.1"),
    "results-stand-behind-their-call": (request(ASKED, calls("a"), result(), ASKED, result()), "messages.4"),
    "call-ids-are-unique": (request(ASKED, calls("a", "a"), result()), "messages.1.tool_calls.1.id"),
    "audio-needs-a-model-that-takes-it": (request(ASKED, {"role": "user", "content": [AUDIO]}), "messages.1.content.0"),
    "tools-are-named-once": (request(ASKED, tools=[TOOL, TOOL]), "tools"),
}


SOUND = {
    "results in any order": request(ASKED, calls("a", "b"), result("b"), result("a")),
    "an id used again in another turn": request(ASKED, calls("a"), result(), calls("a"), result()),
    **{
        f"audio for {model}": request({"role": "user", "content": [AUDIO]}, model=model)
        for model in ("gpt-4o-audio-preview", "gpt-4o-mini-audio-preview", "gpt-audio-1.5", "qwen3-omni", "")
    },
    "empty words": request(ASKED, {"role": "assistant", "content": ""}),
    "a refusal": request(ASKED, {"role": "assistant", "content": None, "refusal": "No."}),
    "a legacy call": request(
        ASKED,
        {"role": "assistant", "content": None, "function_call": {"name": "ls", "arguments": "{}"}},
        {"role": "function", "name": "ls", "content": None},
    ),
}


def test_a_last_call_must_be_answered_too() -> None:
    """A history may not end with an open call, and an empty list of calls is none."""
    (found,) = list_violations("openai", request(ASKED, calls("a")))
    assert (found.rule, found.subject) == ("calls-are-answered", "a")
    (found,) = list_violations("openai", request(ASKED, calls(content="x"), ASKED))
    assert found.rule == "assistants-say-something"
