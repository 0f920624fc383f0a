"""OpenHands SDK: a condenser that hides old tool results in the view of each call. The events stay whole.

agent = Agent(llm=llm, tools=[*tools, *RECALL_TOOLS], condenser=ElisionCondenser("masking(window=29)"))
"""

from __future__ import annotations

import atexit
import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from elision.adapters.frameworks import check_framework
from elision.adapters.guarded_calls import (
    RECALL_FAULT,
    CallDescription,
    GuardedCall,
    SessionOwner,
    list_recall_definitions,
)
from elision.adapters.mirror import Mirror, PlainMessage
from elision.errors import SettingError
from elision.manager.advanced_options import Advanced, flatten_advanced, gather_options
from elision.manager.session_pool import Sessions
from elision.trajectory.usage import Usage

check_framework("openhands-sdk", "1.7.1", "openhands")

from openhands.sdk.context.condenser.base import CondenserBase  # noqa: E402
from openhands.sdk.context.view import View  # noqa: E402
from openhands.sdk.event import ActionEvent, AgentErrorEvent, ObservationEvent  # noqa: E402
from openhands.sdk.event.condenser import Condensation, CondensationSummaryEvent  # noqa: E402
from openhands.sdk.llm import content_to_str  # noqa: E402
from openhands.sdk.llm.exceptions import LLMContextWindowExceedError  # noqa: E402
from openhands.sdk.tool import (  # noqa: E402
    Action,
    Observation,
    Tool,
    ToolDefinition,
    ToolExecutor,
    register_tool,
)
from pydantic import Field, PrivateAttr  # noqa: E402

from elision.adapters.recall_models import make_argument_model  # noqa: E402

_log: Final = logging.getLogger("elision.adapters")


class _CondenserSessions(SessionOwner):
    """The sessions of condensers with the same settings, and the calls whose usage is not known yet.

    OpenHands stores a condenser with its conversation and copies it, so what is live cannot be in it.
    """

    pools: ClassVar[dict[str, _CondenserSessions]] = {}

    def __init__(self, strategy: str = "masking", *, sessions: Sessions | None = None, **options: Any) -> None:
        super().__init__(strategy, sessions=sessions, **options)
        #: By session: the call, the metrics of the LLM that answers it, and how many calls those had before.
        self._pending: dict[str, tuple[GuardedCall[Any], Any, int]] = {}
        #: By session: how many events it had when it was condensed last.
        self.condensed: dict[str, int] = {}
        atexit.register(self.close)

    def begin_call(self, session: str, units: list[tuple[Any, ...]], llm: Any) -> GuardedCall[tuple[Any, ...]]:
        self.record_pending(session)
        call = self.calls.begin_described(
            units,
            lambda: CallDescription(name=session, mirror=_MIRROR, parts={"model": llm.model if llm else ""}),
        )
        if llm is not None:
            self._pending[session] = (call, llm.metrics, len(llm.metrics.token_usages))
        return call

    def record_pending(self, session: str) -> None:
        """Record the usage of the session's newest call, if the LLM has counted it by now."""
        call, metrics, count = self._pending.pop(session, (None, None, 0))
        if call is None or metrics is None or len(metrics.token_usages) <= count:
            return
        usage = metrics.token_usages[count]
        call.record(
            Usage.from_inclusive(
                prompt=usage.prompt_tokens,
                output=usage.completion_tokens,
                cache_read=usage.cache_read_tokens,
                cache_write=usage.cache_write_tokens,
            )
        )

    def close(self) -> None:
        """Record what is pending, and do as every adapter."""
        for session in list(self._pending):
            self.record_pending(session)
        super().close()


