"""The command and library `llm`: models around other models, which hide old tool results in what they send.

model = elision.wrap_model(llm.get_model("gpt-5"))

Installed beside `llm`, the command has a model `elision/NAME` for each model that takes tools.
"""

from __future__ import annotations

import copy
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Final

from elision.adapters.frameworks import check_framework
from elision.adapters.guarded_calls import (
    CallDescription,
    GuardedCall,
    GuardedCalls,
    RequestParts,
    SessionOwner,
    list_recall_definitions,
)
from elision.adapters.mirror import Mirror, PlainMessage, read_message_text
from elision.trajectory.usage import Usage

check_framework("llm", "0.32", "llm-plugin", "elision.adapters.llm")

import llm  # noqa: E402
from llm.parts import Message, TextPart, ToolCallPart, ToolResultPart  # noqa: E402

#: What a model says of itself, and so does the model around it.
_TRAITS: Final = (
    "can_stream",
    "attachment_types",
    "supports_schema",
    "supports_tools",
    "supports_conversation",
    "supports_tool_result_attachments",
    "Options",
)
#: The conversation whose model was asked last: its tools run next.
_session: ContextVar[str] = ContextVar("elision_llm_session", default="")


class ElisionLLM(SessionOwner):
    """Keep the requests of `llm` conversations small. What `llm` logs stays whole.

        with ElisionLLM("masking(window=10)") as elision:
            model = elision.wrap_model(llm.get_model("gpt-5"))
            chain = model.conversation().chain("Begin.", tools=[*tools, *elision.tools], chain_limit=0)

    Each conversation has a session, which is named by its id. A prompt without a conversation is sent unchanged.

    strategy, options: as for `elision.Sessions`. `model` is the wrapped model's. sessions: a pool to use instead of an
        own one; it is not closed here.

    A prompt that the provider finds too long is made shorter and sent once more. An error of Elision is logged, and
    that request goes out unchanged. Raises FrameworkError on import without llm 0.32; SettingError, SpecError,
    StoreError as `Sessions` does.
    """

    def wrap_model(self, model: Any) -> Any:
        """Return a model around `model`, sync or async as it is. Its id is `elision/` and the model's."""
        is_async = isinstance(model, llm.AsyncModel | llm.AsyncKeyModel)
        return _ElisionAsyncModel(self.calls, model) if is_async else _ElisionSyncModel(self.calls, model)

    @property
    def tools(self) -> list[llm.Tool]:
        """The recall tools, for `chain(tools=[...])`."""
        return [
            llm.Tool(each.name, each.description, each.schema, self._make_answer(each.name))
            for each in list_recall_definitions()
        ]

    def _make_answer(self, name: str) -> Any:
        def answer(**arguments: Any) -> str:
            return self.calls.answer_recall(_session.get(), name, arguments)

        return answer


class _WrappedModel:
    """What the sync and the async model share."""

    def __init__(self, calls: GuardedCalls, inner: Any) -> None:
        self.model_id = f"elision/{inner.model_id}"
        self._calls, self._inner = calls, inner
        for name in _TRAITS:
            if hasattr(inner, name):
                setattr(self, name, getattr(inner, name))

    def _describe(self, prompt: Any, conversation: Any) -> CallDescription[Message]:
        _session.set(conversation.id)
        functions = [tool for tool in prompt.tools if isinstance(tool, llm.Tool)]
        tools = [
            {"name": tool.name, "description": tool.description or "", "parameters": tool.input_schema}
            for tool in functions
        ]
        parts = RequestParts(
            tools=[{"type": "function", "function": tool} for tool in tools] or None, model=self._inner.model_id
        )
        return CallDescription(name=conversation.id, mirror=MIRROR, parts=parts)

    def _make_prompt(self, prompt: Any, call: GuardedCall[Message]) -> Any:
        """Return the prompt to send: a copy where something is hidden, since `llm` logs the prompt itself."""
        if call.view is None:
            return prompt
        made = copy.copy(prompt)
        made._explicit_messages = call.messages
        return made

    def _list_options(self, response: Any) -> dict[str, Any]:
        is_keyed = isinstance(self._inner, llm.KeyModel | llm.AsyncKeyModel)
        return {"key": self._inner.get_key(getattr(response, "_key", None))} if is_keyed else {}


