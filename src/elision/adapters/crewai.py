"""CrewAI: the LLM of an agent hides old tool results in what it sends.

elision = ElisionCrew("masking(window=10)")
agent = Agent(..., llm=elision.wrap_llm(LLM(model="gpt-5")), tools=[*tools, *elision.tools])
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Final

from elision.adapters.frameworks import check_framework
from elision.adapters.guarded_calls import (
    GuardedCall,
    GuardedCalls,
    RecallDefinition,
    SessionOwner,
    list_recall_definitions,
)
from elision.errors import SettingError
from elision.providers.shared.capabilities import find_capabilities
from elision.trajectory.usage import Usage

check_framework("crewai", "1.15.0", "crewai")

from crewai import BaseLLM  # noqa: E402
from crewai.tools import BaseTool  # noqa: E402
from crewai.types.usage_metrics import UsageMetrics  # noqa: E402
from pydantic import BaseModel, PrivateAttr  # noqa: E402

from elision.adapters.recall_models import make_argument_model  # noqa: E402

_MARK: Final = "_elision_wrapped"
_log: Final = logging.getLogger("elision.adapters")
#: The call that runs here. CrewAI reports usage to its LLM, which does not say of which call.
_call: ContextVar[GuardedCall[Any] | None] = ContextVar("elision_crewai_call", default=None)


class ElisionCrew(SessionOwner):
    """Hide old tool results in the requests of CrewAI agents; recall them by `tools`.

        with ElisionCrew("masking(window=10)", store="sqlite:///crew.db") as elision:
            llm = elision.wrap_llm(LLM(model="gpt-5"))
            agent = Agent(role=..., goal=..., backstory=..., llm=llm, tools=[*tools, *elision.tools])
            Crew(agents=[agent], tasks=[task]).kickoff()

    One serves any number of LLMs, agents and crews. Each task of an agent is a session. CrewAI's messages stay whole.

    strategy, options: as for `elision.Sessions`; the model is the LLM's. sessions: a pool to share, which is not closed
    here. An error of Elision is logged (`elision.adapters`), and that request is sent unchanged. Raises FrameworkError
    on import without CrewAI 1.15; SettingError, SpecError, StoreError as `Sessions` does.
    """

    @property
    def tools(self) -> list[BaseTool]:
        """The recall tools of one agent, for `Agent(tools=[...])`: new ones each time."""
        return [_make_tool(self.calls, definition) for definition in list_recall_definitions()]

    def wrap_llm(self, llm: BaseLLM) -> BaseLLM:
        """Have `llm` hide old tool results in what it sends, and return it: the same object, changed.

        Its own compaction before a call is off; what it does when a provider refuses a prompt twice is not.
        Raises SettingError for an LLM that is wrapped already.
        """
        if _MARK in vars(llm):
            raise SettingError(f"{llm.model}: this LLM is wrapped already")
        send, send_async, track = llm.call, llm.acall, llm._track_token_usage_internal

        def call(messages: Any, *rest: Any, **named: Any) -> Any:
            session = _name_session(llm, messages, named)
            if not session:
                return send(messages, *rest, **named)
            begun = self.calls.begin(session, messages, tools=_get_tools(rest, named), model=llm.model)
            token = _call.set(begun)
            try:
                return begun.send(lambda: send(begun.messages, *rest, **named))
            finally:
                _call.reset(token)

        async def call_async(messages: Any, *rest: Any, **named: Any) -> Any:
            session = _name_session(llm, messages, named)
            if not session:
                return await send_async(messages, *rest, **named)
            begun = await self.calls.begin_async(session, messages, tools=_get_tools(rest, named), model=llm.model)
            token = _call.set(begun)
            try:
                return await begun.send_async(lambda: send_async(begun.messages, *rest, **named))
            finally:
                _call.reset(token)

        def track_usage(usage: Any) -> None:
            track(usage)
            _record_usage(usage)

        changes = {
            "call": call,
            "acall": call_async,
            "_track_token_usage_internal": track_usage,
            # CrewAI counts its own messages here, with what is not sent, and would summarize them for good.
            "is_context_window_overflowing_threshold": lambda *_, **__: False,
            _MARK: True,
        }
        for name, value in changes.items():
            # The LLM is a pydantic model, which takes no functions for its fields.
            object.__setattr__(llm, name, value)
        return llm


def _name_session(llm: BaseLLM, messages: Any, named: Mapping[str, Any]) -> str:
    """Return the session of a request: of the agent's task, which CrewAI names; "" for a request without a history."""
    if not isinstance(messages, list):
        return ""
    if getattr(llm, "thinking", None) and find_capabilities(llm.model).binds_thinking:
        # CrewAI adds the signed thinking after us, so what is before it must stay.
        _log.warning("%s binds its thinking to what is before it: CrewAI's requests are sent unchanged", llm.model)
        return ""
    task, agent = named.get("from_task"), named.get("from_agent")
    if task is None and agent is None:
        # CrewAI's own questions, such as for a summary.
        return ""
    session = f"crewai-{getattr(task, 'id', 'no-task')}/{getattr(agent, 'id', 'no-agent')}"
    # CrewAI runs tools elsewhere than its LLM, and tells them nothing: what the agent calls next belongs here.
    for tool in (*(getattr(task, "tools", None) or ()), *(getattr(agent, "tools", None) or ())):
        if isinstance(tool, _CrewRecallTool):
            tool._session = session
    return session


