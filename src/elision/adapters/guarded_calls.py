"""The model calls of an adapter: what fails in Elision is logged, and the framework's request is sent unchanged.

calls = GuardedCalls(sessions)
call = calls.begin(thread, messages, mirror, tools=tools, system=system, model=model)
response = call.send(lambda: send(call.messages))
call.record(Usage.from_inclusive(prompt=…, output=…))

An adapter is a `SessionOwner`, which has the calls; `read_pool_options` is for one that no program configures.
"""

from __future__ import annotations

import copy
import logging
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, ClassVar, Final, Generic, Never, Self, TypedDict, TypeVar, Unpack

from elision.adapters.mirror import Mirror, MirroredMessages
from elision.config import load_settings
from elision.errors import ElisionError, SettingError, SpecError
from elision.manager.advanced_options import CacheControl, gather_options
from elision.manager.agent_call import AgentCall
from elision.manager.context import ContextManager
from elision.manager.context_options import ContextOptions, check_positions
from elision.manager.context_view import ContextView
from elision.manager.recall_tools import RECALL_TOOL_DEFINITIONS
from elision.manager.session_pool import Sessions
from elision.strategies.strategy import Strategy

_M = TypeVar("_M")
_R = TypeVar("_R")
_K = TypeVar("_K")

_log: Final = logging.getLogger("elision.adapters")

#: Most characters of a session's name and of an error in the log.
_SHOWN_NAME: Final = 80
_SHOWN_ERROR: Final = 500
#: Most calls at the same time whose usage is due.
_MOST_DUE: Final = 1_000
NO_DEFERRED_TOOLS: Final = 'tools="defer": the framework declares its tools itself; set it in `elision serve` instead'
#: What the model reads where a recall fails.
RECALL_FAULT: Final = "nothing can be recalled now: Elision failed. Go on without it, or repeat the original action."


class RequestParts(TypedDict, total=False):
    """What a request has beside its messages: the arguments of `ContextManager.prepare`."""

    tools: Any
    system: Any
    model: str
    request: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallDescription(Generic[_M]):
    """What `GuardedCalls.begin` takes beside the messages."""

    name: str
    mirror: Mirror[_M] | None = None
    parent: str = ""
    parts: RequestParts = field(default_factory=RequestParts)


@dataclass(frozen=True, slots=True)
class RecallDefinition:
    """A recall tool as an adapter registers it. name, description: as the model sees them. schema: a JSON Schema."""

    name: str
    description: str
    schema: dict[str, Any]


class GuardedCall(Generic[_M]):
    """One call of the model, begun by `GuardedCalls`.

    messages: what to send, in the framework's own messages: those that were given where Elision failed.
    view: what they were restored from, with `extra` and `betas` for the request; None where Elision failed.
    """

    def __init__(
        self,
        given: list[_M],
        mirrored: MirroredMessages[_M] | None = None,
        call: AgentCall | None = None,
    ) -> None:
        self._mirrored = mirrored
        self._call = call
        self.messages = given
        self.view: ContextView | None = None

    def send(self, send: Callable[[], _R], describe: Callable[[Exception], Exception] | None = None) -> _R:
        """Return what `send` returns. It is called once more where its error says that the prompt was too long.

        send: sends `messages`, which are fewer or shorter the second time. describe: returns the error to be read in
            the place of one whose text does not say so.
        """
        try:
            return send()
        except Exception as error:
            if not self.retry(describe(error) if describe else error):
                raise
            return send()

    async def send_async(
        self, send: Callable[[], Awaitable[_R]], describe: Callable[[Exception], Exception] | None = None
    ) -> _R:
        """Do as `send`, with the store and the summarizer off the event loop."""
        try:
            return await send()
        except Exception as error:
            if not await self.retry_async(describe(error) if describe else error):
                raise
            return await send()

    def retry(self, error: BaseException) -> bool:
        """Return whether to send `messages` once more, since `error` says that the prompt was too long.

        See `AgentCall.retry`. Never raises.
        """
        if self._call is None or self.view is None:
            return False
        try:
            return self._call.retry(error) and self._take_view(self._call.view)
        except Exception:  # noqa: BLE001 - an error of ours never reaches the agent
            _log.exception("a request that was too long could not be made shorter")
            return False

    async def retry_async(self, error: BaseException) -> bool:
        """Do as `retry`, with the store and the summarizer off the event loop."""
        if self._call is None or self.view is None:
            return False
        try:
            return await self._call.retry_async(error) and self._take_view(self._call.view)
        except Exception:  # noqa: BLE001 - an error of ours never reaches the agent
            _log.exception("a request that was too long could not be made shorter")
            return False

    def record(self, usage: Any) -> None:
        """Record the usage of this call; see `ContextManager.record`. Never raises."""
        if self._call is None or self.view is None:
            return
        try:
            self._call.record(usage)
        except Exception:  # noqa: BLE001 - an error of ours never reaches the agent
            _log.exception("the usage of a call could not be recorded")

    def prepare(self) -> None:
        """Prepare what to send; `GuardedCalls.begin` does. Raises what `ContextManager.prepare` raises."""
        if self._call is not None:
            self._take_view(self._call.__enter__().view)

    async def prepare_async(self) -> None:
        """Do as `prepare`, with the store and the summarizer off the event loop."""
        if self._call is not None:
            self._take_view((await self._call.__aenter__()).view)

    def _take_view(self, view: ContextView) -> bool:
        """Have `messages` be those of `view`; in one step, so that a failure leaves what was there. Returns True."""
        messages: list[_M] = list(view.messages) if self._mirrored is None else self._mirrored.restore(view)
        self.messages = messages
        self.view = view
        return True


