"""Pydantic AI: a capability of an agent.

agent = Agent(model, capabilities=[ElisionCapability("masking(window=10)")])
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, Never, Unpack

from elision.adapters.frameworks import check_framework
from elision.adapters.guarded_calls import (
    CallDescription,
    GuardedCall,
    RecallDefinition,
    RequestParts,
    SessionOwner,
    keep_due,
    list_recall_definitions,
)
from elision.adapters.mirror import Mirror, PlainMessage, make_anthropic_tool, read_message_text
from elision.manager.context_options import ContextOptions
from elision.manager.session_pool import Sessions
from elision.strategies.strategy import Strategy

check_framework("pydantic-ai-slim", "2.64.0", "pydantic-ai")

from pydantic_ai import RunContext, Tool  # noqa: E402
from pydantic_ai.capabilities import AbstractCapability  # noqa: E402
from pydantic_ai.exceptions import RetryModelRequest  # noqa: E402
from pydantic_ai.messages import (  # noqa: E402
    BinaryContent,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryPromptPart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestContext  # noqa: E402
from pydantic_ai.toolsets import FunctionToolset  # noqa: E402


class ElisionCapability(AbstractCapability[Any], SessionOwner):
    """Keep the requests of Pydantic AI agents small. The message history stays whole.

        agent = Agent(model, capabilities=[ElisionCapability("masking(window=10)")])

    One serves any number of agents, conversations and event loops: each conversation has a session, which is named by
    its `conversation_id`, and so has each sub-agent. Put it last. The agent gets the recall tools.

    strategy, options: as for `elision.Sessions`. `model` is the request's. sessions: a pool to use instead of an own
        one; it is not closed here.

    A prompt that the provider finds too long is made shorter and sent once more. An error of Elision is logged, and
    that request goes out unchanged. Raises FrameworkError on import without Pydantic AI 2.64; SettingError, SpecError,
    StoreError as `Sessions` does.
    """

    def __init__(
        self,
        strategy: str | Strategy = "masking",
        *misplaced: Never,
        sessions: Sessions | None = None,
        **options: Unpack[ContextOptions],
    ) -> None:
        SessionOwner.__init__(self, strategy, *misplaced, sessions=sessions, **options)
        #: The call of each run whose response is due, and the runs that are to send theirs once more.
        self._due: dict[str, GuardedCall[ModelMessage]] = {}
        self._repeated: set[str] = set()

    def get_toolset(self) -> FunctionToolset[Any]:
        """Return the recall tools."""
        return FunctionToolset([self._make_tool(each) for each in list_recall_definitions()], id="elision")

    async def prepare_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Return the request with the messages that Elision made of its own."""
        run = ctx.run_id or ""
        call = self._due.get(run) if run in self._repeated else None
        self._repeated.discard(run)
        if call is None:
            call = await self.calls.begin_described_async(
                request_context.messages, lambda: _describe_request(ctx, request_context)
            )
            keep_due(self._due, run, call)
        return replace(
            request_context, messages=call.messages, model_settings=_make_settings(call, request_context.model_settings)
        )

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """Record the usage of the response, and return it."""
        call = self._due.pop(ctx.run_id or "", None)
        if call is not None:
            call.record(response.usage)
        return response

    async def on_model_request_error(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, error: Exception
    ) -> ModelResponse:
        """Have the request sent once more, shorter, where the error says that it was too long; else raise it."""
        run = ctx.run_id or ""
        if run in self._due and await self._due[run].retry_async(error):
            self._repeated.add(run)
            raise RetryModelRequest from error
        self._due.pop(run, None)
        raise error

    def _make_tool(self, definition: RecallDefinition) -> Tool[Any]:
        async def answer(ctx: RunContext[Any], **arguments: Any) -> str:
            return await self.calls.answer_recall_async(_find_session(ctx), definition.name, arguments)

        return Tool.from_schema(answer, definition.name, definition.description, definition.schema, takes_ctx=True)


def _find_session(ctx: RunContext[Any]) -> str:
    return ctx.conversation_id or ctx.run_id or ""


def _describe_request(ctx: RunContext[Any], request: ModelRequestContext) -> CallDescription[ModelMessage]:
    anthropic = _is_anthropic(request.model)
    parameters, settings = request.model_request_parameters, request.model_settings or {}
    parts = RequestParts(
        tools=_make_tools(parameters, anthropic=anthropic),
        system=_find_system(parameters, request.messages, anthropic=anthropic),
        model=request.model.model_name,
    )
    if anthropic:
        own = {name: settings.get(f"anthropic_{name}") for name in ("thinking", "context_management")}
        parts["request"] = {name: value for name, value in own.items() if value}
    mirror = ANTHROPIC_MIRROR if anthropic else OPENAI_MIRROR
    return CallDescription(name=_find_session(ctx), mirror=mirror, parts=parts)


