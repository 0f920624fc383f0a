"""The sessions of an application that runs many agents: a context manager for each history, over one store.

Those that are idle for too long, too many or too large are closed; the gateway's registry decides as `Sessions` does.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Final, Never, Protocol, Self, TypeVar, Unpack

from elision.errors import ElisionError, SettingError
from elision.manager.advanced_options import Advanced, CacheControl
from elision.manager.branch import session_name
from elision.manager.context import ContextManager, manage_session
from elision.manager.context_options import (
    ContextOptions,
    Options,
    check_option_names,
    check_positions,
    is_session_name,
)
from elision.manager.opened_session import OpenedSession
from elision.stores.store import SessionInfo, Store
from elision.stores.store_urls import open_or_replace, open_store
from elision.strategies.strategy import Strategy


class PooledSession(Protocol):
    """A session as a pool sees it. last_used: in seconds, by the pool's clock."""

    last_used: float

    @property
    def memory_bytes(self) -> int:
        """Estimate the bytes of memory that it holds."""
        ...

    @property
    def is_busy(self) -> bool:
        """Return whether somebody works with it, so that it must not be closed."""
        ...


_S = TypeVar("_S", bound=PooledSession)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLimits:
    """What a pool holds at most: sessions, bytes of memory, and seconds that one of them may be idle."""

    sessions: int
    idle_seconds: float
    memory_bytes: float = math.inf


def select_evictable(
    sessions: Iterable[_S], limits: PoolLimits, *, count: int, held_bytes: int, now: float, keep: _S
) -> list[_S]:
    """Return the sessions to close, so that the others keep within `limits`. Busy ones and `keep` are never among them.

    sessions: least recently used first. count, held_bytes: of all of them. now: in seconds.
    """
    evictable: list[_S] = []
    for session in sessions:
        fits = count <= limits.sessions and held_bytes <= limits.memory_bytes
        if fits and now - session.last_used <= limits.idle_seconds:
            break
        if session is not keep and not session.is_busy:
            count -= 1
            held_bytes -= session.memory_bytes
            evictable.append(session)
    return evictable


#: Sessions that are held at most, by default.
DEFAULT_LIMIT: Final = 256
#: Seconds after which an idle session is released, by default.
DEFAULT_IDLE_SECONDS: Final = 3600.0
#: Seconds that a response may take: until then a session whose call is not recorded is in use.
RESPONSE_SECONDS: Final = 600.0

_log: Final = logging.getLogger("elision.manager")


@dataclass(slots=True, eq=False)
class _HeldSession:
    """A session of the pool. last_used: when it was opened last, by `clock`, in seconds."""

    name: str
    context: ContextManager
    last_used: float
    clock: Callable[[], float]

    @property
    def memory_bytes(self) -> int:
        """Return 0: the library's pool counts sessions, and no bytes."""
        return 0

    @property
    def is_busy(self) -> bool:
        """Return whether its newest call probably waits for the response."""
        return self.context.session.awaits_response and self.clock() - self.last_used <= RESPONSE_SECONDS


