# mypy: ignore-errors
# What this imports is in an environment of its own.
"""The OpenHands SDK: local conversations, stored in folders.

The hook is called for each agent, as `hook(settings)`, and returns `(condenser, tools)`: a condenser, and the names
under which the adapter's tools are registered.
"""

from __future__ import annotations

import asyncio
import base64
import json
import uuid
from collections.abc import Sequence
from typing import Any, ClassVar

from openhands.sdk import Agent, LocalConversation
from openhands.sdk.event import LLMConvertibleEvent, MessageEvent
from openhands.sdk.llm import ImageContent, MessageToolCall, TextContent
from openhands.sdk.llm import Message as FrameworkMessage
from openhands.sdk.llm.exceptions import LLMContextWindowExceedError
from openhands.sdk.testing import TestLLM
from openhands.sdk.tool import Action, Observation, Tool, ToolDefinition, ToolExecutor, register_tool
from pydantic import Field

from tests.adapters.recording import Answer, Call, Message, digest_image, take_turns
from tests.adapters.scenarios import PIXEL, SYSTEM, Run, describe_failure, list_part
from tests.adapters.stage import FrameworkHost, Stage

#: The scripts, by the usage id of the model that plays them: a model is copied with its fields alone.
_players: dict[str, Any] = {}


def read_message(message: FrameworkMessage) -> list[Message]:
    """Return the neutral form of a message."""
    made = Message(message.role, answers=message.tool_call_id or "")
    for part in message.content:
        if isinstance(part, TextContent):
            made.text += part.text
        else:
            made.images += [digest_image(url.partition(",")[2].encode()) for url in part.image_urls]
    if message.role == "tool":
        # The error state is a line before the text.
        made.failed = made.text.startswith(Observation.ERROR_MESSAGE_HEADER)
        made.text = made.text.removeprefix(Observation.ERROR_MESSAGE_HEADER)
    for call in message.tool_calls or ():
        arguments = json.loads(call.arguments)
        # What the SDK asks of each call beside its own arguments.
        made.calls.append(Call(call.id, call.name, {k: v for k, v in arguments.items() if k in ("part", "handle")}))
    return [made]


class PartAction(Action):
    part: int = Field(description="Which.")


class PartObservation(Observation):
    pass


class _Look(ToolExecutor[PartAction, PartObservation]):
    def __call__(self, action: PartAction, conversation: Any = None) -> PartObservation:
        return PartObservation.from_text(list_part(action.part))


class _Fail(ToolExecutor[PartAction, PartObservation]):
    def __call__(self, action: PartAction, conversation: Any = None) -> PartObservation:
        return PartObservation.from_text(describe_failure(action.part), is_error=True)


class _Picture(ToolExecutor[PartAction, PartObservation]):
    def __call__(self, action: PartAction, conversation: Any = None) -> PartObservation:
        url = f"data:image/png;base64,{base64.b64encode(PIXEL).decode()}"
        return PartObservation(content=[TextContent(text=list_part(action.part)), ImageContent(image_urls=[url])])


class _PartTool(ToolDefinition[PartAction, PartObservation]):
    @classmethod
    def make(cls, description: str, executor: Any) -> Sequence[Any]:
        made = cls(description=description, action_type=PartAction, observation_type=PartObservation, executor=executor)
        return [made]


class LookTool(_PartTool):
    name = "look"

    @classmethod
    def create(cls, conv_state: Any = None, **_: Any) -> Sequence[Any]:
        return cls.make("Lists a part.", _Look())


class FailTool(_PartTool):
    name = "fail"

    @classmethod
    def create(cls, conv_state: Any = None, **_: Any) -> Sequence[Any]:
        return cls.make("Lists a part that cannot be read.", _Fail())


class PictureTool(_PartTool):
    name = "picture"

    @classmethod
    def create(cls, conv_state: Any = None, **_: Any) -> Sequence[Any]:
        return cls.make("Shows a part.", _Picture())


_TOOLS = (LookTool, FailTool, PictureTool)
for _tool in _TOOLS:
    register_tool(_tool.__name__, _tool)


