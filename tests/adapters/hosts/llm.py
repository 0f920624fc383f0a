# mypy: ignore-errors
# What this imports is in an environment of its own.
"""The library and command `llm`: conversations with tools, with logs in SQLite.

The hook is called for each conversation, as `hook(settings, model)`, and returns `(model, tools)`: the model to ask,
and the adapter's tools. The model is an `llm.Model` or an `llm.AsyncModel`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any, ClassVar

import llm
import sqlite_utils
from llm.cli import load_conversation
from llm.migrations import migrate
from llm.parts import AttachmentPart, TextPart, ToolCallPart, ToolResultPart
from llm.plugins import load_plugins, pm
from openai import BadRequestError

from tests.adapters.hosts.provider_errors import make_overflow
from tests.adapters.recording import Answer, Call, Message, digest_image, take_turns
from tests.adapters.scenarios import PIXEL, SYSTEM, Run, describe_failure, list_part
from tests.adapters.stage import FrameworkHost, Stage


def read_message(message: Any) -> list[Message]:
    """Return the neutral form of a message: one for each result."""
    if message.role == "assistant":
        made = Message("assistant")
        for part in message.parts:
            if isinstance(part, TextPart):
                made.text += part.text
            elif isinstance(part, ToolCallPart):
                made.calls.append(Call(part.tool_call_id or "", part.name, dict(part.arguments)))
        return [made]
    return [_read_part(message.role, part) for part in message.parts]


def _read_part(role: str, part: Any) -> Message:
    if isinstance(part, ToolResultPart):
        images = [digest_image(each.content) for each in part.attachments if each.content]
        return Message("tool", part.output, answers=part.tool_call_id or "", failed=bool(part.exception), images=images)
    if isinstance(part, AttachmentPart):
        return Message(role, images=[digest_image(part.attachment.content)] if part.attachment else [])
    return Message(role, getattr(part, "text", ""))


class _Scripted:
    """What the sync and the async model share."""

    supports_tools = True
    can_stream = True
    attachment_types: ClassVar = {"image/png"}
    supports_tool_result_attachments = True
    player: Any = None
    stage: Any = None

    def respond(self, prompt: Any, response: Any) -> str:
        """Play the script into `response` and return the text."""
        self.stage.recorder.note_sent(self.player.agent, prompt.messages, read_message)
        seen = [each for message in prompt.messages for each in read_message(message)]
        tools = [{"name": tool.name, "parameters": tool.input_schema} for tool in prompt.tools]
        answer: Answer = self.player.answer(seen, tools)
        if answer.overflow:
            raise make_overflow(BadRequestError, answer)
        for call in answer.calls:
            response.add_tool_call(llm.ToolCall(tool_call_id=call.id, name=call.tool, arguments=call.arguments))
        details = {"prompt_tokens_details": {"cached_tokens": answer.usage.cached}}
        response.set_usage(input=answer.usage.prompt, output=answer.usage.output, details=details)
        return answer.text


class ScriptedModel(_Scripted, llm.Model):
    model_id = "scripted"

    def execute(self, prompt: Any, stream: bool, response: Any, conversation: Any) -> Iterator[str]:
        yield self.respond(prompt, response)


class ScriptedAsyncModel(_Scripted, llm.AsyncModel):
    model_id = "scripted"

    async def execute(self, prompt: Any, stream: bool, response: Any, conversation: Any) -> AsyncIterator[str]:
        yield self.respond(prompt, response)


class ScriptedPlugin:
    """Registers models under the names that are stored, so that a stored conversation can be opened."""

    def __init__(self) -> None:
        self.names = {"scripted"}

    @llm.hookimpl
    def register_models(self, register: Any) -> None:
        for name in self.names:
            model = ScriptedModel()
            model.model_id = name
            register(model)


def look(part: int) -> str:
    """Lists a part."""
    return list_part(part)


def fail(part: int) -> str:
    """Lists a part that cannot be read."""
    raise ValueError(describe_failure(part))


def picture(part: int) -> Any:
    """Shows a part."""
    return llm.ToolOutput(list_part(part), attachments=[llm.Attachment(type="image/png", content=PIXEL)])


class Host(FrameworkHost):
    PACKAGES = ("llm",)
    USAGE = "cached"
    MISSING: ClassVar = {
        "sub_agents": "it has no agents",
        "bound_thinking": "its client for Anthropic's API is a plugin that is not installed",
    }

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.database = stage.folder / "logs.db"
        load_plugins()
        self.plugin = ScriptedPlugin()
        pm.register(self.plugin)
        migrate(sqlite_utils.Database(self.database))

    async def run(self, run: Run) -> str:
        kind = ScriptedModel if run.door == "sync" else ScriptedAsyncModel
        model = kind()
        model.player, model.stage = self.stage.make_player(run), self.stage
        attached, more = self.stage.attach(model) or (model, [])
        self.plugin.names.add(attached.model_id)
        self._tap_model(attached, run.thread)
        conversation = attached.conversation()
        conversation.id = run.thread
        if run.begin != "new":
            conversation.loaded_messages = self._load_messages(run)
        options: Any = {"tools": [look, fail, picture, *more], "chain_limit": 0}
        if run.begin == "new":
            options["system"] = SYSTEM
        chain = conversation.chain(run.prompt, **options)
        if run.door == "sync":
            text = await asyncio.to_thread(chain.text)
            responses = chain._responses
        elif run.stream:
            text = "".join([piece async for piece in chain])
            responses = [await each.to_sync_response() for each in chain._responses]
        else:
            text = await chain.text()
            responses = [await each.to_sync_response() for each in chain._responses]
        database = sqlite_utils.Database(self.database)
        for response in responses:
            response.log_to_db(database)
        return str(text)

    def _tap_model(self, model: Any, agent: str) -> None:
        """Note the messages before the adapter, which is around the model."""
        execute = model.execute

        def note_given(prompt: Any, *others: Any, **named: Any) -> Any:
            self.stage.recorder.note_given(agent, prompt.messages)
            return execute(prompt, *others, **named)

        model.execute = note_given

    def _load_messages(self, run: Run) -> list[Any]:
        messages = self._open_messages(run.source if run.begin == "fork" else run.thread)
        if run.begin != "fork":
            return messages
        kept, seen = take_turns([each for message in messages for each in read_message(message)], run.turns), 0
        for at, message in enumerate(messages):
            seen += len(read_message(message))
            if seen > kept:
                return messages[:at]
        return messages

    def _open_messages(self, thread: str) -> list[Any]:
        conversation = load_conversation(thread, database=str(self.database))
        assert conversation is not None
        return list(conversation.loaded_messages or [])

    async def read_history(self, thread: str) -> list[Message]:
        return [each for message in self._open_messages(thread) for each in read_message(message)]
