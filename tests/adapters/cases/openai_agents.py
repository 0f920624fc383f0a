# mypy: ignore-errors
# What this imports is in an environment of its own.
"""What only the OpenAI Agents SDK has: model objects, handoffs, agents as tools, histories that the provider keeps."""

from __future__ import annotations

import logging
from contextlib import contextmanager

from agents import Agent, ModelProvider, RunConfig, Runner, function_tool
from agents.extensions import ToolOutputTrimmer
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call

from elision import Sessions
from elision.adapters.openai_agents import ElisionAgents
from elision.errors import SettingError, SpecError
from tests.adapters.case_runner import catch, catch_async

EAGER = "masking(window=3, schedule=every-turn)"


@function_tool
def look(part: int) -> str:
    """Lists a part."""
    return f"part {part}\n" + "\n".join(f"line {line} of part {part}" for line in range(200))


class Script:
    """A model that looks at some parts; `requests` has what it was sent."""

    def __init__(self, count: int, *more, id: str = "c") -> None:
        self.requests = []
        self.id = id
        steps = [*map(self._look, range(count)), *more, ModelStep(output=[assistant_message("Done.")])]
        self.model = ScriptedModel([ModelStep.respond(self._keep(step)) for step in steps])

    def _look(self, part: int) -> ModelStep:
        return ModelStep(output=[function_call("look", {"part": part}, call_id=f"{self.id}{part}")])

    def _keep(self, step: ModelStep):
        def respond(request):
            self.requests.append(request)
            return step

        return respond

    @property
    def hidden(self) -> int:
        return count_hidden(self.requests[-1].input)


class Provider(ModelProvider):
    """Finds scripts by names."""

    def __init__(self, **scripts: Script) -> None:
        self.scripts = scripts

    def get_model(self, model_name):
        return self.scripts[model_name or "main"].model


@contextmanager
def collect_lines():
    """The lines that adapters log meanwhile."""
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logging.getLogger("elision.adapters").addHandler(handler)
    yield lines
    logging.getLogger("elision.adapters").removeHandler(handler)


def count_hidden(items) -> int:
    return sum(str(item.get("output", "")).startswith("[") for item in items if isinstance(item, dict))


async def check_a_model_object_is_wrapped() -> None:
    script = Script(8)
    with ElisionAgents(EAGER, store="memory:") as elision:
        agent = Agent(name="A", model=elision.wrap_model(script.model, "gpt-5"), tools=[look, *elision.tools])
        await Runner.run(agent, "Go.", run_config=elision.run_config("t"))
        assert elision.wrap_model(agent.model) is agent.model
    assert script.hidden == 5


async def check_a_model_of_the_run_config_is_wrapped() -> None:
    script = Script(8)
    with ElisionAgents(EAGER, store="memory:") as elision:
        config = elision.run_config("t", RunConfig(model=script.model))
        await Runner.run(Agent(name="A", tools=[look]), "Go.", run_config=config)
    assert script.hidden == 5


async def check_a_model_object_that_is_not_wrapped_is_named_once() -> None:
    script = Script(8)
    with ElisionAgents(EAGER, store="memory:") as elision, collect_lines() as lines:
        agent = Agent(name="A", model=script.model, tools=[look])
        await Runner.run(agent, "Go.", run_config=elision.run_config("t"))
    assert script.hidden == 0
    assert len(lines) == 1, lines
    assert "'A'" in lines[0]


async def check_a_wrapped_model_without_a_run_config_sends_all() -> None:
    script = Script(8)
    with ElisionAgents(EAGER, store="memory:") as elision:
        agent = Agent(name="A", model=elision.wrap_model(script.model), tools=[look])
        with collect_lines() as lines:
            await Runner.run(agent, "Go.")
        assert len(elision.sessions) == 0
    assert script.hidden == 0
    assert lines == ["a wrapped model runs without run_config(thread) of Elision: nothing is hidden"]


async def check_a_list_among_the_tools_is_named() -> None:
    script = Script(2)
    with ElisionAgents(EAGER, store="memory:") as elision:
        agent = Agent(name="A", model=elision.wrap_model(script.model), tools=[look, elision.tools])
        run = Runner.run(agent, "Go.", run_config=elision.run_config("t"))
        assert "write tools=[..., *elision.tools], with a star" in await catch_async(SettingError, run)
    assert script.requests == []


async def check_arguments_in_the_wrong_place_are_named() -> None:
    with ElisionAgents(EAGER, store="memory:") as elision:
        assert "needs no wrap_model: write agent(model='gpt-5')" in catch(
            SettingError, lambda: elision.wrap_model("gpt-5")
        )
        assert "run_config('thread-7', runconfig(...))" in catch(SettingError, lambda: elision.run_config(RunConfig()))
    assert "with brackets" in catch(SpecError, lambda: ElisionAgents(RunConfig()))