class ElisionCondenser(CondenserBase):
    """Hide old tool results in what an agent of the OpenHands SDK sends. The conversation's events stay whole.

        condenser = ElisionCondenser("masking(window=29)", store="sqlite:///agents.db")
        agent = Agent(llm=llm, tools=[*tools, *RECALL_TOOLS], condenser=condenser)

    Each conversation is a session, also in another process. One condenser serves any number of agents.

    strategy, options: as for `elision.Sessions`, but of JSON alone, as they are stored with the conversation; the model
    is the agent's. sessions: a pool to share, which is not stored and not closed here.

    A condensation that a user or an overflow asks for hides all that may be hidden. An error of Elision is logged
    (`elision.adapters`), and that view is unchanged. Raises FrameworkError on import without openhands-sdk 1.7.1;
    SettingError, SpecError, StoreError as `Sessions` does.
    """

    strategy: str = "masking"
    options: dict[str, Any] = Field(default_factory=dict)
    _given: _CondenserSessions | None = PrivateAttr(default=None)

    def __init__(self, strategy: str = "masking", *, sessions: Sessions | None = None, **options: Any) -> None:
        # A stored condenser has its fields here.
        options.pop("kind", None)
        options = {**options.pop("options", {}), **options}
        if isinstance(options.get("advanced"), Advanced):
            options |= flatten_advanced(options.pop("advanced"))
        super().__init__(strategy=strategy, options=options)
        if sessions is not None:
            self._given = _CondenserSessions(sessions=sessions, **gather_options(options))
            return
        try:
            json.dumps(options)
        except TypeError as error:
            raise SettingError(f"a condenser's options are stored as JSON: {error}; give sessions= instead") from error
        self._find_pool()

    def condense(self, view: View, agent_llm: Any = None) -> View | Condensation:
        """Return the view to send; once after a request for a condensation, an event that forgets nothing."""
        pool = self._find_pool()
        session = _name_session(view.events)
        if view.unhandled_condensation_request:
            pool.record_pending(session)
            if pool.condensed.get(session) == len(view.events):
                # Nothing came after the last one: the provider refuses what is left.
                raise LLMContextWindowExceedError("the prompt is too long, and Elision has hidden what it may")
            pool.condensed[session] = len(view.events)
            _compact_session(pool, session)
            # The request stands until a condensation is in the log.
            return Condensation(forgotten_event_ids=set(), llm_response_id="elision")
        call = pool.begin_call(session, _group_events(view.events), agent_llm)
        return View(events=[event for unit in call.messages for event in unit])

    def handles_condensation_requests(self) -> bool:
        return True

    def get_session(self, conversation: Any) -> str:
        """Return the name of a conversation's session."""
        return _name_session(conversation.state.view.events)

    @property
    def sessions(self) -> Sessions:
        """The sessions: `sessions.open(name)` is the context manager of a conversation."""
        return self._find_pool().sessions

    def answer_recall(self, session: str, tool: str, arguments: Mapping[str, Any]) -> str:
        """Return what the model reads for a call of a recall tool. Never raises."""
        return self._find_pool().calls.answer_recall(session, tool, arguments)

    def close(self) -> None:
        """Store what is unsaved and close the sessions, unless they were given. The process's end does so too."""
        pool = self._find_pool()
        pool.close()
        _CondenserSessions.pools.pop(self._pool_key, None)

    @property
    def _pool_key(self) -> str:
        return json.dumps([self.strategy, self.options], sort_keys=True)

    def _find_pool(self) -> _CondenserSessions:
        if self._given is not None:
            return self._given
        pool = _CondenserSessions.pools.get(self._pool_key)
        if pool is None:
            pool = _CondenserSessions.pools[self._pool_key] = _CondenserSessions(
                self.strategy, **gather_options(self.options)
            )
        return pool


def _compact_session(pool: _CondenserSessions, session: str) -> None:
    try:
        pool.sessions.open(session).compact()
    except Exception:  # noqa: BLE001 - an error of ours never reaches the agent
        _log.exception("session %r could not be compacted", session)


def _name_session(events: Sequence[Any]) -> str:
    """Return the name of a conversation's session: a condenser knows no more of it than its events."""
    return f"openhands-{events[0].id if events else 'empty'}"


