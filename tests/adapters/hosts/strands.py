# mypy: ignore-errors
# What this imports is in an environment of its own.
"""Strands Agents, with sessions in files.

The hook is called for each agent, as `hook(settings, session)`, and returns a list of plugins.
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncIterator
from typing import Any, ClassVar

from strands import Agent, tool
from strands.middleware import InvokeModelStage
from strands.models import Model
from strands.models.anthropic import AnthropicModel
from strands.plugins import Plugin
from strands.session.file_session_manager import FileSessionManager
from strands.types.exceptions import ContextWindowOverflowException

from tests.adapters.recording import Call, Message, digest_image
from tests.adapters.scenarios import PIXEL, SYSTEM, Run, describe_failure, list_part
from tests.adapters.stage import FrameworkHost, Stage

#: The same in all sessions: a session has one agent here.
_AGENT = "main"


def read_message(message: Any) -> list[Message]:
    """Return the neutral form of a message: one for each result."""
    if message["role"] == "assistant":
        made = Message("assistant")
        for block in message["content"]:
            made.text += block.get("text", "")
            if use := block.get("toolUse"):
                made.calls.append(Call(use["toolUseId"], use["name"], use["input"]))
            if thought := block.get("reasoningContent"):
                said = thought["reasoningText"]
                made.thinking.append((said["text"], said.get("signature", "")))
        return [made]
    return [_read_block(block) for block in message["content"]]


def _read_block(block: Any) -> Message:
    result = block.get("toolResult")
    if result is None:
        return Message("user", block.get("text", ""))
    return Message(
        "tool",
        "".join(part.get("text", "") for part in result["content"]),
        answers=result["toolUseId"],
        failed=result["status"] == "error",
        images=[digest_image(part["image"]["source"]["bytes"]) for part in result["content"] if "image" in part],
    )


class ScriptedModel(Model):
    """A model that plays a script."""

    def __init__(self, player: Any) -> None:
        self.player = player

    def update_config(self, **config: Any) -> None:
        pass

    def get_config(self) -> Any:
        return {"model_id": self.player.model}

    def structured_output(self, *arguments: Any, **named: Any) -> Any:
        raise NotImplementedError

    async def stream(
        self, messages: Any, tool_specs: Any = None, system_prompt: Any = None, **options: Any
    ) -> AsyncIterator[Any]:
        system = [Message("system", system_prompt)] if system_prompt else []
        tools = [{"name": spec["name"], "parameters": spec["inputSchema"].get("json", {})} for spec in tool_specs or ()]
        answer = self.player.answer([*system, *(each for message in messages for each in read_message(message))], tools)
        if answer.overflow:
            raise ContextWindowOverflowException(answer.refusal)
        yield {"messageStart": {"role": "assistant"}}
        if answer.text:
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": answer.text}}}
            yield {"contentBlockStop": {}}
        for call in answer.calls:
            text = json.dumps(call.arguments)
            yield {"contentBlockStart": {"start": {"toolUse": {"toolUseId": call.id, "name": call.tool}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": text[:4]}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": text[4:]}}}}
            yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if answer.calls else "end_turn"}}
        usage = {
            "inputTokens": answer.usage.prompt,
            "outputTokens": answer.usage.output,
            "totalTokens": answer.usage.prompt + answer.usage.output,
            "cacheReadInputTokens": answer.usage.cached,
            "cacheWriteInputTokens": answer.usage.written,
        }
        yield {"metadata": {"usage": usage, "metrics": {"latencyMs": 1}}}


class _TapBefore(Plugin):
    """Notes the messages before the adapter."""

    name = "tap-before"

    def __init__(self, stage: Stage, agent: str) -> None:
        super().__init__()
        self.recorder, self.agent = stage.recorder, agent

    def init_agent(self, agent: Any) -> None:
        agent.add_middleware(InvokeModelStage, self._note)

    async def _note(self, context: Any, next_fn: Any) -> AsyncIterator[Any]:
        self.recorder.note_given(self.agent, context.messages)
        async for event in next_fn(context):
            yield event


class _TapAfter(_TapBefore):
    """Notes the messages that the adapter sends."""

    name = "tap-after"

    async def _note(self, context: Any, next_fn: Any) -> AsyncIterator[Any]:
        self.recorder.note_sent(self.agent, context.messages, read_message)
        async for event in next_fn(context):
            yield event


@tool
def look(part: int) -> str:
    """Lists a part."""
    return list_part(part)


@tool
def fail(part: int) -> str:
    """Lists a part that cannot be read."""
    raise ValueError(describe_failure(part))


@tool
def picture(part: int) -> dict[str, Any]:
    """Shows a part."""
    image = {"format": "png", "source": {"bytes": PIXEL}}
    return {"status": "success", "content": [{"text": list_part(part)}, {"image": image}]}


class Host(FrameworkHost):
    PACKAGES = ("strands-agents",)
    MISSING: ClassVar = {}

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    async def run(self, run: Run) -> str:
        @tool
        async def delegate(part: int) -> str:
            """Asks another agent for a part."""
            player = self.stage.make_child_player(run)
            child = self._make_agent(player, [look])
            return str(await child.invoke_async(f"List all of part {part}."))

        history: dict[str, Any] = {}
        if run.begin == "fork":
            # A turn is an answer and the message with its results; the first message is the prompt.
            history["messages"] = copy.deepcopy(self._open_session(run.source).messages[: 1 + 2 * run.turns])
        agent = self._make_agent(
            self.stage.make_player(run),
            [look, fail, picture, delegate],
            session_manager=FileSessionManager(session_id=run.thread, storage_dir=str(self.stage.folder)),
            **history,
        )
        if run.stream:
            result: Any = None
            async for event in agent.stream_async(run.prompt):
                result = event.get("result", result)
        elif run.door == "sync":
            result = await asyncio.to_thread(agent, run.prompt)
        else:
            result = await agent.invoke_async(run.prompt)
        return str(result).strip()

    def _make_agent(self, player: Any, tools: list[Any], **options: Any) -> Any:
        attached = self.stage.attach(player.agent) or []
        return Agent(
            model=self._make_model(player),
            tools=tools,
            plugins=[_TapBefore(self.stage, player.agent), *attached, _TapAfter(self.stage, player.agent)],
            context_manager=False,
            callback_handler=None,
            system_prompt=SYSTEM,
            agent_id=_AGENT,
            **options,
        )

    def _make_model(self, player: Any) -> Any:
        if not self.stage.service:
            return ScriptedModel(player)
        client = {"base_url": self.stage.service, "api_key": "none", "max_retries": 0}
        thinking = {"thinking": {"type": "adaptive"}}
        return AnthropicModel(client_args=client, model_id=player.model, max_tokens=2_000, params=thinking)

    def _open_session(self, thread: str) -> Any:
        session = FileSessionManager(session_id=thread, storage_dir=str(self.stage.folder))
        return Agent(session_manager=session, agent_id=_AGENT, model=ScriptedModel(None), context_manager=False)

    async def read_history(self, thread: str) -> list[Message]:
        return [each for message in self._open_session(thread).messages for each in read_message(message)]
