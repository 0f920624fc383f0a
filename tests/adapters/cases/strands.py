# mypy: ignore-errors
# What this imports is in an environment of its own.
"""What only Strands has: Bedrock's blocks, cache points, counts of many providers, models for a call, its managers."""

from __future__ import annotations

import importlib
import json
from unittest import mock

from strands import Agent, tool
from strands.agent.conversation_manager import SlidingWindowConversationManager
from strands.models import Model
from strands.models.anthropic import AnthropicModel
from strands.types.exceptions import ContextWindowOverflowException

from elision import Sessions, Usage
from elision.adapters import strands as adapter
from elision.adapters.frameworks import FrameworkError
from elision.adapters.strands import ElisionStrandsPlugin
from tests.adapters.case_runner import catch
from tests.adapters.scenarios import list_part

EAGER = "masking(window=3, schedule=every-turn)"


class Script(Model):
    """A model that looks at `count` parts, and then ends. refusals: at which request, and with which words."""

    def __init__(self, count, refusals=()):
        self.count, self.refusals, self.requests = count, dict(refusals), []

    def get_config(self):
        return {"model_id": "gpt-5"}

    def update_config(self, **config):
        pass

    def structured_output(self, *arguments, **options):
        raise NotImplementedError

    async def stream(self, messages, tool_specs=None, system_prompt=None, **options):
        self.requests.append(messages)
        if words := self.refusals.get(len(self.requests)):
            raise ContextWindowOverflowException(words)
        number = len(self.requests) - 1 - sum(at <= len(self.requests) for at in self.refusals)
        yield {"messageStart": {"role": "assistant"}}
        if number < self.count:
            yield {"contentBlockStart": {"start": {"toolUse": {"toolUseId": f"c{number}", "name": "look"}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps({"part": number})}}}}
        else:
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": "Done."}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if number < self.count else "end_turn"}}


@tool
def look(part: int) -> str:
    """Lists a part."""
    return list_part(part)


def make_agent(model, plugin, **options):
    plugins = plugin if isinstance(plugin, list) else [plugin]
    given = {"context_manager": False, **options}
    return Agent(model=model, tools=[look], plugins=plugins, callback_handler=None, **given)


def make_result(id, text, **fields):
    return {"toolResult": {"toolUseId": id, "status": "success", "content": [{"text": text}], **fields}}


def make_history(count, extra=()):
    made = [{"role": "user", "content": [{"text": "Go."}]}]
    for at in range(count):
        made.append(
            {"role": "assistant", "content": [{"toolUse": {"toolUseId": f"c{at}", "name": "look", "input": {}}}]}
        )
        made.append({"role": "user", "content": [make_result(f"c{at}", list_part(at)), *extra]})
    return made


def restore(history, mirror=adapter._MIRROR):
    tools = [{"name": "elision_recall", "description": "", "input_schema": {"type": "object"}}]
    with Sessions(EAGER, store="memory:") as sessions:
        mirrored = mirror.translate(history)
        return mirrored.restore(sessions.open("s").prepare(mirrored.plain, tools=tools))


def count_hidden(messages):
    return sum("tokens hidden" in str(message) for message in messages)


def check_cache_points_stay_behind_their_blocks():
    point = {"cachePoint": {"type": "default"}}
    restored = restore(make_history(8, extra=[point]))
    assert count_hidden(restored) == 5
    assert all(message["content"][-1] == point for message in restored if "toolResult" in message["content"][0])


def check_unknown_blocks_and_messages_pass_through():
    document = {"document": {"format": "pdf", "name": "a", "source": {"bytes": b"%PDF"}}}
    history = [*make_history(8, extra=[document, {"newBlock": {"a": 1}}]), {"role": "critic", "content": "?"}]
    restored = restore(history)
    assert count_hidden(restored) == 5
    assert restored[2]["content"][1] is document
    assert restored[2]["content"][2] == {"newBlock": {"a": 1}}
    assert restored[-1] is history[-1]


