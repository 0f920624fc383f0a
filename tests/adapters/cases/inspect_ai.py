# mypy: ignore-errors
# What this imports is in an environment of its own.
"""What only Inspect has: errors beside contents, ids, system messages, answers that stop for their length."""

from __future__ import annotations

import importlib
from typing import Any, get_type_hints
from unittest import mock

from inspect_ai.agent import AgentState
from inspect_ai.model import (
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageTool,
    ChatMessageUser,
    ContentImage,
    ContentReasoning,
    ContentText,
    GenerateConfig,
    ModelOutput,
    ModelUsage,
    get_model,
)
from inspect_ai.model._call_tools import tool_params
from inspect_ai.tool import ToolCall, ToolCallError

from elision import Sessions
from elision.adapters import inspect_ai as adapter
from elision.adapters.frameworks import FrameworkError
from elision.adapters.inspect_ai import ElisionInspect
from tests.adapters.case_runner import catch
from tests.adapters.scenarios import list_part

EAGER = "masking(window=3, schedule=every-turn)"


def make_history(count, error=None):
    made = [ChatMessageSystem(content="Be careful."), ChatMessageUser(content="Go.")]
    for at in range(count):
        call = ToolCall(id=f"c{at}", function="look", arguments={"part": at})
        made.append(ChatMessageAssistant(content="", tool_calls=[call]))
        made.append(ChatMessageTool(content=list_part(at), tool_call_id=f"c{at}", function="look", error=error))
    return made


def make_usage():
    return ModelUsage(input_tokens=10, output_tokens=5, total_tokens=15)


def make_model(outputs, requests):
    def respond(messages, tools, tool_choice, config):
        requests.append(list(messages))
        output = outputs[min(len(requests), len(outputs)) - 1]
        output.usage = make_usage()
        return output

    return get_model("mockllm/model", custom_outputs=respond, memoize=False)


def count_hidden(messages):
    return sum("tokens hidden" in message.text for message in messages)


async def check_a_state_keeps_its_messages():
    requests = []
    model = make_model([ModelOutput.from_content("mockllm/model", "Done.")], requests)
    history = make_history(8)
    with ElisionInspect(EAGER, model="gpt-5", store="memory:") as elision:
        state = await elision.make_model(model)(AgentState(messages=list(history)), elision.tools)
    assert count_hidden(requests[0]) == 5
    assert requests[0][0] == history[0]
    assert all(one is two for one, two in zip(state.messages, history, strict=False))
    assert state.messages[-1].text == "Done."


async def check_an_answer_that_stops_for_its_length_is_asked_again_once():
    long = "prompt is too long: 9000 tokens > 5000 maximum"
    outputs = [ModelOutput.from_content("mockllm/model", long, stop_reason="model_length") for _ in range(2)]
    for second in (outputs[1], ModelOutput.from_content("mockllm/model", "Done.")):
        requests = []
        model = make_model([outputs[0], second], requests)
        with ElisionInspect("masking(window=6)", model="gpt-5", store="memory:") as elision:
            state = await elision.make_model(model)(AgentState(messages=make_history(9)), elision.tools)
        assert len(requests) == 2
        assert count_hidden(requests[0]) < count_hidden(requests[1])
        assert state.output.stop_reason == second.stop_reason


def check_a_failed_result_stays_failed():
    """What a provider is sent of it is the error's text, so that is what is hidden."""
    error = ToolCallError("unknown", list_part(99))
    history = make_history(8, error)
    mirrored = adapter._MIRROR.translate(history)
    tools = [{"name": "elision_recall", "description": "", "input_schema": {"type": "object"}}]
    with Sessions(EAGER, store="memory:") as sessions:
        restored = mirrored.restore(sessions.open("s").prepare(mirrored.plain, tools=tools))
    assert "tokens hidden" in restored[3].error.message
    assert restored[3].error.type == "unknown"
    assert restored[3].id == f"{history[3].id}-elision"
    assert history[3].error.message == list_part(99)


def check_contents_are_translated():
    said = ChatMessageAssistant(
        content=[
            ContentReasoning(reasoning="Hm.", signature="s"),
            ContentReasoning(reasoning="sealed", redacted=True),
            ContentText(text="Yes."),
            ContentImage(image="https://a.example/b.png"),
            ContentImage(image="data:image/png;base64,AAAA"),
        ]
    )
    ((plain),) = adapter._convert_message(said)
    assert [block["type"] for block in plain["content"]] == ["thinking", "redacted_thinking", "text", "image", "image"]
    assert plain["content"][4]["source"] == {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    assert adapter._convert_message(ChatMessageSystem(content="Be careful.")) == []
    assert adapter._convert_message({"role": "critic"}) == []


def check_fields_of_the_request_are_added_to_the_models_own():
    config = GenerateConfig(extra_body={"own": 1}, extra_headers={"anthropic-beta": "own-beta", "x": "y"})
    call = mock.Mock(view=mock.Mock(extra={"context_management": {"edits": []}}, betas=("our-beta",)))
    made = adapter._make_config(mock.Mock(config=config), call)
    assert made.extra_body == {"own": 1, "context_management": {"edits": []}}
    assert made.extra_headers == {"anthropic-beta": "own-beta,our-beta", "x": "y"}
    assert config.extra_body == {"own": 1}


def check_histories_outside_of_an_evaluation_have_sessions():
    one, two = make_history(1), make_history(1)
    assert adapter._name_session(one) == f"run/{one[1].id}" != adapter._name_session(two)
    assert adapter._name_session([]) == "run/"


def check_an_old_version_is_named():
    with mock.patch("elision.adapters.frameworks.metadata.version", return_value="0.3.100"):
        assert "0.3.159 or newer; 0.3.100 is installed" in catch(FrameworkError, lambda: importlib.reload(adapter))


def check_recall_tools_take_all_arguments():
    """Inspect 0.3.159 passes on only what a tool's signature names, unless it has `**kwargs: Any`."""
    with ElisionInspect(store="memory:") as elision:
        for tool in elision.tools:
            assert tool_params({"handle": "t1.1", "head": 2}, tool) == {"handle": "t1.1", "head": 2}
            assert get_type_hints(tool)["kwargs"] is Any
