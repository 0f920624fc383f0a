"""Google's Agent Development Kit: a plugin of an app. `App(name="a", root_agent=agent, plugins=[plugin])`."""

from __future__ import annotations

from elision.adapters.frameworks import check_framework

check_framework("google-adk", "2.0.0", "google-adk")

import asyncio  # noqa: E402
import logging  # noqa: E402
from collections.abc import Mapping  # noqa: E402
from functools import partial  # noqa: E402
from typing import Any, Final, Never, Unpack  # noqa: E402

from google.adk.plugins.base_plugin import BasePlugin  # noqa: E402
from google.adk.tools.base_tool import BaseTool  # noqa: E402
from google.genai import types  # noqa: E402

from elision.adapters.guarded_calls import (  # noqa: E402
    CallDescription,
    GuardedCall,
    GuardedCalls,
    RecallDefinition,
    RequestParts,
    SessionOwner,
    keep_due,
    list_recall_definitions,
)
from elision.adapters.mirror import Mirror, PlainMessage, dump_value  # noqa: E402
from elision.manager.context_options import ContextOptions  # noqa: E402
from elision.manager.session_pool import Sessions  # noqa: E402
from elision.strategies.strategy import Strategy  # noqa: E402
from elision.trajectory.usage import Usage  # noqa: E402

_log: Final = logging.getLogger("elision.adapters")


class ElisionAdkPlugin(SessionOwner, BasePlugin):
    """Keep the requests of an ADK app small: old function responses are hidden in them, and can be read again.

    Each agent of a session has an Elision session of its own, named `APP/USER/SESSION/AGENT`. The events of ADK's
    session stay whole. Every agent gets the tools `elision_recall` and `elision_search`.

        with ElisionAdkPlugin("masking(window=10)", store="sqlite:///agents.db") as elision:
            app = App(name="app", root_agent=agent, plugins=[elision])

    strategy, options: as for `elision.ContextManager`. sessions: a pool to share, instead of options; it is not closed
        here.

    Raises SettingError, SpecError, PriceError for options without a meaning, StoreError where the store cannot be
    opened, FrameworkError (at import) without ADK 2.0 or newer. Errors of Elision during a run are logged
    (`elision.adapters`) and never reach the agent.
    """

    def __init__(
        self,
        strategy: str | Strategy = "masking",
        *misplaced: Never,
        sessions: Sessions | None = None,
        **options: Unpack[ContextOptions],
    ) -> None:
        SessionOwner.__init__(self, strategy, *misplaced, sessions=sessions, **options)
        BasePlugin.__init__(self, name="elision")
        self._tools = [_RecallTool(self.calls, definition) for definition in list_recall_definitions()]
        self._due: dict[tuple[str, str], GuardedCall[Any]] = {}

    async def before_model_callback(self, *, callback_context: Any, llm_request: Any) -> None:
        """Replace the contents of a request; ADK calls this."""
        llm_request.append_tools(self._tools)
        describe = partial(_describe_call, callback_context, llm_request)
        call = await self.calls.begin_described_async(llm_request.contents, describe)
        llm_request.contents = call.messages
        keep_due(self._due, _identify_call(callback_context), call)

    async def after_model_callback(self, *, callback_context: Any, llm_response: Any) -> None:
        """Record the usage of a call; ADK calls this, for each piece of a stream."""
        usage = llm_response.usage_metadata
        if usage is None or llm_response.partial:
            return
        call = self._due.pop(_identify_call(callback_context), None)
        if call is not None:
            call.record(_read_usage(usage))

    async def on_model_error_callback(self, *, callback_context: Any, llm_request: Any, error: Exception) -> Any:
        """Send a request that was too long once more, shorter; ADK calls this. Returns the last response, or None."""
        call = self._due.get(_identify_call(callback_context))
        if call is None or not await call.retry_async(error):
            return None
        llm_request.contents = call.messages
        model = callback_context._invocation_context.agent.canonical_model
        try:
            responses = [response async for response in model.generate_content_async(llm_request, stream=False)]
        except Exception:  # noqa: BLE001 - ADK raises the first error then
            _log.warning("a request that was too long was sent once more, shorter, and failed", exc_info=True)
            return None
        return responses[-1] if responses else None

    async def close(self) -> None:  # type: ignore[override]
        """Store what is unsaved. ADK's runners call this as they close, and other runners may still use the plugin."""
        await asyncio.to_thread(self.sessions.settle)

    def __exit__(self, *exception: object) -> None:
        SessionOwner.close(self)


