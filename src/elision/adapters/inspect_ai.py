"""Inspect AI: an agent in the model's place. `react(model=elision.make_model(), tools=[..., *elision.tools])`."""

from __future__ import annotations

from elision.adapters.frameworks import check_framework

check_framework("inspect-ai", "0.3.159", "inspect-ai")

from collections.abc import Mapping, Sequence  # noqa: E402
from contextvars import ContextVar  # noqa: E402
from dataclasses import replace  # noqa: E402
from functools import cached_property, partial  # noqa: E402
from typing import Any, Final  # noqa: E402

from inspect_ai.agent import Agent, AgentState, agent  # noqa: E402
from inspect_ai.log._samples import sample_active  # noqa: E402
from inspect_ai.model import (  # noqa: E402
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageTool,
    ChatMessageUser,
    ContentImage,
    ContentReasoning,
    ContentText,
    GenerateConfig,
    Model,
    get_model,
)
from inspect_ai.tool import Tool, ToolDef, ToolParams  # noqa: E402

from elision.adapters.guarded_calls import (  # noqa: E402
    CallDescription,
    GuardedCall,
    GuardedCalls,
    RecallDefinition,
    RequestParts,
    SessionOwner,
    join_betas,
    list_recall_definitions,
    state_overflow,
)
from elision.adapters.mirror import Mirror, PlainMessage, dump_value  # noqa: E402
from elision.trajectory.usage import Usage  # noqa: E402

#: The session of the agent that runs: its tools are called after its model, in the same context.
_current_session: ContextVar[str] = ContextVar("elision_session", default="")


class ElisionInspect(SessionOwner):
    """Keep the requests of Inspect's agents small: old tool results are hidden in them, and can be read again.

    Each agent of a sample and epoch has a session of its own, named `TASK/SAMPLE/EPOCH/MESSAGE` after its first
    message. The messages of the agent's state, and the log's, stay whole.

        with ElisionInspect("masking(window=10)", store="sqlite:///inspect.db") as elision:
            solver = react(model=elision.make_model(), tools=[bash(), *elision.tools])
            eval(Task(dataset=dataset, solver=solver), model="openai/gpt-5")

    strategy, options: as for `elision.ContextManager`. sessions: a pool to share, instead of options; it is not closed
        here.

    Raises SettingError, SpecError, PriceError for options without a meaning, StoreError where the store cannot be
    opened, FrameworkError (at import) without Inspect 0.3.159 or newer. Errors of Elision during a run are logged
    (`elision.adapters`) and never reach the agent.
    """

    @cached_property
    def tools(self) -> list[Tool]:
        """The recall tools, for the agent's tools."""
        return [_make_recall_tool(self.calls, each) for each in list_recall_definitions()]

    def make_model(self, model: str | Model | None = None) -> Agent:
        """Return an agent that calls a model once, to be given to `react` as its model, or called in a loop of yours.

        model: as for Inspect's `get_model`; None for the model of the evaluation.
        """

        @agent(name="elision")
        def call_model() -> Agent:
            async def execute(state: AgentState, tools: list[Tool]) -> AgentState:
                """Call the model."""
                state.output = await self._generate(get_model(model), state.messages, tools)
                state.messages.append(state.output.message)
                return state

            return execute

        return call_model()

    async def _generate(self, model: Any, messages: list[Any], tools: Sequence[Tool]) -> Any:
        describe = partial(_describe_call, model, messages, tools)
        call = await self.calls.begin_described_async(messages, describe)
        output = await model.generate(call.messages, tools, config=_make_config(model, call))
        if output.stop_reason == "model_length" and await call.retry_async(state_overflow(output.completion)):
            output = await model.generate(call.messages, tools, config=_make_config(model, call))
        if output.usage is not None:
            call.record(_read_usage(output.usage))
        return output


def _make_recall_tool(calls: GuardedCalls, definition: RecallDefinition) -> Tool:
    # By this very name: Inspect then passes all arguments on as they are.
    async def execute(**kwargs: Any) -> str:
        return await calls.answer_recall_async(_current_session.get(), definition.name, kwargs)

    parameters = ToolParams.model_validate(definition.schema)
    return ToolDef(execute, definition.name, definition.description, parameters=parameters).as_tool()


# -- parts of a request -----------------------------------------------------------------------------------------------


def _describe_call(model: Any, messages: Sequence[Any], tools: Sequence[Tool]) -> CallDescription[Any]:
    name = _name_session(messages)
    _current_session.set(name)
    definitions = [_convert_tool(ToolDef(tool)) for tool in tools]
    system = "\n\n".join(message.text for message in messages if isinstance(message, ChatMessageSystem))
    parts = RequestParts(model=model.name, system=system or None, tools=definitions or None)
    return CallDescription(name=name, mirror=_MIRROR, parts=parts)


