# mypy: ignore-errors
# What this imports is in an environment of its own.
"""What only `llm` has: a plugin of the command, models with keys, prompts without a conversation."""

from __future__ import annotations

import os
from types import SimpleNamespace

import llm
from llm.plugins import load_plugins

from elision.adapters import llm_plugin
from elision.adapters.llm import ElisionLLM
from elision.stores.store_urls import locate_store
from tests.adapters.scenarios import list_part

EAGER = "masking(window=3, schedule=every-turn)"


class Script(llm.KeyModel):
    """A model with a key that looks at 8 parts."""

    model_id = "gpt-5"
    supports_tools = True
    needs_key = "script"

    def __init__(self) -> None:
        self.hidden = 0
        self.keys = set()

    def execute(self, prompt, stream, response, conversation, key):
        self.keys.add(key)
        outputs = [getattr(part, "output", "") for message in prompt.messages for part in message.parts]
        self.hidden = sum(output.startswith("[") for output in outputs)
        done = sum(message.role == "assistant" for message in prompt.messages)
        if done < 8:
            call = llm.ToolCall(tool_call_id=f"c{done}", name="look", arguments={"part": done})
            response.add_tool_call(call)
        yield "" if done < 8 else "Done."


def look(part: int) -> str:
    """Lists a part."""
    return list_part(part)


def check_a_key_reaches_the_model() -> None:
    script = Script()
    with ElisionLLM(EAGER, store="memory:") as elision:
        conversation = elision.wrap_model(script).conversation()
        text = conversation.chain("Go.", tools=[look], chain_limit=0, key="secret").text()
    assert text == "Done."
    assert script.keys == {"secret"}
    assert script.hidden == 5


def check_a_prompt_without_a_conversation_is_sent() -> None:
    script = Script()
    with ElisionLLM(EAGER, store="memory:") as elision:
        response = elision.wrap_model(script).prompt("Go.", tools=[look], key="secret")
        assert response.text() == ""
        assert len(response.tool_calls()) == 1
        assert len(elision.sessions) == 0


def check_the_plugin_has_a_model_for_each_that_takes_tools() -> None:
    plain = SimpleNamespace(model=SimpleNamespace(supports_tools=False), async_model=None)
    made = []
    tools = []
    llm_plugin.register_models(
        lambda *models: made.append(models), [SimpleNamespace(model=Script(), async_model=None), plain]
    )
    llm_plugin.register_tools(tools.append)
    assert [model.model_id for model, _ in made] == ["elision/gpt-5"]
    assert [tool.name for tool in tools] == ["elision_recall", "elision_search"]


def check_the_command_s_models_have_their_settings_late() -> None:
    """A wrong setting is logged by the first call; nothing is opened before it, and the model is asked."""
    os.environ["LLM_USER_PATH"] = os.getcwd()
    os.environ["AGENT_CONTEXT_STRATEGY"] = "no-such-strategy"
    load_plugins()
    assert "elision" not in os.listdir()
    script = Script()
    made = []
    llm_plugin.register_models(
        lambda *models: made.append(models[0]), [SimpleNamespace(model=script, async_model=None)]
    )
    assert made[0].conversation().chain("Go.", tools=[look], chain_limit=0, key="k").text() == "Done."
    assert script.hidden == 0
    os.environ.update({"AGENT_CONTEXT_STRATEGY": EAGER, "AGENT_CONTEXT_TOOLS": "defer"})
    assert made[0].conversation().chain("Go.", tools=[look], chain_limit=0, key="k").text() == "Done."
    assert script.hidden == 0
    del os.environ["AGENT_CONTEXT_TOOLS"]
    assert made[0].conversation().chain("Go.", tools=[look], chain_limit=0, key="k").text() == "Done."
    assert script.hidden == 5
    assert os.path.exists(locate_store("sqlite:").removeprefix("sqlite:///"))