async def check_a_handoff_begins_a_session() -> None:
    first = Script(6, ModelStep(output=[function_call("transfer_to_second", {}, call_id="h")]))
    second = Script(6, id="d")
    with ElisionAgents(EAGER, store="memory:") as elision:
        config = elision.run_config("t", RunConfig(model_provider=Provider(first=first, second=second)))
        other = Agent(name="second", model="second", tools=[look, *elision.tools])
        agent = Agent(name="first", model="first", tools=[look, *elision.tools], handoffs=[other])
        result = await Runner.run(agent, "Go.", run_config=config, max_turns=30)
        assert result.last_agent is other
        assert len(elision.sessions) == 2
        assert len(elision.sessions.open("t/second").turns) > len(elision.sessions.open("t/first").turns)
    assert first.hidden == 3
    assert second.hidden >= 8
    assert count_hidden(result.to_input_list()) == 0


async def check_an_agent_that_is_a_tool_has_a_session() -> None:
    outer = Script(6, ModelStep(output=[function_call("ask", {"input": "All."}, call_id="a")]))
    inner = Script(6, id="d")
    with ElisionAgents(EAGER, store="memory:") as elision:
        config = elision.run_config("t", RunConfig(model_provider=Provider(outer=outer, inner=inner)))
        helper = Agent(name="Helper", model="inner", tools=[look]).as_tool("ask", "Asks the helper.")
        await Runner.run(Agent(name="Main", model="outer", tools=[look, helper]), "Go.", run_config=config)
        assert sorted(elision.sessions._held) == ["t/Helper", "t/Main"]
    assert (outer.hidden, inner.hidden) == (4, 3)


async def check_a_history_that_the_provider_keeps_goes_out_unchanged() -> None:
    script = Script(8)
    with ElisionAgents(EAGER, store="memory:") as elision:
        config = elision.run_config("t", RunConfig(model=script.model))
        await Runner.run(Agent(name="A", tools=[look]), "Go.", run_config=config, conversation_id="conv_1")
        assert len(elision.sessions) == 0
    assert script.hidden == 0


async def check_settings_of_the_user_are_kept() -> None:
    script = Script(8)
    given = RunConfig(model=script.model, group_id="g", call_model_input_filter=ToolOutputTrimmer(recent_turns=1))
    with ElisionAgents(EAGER, store="memory:") as elision:
        config = elision.run_config("t", given)
        assert config.group_id == "g"
        await Runner.run(Agent(name="A", tools=[look]), "Go.", run_config=config)
    assert given.model is script.model
    assert script.hidden == 5


async def check_two_adapters_on_one_session() -> None:
    one, two = Script(8), Script(8, id="d")
    items = None
    for script in (one, two):
        with ElisionAgents(EAGER, store="sqlite:///shared.db") as elision:
            config = elision.run_config("t", RunConfig(model=script.model))
            given = "Go." if items is None else [*items, {"role": "user", "content": "Go on."}]
            items = (await Runner.run(Agent(name="A", tools=[look]), given, run_config=config)).to_input_list()
    assert two.requests[0].input[:5] == one.requests[-1].input[:5]
    assert two.hidden == 13


async def check_shared_sessions_stay_open() -> None:
    script = Script(8)
    with Sessions(EAGER, store="memory:", model="gpt-5") as sessions:
        with ElisionAgents(sessions=sessions) as elision:
            config = elision.run_config("t", RunConfig(model=script.model), parent="p")
            await Runner.run(Agent(name="A", tools=[look]), "Go.", run_config=config)
        assert len(sessions.open("t/A").turns) == 8
    assert script.hidden == 5


async def check_items_that_are_not_known_pass() -> None:
    """As the SDK's trimmer does: what is no result of a function stays as it is."""
    script = Script(8)
    given = [
        {"role": "user", "content": "Go."},
        {"type": "some_new_item", "payload": "x" * 5_000},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "e"},
    ]
    with ElisionAgents(EAGER, store="memory:") as elision:
        config = elision.run_config("t", RunConfig(model=script.model))
        await Runner.run(Agent(name="A", tools=[look]), given, run_config=config)
    assert list(script.requests[-1].input[:3]) == given


async def check_short_results_stay() -> None:
    """As the SDK's trimmer does: a result that is shorter than its placeholder is not hidden."""
    script = Script(8)

    @function_tool(name_override="look")
    def glance(part: int) -> str:
        """Looks at a part."""
        return "short"

    with ElisionAgents(EAGER, store="memory:") as elision:
        config = elision.run_config("t", RunConfig(model=script.model))
        await Runner.run(Agent(name="A", tools=[glance]), "Go.", run_config=config)
    assert script.hidden == 0