class Sessions:
    """Keep a context manager for each history, over one shared store.

    Frameworks run many agents at once. Each history needs a context manager of its own, under the name that the
    framework has for it (a thread, a conversation), and so does each sub-agent. Call `open` before every use:

        with Sessions("masking(window=10)", store="sqlite:///agents.db") as sessions:
            view = sessions.open("thread-7").prepare(messages)
            helper = sessions.open("thread-7/helper", parent="thread-7")

    Any thread and any event loop may open sessions. Where there are more than `limit`, or one is idle for too long, the
    least recently used ones are stored and released; opened again, they continue from the store.

    strategy, options: as for `ContextManager`, the same for all sessions, but `session` and `parent`, which `open` is
        given. store: a URL or a Store, which all sessions share.
    limit: sessions that are held at most. One whose response is due is held beyond it, for up to ten minutes.
    idle_seconds: seconds after which a session that is not opened is released.

    Raises SettingError, SpecError, PriceError for options without a meaning, StoreError where the store cannot be
    opened.
    """

    def __init__(
        self,
        strategy: str | Strategy = "masking",
        *misplaced: Never,
        limit: int = DEFAULT_LIMIT,
        idle_seconds: float = DEFAULT_IDLE_SECONDS,
        **options: Unpack[ContextOptions],
    ) -> None:
        check_positions(type(self).__name__, misplaced)
        check_option_names(options)
        _check_pool_options(options, limit, idle_seconds)
        # Checked before a store is opened, and once for all sessions.
        self._options = Options(strategy=strategy, **options)
        self._limits = PoolLimits(sessions=limit, idle_seconds=idle_seconds)
        store = self._options.store
        self._owns_store = isinstance(store, str)
        damage = ""
        if not isinstance(store, str):
            self._store: Store = store
        elif self._options.advanced.on_fault == "send":
            self._store, damage = open_or_replace(store)
        else:
            self._store = open_store(store)
        if damage:
            _log.error("%s", damage)
        self._clock = self._options.advanced.clock
        self._lock = threading.Lock()
        self._is_closed = False
        #: The one that was opened last at the end.
        self._held: dict[str, _HeldSession] = {}
        #: Sessions that were released while somebody still holds them: a history never has two context managers.
        self._released: weakref.WeakValueDictionary[str, ContextManager] = weakref.WeakValueDictionary()
        self._writer: ThreadPoolExecutor | None = None

    def __len__(self) -> int:
        return len(self._held)

    @property
    def defers_tools(self) -> bool:
        """Whether definitions of tools are left out of prompts."""
        return self._options.tools == "defer"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} held={len(self)}>"

    def open(
        self, name: str, *, parent: str = "", model: str = "", cache_control: CacheControl | None = None
    ) -> ContextManager:
        """Return the context manager of session `name`; the same one for the same name. It does not wait for the store.

        parent: name of the session that started this one, for a sub-agent. It counts when the session begins.
        model: of the session's calls, where the options name none: its prices and window decide. cache_control: as the
            option, where the options do not name it. Both count until the first call is prepared here, also where the
            session was opened without them before.
        The pool stores and closes the session; do not close it. Raises SettingError for what can be no name,
        ElisionError where the pool is closed.
        """
        with self._lock:
            self._check_open()
            session = self._held.pop(name, None)
            context = session.context if session is not None else self._released.pop(name, None)
            if context is None:
                context = manage_session(OpenedSession(self._make_options(name, parent, model, cache_control)))
            elif not (opened := context._opened).has_called:
                opened.offer_options(self._fill_options(opened.options, parent, model, cache_control))
            if session is None:
                session = _HeldSession(name, context, 0.0, self._clock)
            session.last_used = self._clock()
            self._held[name] = session
            self._release_idle(keep=session)
        return session.context

    def list_sessions(self) -> list[SessionInfo]:
        """Return the sessions that `open` continues, the one changed last first: names, parents, times and turns.

        A session is there from its first call on, and once: where its history forked, with the branch that changed
        last, which its report is about. `elision sessions` lists all branches, and sessions of other programs.
        It waits for the store: in an event loop, call it in a thread. Raises StoreError, ElisionError where the pool is
        closed.
        """
        self._check_open()
        infos = self._store.sessions()
        roots = {info.key: info for info in infos}
        found: dict[str, SessionInfo] = {}
        for info in infos:
            name = session_name(info.key)
            is_ours = info.family == (self._options.advanced.family or name) and is_session_name(name)
            if is_ours and name not in found:
                root = roots.get(name, replace(info, parent="", relation=""))
                found[name] = replace(info, key=name, parent=root.parent, relation=root.relation, begun=root.begun)
        return list(found.values())

    def settle(self) -> None:
        """Write the unsaved records of all sessions. A failure is logged; the session's next call tries again."""
        with self._lock:
            contexts = self._list_contexts()
        _settle_contexts(contexts)

    def close(self) -> None:
        """Write what is unsaved, and close the store if it was opened here. A second call does nothing."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            contexts = self._list_contexts()
            self._held.clear()
            writer = self._writer
        if writer is not None:
            writer.shutdown()
        try:
            _settle_contexts(contexts)
        finally:
            if self._owns_store:
                self._store.close()

    async def close_async(self) -> None:
        """Do as `close`, off the event loop."""
        await asyncio.to_thread(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close_async()

    def _check_open(self) -> None:
        if self._is_closed:
            raise ElisionError(
                "these sessions are closed: run the agent inside the `with` block of its sessions or adapter"
            )

    def _make_options(self, name: str, parent: str, model: str, cache_control: CacheControl | None) -> Options:
        if not name:
            raise SettingError("a session of the pool needs a name: give the framework's thread or conversation")
        options = replace(self._options, session=name, store=self._store)
        return self._fill_options(options, parent, model, cache_control)

    def _fill_options(self, options: Options, parent: str, model: str, cache_control: CacheControl | None) -> Options:
        """Return `options` of a session with what they leave open; the same object where nothing is."""
        if options.model or options.prices:
            model = ""
        own = options.advanced
        cache = replace(own.cache, control=self._options.advanced.cache.control or cache_control or own.cache.control)
        advanced = replace(own, parent=own.parent or parent, cache=cache)
        if advanced == own and not model:
            return options
        return replace(options, advanced=advanced, model=options.model or model)

    def _list_contexts(self) -> list[ContextManager]:
        """Return all context managers that may have unsaved records."""
        return [session.context for session in self._held.values()] + list(self._released.values())

    def _release_idle(self, keep: _HeldSession) -> None:
        """Release sessions that are too many or idle for too long, and have a thread store what they did not."""
        count = len(self._held)
        now = self._clock()
        for session in select_evictable(
            self._held.values(), self._limits, count=count, held_bytes=0, now=now, keep=keep
        ):
            del self._held[session.name]
            self._released[session.name] = session.context
            if self._writer is None:
                # Whoever opens a session may be an event loop, which must not wait for the store.
                self._writer = ThreadPoolExecutor(1, thread_name_prefix="elision-sessions")
            self._writer.submit(_settle_contexts, [session.context])


def _check_pool_options(options: ContextOptions, limit: int, idle_seconds: float) -> None:
    advanced = options.get("advanced")
    if "session" in options:
        raise SettingError("session: each session of a pool has its own; give it to open()")
    if isinstance(advanced, Advanced) and advanced.parent:
        raise SettingError("parent: each session of a pool has its own; give it to open()")
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        raise SettingError(f"limit={limit!r:.60}: give a number of sessions, 1 or more")
    if not isinstance(idle_seconds, int | float) or isinstance(idle_seconds, bool) or not idle_seconds > 0:
        raise SettingError(f"idle_seconds={idle_seconds!r:.60}: give seconds, above 0")


def _settle_contexts(contexts: Iterable[ContextManager]) -> None:
    """Write the unsaved records of sessions."""
    for context in contexts:
        fault = context.settle()
        if fault is not None:
            _log.error("session %s: its last records could not be written: %s", context.session.name, fault.what)