def _name_session(messages: Sequence[Any]) -> str:
    first = next((message.id for message in messages if not isinstance(message, ChatMessageSystem)), None)
    sample = sample_active()
    place = f"{sample.task}/{sample.sample.id}/{sample.epoch}" if sample is not None else "run"
    return f"{place[:300]}/{first or ''}"


def _convert_tool(tool: Any) -> dict[str, Any]:
    schema = tool.parameters.model_dump(mode="json", exclude_none=True)
    return {"name": tool.name, "description": tool.description, "input_schema": schema}


def _make_config(model: Any, call: GuardedCall[Any]) -> Any:
    """Return the settings of a request: those that the view needs beside the model's own."""
    view = call.view
    if view is None or not view.extra:
        return GenerateConfig()
    headers = dict(model.config.extra_headers or {})
    headers["anthropic-beta"] = join_betas(headers.get("anthropic-beta", ""), view.betas)
    body = {**(model.config.extra_body or {}), **view.extra}
    return GenerateConfig(extra_body=body, extra_headers=headers)


def _read_usage(usage: Any) -> Usage:
    """Return what a call used. Inspect's count of a prompt leaves out what was cached, whatever the provider."""
    return Usage(
        input=usage.input_tokens,
        output=usage.output_tokens,
        cache_read=usage.input_tokens_cache_read or 0,
        cache_write=usage.input_tokens_cache_write or 0,
    )


# -- messages: Anthropic's shape --------------------------------------------------------------------------------------


def _convert_message(message: Any) -> list[PlainMessage]:
    """Return the plain message of a message; none for a system message, which goes out where it is."""
    if isinstance(message, ChatMessageTool):
        return [{"role": "user", "content": [_convert_result(message)]}]
    if isinstance(message, ChatMessageAssistant):
        calls = [
            {"type": "tool_use", "id": call.id, "name": call.function, "input": call.arguments}
            for call in message.tool_calls or ()
        ]
        return [{"role": "assistant", "content": [*_list_blocks(message), *calls]}]
    if isinstance(message, ChatMessageUser):
        return [{"role": "user", "content": _list_blocks(message)}]
    return []


def _convert_result(message: Any) -> dict[str, Any]:
    result = {"type": "tool_result", "tool_use_id": message.tool_call_id or "", "is_error": message.error is not None}
    # Inspect sends the error's text in the content's place.
    blocks = _list_blocks(message) if message.error is None else [{"type": "text", "text": message.error.message}]
    return {**result, "content": blocks}


def _list_blocks(message: Any) -> list[dict[str, Any]]:
    if isinstance(message.content, str):
        return [{"type": "text", "text": message.content}] if message.content else []
    return [_convert_content(content) for content in message.content]


def _convert_content(content: Any) -> dict[str, Any]:
    if isinstance(content, ContentText):
        return {"type": "text", "text": content.text}
    if isinstance(content, ContentReasoning) and content.signature:
        return {"type": "thinking", "thinking": content.reasoning, "signature": content.signature}
    if isinstance(content, ContentReasoning) and content.redacted:
        return {"type": "redacted_thinking", "data": content.reasoning}
    if isinstance(content, ContentImage):
        kind, _, data = content.image.partition(";base64,")
        if data:
            media_type = kind.removeprefix("data:")
            return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}
        return {"type": "image", "source": {"type": "url", "url": content.image}}
    return {"type": "text", "text": dump_value(content.model_dump(mode="json", exclude_none=True))}


def _rebuild_message(message: ChatMessage, sent: Mapping[int, PlainMessage]) -> Any:
    """Return a copy of a message with the text that is sent; the message itself where only cache marks differ."""
    blocks = [{name: value for name, value in each.items() if name != "cache_control"} for each in sent[0]["content"]]
    if blocks == _convert_message(message)[0]["content"]:
        return message
    # Inspect tells messages apart by their ids.
    id = f"{message.id}-elision"
    if not isinstance(message, ChatMessageTool):
        # A text of ours stands beside the message's own, such as a summary.
        text = "\n\n".join(block["text"] for block in blocks if block["type"] == "text")
        return message.model_copy(update={"id": id, "content": text})
    content = blocks[0]["content"]
    text = content if isinstance(content, str) else "\n".join(block.get("text", "") for block in content)
    error = None if message.error is None else replace(message.error, message=text)
    return message.model_copy(update={"id": id, "content": text, "error": error})


_MIRROR: Final[Mirror[Any]] = Mirror(_convert_message, _rebuild_message, lambda text: ChatMessageUser(content=text))
