"""Which tools a session defers is decided when it begins, and holds for every request that continues it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elision import ContextManager
from elision.manager.deferred_tools import LEAST_SAVING, TOOL_BUDGET, find_definitions
from elision.providers.provider import Api
from elision.providers.provider_table import find_provider
from elision.trajectory.tool_definitions import FIND_TOOL
from tests.manager.agents import make_history

Json = dict[str, Any]
MODELS: dict[Api, tuple[str, str]] = {
    "openai": ("gpt-5", "gpt-5.4"),
    "openai-responses": ("gpt-5", "gpt-5.4"),
    "anthropic": ("claude-sonnet-4", "claude-sonnet-4-6"),
    "gemini": ("gemini-2.5-pro", "gemini-3-pro"),
}


def make_tools(api: Api, sizes: list[int]) -> list[Json]:
    """Tools whose descriptions have so many words."""
    tools = []
    for number, words in enumerate(sizes):
        schema = {"type": "object", "properties": {"path": {"type": "string", "description": "Where. " * words}}}
        about = {"name": f"tool_{number}", "description": f"Does {number}. " + "word " * words, "input_schema": schema}
        tools.append(find_provider(api).render_tool(about))
    if api == "gemini":
        return [{"functionDeclarations": [each for tool in tools for each in tool["functionDeclarations"]]}]
    return tools


def open_session(model: str, store: str = "memory:", **more: Any) -> ContextManager:
    return ContextManager("masking", model=model, store=store, session="s", tools="defer", **more)


def make_messages(api: Api, steps: int, words: str = "Mend the parser.") -> list[Json]:
    if api != "gemini":
        return make_history(api, steps, words)
    said: list[Json] = [{"role": "user", "parts": [{"text": words}]}]
    for step in range(1, steps + 1):
        call = {"name": "tool_0", "args": {"path": f"f{step}"}}
        answer = {"name": "tool_0", "response": {"output": f"{step} " + "value " * 200}}
        said.append({"role": "model", "parts": [{"functionCall": call}]})
        said.append({"role": "user", "parts": [{"functionResponse": answer}]})
    return said


def dump(tools: Any) -> str:
    return json.dumps(tools)


@pytest.mark.parametrize("api", MODELS)
@pytest.mark.parametrize("newer", [False, True])
@settings(max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    # More than the budget, whatever is drawn.
    sizes=st.lists(st.integers(0, 200), min_size=8, max_size=20).map(lambda drawn: [*drawn, *[400] * 10]),
    steps=st.lists(st.sampled_from(["go on", "resume", "fork", "replace", "switch off"]), min_size=3, max_size=6),
    number=st.integers(0, 2**40),
)
def test_the_head_has_the_same_bytes_in_every_request(
    api: Api, newer: bool, sizes: list[int], steps: list[str], number: int, tmp_path: Path
) -> None:
    """Also in another process, in a fork, behind a history that the client rewrote, and where no call is allowed."""
    tools = make_tools(api, sizes)
    store = f"sqlite:///{tmp_path / str(number)}.db"
    context = open_session(MODELS[api][newer], store)
    request: Json = {}
    sent = {dump(context.prepare(make_messages(api, 0), tools=tools).tools)}
    assert ("defer_loading" in (head := min(sent))) or ("[outline]" in head)
    for step, what in enumerate(steps, start=1):
        context.settle()
        if what == "resume":
            context.close()
            context = open_session(MODELS[api][newer], store)
        messages = make_messages(api, step + (what == "fork"))
        if what == "replace":
            messages = [*make_messages(api, 0, f"Go on, {step}."), *make_messages(api, 2)[-2:]]
        if what == "switch off":
            request = {"tool_choice": {"type": "none"} if api == "anthropic" else "none"}
        sent.add(dump(context.prepare(messages, tools=tools, request=request).tools))
    context.close()
    assert len(sent) == 1


def test_little_is_left_as_it_is() -> None:
    """Definitions within the budget, and a few tokens beyond it, pay for no search."""
    tools = make_tools("openai", [100] * 6)
    with open_session("gpt-5") as context:
        view = context.prepare(make_history("openai", 0), tools=tools)
        assert view.tools == tools
        assert view.diagnostics.notes == ()
    assert LEAST_SAVING < TOOL_BUDGET


@pytest.mark.parametrize(
    ("api", "request_", "change", "why"),
    [
        ("anthropic", {"tool_choice": {"type": "any"}}, {}, "tool choice is 'any'"),
        ("anthropic", {"tool_choice": {"type": "tool", "name": "tool_1"}}, {}, "tool choice is 'tool'"),
        ("openai", {"tool_choice": "required"}, {}, "tool choice is 'required'"),
        ("openai-responses", {"tool_choice": {"type": "allowed_tools", "tools": []}}, {}, "is 'allowed_tools'"),
        ("gemini", {"toolConfig": {"functionCallingConfig": {"mode": "ANY"}}}, {}, "tool choice is 'ANY'"),
        (
            "gemini",
            {"toolConfig": {"functionCallingConfig": {"allowedFunctionNames": ["tool_1"]}}},
            {},
            "tool choice is 'allowed names'",
        ),
        ("anthropic", {}, {"defer_loading": True}, "the client defers tools itself"),
        ("openai-responses", {}, {"type": "tool_search"}, "the client defers tools itself"),
        ("anthropic", {}, {"input_examples": [{"path": "a"}]}, "tools with examples cannot be searched"),
        ("openai", {}, {"function": {"name": "tool_0", "parameters": {}}}, "two tools have one name"),
    ],
)
def test_what_is_refused_says_why(api: Api, request_: Json, change: Json, why: str) -> None:
    """And the session stays so, whatever later requests say."""
    tools = make_tools(api, [200] * 12)
    tools[-1] = {**tools[-1], **change}
    with open_session(MODELS[api][1]) as context:
        view = context.prepare(make_messages(api, 0), tools=tools, request=request_)
        assert view.tools == tools
        (note,) = [note for note in view.diagnostics.notes if "defer" in note]
        assert note.startswith('tools="defer" changes nothing: ')
        assert why in note
        assert context.prepare(make_messages(api, 1), tools=make_tools(api, [200] * 12)).added_tools == []


def test_a_history_that_began_elsewhere_keeps_its_head() -> None:
    tools = make_tools("openai", [200] * 12)
    with open_session("gpt-5") as context:
        view = context.prepare(make_history("openai", 3), tools=tools)
        assert view.tools == tools
        assert any("the session began without Elision" in note for note in view.diagnostics.notes)


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "tool_11"}])
def test_a_later_forced_call_is_sent_with_the_clients_own_tools(choice: Json) -> None:
    """The provider could not find what it must call. The request after it is as those before it."""
    tools = make_tools("anthropic", [200] * 12)
    with open_session("claude-sonnet-4-6") as context:
        first = context.prepare(make_history("anthropic", 0), tools=tools).tools
        forced = context.prepare(make_history("anthropic", 1), tools=tools, request={"tool_choice": choice})
        assert forced.tools[: len(tools)] == tools
        (note,) = forced.diagnostics.notes
        assert "forces a call" in note
        assert context.prepare(make_history("anthropic", 2), tools=tools).tools == first


def test_another_model_gets_what_it_can_read() -> None:
    tools = make_tools("anthropic", [200] * 12)
    with open_session("claude-sonnet-4-6") as context:
        context.prepare(make_history("anthropic", 0), tools=tools)
        other = context.prepare(make_history("anthropic", 1), tools=tools, model="claude-3-5-haiku")
        assert other.tools[: len(tools)] == tools


@pytest.mark.parametrize("api", ["anthropic", "openai-responses"])
def test_what_is_deferred_is_not_counted(api: Api) -> None:
    """The prompt's estimate has what the provider will bill: at OpenAI the descriptions stay in it."""
    tools = make_tools(api, [200] * 12)
    views = [
        ContextManager("masking", model=MODELS[api][1], store="memory:", tools=how, recall="never").prepare(
            make_messages(api, 0), tools=tools
        )
        for how in ("send", "defer")
    ]
    whole, deferred = (view.diagnostics.before for view in views)
    (note,) = [note for note in views[1].diagnostics.notes if "defer" in note]
    found = re.search(r"definitions leave each prompt, ([\d,]+) tokens", note)
    assert found
    assert int(found[1].replace(",", "")) == pytest.approx(whole - deferred, rel=0.1)


