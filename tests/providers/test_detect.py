"""Whose messages these are: by their own signs, by tools, by a system prompt that stands apart, by the model."""

from __future__ import annotations

from typing import Any

import pytest

from elision import ContextManager
from elision.providers.provider_table import PROVIDERS, detect_provider, find_tools_provider, recognize_provider

ASKED = [{"role": "user", "content": "Look."}]
#: Tools -> whose they are.
TOOLS: dict[str, tuple[dict[str, Any], str]] = {
    "a function of chat": ({"type": "function", "function": {"name": "ls"}}, "openai"),
    "a custom tool of chat": ({"type": "custom", "custom": {"name": "ls"}}, "openai"),
    "a function of Responses": ({"type": "function", "name": "ls", "parameters": {}}, "openai-responses"),
    "a custom tool of Responses": ({"type": "custom", "name": "ls"}, "openai-responses"),
    "a search of OpenAI's": ({"type": "web_search"}, "openai-responses"),
    "a server of OpenAI's": ({"type": "mcp", "server_label": "wiki", "server_url": "https://…"}, "openai-responses"),
    "a tool of Anthropic's": ({"name": "ls", "input_schema": {}}, "anthropic"),
    "a search of Anthropic's": ({"type": "web_search_20250305", "name": "web_search"}, "anthropic"),
    "a server of Anthropic's": ({"type": "mcp_toolset", "mcp_server_name": "wiki"}, "anthropic"),
}


@pytest.mark.parametrize("case", TOOLS)
def test_tools_tell_the_dialect(case: str) -> None:
    """Also those that the provider runs, whatever the model is called."""
    tool, name = TOOLS[case]
    found = recognize_provider(ASKED, None, [tool])
    assert found is not None
    assert found.name == name
    assert detect_provider(ASKED, None, [tool], "some-model").name == name


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("gpt-5", "openai-responses"),
        ("o4-mini", "openai-responses"),
        ("claude-sonnet-4-5", "anthropic"),
        ("", "anthropic"),
    ],
)
def test_a_system_prompt_apart_is_the_models_api(model: str, name: str) -> None:
    """OpenAI's models take one as `instructions`, and only in Responses."""
    assert detect_provider(ASKED, "Be brief.", None, model).name == name


def test_a_system_message_settles_nothing() -> None:
    """Chat and Responses both have it: it is taken for chat until an item shows otherwise."""
    prompted = [{"role": "developer", "content": "Be brief."}, *ASKED]
    assert recognize_provider(prompted, None, None) is None
    assert detect_provider(prompted, None, None, "claude-sonnet-4-5").name == "openai"
    call = {"type": "function_call", "call_id": "c", "name": "ls", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": "a.py"}
    with ContextManager("raw", model="gpt-5", store="memory:") as context:
        assert context.prepare(prompted).dialect == "openai"
        assert context.prepare([*prompted, call, output]).dialect == "openai-responses"


def test_without_a_sign_the_model_decides() -> None:
    """A bare task looks the same everywhere."""
    assert recognize_provider(ASKED, None, None) is None
    assert detect_provider(ASKED, None, None, "claude-sonnet-4-5").name == "anthropic"
    assert detect_provider(ASKED, None, None, "gpt-5").name == "openai"


class Unread:
    """A tool definition that nobody may convert."""

    def model_dump(self, **options: object) -> dict[str, object]:
        raise AssertionError("it was read")


def test_only_the_first_definition_is_read() -> None:
    """Every call asks whose tools they are, and definitions may be large; what is no definition is passed over."""
    chat = {"type": "function", "function": {"name": "look", "parameters": {}}}
    apart = {"name": "look", "input_schema": {"type": "object"}}
    assert find_tools_provider([chat, Unread()]) is PROVIDERS["openai"]
    assert find_tools_provider((None, apart, Unread())) is PROVIDERS["anthropic"]
    assert find_tools_provider([]) is find_tools_provider("tools") is find_tools_provider([None]) is None