def _make_settings(call: GuardedCall[Any], settings: Any) -> Any:
    """Return the settings with what the call needs beside its messages, such as the request to clear results."""
    if call.view is None or not (call.view.extra or call.view.betas):
        return settings
    made = {**(settings or {}), **{f"anthropic_{name}": value for name, value in call.view.extra.items()}}
    return {**made, "anthropic_betas": list(dict.fromkeys([*made.get("anthropic_betas", ()), *call.view.betas]))}


def _is_anthropic(model: Any) -> bool:
    """Return whether a model speaks Anthropic's own API, within the models that wrap it."""
    for _ in range(20):
        if any(kind.__name__ == "AnthropicModel" for kind in type(model).__mro__):
            return True
        if not hasattr(model, "wrapped"):
            break
        model = model.wrapped
    return False


def _find_system(parameters: Any, messages: Sequence[ModelMessage], *, anthropic: bool) -> str | None:
    """Return the text that is sent beside the messages: the instructions, and to Anthropic all of the system's."""
    texts = [part.content for part in parameters.instruction_parts or ()]
    if anthropic:
        parts = [part for message in messages if isinstance(message, ModelRequest) for part in message.parts]
        texts = [part.content for part in parts if isinstance(part, SystemPromptPart)] + texts
    return "\n\n".join(texts) or None


def _make_tools(parameters: Any, *, anthropic: bool) -> list[dict[str, Any]]:
    """Return the definitions of a request's tools, those for structured output too."""
    functions = [
        {"name": tool.name, "description": tool.description or "", "parameters": tool.parameters_json_schema}
        for tool in (*parameters.function_tools, *parameters.output_tools)
    ]
    definitions = [{"type": "function", "function": function} for function in functions]
    return [make_anthropic_tool(each) for each in definitions] if anthropic else definitions


# -- OpenAI's shape ---------------------------------------------------------------------------------------------------


def _make_openai_messages(message: ModelMessage) -> list[PlainMessage]:
    """Return a plain message for each part of a request that is known, or one for a response."""
    if isinstance(message, ModelRequest):
        return [_make_openai_part(part) for part in message.parts if _is_known(part)]
    texts: list[str] = []
    thoughts: list[ThinkingPart] = []
    calls: list[dict[str, Any]] = []
    for part in message.parts:
        if isinstance(part, TextPart):
            texts.append(part.content)
        elif isinstance(part, ThinkingPart):
            thoughts.append(part)
        elif isinstance(part, ToolCallPart):
            function = {"name": part.tool_name, "arguments": part.args_as_json_str()}
            calls.append({"id": part.tool_call_id, "type": "function", "function": function})
    made: PlainMessage = {"role": "assistant", "content": "".join(texts)}
    if thoughts:
        made["reasoning_content"] = "\n".join(part.content for part in thoughts)
    if any(part.signature for part in thoughts):
        made["thinking_blocks"] = [_make_thought(part) for part in thoughts]
    if calls:
        made["tool_calls"] = calls
    return [made]


def _make_openai_part(part: Any) -> PlainMessage:
    content = _list_content(part, _make_openai_image)
    if _is_result(part):
        return {"role": "tool", "tool_call_id": part.tool_call_id, "name": part.tool_name, "content": content}
    return {"role": "system" if isinstance(part, SystemPromptPart) else "user", "content": content}


def _make_openai_image(file: BinaryContent | ImageUrl) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": str(file.url if isinstance(file, ImageUrl) else file.data_uri)}}


# -- Anthropic's shape ------------------------------------------------------------------------------------------------


def _make_anthropic_messages(message: ModelMessage) -> list[PlainMessage]:
    """Return a plain message for each part of a request that is known, or one for a response."""
    if isinstance(message, ModelRequest):
        return [_make_anthropic_part(part) for part in message.parts if _is_known_to_anthropic(part)]
    blocks: list[dict[str, Any]] = []
    for part in message.parts:
        if isinstance(part, ThinkingPart):
            blocks.append(_make_thought(part))
        elif isinstance(part, TextPart):
            blocks.append({"type": "text", "text": part.content})
        elif isinstance(part, ToolCallPart):
            use = {"id": part.tool_call_id, "name": part.tool_name, "input": part.args_as_dict()}
            blocks.append({"type": "tool_use", **use})
    return [{"role": "assistant", "content": blocks}]