class GuardedCalls:
    """The calls and recall tools of an adapter, over a pool of sessions.

    `begin` takes the framework's name of the history, such as its thread, and `parent` where a sub-agent has one.
    mirror: translates the framework's messages; without one they are a provider's own already.
    cache_control: of sessions whose options do not name it: who sets cache breakpoints.
    """

    def __init__(self, sessions: Sessions, *, cache_control: CacheControl | None = None) -> None:
        self.sessions = sessions
        self._cache_control = cache_control

    @classmethod
    def make(
        cls,
        strategy: str | Strategy,
        sessions: Sessions | None,
        options: ContextOptions,
        cache_control: CacheControl = "client",
    ) -> Self:
        """Return the calls over `sessions`, or over a pool of their own, made of a strategy and options.

        `cache_control` is `client` unless it is given: frameworks set cache breakpoints themselves, or their provider
        needs none, and what Elision sets would be lost in their own messages. cache_control: another such default.
        `recall` is `caller`: the framework's agent has the recall tools among its own.
        Raises SettingError where options are given beside `sessions`, or tools are to be deferred that the framework
        declares itself, and what `Sessions` raises.
        """
        if sessions is not None and options:
            raise SettingError(f"{', '.join(options)}: give options to the Sessions that the adapter is given")
        defers = options.get("tools") == "defer" if sessions is None else sessions.defers_tools
        if defers and cache_control == "client":
            raise SettingError(NO_DEFERRED_TOOLS)
        if sessions is None:
            sessions = Sessions(strategy, **ContextOptions(**{"recall": "caller", **options}))
        return cls(sessions, cache_control=cache_control)

    def open_session(self, name: str, *, parent: str = "", model: str = "") -> ContextManager:
        """Return the context manager of a session; see `Sessions.open`."""
        return self.sessions.open(name, parent=parent, model=model, cache_control=self._cache_control)

    def begin(
        self,
        name: str,
        messages: Sequence[_M],
        mirror: Mirror[_M] | None = None,
        *,
        parent: str = "",
        **parts: Unpack[RequestParts],
    ) -> GuardedCall[_M]:
        """Begin a call of the model. Never raises: what fails is logged, and the call's messages are those given."""
        try:
            call = self._make_call(name, messages, mirror, parent, parts)
            call.prepare()
        except Exception as error:  # noqa: BLE001 - an error of ours never reaches the agent
            _log_fault(name, error)
            return GuardedCall(list(messages))
        return call

    async def begin_async(
        self,
        name: str,
        messages: Sequence[_M],
        mirror: Mirror[_M] | None = None,
        *,
        parent: str = "",
        **parts: Unpack[RequestParts],
    ) -> GuardedCall[_M]:
        """Do as `begin`, with the store and the summarizer off the event loop."""
        try:
            call = self._make_call(name, messages, mirror, parent, parts)
            await call.prepare_async()
        except Exception as error:  # noqa: BLE001 - an error of ours never reaches the agent
            _log_fault(name, error)
            return GuardedCall(list(messages))
        return call

    def begin_described(self, messages: Sequence[_M], describe: Callable[[], CallDescription[_M]]) -> GuardedCall[_M]:
        """Do as `begin`, with what `describe` returns. Never raises, also where `describe` does."""
        try:
            found = describe()
        except Exception as error:  # noqa: BLE001 - an error of ours never reaches the agent
            _log_fault("", error)
            return GuardedCall(list(messages))
        return self.begin(found.name, messages, found.mirror, parent=found.parent, **found.parts)

    async def begin_described_async(
        self, messages: Sequence[_M], describe: Callable[[], CallDescription[_M]]
    ) -> GuardedCall[_M]:
        """Do as `begin_described`, with the store and the summarizer off the event loop."""
        try:
            found = describe()
        except Exception as error:  # noqa: BLE001 - an error of ours never reaches the agent
            _log_fault("", error)
            return GuardedCall(list(messages))
        return await self.begin_async(found.name, messages, found.mirror, parent=found.parent, **found.parts)

    def answer_recall(self, name: str, tool: str, arguments: str | Mapping[str, Any]) -> str:
        """Return what the model reads for a call of recall tool `tool` in session `name`. Never raises."""
        try:
            answer = self.open_session(name).handle_tool_call(tool, arguments)
        except Exception as error:  # noqa: BLE001 - an error of ours never reaches the agent
            _log_fault(name, error)
            return RECALL_FAULT
        return RECALL_FAULT if answer is None else answer

    async def answer_recall_async(self, name: str, tool: str, arguments: str | Mapping[str, Any]) -> str:
        """Do as `answer_recall`, without blocking the event loop."""
        try:
            answer = await self.open_session(name).handle_tool_call_async(tool, arguments)
        except Exception as error:  # noqa: BLE001 - an error of ours never reaches the agent
            _log_fault(name, error)
            return RECALL_FAULT
        return RECALL_FAULT if answer is None else answer

    def _make_call(
        self, name: str, messages: Sequence[_M], mirror: Mirror[_M] | None, parent: str, parts: RequestParts
    ) -> GuardedCall[_M]:
        context = self.open_session(name, parent=parent, model=parts.get("model", ""))
        if mirror is None:
            return GuardedCall(list(messages), call=context.call(messages, **parts))
        mirrored = mirror.translate(messages)
        return GuardedCall(list(messages), mirrored, context.call(mirrored.plain, **parts))


