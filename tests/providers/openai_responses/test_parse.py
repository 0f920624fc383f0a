"""OpenAI Responses items into values."""

from __future__ import annotations

from typing import Any

import pytest

from elision.providers.openai_responses import messages as openai_responses
from elision.trajectory.turn import Opaque, Text, join_text


def test_a_summary_is_reasoning_and_the_sealed_part_is_kept() -> None:
    """The summary is read; the encrypted reasoning stays opaque and is counted by its length."""
    item = {"type": "reasoning", "id": "rs", "summary": [{"text": "why"}], "encrypted_content": "A" * 1_620}
    said = openai_responses.parse_item(item)
    assert said.reasoning == "why"
    assert said.content == (Opaque("reasoning", 100, item),)


def test_open_reasoning_wins_over_its_summary() -> None:
    """Where the reasoning text itself was sent, the summary is not read beside it."""
    item = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "all"}], "summary": [{"text": "part"}]}
    assert openai_responses.parse_item(item).reasoning == "all"


@pytest.mark.parametrize(
    ("item", "name", "arguments"),
    [
        ({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}, "f", "{}"),
        ({"type": "custom_tool_call", "call_id": "c", "name": "p", "input": "*** B"}, "p", "*** B"),
        (
            {"type": "local_shell_call", "call_id": "c", "action": {"command": ["ls"]}},
            "local_shell",
            '{"command": ["ls"]}',
        ),
        ({"type": "computer_call", "call_id": "c", "action": {"type": "wait"}}, "computer", '{"type": "wait"}'),
        ({"type": "computer_call", "call_id": "c", "actions": [{"type": "wait"}]}, "computer", '[{"type": "wait"}]'),
        ({"type": "apply_patch_call", "call_id": "c", "operation": {"path": "a"}}, "apply_patch", '{"path": "a"}'),
        ({"type": "mcp_call", "id": "c", "name": "s", "arguments": "{}"}, "s", "{}"),
        ({"type": "code_interpreter_call", "id": "c", "code": "1+1"}, "code_interpreter", "1+1"),
    ],
)
def test_every_call_type_is_an_action(item: dict[str, Any], name: str, arguments: str) -> None:
    """Whatever a call item names its fields, it is an action with id, tool and arguments."""
    (action,) = openai_responses.parse_item(item).actions
    assert (action.id, action.name, action.arguments) == ("c", name, arguments)


def test_a_hosted_call_without_readable_output_is_opaque() -> None:
    """A web search shows no result that could be read, so it is no call."""
    said = openai_responses.parse_item({"type": "web_search_call", "id": "ws"})
    assert not said.actions
    assert isinstance(said.content[0], Opaque)


def test_a_failed_mcp_call_is_an_error() -> None:
    """An MCP call carries its own result; with an error it is a failed one."""
    result = openai_responses.parse_inline_result({"type": "mcp_call", "id": "m", "output": None, "error": "boom"})
    assert result is not None
    assert (result.action_id, result.error, join_text(result.content)) == ("m", True, "boom")


def test_a_file_search_shows_its_hits() -> None:
    """The hits of a file search are its result, with their file names."""
    item = {"type": "file_search_call", "id": "f", "results": [{"filename": "a.md", "text": "found"}]}
    result = openai_responses.parse_inline_result(item)
    assert result is not None
    assert result.content == (Text("a.md\nfound"),)


def test_shell_output_tells_its_exit_code() -> None:
    """A shell result is its streams and its exit code, and a failure if that is not 0."""
    runs = [{"stdout": "out", "stderr": "err", "outcome": {"type": "exit", "exit_code": 2}}]
    result = openai_responses.parse_result({"type": "shell_call_output", "call_id": "c", "output": runs})
    assert join_text(result.content) == "out\nerr\nexit code 2"
    assert result.error is True


def test_a_screenshot_is_opaque() -> None:
    """A computer's output is an image."""
    shot = {"type": "computer_screenshot", "image_url": "data:"}
    result = openai_responses.parse_result({"type": "computer_call_output", "call_id": "c", "output": shot})
    assert [part.tokens for part in result.content if isinstance(part, Opaque)] == [1200]


def test_input_tokens_include_the_cache() -> None:
    """Cache reads and writes are taken out of input_tokens."""
    details = {"cached_tokens": 600, "cache_write_tokens": 300}
    usage = openai_responses.parse_usage({"input_tokens": 1000, "input_tokens_details": details, "output_tokens": 50})
    assert usage is not None
    assert (usage.input, usage.cache_read, usage.cache_write, usage.output) == (100, 600, 300, 50)


@pytest.mark.parametrize("junk", [None, 5, True, "x", [1, None, [2]], {"a": 1}])
def test_junk_is_read_without_an_error(junk: object) -> None:
    """A field of a wrong type never raises, whatever the item."""
    names = "id call_id name arguments input action actions output outputs results content summary error result tools"
    for kind in (*sorted(openai_responses.ITEMS), "message", "new_thing"):
        item = {"type": kind, **dict.fromkeys(names.split(), junk)}
        openai_responses.parse_item(item)
        openai_responses.parse_inline_result(item)
        openai_responses.parse_result(item)