class _ElisionSyncModel(_WrappedModel, llm.Model):
    def execute(self, prompt: Any, stream: bool, response: Any, conversation: Any) -> Iterator[Any]:
        given, options = prompt.messages, self._list_options(response)
        call = GuardedCall(given)
        if conversation is not None:
            call = self._calls.begin_described(given, lambda: self._describe(prompt, conversation))
        has_begun = False
        try:
            for piece in self._inner.execute(
                self._make_prompt(prompt, call), stream, response, conversation, **options
            ):
                has_begun = True
                yield piece
        except Exception as error:
            if has_begun or not call.retry(error):
                raise
            sent = self._make_prompt(prompt, call)
            yield from self._inner.execute(sent, stream, response, conversation, **options)
        _record_usage(call, response)


class _ElisionAsyncModel(_WrappedModel, llm.AsyncModel):
    async def execute(self, prompt: Any, stream: bool, response: Any, conversation: Any) -> AsyncIterator[Any]:
        given, options = prompt.messages, self._list_options(response)
        call = GuardedCall(given)
        if conversation is not None:
            call = await self._calls.begin_described_async(given, lambda: self._describe(prompt, conversation))
        has_begun = False
        try:
            sent = self._inner.execute(self._make_prompt(prompt, call), stream, response, conversation, **options)
            async with aclosing(sent) as pieces:
                async for piece in pieces:
                    has_begun = True
                    yield piece
        except Exception as error:
            if has_begun or not await call.retry_async(error):
                raise
            sent = self._inner.execute(self._make_prompt(prompt, call), stream, response, conversation, **options)
            async with aclosing(sent) as pieces:
                async for piece in pieces:
                    yield piece
        _record_usage(call, response)


def _record_usage(call: GuardedCall[Any], response: Any) -> None:
    """Record the usage that a model set. Anthropic's plugin leaves out what was cached, and names it apart."""
    if response.input_tokens is None:
        return
    details = response.token_details or {}
    counts = {"input_tokens": response.input_tokens, "output_tokens": response.output_tokens or 0}
    if "cache_read_input_tokens" in details:
        call.record({**details, **counts})
        return
    prompt_details = details.get("prompt_tokens_details") or details.get("input_tokens_details") or {}
    cached = prompt_details.get("cached_tokens") or 0
    prompt = counts["input_tokens"]
    call.record(Usage.from_inclusive(prompt=prompt, output=counts["output_tokens"], cache_read=cached))


# -- messages ---------------------------------------------------------------------------------------------------------


def _make_plain(message: Message) -> list[PlainMessage]:
    if message.role != "assistant":
        return [_make_plain_part(message.role, part) for part in message.parts]
    made: PlainMessage = {
        "role": "assistant",
        "content": "".join(part.text for part in message.parts if isinstance(part, TextPart)),
    }
    calls = [part for part in message.parts if isinstance(part, ToolCallPart) and not part.server_executed]
    if calls:
        made["tool_calls"] = [
            {
                "id": part.tool_call_id or "",
                "type": "function",
                "function": {"name": part.name, "arguments": json.dumps(part.arguments)},
            }
            for part in calls
        ]
    return [made]


def _make_plain_part(role: str, part: Any) -> PlainMessage:
    if not isinstance(part, ToolResultPart):
        text = getattr(part, "text", f"[{type(part).__name__}]")
        return {"role": "system" if role == "system" else "user", "content": text}
    content: Any = part.output
    if part.attachments:
        content = [{"type": "text", "text": part.output}]
        content += [{"type": "text", "text": f"[{each.type or 'attachment'}]"} for each in part.attachments]
    return {"role": "tool", "tool_call_id": part.tool_call_id or "", "name": part.name, "content": content}


def _rebuild_message(message: Message, sent: Mapping[int, PlainMessage]) -> Message | None:
    if message.role == "assistant":
        return message
    parts = []
    for place, part in enumerate(message.parts):
        if place not in sent:
            continue
        given = read_message_text(_make_plain_part(message.role, part))
        text = read_message_text(sent[place])
        if isinstance(part, ToolResultPart) and text != given:
            part = replace(part, output=text, attachments=[])
        parts.append(part)
    return replace(message, parts=parts) if parts else None


MIRROR: Final[Mirror[Message]] = Mirror(
    _make_plain, _rebuild_message, lambda text: Message("user", [TextPart(text=text)])
)
