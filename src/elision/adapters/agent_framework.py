"""Microsoft Agent Framework: a context provider. `Agent(client, context_providers=[ElisionContextProvider()])`."""

from __future__ import annotations

from elision.adapters.frameworks import check_framework

check_framework("agent-framework-core", "1.0.0", "agent-framework")

import json  # noqa: E402
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping  # noqa: E402
from functools import partial  # noqa: E402
from typing import Any, Final, Never, Unpack  # noqa: E402

from agent_framework import (  # noqa: E402
    ChatMiddleware,
    Content,
    ContextProvider,
    FunctionTool,
    Message,
    ResponseStream,
)

from elision.adapters.guarded_calls import (  # noqa: E402
    CallDescription,
    GuardedCall,
    GuardedCalls,
    RecallDefinition,
    RequestParts,
    SessionOwner,
    list_recall_definitions,
)
from elision.adapters.mirror import Mirror, PlainMessage, dump_value  # noqa: E402
from elision.manager.context_options import ContextOptions  # noqa: E402
from elision.manager.session_pool import Sessions  # noqa: E402
from elision.strategies.strategy import Strategy  # noqa: E402
from elision.trajectory.usage import Usage  # noqa: E402


class ElisionContextProvider(SessionOwner, ContextProvider):
    """Keep the requests of an agent small: old function results are hidden in them, and can be read again.

    One provider serves any number of agents. The session is named after the framework's, and after the agent where that
    has a name: `SESSION/AGENT`. What history providers store stays whole. Agents get the tools `elision_recall` and
    `elision_search`.

        with ElisionContextProvider("masking(window=10)", store="sqlite:///agents.db") as elision:
            agent = Agent(client, "You are careful.", tools=tools, context_providers=[elision])

    strategy, options: as for `elision.ContextManager`. sessions: a pool to share, instead of options; it is not closed
        here.

    Raises SettingError, SpecError, PriceError for options without a meaning, StoreError where the store cannot be
    opened, FrameworkError (at import) without agent-framework-core 1.0 or newer. Errors of Elision during a run are
    logged (`elision.adapters`) and never reach the agent.
    """

    def __init__(
        self,
        strategy: str | Strategy = "masking",
        *misplaced: Never,
        sessions: Sessions | None = None,
        **options: Unpack[ContextOptions],
    ) -> None:
        SessionOwner.__init__(self, strategy, *misplaced, sessions=sessions, **options)
        ContextProvider.__init__(self, "elision")

    async def before_run(self, *, agent: Any, session: Any, context: Any, state: dict[str, Any]) -> None:
        """Add the middleware and the recall tools to a run; the framework calls this."""
        thread = session.session_id if session is not None else context.session_id
        name = f"{thread}/{agent.name}" if getattr(agent, "name", None) else str(thread)
        tools = [_make_recall_tool(self.calls, name, definition) for definition in list_recall_definitions()]
        context.extend_middleware(self.source_id, [_RequestMiddleware(self.calls, name)])
        context.extend_tools(self.source_id, tools)


class _RequestMiddleware(ChatMiddleware):
    """Replaces the messages of each request of a run, once for each call of the model."""

    def __init__(self, calls: GuardedCalls, session: str) -> None:
        self._calls, self._session = calls, session

    async def process(self, context: Any, call_next: Callable[[], Awaitable[None]]) -> None:
        if (context.options or {}).get("conversation_id"):
            # The service holds the history, and the request has only what is new.
            await call_next()
            return
        describe = partial(_describe_call, self._session, context)
        call = await self._calls.begin_described_async(context.messages, describe)
        context.messages = call.messages
        try:
            await call_next()
        except Exception as error:
            if not await call.retry_async(error):
                raise
            context.messages = call.messages
            await call_next()
        if context.stream and isinstance(context.result, ResponseStream):
            context.result = _watch_stream(context, call, call_next)
        else:
            _record_usage(call, context.result)


def _watch_stream(context: Any, call: GuardedCall[Any], call_next: Callable[[], Awaitable[None]]) -> Any:
    """Return a stream of the request's updates, which is begun once more where the prompt was too long."""
    streams = [context.result]

    async def relay_updates() -> AsyncIterator[Any]:
        has_begun = False
        try:
            async for update in streams[0]:
                has_begun = True
                yield update
            return
        except Exception as error:
            if has_begun or not await call.retry_async(error):
                raise
        context.messages = call.messages
        await call_next()
        streams[0] = context.result
        async for update in streams[0]:
            yield update

    async def finish_response(_: Any) -> Any:
        response = await streams[0].get_final_response()
        _record_usage(call, response)
        return response

    return ResponseStream(relay_updates(), finalizer=finish_response)


