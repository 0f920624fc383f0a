"""OpenAI's own cache breakpoints: where they may stand, as the package's types say."""

from __future__ import annotations

from typing import Any

import pytest

from elision.manager.outgoing_request import FIELD, add_breakpoint, sets_own_breakpoints
from tests.providers.render_checks import check_openai, check_responses

MARK = {"mode": "explicit"}
IMAGE = "data:image/png;base64,aGVsbG8="
CALL = {"type": "function", "id": "c1", "function": {"name": "ls", "arguments": "{}"}}
ITEM = {"type": "function_call", "call_id": "c1", "name": "ls", "arguments": "{}"}
CUSTOM = {"type": "custom_tool_call", "call_id": "c1", "name": "ls", "input": ""}


@pytest.mark.parametrize(
    ("message", "content"),
    [
        ({"role": "user", "content": "Hi"}, [{"type": "text", "text": "Hi", FIELD: MARK}]),
        ({"role": "system", "content": "Hi"}, [{"type": "text", "text": "Hi", FIELD: MARK}]),
        ({"role": "tool", "tool_call_id": "c1", "content": "a.py"}, [{"type": "text", "text": "a.py", FIELD: MARK}]),
        (
            {
                "role": "user",
                "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": IMAGE}}],
            },
            [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": IMAGE}, FIELD: MARK}],
        ),
    ],
)
def test_the_last_part_of_a_chat_message_bears_it(message: dict[str, Any], content: list[Any]) -> None:
    """A text becomes a list of one part. The package's types take it."""
    marked = add_breakpoint(message, responses=False)
    assert marked == {**message, "content": content}
    before = [{"role": "assistant", "tool_calls": [CALL]}] if message["role"] == "tool" else []
    check_openai([*before, marked])


@pytest.mark.parametrize(
    ("item", "field", "content"),
    [
        ({"role": "user", "content": "Hi"}, "content", [{"type": "input_text", "text": "Hi", FIELD: MARK}]),
        (
            {"type": "function_call_output", "call_id": "c1", "output": "a.py"},
            "output",
            [{"type": "input_text", "text": "a.py", FIELD: MARK}],
        ),
        (
            {"type": "custom_tool_call_output", "call_id": "c1", "output": "a.py"},
            "output",
            [{"type": "input_text", "text": "a.py", FIELD: MARK}],
        ),
    ],
)
def test_the_last_part_of_an_item_bears_it(item: dict[str, Any], field: str, content: list[Any]) -> None:
    """The same for Responses, where outputs have parts too."""
    marked = add_breakpoint(item, responses=True)
    assert marked == {**item, field: content}
    before = {"function_call_output": [ITEM], "custom_tool_call_output": [CUSTOM]}.get(item.get("type", ""), [])
    check_responses([*before, marked])


@pytest.mark.parametrize("responses", [False, True])
def test_some_messages_bear_none(responses: bool) -> None:
    """The model's words, blank texts, unknown parts and outputs of other kinds stay as they are."""
    for message in (
        {"role": "assistant", "content": "Done."},
        {"role": "user", "content": " "},
        {"role": "user", "content": []},
        {"role": "user", "content": [{"type": "input_video", "url": "x"}]},
        {"role": "user", "content": ["odd", {"type": "text", "text": "a"}]},
        {"type": "shell_call_output", "call_id": "c1", "output": []},
        {"type": "additional_tools", "role": "developer", "tools": []},
    ):
        assert add_breakpoint(message, responses=responses) is None


def test_a_client_s_own_choice_is_seen() -> None:
    """One breakpoint of its own is enough, and so is the mode in which only those count."""
    own = {"role": "user", "content": [{"type": "text", "text": "a", FIELD: MARK}]}
    assert sets_own_breakpoints([own], None)
    assert sets_own_breakpoints([], {"mode": "explicit"})
    assert not sets_own_breakpoints([{"role": "user", "content": "a"}], {"mode": "implicit"})