def _get_tools(rest: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    """Return the tools of a request, which may be given by their place."""
    return rest[0] if rest else named.get("tools")


def _record_usage(usage: Any) -> None:
    """Record what CrewAI's LLM reports, with the call that runs here."""
    call = _call.get()
    if call is None:
        return
    try:
        read = _read_usage(usage if isinstance(usage, Mapping) else dict(usage))
    except Exception:  # noqa: BLE001 - an error of ours never reaches the agent
        _log.exception("the usage of a call could not be read")
        return
    call.record(read)


def _read_usage(usage: Mapping[str, Any]) -> Usage:
    """Return the usage of a call. Bedrock's counts leave the cache out; other LLMs of CrewAI include it.

    LiteLLM may pass on Anthropic's own counts, which leave it out too.
    """
    if "inputTokens" in usage:
        return Usage(
            input=usage["inputTokens"],
            output=usage.get("outputTokens", 0),
            cache_read=usage.get("cacheReadInputTokens") or 0,
            cache_write=usage.get("cacheWriteInputTokens") or 0,
        )
    metrics = UsageMetrics.from_provider_dict(dict(usage))
    counts = {"output": metrics.completion_tokens, "cache_read": metrics.cached_prompt_tokens}
    counts["cache_write"] = getattr(metrics, "cache_creation_tokens", 0)
    if "input_tokens" in usage and ("cache_read_input_tokens" in usage or "cache_creation_input_tokens" in usage):
        return Usage(input=usage["input_tokens"], **counts)
    return Usage.from_inclusive(prompt=metrics.prompt_tokens, **counts)


class _CrewRecallTool(BaseTool):
    """A recall tool of one agent. _session: of the agent's newest request."""

    _calls: GuardedCalls = PrivateAttr()
    _session: str = PrivateAttr(default="")

    def _run(self, **arguments: Any) -> str:
        given = {name: value for name, value in arguments.items() if value is not None}
        return self._calls.answer_recall(self._session, self.name, given)

    async def _arun(self, **arguments: Any) -> str:
        given = {name: value for name, value in arguments.items() if value is not None}
        return await self._calls.answer_recall_async(self._session, self.name, given)


def _make_tool(calls: GuardedCalls, definition: RecallDefinition) -> BaseTool:
    arguments = make_argument_model(definition, f"{definition.name}_arguments", BaseModel)
    # The same call has another answer once more is hidden.
    tool = _CrewRecallTool(
        name=definition.name,
        description=definition.description,
        args_schema=arguments,
        cache_function=lambda *_: False,
    )
    tool._calls = calls
    return tool