def _make_recall_tool(calls: GuardedCalls, session: str, definition: RecallDefinition) -> FunctionTool:
    async def answer(**arguments: Any) -> str:
        return await calls.answer_recall_async(session, definition.name, arguments)

    return FunctionTool(
        name=definition.name,
        description=definition.description,
        func=answer,
        input_model=definition.schema,
        approval_mode="never_require",
    )


# -- parts of a request -----------------------------------------------------------------------------------------------


def _describe_call(session: str, context: Any) -> CallDescription[Any]:
    options = context.options or {}
    model = options.get("model") or getattr(context.client, "model", None) or getattr(context.client, "model_id", None)
    parts = RequestParts(model=model if isinstance(model, str) else "", system=options.get("instructions"))
    tools = options.get("tools") or ()
    parts["tools"] = [_convert_tool(tool) for tool in tools if isinstance(tool, FunctionTool | dict)] or None
    return CallDescription(name=session, mirror=_MIRROR, parts=parts)


def _convert_tool(tool: Any) -> dict[str, Any]:
    if isinstance(tool, dict):
        return tool
    function = {"name": tool.name, "description": tool.description or "", "parameters": tool.parameters()}
    return {"type": "function", "function": function}


def _record_usage(call: GuardedCall[Any], response: Any) -> None:
    """Record the usage of a response. Its counts are the provider's own: only Anthropic's leave out what was cached."""
    usage = getattr(response, "usage_details", None)
    if not usage:
        return
    read = usage.get("cache_read_input_token_count") or 0
    write = usage.get("cache_creation_input_token_count") or 0
    output = usage.get("output_token_count") or 0
    prompt = usage.get("input_token_count") or 0
    if any(name.startswith("anthropic.") for name in usage):
        call.record(Usage(input=prompt, output=output, cache_read=read, cache_write=write))
    else:
        call.record(Usage.from_inclusive(prompt=prompt, output=output, cache_read=read, cache_write=write))


# -- messages: OpenAI's shape -----------------------------------------------------------------------------------------


def _convert_message(message: Any) -> list[PlainMessage]:
    """Return the plain messages of a message: one for each result, or one for all else that it says."""
    if not isinstance(message, Message) or not message.contents:
        return []
    role = str(message.role)
    if role == "assistant":
        return [_convert_answer(message)]
    results = [content for content in message.contents if content.type == "function_result"]
    if len(results) == len(message.contents):
        return [_convert_result(content) for content in results]
    return [{"role": role, "content": [_convert_content(content) for content in message.contents]}]


def _convert_answer(message: Any) -> PlainMessage:
    made: PlainMessage = {"role": "assistant", "content": message.text}
    calls = [content for content in message.contents if content.type == "function_call"]
    if calls:
        made["tool_calls"] = [
            {
                "id": content.call_id,
                "type": "function",
                "function": {"name": content.name, "arguments": _dump_arguments(content.arguments)},
            }
            for content in calls
        ]
    thoughts = [content for content in message.contents if content.type == "text_reasoning"]
    if thoughts:
        # Also where the text is withheld: a model may bind what it thought to what came before.
        made["reasoning_content"] = "\n".join(content.text or "" for content in thoughts) or "[thinking]"
    return made


def _dump_arguments(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments or {}, default=str)


def _convert_result(content: Any) -> PlainMessage:
    blocks = [_convert_content(item) for item in content.items or ()]
    text = content.result if isinstance(content.result, str) else dump_value(content.result)
    if any(block["type"] != "text" for block in blocks):
        return {"role": "tool", "tool_call_id": content.call_id, "content": blocks}
    return {"role": "tool", "tool_call_id": content.call_id, "content": text}


def _convert_content(content: Any) -> dict[str, Any]:
    if content.type == "text":
        return {"type": "text", "text": content.text or ""}
    uri = getattr(content, "uri", None)
    if uri and str(getattr(content, "media_type", None) or "").startswith("image/"):
        return {"type": "image_url", "image_url": {"url": uri}}
    return {"type": "text", "text": dump_value(content.to_dict())}


def _rebuild_message(message: Any, sent: Mapping[int, PlainMessage]) -> Any:
    """Return a copy of a message with other texts in its results. `sent` has one for each result that is sent."""
    contents = [_replace_result(message.contents[place], plain) for place, plain in sorted(sent.items())]
    return Message(
        message.role,
        contents,
        author_name=message.author_name,
        message_id=message.message_id,
        additional_properties=message.additional_properties,
    )


def _replace_result(content: Any, plain: PlainMessage) -> Any:
    if plain == _convert_result(content):
        return content
    return Content.from_function_result(
        content.call_id,
        result=plain["content"],
        exception=content.exception,
        additional_properties=content.additional_properties,
    )


_MIRROR: Final[Mirror[Any]] = Mirror(_convert_message, _rebuild_message, lambda text: Message("user", [text]))