@pytest.mark.parametrize("newer", [False, True])
@pytest.mark.parametrize("tools", [None, [], [{"name": "own", "input_schema": {}}]])
def test_a_request_without_the_deferred_tools_is_sent_as_it_is(newer: bool, tools: Any) -> None:
    """A search would have nothing to find."""
    with open_session(MODELS["anthropic"][newer]) as context:
        first = context.prepare(make_history("anthropic", 0), tools=make_tools("anthropic", [200] * 12))
        other = context.prepare(make_history("anthropic", 1), tools=tools)
        assert "tool_search" not in dump(other.tools)
        assert FIND_TOOL not in dump(other.tools)
        assert not any("changed" in note for note in other.diagnostics.notes)
        again = context.prepare(make_history("anthropic", 2), tools=make_tools("anthropic", [200] * 12))
        assert again.tools == first.tools


def test_the_search_answers_by_name_and_by_words() -> None:
    tools = [
        {"name": "send_mail", "description": "Sends a letter.", "input_schema": {"properties": {"to": {}}}},
        {"name": "getWeather", "description": "Forecasts rain.", "input_schema": {"properties": {"city": {}}}},
        {"name": "listFiles", "description": "Shows a folder.", "input_schema": {"properties": {"path": {}}}},
    ]
    assert [json.loads(line)["name"] for line in find_definitions(tools, "listFiles, send_mail").splitlines()] == [
        "send_mail",
        "listFiles",
    ]
    assert find_definitions(tools, "what is the weather in a city").startswith('{"name": "getWeather"')
    assert find_definitions(tools, "rain").startswith('{"name": "getWeather"')
    assert find_definitions(tools, "xyz").startswith("[no tool fits")
    assert find_definitions([], "rain").startswith("[the definitions are here with the next request")


def test_the_library_answers_the_search() -> None:
    """A loop that gives each call to `handle_tool_call` needs nothing more."""
    tools = make_tools("openai", [200] * 12)
    with open_session("gpt-5") as context:
        view = context.prepare(make_history("openai", 0), tools=tools)
        assert view.tools[-1]["function"]["name"] != "tool_11"
        assert FIND_TOOL in [tool["function"]["name"] for tool in view.added_tools]
        answer = context.handle_tool_call(FIND_TOOL, {"query": "tool_11"})
        assert answer is not None
        assert json.loads(answer) == tools[11]["function"]
        assert context.handle_tool_call("tool_11", {}) is None