def _make_anthropic_part(part: Any) -> PlainMessage:
    content = _list_content(part, _make_anthropic_image)
    if not _is_result(part):
        return {"role": "user", "content": content}
    result = {"type": "tool_result", "tool_use_id": part.tool_call_id, "content": content}
    if getattr(part, "outcome", "retried") != "success":
        result["is_error"] = True
    return {"role": "user", "content": [result]}


def _make_anthropic_image(file: BinaryContent | ImageUrl) -> dict[str, Any]:
    if isinstance(file, ImageUrl):
        return {"type": "image", "source": {"type": "url", "url": file.url}}
    source = {"type": "base64", "media_type": file.media_type, "data": file.base64}
    return {"type": "image", "source": source}


def _make_thought(part: ThinkingPart) -> dict[str, Any]:
    return {"type": "thinking", "thinking": part.content, "signature": part.signature or ""}


# -- what both shapes share -------------------------------------------------------------------------------------------


def _is_result(part: Any) -> bool:
    return isinstance(part, ToolReturnPart) or (isinstance(part, RetryPromptPart) and bool(part.tool_name))


def _is_known(part: Any) -> bool:
    """Return whether a part of a request has a plain message. Others are sent with their request, unchanged."""
    return isinstance(part, SystemPromptPart | UserPromptPart | ToolReturnPart | RetryPromptPart)


def _is_known_to_anthropic(part: Any) -> bool:
    """Return the same where the parts of the system are sent beside the messages."""
    return _is_known(part) and not isinstance(part, SystemPromptPart)


def _list_content(part: Any, make_image: Any) -> Any:
    """Return the text of a part; a list of blocks where it has images or other files."""
    if isinstance(part, ToolReturnPart):
        items = [part.content] if isinstance(part.content, str) else part.content_items(mode="str")
    elif isinstance(part, RetryPromptPart):
        items = [part.model_response()]
    else:
        items = [part.content] if isinstance(part.content, str) else list(part.content)
    if all(isinstance(item, str) for item in items):
        return "\n".join(items)
    return [_make_block(item, make_image) for item in items]


def _make_block(item: Any, make_image: Any) -> dict[str, Any]:
    if isinstance(item, ImageUrl) or (isinstance(item, BinaryContent) and item.is_image):
        made: dict[str, Any] = make_image(item)
        return made
    text = item if isinstance(item, str) else getattr(item, "content", None)
    return {"type": "text", "text": text if isinstance(text, str) else f"[{type(item).__name__}]"}


def _rebuild_message(
    message: ModelMessage, sent: Mapping[int, PlainMessage], has_plain: Callable[[Any], bool]
) -> ModelMessage | None:
    """Return a copy of a request whose hidden parts say what is sent; None where no part is left."""
    if isinstance(message, ModelResponse):
        return message
    parts: list[Any] = []
    place = 0
    for part in message.parts:
        if not has_plain(part):
            parts.append(part)
            continue
        if place in sent:
            parts.append(_rebuild_part(part, sent[place]))
        place += 1
    if len(parts) == len(message.parts) and all(one is two for one, two in zip(parts, message.parts, strict=True)):
        return message
    return replace(message, parts=parts) if parts else None


def _rebuild_part(part: Any, sent: PlainMessage) -> Any:
    content = sent["content"]
    if _is_result(part) and isinstance(content, list) and content[0].get("type") == "tool_result":
        content = content[0]["content"]
    # Blocks are those of the part itself: what is hidden has a text. Cache breakpoints are the framework's to set.
    text = content if isinstance(content, str) else read_message_text({"content": content})
    given = _list_content(part, _make_openai_image)
    if text == (given if isinstance(given, str) else read_message_text({"content": given})):
        return part
    return replace(part, content=text)


def _make_user_message(text: str) -> ModelMessage:
    return ModelRequest(parts=[UserPromptPart(text)])


OPENAI_MIRROR: Final[Mirror[ModelMessage]] = Mirror(
    _make_openai_messages, partial(_rebuild_message, has_plain=_is_known), _make_user_message
)
ANTHROPIC_MIRROR: Final[Mirror[ModelMessage]] = Mirror(
    _make_anthropic_messages, partial(_rebuild_message, has_plain=_is_known_to_anthropic), _make_user_message
)