class ScriptedLLM(TestLLM):
    """The SDK's test model; it plays the script of its usage id."""

    def completion(self, messages: Any, tools: Any = None, **options: Any) -> Any:
        player = _players[self.usage_id]
        schemas = [{"name": each.name, "parameters": each.action_type.to_mcp_schema()} for each in tools or ()]
        answer: Answer = player.answer([each for message in messages for each in read_message(message)], schemas)
        if answer.overflow:
            raise LLMContextWindowExceedError(answer.refusal)
        calls = [
            MessageToolCall(id=call.id, name=call.tool, arguments=json.dumps(call.arguments), origin="completion")
            for call in answer.calls
        ]
        said = FrameworkMessage(role="assistant", content=[TextContent(text=answer.text)], tool_calls=calls or None)
        self._scripted_responses.append(said)
        self.metrics.add_token_usage(
            prompt_tokens=answer.usage.prompt,
            completion_tokens=answer.usage.output,
            cache_read_tokens=answer.usage.cached,
            cache_write_tokens=answer.usage.written,
            context_window=1_000_000,
            response_id=f"response-{len(messages)}",
        )
        return super().completion(messages, tools, **options)


class Host(FrameworkHost):
    PACKAGES = ("openhands-sdk", "litellm")
    MISSING: ClassVar = {
        "streamed": "its test model does not stream",
        "sub_agents": "its sub-agents are conversations of their own",
        "bound_thinking": "its messages go through LiteLLM: LiteLLM's scenario",
    }

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.conversations: dict[str, Any] = {}
        self._runs = 0

    async def run(self, run: Run) -> str:
        self._runs += 1
        # A model of its own for each run: the SDK keeps models by this id.
        name = f"{run.thread}-{run.begin}-{self._runs}"
        _players[name] = self.stage.make_player(run)
        llm = ScriptedLLM(model=run.model, usage_id=name)
        conversation = self._open_conversation(run, llm)
        self.conversations[run.thread] = conversation
        conversation.send_message(run.prompt)
        if run.door == "sync":
            await asyncio.to_thread(conversation.run)
        else:
            await conversation.arun()
        last = [event for event in conversation.state.events if isinstance(event, MessageEvent)][-1]
        return "".join(part.text for part in last.llm_message.content if isinstance(part, TextContent))

    def _open_conversation(self, run: Run, llm: Any) -> Any:
        identity = uuid.uuid5(uuid.NAMESPACE_URL, run.thread)
        if run.begin == "fork":
            source = self.conversations[run.source]
            conversation = source.fork(conversation_id=identity, from_event_id=self._find_event(source, run.turns))
        elif run.thread in self.conversations:
            conversation = self.conversations[run.thread]
        else:
            condenser, more = self.stage.attach() or (None, [])
            if condenser is not None:
                self._tap_condenser(type(condenser))
            agent = Agent(
                llm=llm,
                tools=[*(Tool(name=each.__name__) for each in _TOOLS), *(Tool(name=each) for each in more)],
                condenser=condenser,
                include_default_tools=[],
                system_prompt=SYSTEM,
            )
            return LocalConversation(
                agent=agent,
                workspace=str(self.stage.folder),
                persistence_dir=str(self.stage.folder / "conversations"),
                conversation_id=identity,
                visualizer=None,
                stuck_detection=False,
                delete_on_close=False,
            )
        conversation.switch_llm(llm)
        return conversation

    def _tap_condenser(self, kind: Any) -> None:
        """Note the events before and after the adapter: on its class, as a copy of a condenser has its fields alone."""
        condense, recorder = kind.condense, self.stage.recorder
        if hasattr(condense, "is_tapped"):
            return

        def note_events(condenser: Any, view: Any, agent_llm: Any = None) -> Any:
            made = condense(condenser, view, agent_llm)
            agent = _players[agent_llm.usage_id].agent
            recorder.note_given(agent, view.events)
            sent = getattr(made, "events", [])
            recorder.note_sent(agent, sent, lambda event: read_message(event.to_llm_message()))
            return made

        note_events.is_tapped = True
        kind.condense = note_events

    def _find_event(self, conversation: Any, turns: int) -> str:
        events = [event for event in conversation.state.events if isinstance(event, LLMConvertibleEvent)]
        kept = take_turns(read_events(events), turns)
        for end in range(len(events), 0, -1):
            if len(read_events(events[:end])) == kept and read_events(events[:end])[-1].role == "tool":
                return str(events[end - 1].id)
        raise AssertionError(f"no event ends turn {turns}")

    async def read_history(self, thread: str) -> list[Message]:
        events = self.conversations[thread].state.events
        return read_events([event for event in events if isinstance(event, LLMConvertibleEvent)])


def read_events(events: list[Any]) -> list[Message]:
    """Return the neutral form of events."""
    return [each for message in LLMConvertibleEvent.events_to_messages(events) for each in read_message(message)]
