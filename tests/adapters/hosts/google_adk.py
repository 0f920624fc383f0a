# mypy: ignore-errors
# What this imports is in an environment of its own.
"""Google's Agent Development Kit, with sessions in SQLite.

The hook is called once for a process, as `hook(settings)`, and returns a list of plugins: every agent of the process
has it, sub-agents too.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any, ClassVar

from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.apps.app import App
from google.adk.models.anthropic_llm import AnthropicLlm
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.runners import Runner
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools.agent_tool import AgentTool
from google.genai import types
from google.genai.errors import ClientError

from tests.adapters.recording import Call, Message, SuccessivePlayers, take_turns
from tests.adapters.scenarios import SYSTEM, Run, describe_failure, list_part
from tests.adapters.stage import FrameworkHost, Stage

_APP = "listing"
_USER = "user-1"
_ROOT = "root"


def read_content(content: types.Content) -> list[Message]:
    """Return the neutral form of a content: one message for each result. Ids are those that it has, mostly none."""
    parts = content.parts or []
    if content.role == "model":
        made = Message("assistant", "".join(part.text or "" for part in parts if not part.thought))
        for part in parts:
            if call := part.function_call:
                made.calls.append(Call(call.id or "", call.name or "", dict(call.args or {})))
        return [made]
    return [_read_part(part) for part in parts]


def _read_part(part: types.Part) -> Message:
    if (answer := part.function_response) is None:
        return Message("user", part.text or "")
    response = answer.response or {}
    text = response.get("result", response.get("error", response))
    return Message("tool", str(text), answers=answer.id or "", failed="error" in response)


def read_contents(contents: list[types.Content]) -> list[Message]:
    """Return the neutral form of a request. A call without an id is named by its arguments; results follow in order."""
    made: list[Message] = []
    waiting: list[str] = []
    for content in contents:
        for message in read_content(content):
            if message.role == "tool" and not message.answers:
                message.answers = waiting.pop(0) if waiting else "?"
            elif message.role == "assistant":
                for call in message.calls:
                    call.id = call.id or f"call_{call.tool}_{'_'.join(map(str, call.arguments.values()))}"
                waiting = [call.id for call in message.calls]
            made.append(message)
    return made


class ScriptedLlm(BaseLlm):
    """A model that plays a script."""

    player: Any = None

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> AsyncIterator[LlmResponse]:
        config = llm_request.config
        system = [Message("system", config.system_instruction)] if config.system_instruction else []
        tools = [
            {"name": each.name, "parameters": each.parameters_json_schema or _dump_schema(each.parameters)}
            for tool in config.tools or ()
            for each in tool.function_declarations or ()
        ]
        answer = self.player.answer([*system, *read_contents(llm_request.contents)], tools)
        if answer.overflow:
            tokens, limit = answer.overflow
            message = f"The input token count ({tokens}) exceeds the maximum number of tokens allowed ({limit})."
            raise ClientError(400, {"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}})
        usage = types.GenerateContentResponseUsageMetadata(
            prompt_token_count=answer.usage.prompt,
            cached_content_token_count=answer.usage.cached,
            candidates_token_count=answer.usage.output,
            total_token_count=answer.usage.prompt + answer.usage.output,
        )
        parts = [
            types.Part(function_call=types.FunctionCall(name=call.tool, args=_name_arguments(call)))
            for call in answer.calls
        ]
        if stream and answer.text:
            for word in answer.text.split(" "):
                said = types.Content(role="model", parts=[types.Part(text=word + " ")])
                yield LlmResponse(content=said, partial=True)
        content = types.Content(role="model", parts=parts or [types.Part(text=answer.text)])
        yield LlmResponse(content=content, usage_metadata=usage, turn_complete=True)


def _dump_schema(schema: Any) -> Any:
    return schema.model_dump(mode="json", exclude_none=True) if schema else {}


def _name_arguments(call: Call) -> dict[str, Any]:
    # An agent that is a tool takes a text.
    return {"request": f"List all of part {call.arguments['part']}."} if call.tool == "delegate" else call.arguments


class _TapBefore(BasePlugin):
    """Notes the contents before the adapter."""

    def __init__(self, stage: Stage, name: str = "tap_before") -> None:
        super().__init__(name=name)
        self.recorder = stage.recorder

    async def before_model_callback(self, *, callback_context: Any, llm_request: Any) -> None:
        if callback_context.agent_name == _ROOT:
            self._note(callback_context.session.id, llm_request.contents)

    def _note(self, agent: str, contents: Any) -> None:
        self.recorder.note_given(agent, contents)


class _TapAfter(_TapBefore):
    """Notes the contents that the adapter sends."""

    def _note(self, agent: str, contents: Any) -> None:
        self.recorder.note_sent(agent, contents, read_content)


def look(part: int) -> dict[str, Any]:
    """Lists a part."""
    return {"result": list_part(part)}


def fail(part: int) -> dict[str, Any]:
    """Lists a part that cannot be read."""
    return {"error": describe_failure(part)}


class Host(FrameworkHost):
    PACKAGES = ("google-adk", "google-genai")
    USAGE = "cached"
    MISSING: ClassVar = {
        "pictures": "the result of a function is JSON",
    }

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.plugins = stage.attach() or []
        if stage.service:
            os.environ.update(ANTHROPIC_BASE_URL=stage.service, ANTHROPIC_API_KEY="none")
        self.sessions = SqliteSessionService(str(stage.folder / "adk.db"))

    async def run(self, run: Run) -> str:
        if run.begin == "fork":
            await self._copy_turns(run)
        elif run.begin == "new":
            await self.sessions.create_session(app_name=_APP, user_id=_USER, session_id=run.thread)
        runner = Runner(app=self._make_app(run), session_service=self.sessions)
        asked = {"user_id": _USER, "session_id": run.thread, "new_message": types.UserContent(run.prompt)}
        if run.door == "sync":
            events = await asyncio.to_thread(lambda: list(runner.run(**asked)))
        else:
            mode = StreamingMode.SSE if run.stream else StreamingMode.NONE
            config = RunConfig(streaming_mode=mode, max_llm_calls=500)
            events = [event async for event in runner.run_async(**asked, run_config=config)]
        return "".join(part.text or "" for part in events[-1].content.parts)

    def _make_app(self, run: Run) -> App:
        children = SuccessivePlayers(lambda: self.stage.make_child_player(run))
        lister = LlmAgent(
            name="delegate",
            description="Lists a part.",
            model=ScriptedLlm(model=run.model, player=children),
            instruction=SYSTEM,
            tools=[look],
        )
        root = LlmAgent(
            name=_ROOT,
            model=self._make_model(run),
            instruction=SYSTEM,
            tools=[look, fail, AgentTool(lister)],
        )
        plugins = [_TapBefore(self.stage), *self.plugins, _TapAfter(self.stage, "tap_after")]
        return App(name=_APP, root_agent=root, plugins=plugins)

    def _make_model(self, run: Run) -> BaseLlm:
        if self.stage.service:
            return AnthropicLlm(model=run.model)
        return ScriptedLlm(model=run.model, player=self.stage.make_player(run))

    async def _get_events(self, thread: str) -> Any:
        session = await self.sessions.get_session(app_name=_APP, user_id=_USER, session_id=thread)
        assert session is not None
        return session.events

    async def _copy_turns(self, run: Run) -> None:
        events = await self._get_events(run.source)
        contents = [event.content for event in events]
        session = await self.sessions.create_session(app_name=_APP, user_id=_USER, session_id=run.thread)
        kept = take_turns(read_contents(contents), run.turns)
        messages = 0
        for event in events:
            messages += len(read_content(event.content))
            if messages > kept:
                return
            await self.sessions.append_event(session, event.model_copy(deep=True))

    async def read_history(self, thread: str) -> list[Message]:
        return read_contents([event.content for event in await self._get_events(thread) if event.content])
