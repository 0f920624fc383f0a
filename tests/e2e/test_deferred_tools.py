"""Agents with many tools on the providers' own clients: definitions leave the prompt, and calls arrive as ever."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from elision.providers.provider import Api
from elision.trajectory.tool_definitions import FIND_TOOL
from tests.e2e.agents import Agent
from tests.e2e.doors import Wire, gateway
from tests.e2e.scripted_model import Asked, Call, bash, model, text
from tests.e2e.test_recall_through_gateway import WAYS, Script, opened, shown

Json = dict[str, Any]
#: Models that search no tools, and models that do.
OLD: dict[Api, str] = {"openai": "gpt-5", "openai-responses": "gpt-5", "anthropic": "claude-sonnet-4"}
NEW: dict[Api, str] = {"openai-responses": "gpt-5.4", "anthropic": "claude-sonnet-4-6"}
WORDS = "Says at length what it is for, and when not to use it. " * 12


def make_tools(api: Api, count: int = 30) -> list[Json]:
    """Tools of about 200 tokens, each of which takes a command."""
    told = "The command, as a shell would take it. " * 4
    schema = {"type": "object", "properties": {"command": {"type": "string", "description": told}}}
    tools = []
    for number in range(count):
        about: Json = {"name": f"tool_{number}", "description": f"Runs kind {number}. {WORDS}"}
        if api == "anthropic":
            tools.append({**about, "input_schema": schema})
        elif api == "openai":
            tools.append({"type": "function", "function": {**about, "parameters": schema}})
        else:
            tools.append({"type": "function", **about, "parameters": schema, "strict": False})
    return tools


def raw_tools(asked: Asked) -> bytes:
    return bytes(msgspec.json.decode(asked.raw, type=dict[str, msgspec.Raw])["tools"])


def call(number: int) -> Call:
    return Call(id=f"d{number}", tool=f"tool_{number}", arguments_given=(("command", f"make step-{number}"),))


def find(query: str) -> Call:
    return Call(id="f1", tool=FIND_TOOL, arguments_given=(("query", query),))


@WAYS
def test_a_model_that_searches_no_tools_reads_the_definition_from_us(api: Api, streamed: bool) -> None:
    """The client sees the call of its own tool, and nothing of ours; the head has the same bytes in every request."""
    tools = make_tools(api)
    script = Script(lambda asked: [text("I look.", "a"), find("tool_25")], lambda asked: [call(25)], first=0)
    with model(script) as upstream, gateway(upstream.url, tools="defer") as door:
        agent = opened(api, Wire(), door, streamed, model=OLD[api], more={"tools": tools})
        with agent.client:
            agent.run(4)
    assert upstream.problems == []
    assert shown(agent.answers[0]) == ("I look.", ["tool_25"])
    assert "elision" not in agent.seen
    assert len(upstream.asked) == 5
    first, second, *later = upstream.asked
    assert WORDS[:40] not in json.dumps(first.body["tools"][25])
    assert first.body["tools"][0] == tools[0]
    assert "tool_25" in first.tools
    assert any(b"Runs kind 25. Says at length" in each for each in second.messages)
    for asked in (second, *later):
        assert raw_tools(asked) == raw_tools(first)
        # The client writes an item's fields in another order than it came in.
        assert [*map(json.loads, asked.messages)][: len(second.messages)] == [*map(json.loads, second.messages)]
    assert len(raw_tools(first)) < 0.6 * len(json.dumps(tools))


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("api", NEW)
def test_a_model_that_searches_tools_is_given_them_to_search(api: Api, streamed: bool) -> None:
    tools = make_tools(api)
    if api == "anthropic":
        tools[-1]["cache_control"] = {"type": "ephemeral"}
    with model(Script(lambda asked: [call(25)], first=0)) as upstream, gateway(upstream.url, tools="defer") as door:
        agent = opened(api, Wire(), door, streamed, model=NEW[api], more={"tools": tools})
        with agent.client:
            agent.run(3)
    assert upstream.problems == []
    assert shown(agent.answers[0])[1] == ["tool_25"]
    sent = upstream.asked[0].body["tools"]
    search, *others = sent
    assert search["type"].startswith("tool_search")
    deferred = [tool for tool in others if tool.get("defer_loading")]
    assert [tool["name"] for tool in others[: len(tools)]] == [tool["name"] for tool in tools]
    assert 0 < len(deferred) < len(tools)
    assert not any("cache_control" in tool for tool in deferred)
    assert sum("cache_control" in tool for tool in others) == (api == "anthropic")
    assert {raw_tools(asked) for asked in upstream.asked} == {raw_tools(upstream.asked[0])}


def test_a_provider_that_refuses_gets_the_clients_own_tools() -> None:
    """A server that takes no `defer_loading` costs one request: the session is left alone from then on."""

    def refuse(asked: Asked) -> Any:
        if "defer_loading" in json.dumps(asked.body["tools"]):
            return 400, {"type": "error", "error": {"type": "invalid_request_error", "message": "no such field"}}
        return [bash(len(asked.messages))]

    tools = make_tools("anthropic")
    with model(refuse) as upstream, gateway(upstream.url, tools="defer") as door:
        agent: Agent = opened("anthropic", Wire(), door, False, model=NEW["anthropic"], more={"tools": tools})
        with agent.client:
            agent.run(3)
    assert [asked.body["tools"] == tools for asked in upstream.asked] == [False, True, True, True]


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "tool_3"}}, "none"])
def test_a_forced_first_call_leaves_the_session_as_it_is(choice: Any) -> None:
    """Also where later requests leave the choice to the model: the head stays what it was."""
    tools = make_tools("openai")
    with model(lambda asked: [call(3)]) as upstream, gateway(upstream.url, tools="defer") as door:
        agent = opened("openai", Wire(), door, False, model="gpt-5", more={"tools": tools, "tool_choice": choice})
        with agent.client:
            agent.step()
            agent.more["tool_choice"] = "auto"
            agent.run(2)
    assert [asked.body["tools"] == tools for asked in upstream.asked] == [True] * 3
