# mypy: ignore-errors
# What this imports is in an environment of its own.
"""Agno, with sessions in JSON files.

The hook is called for each agent, as `hook(settings, model)`, and returns `(model, tools)`: the model to ask, and the
adapter's tools.
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from agno.agent import Agent
from agno.agent._session import save_run
from agno.db.json import JsonDb
from agno.exceptions import ContextWindowExceededError
from agno.media import Image
from agno.metrics import MessageMetrics
from agno.models.base import Model
from agno.models.message import Message as AgnoMessage
from agno.models.response import ModelResponse
from agno.tools.function import ToolResult

from tests.adapters.recording import Answer, Call, Message, digest_image, take_turns
from tests.adapters.scenarios import PIXEL, SYSTEM, Run, describe_failure, list_part
from tests.adapters.stage import FrameworkHost, Stage


def read_message(message: AgnoMessage) -> list[Message]:
    """Return the neutral form of a message."""
    content = message.content if isinstance(message.content, str) else message.get_content_string()
    made = Message(message.role, content or "", answers=message.tool_call_id or "")
    for call in message.tool_calls or () if message.role == "assistant" else ():
        made.calls.append(Call(call["id"], call["function"]["name"], json.loads(call["function"]["arguments"])))
    made.images = [digest_image(image.content) for image in message.images or () if image.content]
    if message.role == "tool":
        made.failed = bool(message.tool_call_error)
    return [made]


@dataclass
class ScriptedModel(Model):
    """A model that plays a script."""

    id: str = ""
    player: Any = None
    stage: Any = None

    def __deepcopy__(self, memo: Any) -> Any:
        return self

    def _answer(self, messages: Any, tools: Any) -> ModelResponse:
        self.stage.recorder.note_sent(self.player.agent, messages, read_message)
        functions = [tool["function"] for tool in tools or ()]
        answer: Answer = self.player.answer(
            [each for message in messages for each in read_message(message)],
            [{"name": each["name"], "parameters": each["parameters"]} for each in functions],
        )
        if answer.overflow:
            raise ContextWindowExceededError(answer.refusal, model_name="scripted", model_id=self.id)
        calls = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.tool, "arguments": json.dumps(call.arguments)},
            }
            for call in answer.calls
        ]
        usage = MessageMetrics(
            input_tokens=answer.usage.prompt,
            output_tokens=answer.usage.output,
            total_tokens=answer.usage.prompt + answer.usage.output,
            cache_read_tokens=answer.usage.cached,
            cache_write_tokens=answer.usage.written,
        )
        return ModelResponse(role="assistant", content=answer.text or None, tool_calls=calls, response_usage=usage)

    def invoke(self, messages: Any = None, tools: Any = None, **_: Any) -> ModelResponse:
        return self._answer(messages, tools)

    async def ainvoke(self, messages: Any = None, tools: Any = None, **_: Any) -> ModelResponse:
        return self._answer(messages, tools)

    def invoke_stream(self, messages: Any = None, tools: Any = None, **_: Any) -> Iterator[ModelResponse]:
        yield self._answer(messages, tools)

    async def ainvoke_stream(self, messages: Any = None, tools: Any = None, **_: Any) -> AsyncIterator[ModelResponse]:
        yield self._answer(messages, tools)

    def _parse_provider_response(self, response: Any, **_: Any) -> Any:
        return response

    def _parse_provider_response_delta(self, response: Any) -> Any:
        return response


def look(part: int) -> str:
    """Lists a part."""
    return list_part(part)


def fail(part: int) -> str:
    """Lists a part that cannot be read."""
    raise ValueError(describe_failure(part))


def picture(part: int) -> ToolResult:
    """Shows a part."""
    return ToolResult(content=list_part(part), images=[Image(content=PIXEL, mime_type="image/png")])


class Host(FrameworkHost):
    PACKAGES = ("agno",)
    MISSING: ClassVar = {}

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.database = JsonDb(str(stage.folder / "sessions"))

    async def run(self, run: Run) -> str:
        def delegate(part: int) -> str:
            """Asks another agent for a part."""
            child = self._make_agent(self.stage.make_child_player(run), [look])
            return str(child.run(f"List all of part {part}.").content)

        if run.begin == "fork":
            self._copy_turns(run)
        agent = self._make_agent(
            self.stage.make_player(run),
            [look, fail, picture, delegate],
            db=self.database,
            add_history_to_context=True,
            num_history_runs=100,
        )
        if run.stream:
            content = ""
            async for event in agent.arun(run.prompt, session_id=run.thread, stream=True):
                content = str(getattr(event, "content", "") or content)
            return content
        if run.door == "sync":
            return str((await asyncio.to_thread(agent.run, run.prompt, session_id=run.thread)).content)
        return str((await agent.arun(run.prompt, session_id=run.thread)).content)

    def _make_agent(self, player: Any, tools: list[Any], **options: Any) -> Any:
        model = self._make_model(player)
        attached, more = self.stage.attach(model) or (model, [])
        self._tap_model(attached, player.agent)
        return Agent(model=attached, tools=[*tools, *more], instructions=SYSTEM, telemetry=False, **options)

    def _make_model(self, player: Any) -> Any:
        if self.stage.service:
            from agno.models.anthropic import Claude

            parameters = {"base_url": self.stage.service, "max_retries": 0}
            return Claude(id=player.model, api_key="none", client_params=parameters)
        return ScriptedModel(id=player.model, player=player, stage=self.stage)

    def _tap_model(self, model: Any, agent: str) -> None:
        """Note the messages before the adapter, which is around these functions of the model or in them."""
        for name in ("invoke", "ainvoke", "invoke_stream", "ainvoke_stream"):
            setattr(model, name, self._note_given(getattr(model, name), agent))

    def _note_given(self, function: Any, agent: str) -> Any:
        def call(**named: Any) -> Any:
            self.stage.recorder.note_given(agent, named["messages"])
            return function(**named)

        return call

    def _open_reader(self) -> Any:
        return Agent(db=self.database, telemetry=False)

    def _copy_turns(self, run: Run) -> None:
        reader = self._open_reader()
        session = copy.deepcopy(reader.get_session(run.source))
        session.session_id = run.thread
        reader.save_session(session)
        for at, each in enumerate(session.runs):
            each.session_id, each.run_id = run.thread, f"{each.run_id}-fork"
            kept = take_turns([read_message(message)[0] for message in each.messages], run.turns)
            each.messages = each.messages[:kept]
            save_run(reader, run=each, session_id=run.thread, user_id=None, run_index=at)

    async def read_history(self, thread: str) -> list[Message]:
        session = self._open_reader().get_session(thread)
        messages = [message for each in session.runs for message in each.messages or () if not message.from_history]
        return [each for message in messages for each in read_message(message)]