class SessionOwner:
    """An adapter with the sessions that it was given, or with a pool of its own, which it closes: `with`, or `close`.

    A pool of its own is closed at the end of the process, too: many programs have no place that ends an agent.

    calls: the guarded calls over the sessions. CACHE_CONTROL: who sets cache breakpoints, where no option says so.
    """

    CACHE_CONTROL: ClassVar[CacheControl] = "client"

    def __init__(
        self,
        strategy: str | Strategy = "masking",
        *misplaced: Never,
        sessions: Sessions | None = None,
        **options: Unpack[ContextOptions],
    ) -> None:
        check_positions(type(self).__name__, misplaced)
        if not isinstance(strategy, str | Strategy):
            own = type(self).__name__
            raise SpecError(
                f"{own} takes a strategy, such as {own}('masking(window=10)'), not "
                f"{type(strategy).__name__}; if a framework needs an object, write {own}(), with brackets"
            )
        self.calls = GuardedCalls.make(strategy, sessions, options, self.CACHE_CONTROL)
        self._owned = self.calls.sessions if sessions is None else None
        if self._owned is not None:
            weakref.finalize(self, self._owned.close)

    @property
    def sessions(self) -> Sessions:
        """The sessions: `sessions.open(name)` is the context manager of a history."""
        return self.calls.sessions

    def close(self) -> None:
        """Store what is unsaved and close the sessions, unless they were given: those are the caller's."""
        if self._owned is not None:
            self._owned.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def list_recall_definitions() -> list[RecallDefinition]:
    """Return the recall tools, for a framework that takes a tool's JSON Schema. `GuardedCalls` answers their calls."""
    return [
        RecallDefinition(tool["name"], tool["description"], copy.deepcopy(dict(tool["input_schema"])))
        for tool in RECALL_TOOL_DEFINITIONS
    ]


def _log_fault(name: str, error: Exception) -> None:
    """Log an error of ours: in one line what the user can mend, with its traceback what only we can."""
    # The name is the framework's, and may be of any length.
    shown = name[:_SHOWN_NAME]
    if isinstance(error, ElisionError):
        _log.error("Elision failed in session %r; the agent continues without it: %s", shown, str(error)[:_SHOWN_ERROR])
    else:
        _log.exception("Elision failed in session %r; the agent continues without it", shown)


def keep_due(due: dict[_K, GuardedCall[Any]], key: _K, call: GuardedCall[Any]) -> None:
    """Keep a call until its usage is known. Only the newest are kept: a run that was aborted leaves its call behind."""
    due[key] = call
    if len(due) > _MOST_DUE:
        del due[next(iter(due))]


def join_betas(header: str, betas: Sequence[str]) -> str:
    """Return the value of the header `anthropic-beta` with what a view needs; it names each beta once."""
    known = [beta.strip() for beta in header.split(",") if beta.strip()]
    return ",".join(dict.fromkeys([*known, *betas]))


def state_overflow(error: object) -> Exception:
    """Return an error for `GuardedCall.retry` that says that the prompt was too long, with the text of `error`.

    error: the framework's own error, or what else it has of the provider's words: their numbers are read.
    """
    return ValueError(f"context window exceeded: {error}")


def read_pool_options(environment: Mapping[str, str], **defaults: Any) -> dict[str, Any]:
    """Return strategy and options for an adapter. defaults: settings that count unless the environment has them.

    Raises SettingError, which names the place and the remedy.
    """
    found = load_settings(environment, None)
    options: dict[str, Any] = {**found.options(), "redaction": found.redaction}
    for name, value in defaults.items():
        if f"AGENT_CONTEXT_{name.upper()}" not in environment:
            options[name] = value
    del options["session"]
    return gather_options(options)