def check_usage_is_read_as_the_provider_counts():
    counts = {"inputTokens": 100, "outputTokens": 10, "cacheReadInputTokens": 800, "cacheWriteInputTokens": 50}
    apart = Usage(input=100, output=10, cache_read=800, cache_write=50)
    assert adapter._read_usage({**counts, "totalTokens": 960}) == apart
    counts["inputTokens"] = 950
    assert adapter._read_usage({**counts, "totalTokens": 960}) == apart
    assert adapter._read_usage({"inputTokens": 0, "outputTokens": 0, "totalTokens": 0}) is None


def check_a_model_is_extended_for_one_call_alone():
    headers = {"extra_headers": {"anthropic-beta": "own-beta"}}
    model = AnthropicModel(client_args={"api_key": "none"}, model_id="m", max_tokens=10, params=headers)
    view = mock.Mock(extra={"context_management": {"edits": []}}, betas=("our-beta",))
    params = adapter._extend_model(model, view).config["params"]
    assert params["extra_body"] == view.extra
    assert params["extra_headers"]["anthropic-beta"] == "own-beta,our-beta"
    assert model.config["params"] == {"extra_headers": {"anthropic-beta": "own-beta"}}
    bedrock = type("BedrockModel", (), {})()
    bedrock.config = {"additional_request_fields": {"anthropic_beta": ["own-beta"]}}
    fields = adapter._extend_model(bedrock, view).config["additional_request_fields"]
    assert fields == {"anthropic_beta": ["own-beta", "our-beta"], **view.extra}
    assert bedrock.config == {"additional_request_fields": {"anthropic_beta": ["own-beta"]}}
    other = Script(1)
    assert adapter._extend_model(other, view) is other


def check_an_overflow_counts_whatever_its_words():
    model = Script(10, {8: "no room in here"})
    with ElisionStrandsPlugin("masking(window=6)", store="memory:") as elision:
        agent = make_agent(model, elision)
        assert str(agent("Go.")).strip() == "Done."
    assert count_hidden(model.requests[7]) == 0 < count_hidden(model.requests[8])
    assert count_hidden(agent.messages) == 0


def check_a_second_overflow_reaches_strands():
    model = Script(10, {8: "no room in here", 9: "nor now"})
    with ElisionStrandsPlugin("masking(window=6)", store="memory:") as elision:
        assert "nor now" in catch(ContextWindowOverflowException, lambda: make_agent(model, elision)("Go."))


def check_two_plugins_on_one_agent_are_refused():
    with ElisionStrandsPlugin(store="memory:") as one, ElisionStrandsPlugin(store="memory:") as two:
        assert "already registered" in catch(ValueError, lambda: make_agent(Script(1), [one, two]))


def check_one_plugin_serves_two_agents_over_a_shared_pool():
    with Sessions(EAGER, store="memory:") as sessions:
        with ElisionStrandsPlugin(sessions=sessions) as elision:
            models = [Script(8), Script(8)]
            for model in models:
                make_agent(model, elision)("Go.")
        assert [count_hidden(model.requests[-1]) for model in models] == [5, 5]
        assert len(sessions) == 2
        sessions.open("still open")


def check_its_own_window_may_stay():
    """Its tests have a window that trims a long run: then there is less to hide, and the run ends."""
    model = Script(30)
    manager = SlidingWindowConversationManager(window_size=12, per_turn=True)
    with ElisionStrandsPlugin(EAGER, store="memory:") as elision:
        agent = make_agent(model, elision, context_manager=None, conversation_manager=manager)
        assert str(agent("Go.")).strip() == "Done."
    assert len(model.requests) == 31


def check_an_old_version_is_named():
    with mock.patch("elision.adapters.frameworks.metadata.version", return_value="1.61.0"):
        assert "1.62.0 or newer; 1.61.0 is installed" in catch(FrameworkError, lambda: importlib.reload(adapter))