def _group_events(events: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Return the events in units that are one message each: the calls of one answer are one."""
    units: list[tuple[Any, ...]] = []
    for event in events:
        last = units[-1][0] if units else None
        is_same_answer = isinstance(event, ActionEvent) and isinstance(last, ActionEvent)
        if is_same_answer and last is not None and last.llm_response_id == event.llm_response_id:
            units[-1] = (*units[-1], event)
        else:
            units.append((event,))
    return units


def _to_plain(unit: tuple[Any, ...]) -> list[PlainMessage]:
    first = unit[0]
    if not isinstance(first, ActionEvent):
        message = first.to_llm_message()
        text = "\n".join(content_to_str(message.content))
        if message.role == "tool":
            # The SDK writes this before each result that is an error, also before one that is hidden.
            text = text.removeprefix(Observation.ERROR_MESSAGE_HEADER).removeprefix("\n")
        plain: PlainMessage = {"role": message.role, "content": text}
        if message.role == "tool":
            plain["tool_call_id"] = message.tool_call_id
        return [plain]
    calls = [
        {
            "id": event.tool_call_id,
            "type": "function",
            "function": {"name": event.tool_name, "arguments": event.tool_call.arguments},
        }
        for event in unit
    ]
    answer: PlainMessage = {"role": "assistant", "content": "".join(part.text for part in first.thought)}
    answer["tool_calls"] = calls
    if first.reasoning_content:
        answer["reasoning_content"] = first.reasoning_content
    if first.thinking_blocks:
        answer["thinking_blocks"] = [block.model_dump() for block in first.thinking_blocks]
    return [answer]


def _rebuild(unit: tuple[Any, ...], sent: Mapping[int, PlainMessage]) -> tuple[Any, ...]:
    event, text = unit[0], sent[0]["content"]
    if isinstance(event, ObservationEvent):
        hidden = HiddenObservation.from_text(text, is_error=event.observation.is_error)
        return (event.model_copy(update={"observation": hidden, "extended_content": []}),)
    if isinstance(event, AgentErrorEvent):
        return (event.model_copy(update={"error": text}),)
    return unit


_MIRROR: Mirror[tuple[Any, ...]] = Mirror(_to_plain, _rebuild, lambda text: (CondensationSummaryEvent(summary=text),))


class HiddenObservation(Observation):
    """What is sent in the place of a hidden tool result. It is in no log."""


class RecallObservation(Observation):
    """The answer of a recall tool."""


_DEFINITIONS = {definition.name: definition for definition in list_recall_definitions()}
RecallAction = make_argument_model(_DEFINITIONS["elision_recall"], "ElisionRecallAction", Action)
SearchAction = make_argument_model(_DEFINITIONS["elision_search"], "ElisionSearchAction", Action)


class _RecallExecutor(ToolExecutor[Any, RecallObservation]):
    def __init__(self, tool: str) -> None:
        self._tool = tool

    def __call__(self, action: Any, conversation: Any = None) -> Any:
        condenser = conversation.agent.condenser if conversation is not None else None
        if not isinstance(condenser, ElisionCondenser):
            return RecallObservation.from_text(RECALL_FAULT)
        session = _name_session(conversation.state.view.events)
        arguments = {
            name: getattr(action, name)
            for name in _DEFINITIONS[self._tool].schema["properties"]
            if getattr(action, name) is not None
        }
        return RecallObservation.from_text(condenser.answer_recall(session, self._tool, arguments))


class ElisionRecallTool(ToolDefinition[Any, RecallObservation]):
    """Reads hidden results again."""

    name = "elision_recall"

    @classmethod
    def create(cls, conv_state: Any = None, **_: Any) -> Sequence[Any]:
        return [_make_tool(cls, RecallAction)]


class ElisionSearchTool(ToolDefinition[Any, RecallObservation]):
    """Searches what was seen, hidden or not."""

    name = "elision_search"

    @classmethod
    def create(cls, conv_state: Any = None, **_: Any) -> Sequence[Any]:
        return [_make_tool(cls, SearchAction)]


def _make_tool(kind: Any, action: type[Action]) -> Any:
    return kind(
        description=_DEFINITIONS[kind.name].description,
        action_type=action,
        observation_type=RecallObservation,
        executor=_RecallExecutor(kind.name),
    )


for _kind in (ElisionRecallTool, ElisionSearchTool):
    register_tool(_kind.__name__, _kind)
#: The recall tools, for `Agent(tools=[...])`.
RECALL_TOOLS: Final = [Tool(name=kind.__name__) for kind in (ElisionRecallTool, ElisionSearchTool)]
