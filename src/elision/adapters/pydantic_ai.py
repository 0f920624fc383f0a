"""Pydantic AI: a capability of an agent.

agent = Agent(model, capabilities=[ElisionCapability("masking(window=10)")])
"""

from __future__ import annotations

from typing import Any, Never, Unpack

from elision.adapters.frameworks import check_framework
from elision.adapters.guarded_calls import (
    CallDescription,
    GuardedCall,
    RecallDefinition,
    RequestParts,
    SessionOwner,
    list_recall_definitions,
)
from elision.manager.context_options import ContextOptions
from elision.manager.session_pool import Sessions
from elision.strategies.strategy import Strategy

check_framework("pydantic-ai-slim", "2.64.0", "pydantic-ai")

from dataclasses import replace  # noqa: E402

from pydantic_ai import RunContext, Tool  # noqa: E402
from pydantic_ai.capabilities import AbstractCapability  # noqa: E402
from pydantic_ai.exceptions import RetryModelRequest  # noqa: E402
from pydantic_ai.messages import ModelMessage, ModelResponse  # noqa: E402
from pydantic_ai.models import ModelRequestContext  # noqa: E402
from pydantic_ai.toolsets import FunctionToolset  # noqa: E402

from elision.adapters.pydantic_ai_messages import (  # noqa: E402
    ANTHROPIC_MIRROR,
    OPENAI_MIRROR,
    find_system,
    is_anthropic,
    make_tools,
)

#: Calls whose response is due, in runs at the same time.
_MOST_DUE = 1_000


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
            self._due[run] = call
            if len(self._due) > _MOST_DUE:
                # Of a run that was cancelled while it waited.
                del self._due[next(iter(self._due))]
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
    anthropic = is_anthropic(request.model)
    parameters, settings = request.model_request_parameters, request.model_settings or {}
    parts = RequestParts(
        tools=make_tools(parameters, anthropic=anthropic),
        system=find_system(parameters, request.messages, anthropic=anthropic),
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
