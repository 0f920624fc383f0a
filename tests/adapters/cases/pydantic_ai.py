# mypy: ignore-errors
# What this imports is in an environment of its own.
"""What only Pydantic AI has: parts of a request, system prompts, retries, structured output, models around models."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel
from pydantic_ai import Agent, BinaryContent, ModelRetry
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.messages import (
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import FunctionModel

from elision import Sessions
from elision.adapters.pydantic_ai import ANTHROPIC_MIRROR, OPENAI_MIRROR, ElisionCapability
from tests.adapters.scenarios import PIXEL, list_part

EAGER = "masking(window=3, schedule=every-turn)"


class Script:
    """A model that looks at some parts, and then ends; `requests` has what it was sent."""

    def __init__(self, count: int, end=None) -> None:
        self.requests = []
        self.count = count
        self.end = end or TextPart("Done.")
        self.model = FunctionModel(self.respond, model_name="gpt-5")

    def respond(self, messages, info):
        done = max(len(self.requests), sum(isinstance(message, ModelResponse) for message in messages))
        self.requests.append(messages)
        last = self.end(info) if callable(self.end) else self.end
        part = ToolCallPart("look", {"part": done}, f"c{done}") if done < self.count else last
        return ModelResponse(parts=[part])

    @property
    def hidden(self) -> int:
        return count_hidden(self.requests[-1])


def count_hidden(messages) -> int:
    return sum(str(part.content).startswith("[") for part in list_results(messages))


def list_results(messages):
    return [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]


def look(part: int) -> str:
    """Lists a part."""
    return list_part(part)


def make_history(count: int):
    """Return a request of several parts, and then calls with their results."""
    made = [ModelRequest(parts=[SystemPromptPart("Be careful."), UserPromptPart("Go.")])]
    for at in range(count):
        made.append(ModelResponse(parts=[ToolCallPart("look", {"part": at}, f"c{at}")]))
        made.append(ModelRequest(parts=[ToolReturnPart("look", list_part(at), f"c{at}")]))
    return made


def check_system_prompts_stay_where_they_are() -> None:
    """Anthropic has them beside the messages, and OpenAI among them."""
    history = make_history(8)
    for mirror, first in ((ANTHROPIC_MIRROR, "user"), (OPENAI_MIRROR, "system")):
        with Sessions(EAGER, store="memory:") as sessions:
            mirrored = mirror.translate(history)
            assert mirrored.plain[0]["role"] == first
            restored = mirrored.restore(sessions.open("s").prepare(mirrored.plain))
        assert restored[0] is history[0]
        assert count_hidden(restored) == 5
        assert count_hidden(history) == 0


def check_thinking_is_translated() -> None:
    said = ModelResponse(parts=[ThinkingPart("Hm.", signature="s"), TextPart("Yes.")])
    (plain,) = ANTHROPIC_MIRROR.to_plain(said)
    assert plain["content"][0] == {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    (plain,) = OPENAI_MIRROR.to_plain(said)
    assert plain["reasoning_content"] == "Hm."
    assert plain["thinking_blocks"][0]["signature"] == "s"


def check_images_are_translated() -> None:
    part = ToolReturnPart("show", ["A picture", BinaryContent(PIXEL, media_type="image/png")], "c")
    (plain,) = OPENAI_MIRROR.to_plain(ModelRequest(parts=[part]))
    assert [block["type"] for block in plain["content"]] == ["text", "image_url"]
    (plain,) = ANTHROPIC_MIRROR.to_plain(ModelRequest(parts=[part]))
    assert [block["type"] for block in plain["content"][0]["content"]] == ["text", "image"]


def check_unknown_parts_pass() -> None:
    @dataclass
    class NewPart:
        content: str = "new"
        part_kind: str = "new"

    history = make_history(8)
    new = NewPart()
    history[2] = ModelRequest(parts=[new, *history[2].parts])
    for mirror in (ANTHROPIC_MIRROR, OPENAI_MIRROR):
        with Sessions(EAGER, store="memory:") as sessions:
            mirrored = mirror.translate(history)
            restored = mirrored.restore(sessions.open("s").prepare(mirrored.plain))
        assert restored[2].parts[0] is new
        assert restored[2].parts[1].content.startswith("[")


async def check_a_failed_call_stays_one() -> None:
    """A tool that asks for another try is a result that is an error, also after it is hidden."""
    script = Script(8)

    def refuse(part: int) -> str:
        """Lists a part."""
        if part == 1:
            raise ModelRetry(list_part(part))
        return list_part(part)

    with ElisionCapability(EAGER, store="memory:") as elision:
        agent = Agent(script.model, capabilities=[elision], retries=3)
        agent.tool_plain(name="look")(refuse)
        await agent.run("Go.")
    results = list_results(script.requests[-1])
    assert results[1].outcome == "retried"
    assert results[1].content.startswith("[t2.1 "), results[1].content
    assert script.hidden == 5


async def check_structured_output() -> None:
    class Answer(BaseModel):
        count: int

    script = Script(8, lambda info: ToolCallPart(info.output_tools[0].name, {"count": 8}, "end"))
    with ElisionCapability(EAGER, store="memory:") as elision:
        agent = Agent(script.model, tools=[look], capabilities=[elision], output_type=Answer)
        result = await agent.run("Go.")
    assert result.output.count == 8
    assert script.hidden == 5


async def check_a_model_behind_another_is_served() -> None:
    def refuse(messages, info):
        raise ModelRetry("never reached")

    script = Script(8)
    with ElisionCapability(EAGER, store="memory:") as elision:
        agent = Agent(FallbackModel(script.model, FunctionModel(refuse)), tools=[look], capabilities=[elision])
        await agent.run("Go.")
    assert script.hidden == 5


async def check_two_adapters_on_one_session() -> None:
    """A later process goes on with a stored history, and begins with the same bytes."""
    one, two = Script(8), Script(16)
    stored = None
    for script in (one, two):
        with ElisionCapability(EAGER, store="sqlite:///shared.db") as elision:
            agent = Agent(script.model, tools=[look], capabilities=[elision])
            history = None if stored is None else ModelMessagesTypeAdapter.validate_json(stored)
            stored = (await agent.run("Go on.", message_history=history)).all_messages_json()
    first, second = list_results(one.requests[-1]), list_results(two.requests[0])
    assert [part.content for part in first[:5]] == [part.content for part in second[:5]]
    assert two.hidden >= 12


async def check_a_history_processor_still_works() -> None:
    """The framework's own way to drop messages: what it keeps is what is hidden from."""
    script = Script(12)
    cut = ProcessHistory(lambda messages: messages[:1] + messages[-8:] if len(messages) > 9 else messages)
    with ElisionCapability(EAGER, store="memory:") as elision:
        agent = Agent(script.model, tools=[look], capabilities=[cut, elision])
        result = await agent.run("Go.", message_history=make_history(6))
    assert result.output == "Done."


async def check_shared_sessions_stay_open() -> None:
    script = Script(8)
    with Sessions(EAGER, store="memory:", model="gpt-5") as sessions:
        with ElisionCapability(sessions=sessions) as elision:
            result = await Agent(script.model, tools=[look], capabilities=[elision]).run("Go.")
        assert len(sessions.open(result.conversation_id).turns) == 8
    assert script.hidden == 5


async def check_nothing_is_held_after_a_run() -> None:
    def fail(messages, info):
        raise RuntimeError("the provider is down")

    script = Script(8)
    with ElisionCapability(EAGER, store="memory:") as elision:
        await Agent(script.model, tools=[look], capabilities=[elision]).run("Go.")
        error = ""
        try:
            await Agent(FunctionModel(fail), capabilities=[elision]).run("Go.")
        except RuntimeError as found:
            error = str(found)
        assert "the provider is down" in error
        assert not elision._due
        assert not elision._repeated
