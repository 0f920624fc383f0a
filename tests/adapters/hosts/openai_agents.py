# mypy: ignore-errors
# What this imports is in an environment of its own.
"""The OpenAI Agents SDK, with a session in SQLite.

The hook is called for each run and sub-agent, as `hook(settings, session, run_config)`, and returns `(run_config,
tools)`: the `RunConfig` of that run, whose provider has the scripted model, and the adapter's tools.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from typing import Any, ClassVar

from agents import Agent, Model, ModelProvider, RunConfig, Runner, SQLiteSession, function_tool
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call
from agents.tool import ToolOutputImage, ToolOutputText
from agents.usage import Usage
from openai import BadRequestError
from openai.types.responses.response_usage import InputTokensDetails

from tests.adapters.hosts.provider_errors import make_overflow
from tests.adapters.recording import Call, Message, digest_image, take_turns
from tests.adapters.scenarios import PIXEL, SYSTEM, Run, describe_failure, list_part
from tests.adapters.stage import FrameworkHost, Stage

#: More steps than any scenario has.
_MANY = 200


def read_item(item: Any) -> list[Message]:
    """Return the neutral form of an item of the Responses API."""
    kind = item.get("type", "message")
    if kind == "function_call":
        call = Call(item["call_id"], item["name"], json.loads(item["arguments"]))
        return [Message("assistant", calls=[call])]
    if kind == "function_call_output":
        made = Message("tool", answers=item["call_id"])
        _read_content(made, item["output"])
        return [made]
    made = Message(item["role"])
    _read_content(made, item["content"])
    return [made]


def _read_content(made: Message, content: Any) -> None:
    for part in [{"text": content}] if isinstance(content, str) else content:
        made.text += part.get("text", "")
        if url := part.get("image_url"):
            made.images.append(digest_image(url.partition(",")[2].encode()))


def read_items(items: Any) -> list[Message]:
    """Return the neutral form of a list of items: the calls of one response are one message."""
    made: list[Message] = []
    for item in items:
        message = read_item(item)[0]
        joins = made and made[-1].role == "assistant" and message.role == "assistant" and message.calls
        if joins and made[-1].calls:
            made[-1].calls += message.calls
        else:
            made.append(message)
    return made


class TappedModel(ScriptedModel):
    """The SDK's own scripted model; it notes the items that it is given, which the SDK's then copies."""

    def __init__(self, stage: Stage, agent: str, steps: list[ModelStep]) -> None:
        super().__init__(steps)
        self.stage, self.agent = stage, agent

    async def get_response(self, system_instructions: Any, input: Any, *others: Any, **named: Any) -> Any:
        self.stage.recorder.note_sent(self.agent, input, read_item)
        return await super().get_response(system_instructions, input, *others, **named)

    async def stream_response(
        self, system_instructions: Any, input: Any, *others: Any, **named: Any
    ) -> AsyncIterator[Any]:
        self.stage.recorder.note_sent(self.agent, input, read_item)
        async for event in super().stream_response(system_instructions, input, *others, **named):
            yield event


class TappedProvider(ModelProvider):
    """Finds the scripted model, under whichever name."""

    def __init__(self, stage: Stage, player: Any) -> None:
        self.model = make_model(stage, player)

    def get_model(self, model_name: str | None) -> Model:
        return self.model


def make_model(stage: Stage, player: Any) -> ScriptedModel:
    """Return the scripted model that plays `player`."""

    def respond(call: Any) -> ModelStep:
        items = [{"role": "user", "content": call.input}] if isinstance(call.input, str) else call.input
        system = [Message("system", call.system_instructions)] if call.system_instructions else []
        tools = [{"name": tool.name, "parameters": tool.params_json_schema} for tool in call.tools]
        answer = player.answer([*system, *read_items(items)], tools)
        if answer.overflow:
            return ModelStep.raise_error(make_overflow(BadRequestError, answer))
        output = [function_call(each.tool, each.arguments, call_id=each.id) for each in answer.calls]
        found = answer.usage
        usage = Usage(
            requests=1,
            input_tokens=found.prompt,
            input_tokens_details=InputTokensDetails(cached_tokens=found.cached, cache_write_tokens=found.written),
            output_tokens=found.output,
            total_tokens=found.prompt + found.output,
        )
        return ModelStep(output=output or [assistant_message(answer.text)], usage=usage)

    return TappedModel(stage, player.agent, [ModelStep.respond(respond) for _ in range(_MANY)])


@function_tool
def look(part: int) -> str:
    """Lists a part."""
    return list_part(part)


@function_tool(failure_error_function=lambda context, error: str(error))
def fail(part: int) -> str:
    """Lists a part that cannot be read."""
    raise ValueError(describe_failure(part))


@function_tool
def picture(part: int) -> Any:
    """Shows a part."""
    url = f"data:image/png;base64,{base64.b64encode(PIXEL).decode()}"
    return [ToolOutputText(text=list_part(part)), ToolOutputImage(image_url=url)]


class Host(FrameworkHost):
    PACKAGES = ("openai-agents", "openai")
    MISSING: ClassVar = {"bound_thinking": "the SDK has no client for Anthropic's API of its own"}

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.database = str(stage.folder / "sessions.db")

    async def run(self, run: Run) -> str:
        session = SQLiteSession(run.thread, self.database)
        if run.begin == "fork":
            await self._copy_turns(run, session)
        config, more = self._attach(run.thread, self.stage.make_player(run))
        agent = Agent(
            name="main",
            instructions=SYSTEM,
            model=run.model,
            tools=[look, fail, picture, self._make_delegate(run), *more],
        )
        options: Any = {
            "session": session,
            "run_config": config,
            "max_turns": _MANY,
        }
        if run.stream:
            streamed = Runner.run_streamed(agent, run.prompt, **options)
            async for _ in streamed.stream_events():
                pass
            return str(streamed.final_output)
        if run.door == "sync":
            # In a thread without a loop, as `run_sync` asks for one.
            return str((await asyncio.to_thread(_run_sync, agent, run.prompt, options)).final_output)
        return str((await Runner.run(agent, run.prompt, **options)).final_output)

    def _make_delegate(self, run: Run) -> Any:
        async def delegate(part: int) -> str:
            """Asks another agent for a part."""
            player = self.stage.make_child_player(run)
            config, more = self._attach(player.agent, player)
            agent = Agent(name="lister", instructions=SYSTEM, model=run.model, tools=[look, *more])
            asked = f"List all of part {part}."
            result = await Runner.run(agent, asked, run_config=config, max_turns=_MANY)
            return str(result.final_output)

        return function_tool(delegate)

    def _attach(self, agent: str, player: Any) -> tuple[RunConfig, list[Any]]:
        def filter_input(data: Any) -> Any:
            self.stage.recorder.note_given(agent, data.model_data.input)
            return data.model_data

        config = RunConfig(model_provider=TappedProvider(self.stage, player), call_model_input_filter=filter_input)
        return self.stage.attach(agent, config) or (config, [])

    async def _copy_turns(self, run: Run, session: SQLiteSession) -> None:
        items = await SQLiteSession(run.source, self.database).get_items()
        # Each call is an item: a message may be several.
        for end in range(len(items), 0, -1):
            messages = read_items(items[:end])
            if len(messages) == take_turns(read_items(items), run.turns) and messages[-1].role == "tool":
                await session.add_items(items[:end])
                return

    async def read_history(self, thread: str) -> list[Message]:
        return read_items(await SQLiteSession(thread, self.database).get_items())


def _run_sync(agent: Any, prompt: str, options: Any) -> Any:
    asyncio.set_event_loop(asyncio.new_event_loop())
    return Runner.run_sync(agent, prompt, **options)