class _RecallTool(BaseTool):
    """A recall tool. It finds the session by ADK's context."""

    def __init__(self, calls: GuardedCalls, definition: RecallDefinition) -> None:
        super().__init__(name=definition.name, description=definition.description)
        self._calls, self._definition = calls, definition

    def _get_declaration(self) -> types.FunctionDeclaration:
        schema = self._definition.schema
        return types.FunctionDeclaration(name=self.name, description=self.description, parameters_json_schema=schema)

    async def run_async(self, *, args: dict[str, Any], tool_context: Any) -> dict[str, Any]:
        return {"result": await self._calls.answer_recall_async(_name_session(tool_context), self.name, args)}


# -- parts of a request -----------------------------------------------------------------------------------------------


def _name_session(context: Any) -> str:
    session = context.session
    return f"{session.app_name}/{session.user_id}/{session.id}/{context.agent_name}"


def _identify_call(context: Any) -> tuple[str, str]:
    """Return what tells the calls that are under way apart: an agent has one at a time in each invocation."""
    return _name_session(context), context.invocation_id


def _describe_call(context: Any, request: Any) -> CallDescription[Any]:
    config = request.config
    parts = RequestParts(model=request.model or "")
    if config.system_instruction is not None:
        system = config.system_instruction
        is_content = isinstance(system, types.Content)
        parts["system"] = _dump_object(system) if is_content else {"parts": [{"text": dump_value(system)}]}
    if config.tools:
        parts["tools"] = [_dump_object(tool) for tool in config.tools if isinstance(tool, types.Tool)]
    return CallDescription(name=_name_session(context), mirror=_MIRROR, parts=parts)


def _read_usage(usage: Any) -> Usage:
    """Return what a call used. ADK's counts of a prompt include what was cached, whatever the provider."""
    return Usage.from_inclusive(
        prompt=(usage.prompt_token_count or 0) + (usage.tool_use_prompt_token_count or 0),
        output=(usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0),
        cache_read=usage.cached_content_token_count or 0,
        # Of Claude models: ADK adds the field to Gemini's own.
        cache_write=getattr(usage, "cache_creation_input_tokens", None) or 0,
    )


# -- contents ---------------------------------------------------------------------------------------------------------


def _dump_object(value: Any) -> dict[str, Any]:
    """Return an object of google-genai as Gemini's JSON."""
    found: dict[str, Any] = value.model_dump(mode="json", by_alias=True, exclude_none=True)
    return found


def _convert_content(content: Any) -> list[PlainMessage]:
    return [_dump_object(content)] if isinstance(content, types.Content) and content.parts else []


def _rebuild_content(content: Any, sent: Mapping[int, PlainMessage]) -> Any:
    """Return a copy of a content with the parts that are sent."""
    own = [(part, _dump_object(part)) for part in content.parts]
    parts = []
    for plain in sent[0]["parts"]:
        place = next((at for at, (_, dumped) in enumerate(own) if dumped == plain), None)
        if place is None:
            # The same function's response with another text, or a text of ours.
            place = next((at for at, (_, dumped) in enumerate(own) if _is_same_response(dumped, plain)), None)
            parts.append(types.Part(text=plain["text"]) if place is None else _replace_response(own[place][0], plain))
        else:
            parts.append(own[place][0])
        if place is not None:
            # In order: what comes before stands for nothing that is still to come.
            own = own[place + 1 :]
    return content.model_copy(update={"parts": parts}) if parts else None


def _is_same_response(one: Mapping[str, Any], two: Mapping[str, Any]) -> bool:
    if "functionResponse" not in one or "functionResponse" not in two:
        return False
    return all(one["functionResponse"].get(name) == two["functionResponse"].get(name) for name in ("id", "name"))


def _replace_response(part: Any, plain: Mapping[str, Any]) -> Any:
    """Return a copy of a part with another text, under the key that the function itself used."""
    text = "\n".join(dump_value(value) for value in plain["functionResponse"]["response"].values())
    response = part.function_response.response or {}
    key = "error" if "error" in response else next(iter(response), "result")
    answer = part.function_response.model_copy(update={"response": {key: text}, "parts": None})
    return part.model_copy(update={"function_response": answer})


_MIRROR: Final[Mirror[Any]] = Mirror(_convert_content, _rebuild_content, lambda text: types.UserContent(text))
