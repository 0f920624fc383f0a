"""One session of one caller with its store: what a context manager and its parts share, and what the gateway uses.

An exchange holds messages that the client never saw: those that went to the provider in place of one of the client's.
"""

from __future__ import annotations

import logging
import os
import sys
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeVar

from elision.errors import CorruptError, UnknownHandle
from elision.manager.branch import SessionBranch, session_name
from elision.manager.context_options import Options
from elision.manager.drivers import CallerLock, LeaveLoop, Steps, StoreCall, run_off_loop, run_steps, run_steps_async
from elision.manager.history import History
from elision.manager.outgoing_request import IncomingRequest
from elision.manager.preparation import CallPreparer
from elision.manager.prepared_calls import PreparedCalls, make_incoming_request
from elision.manager.summary_worker import SummaryRunner
from elision.providers.shared import capabilities
from elision.stores.store import Store
from elision.stores.store_urls import open_or_replace, open_store
from elision.summarizers.factory import make_summarizer
from elision.telemetry.diagnostics import Fault
from elision.trajectory.events import Event, RecallExchanged
from elision.trajectory.run_roles import Role

_T = TypeVar("_T")
_log: Final = logging.getLogger("elision.manager")


class OpenedSession:
    """One session of one caller, with its store.

    Work that waits for the store or the summarizer is a generator of steps, which `run` runs for sync methods and
    `run_async` for async ones. Both let one caller at a time run.
    """

    def __init__(self, options: Options) -> None:
        writer, advanced = options.summarizer, options.advanced
        if writer is None or isinstance(writer, str):
            # The key is in the provider's usual variable, as for the provider's own client.
            writer = make_summarizer(writer or "digest", environment=os.environ, redaction=advanced.redaction)
        self.summary_runner = SummaryRunner(writer, seconds=advanced.summary_seconds, background=advanced.background)
        store = options.store
        self._owns_store = isinstance(store, str)
        damage = ""
        if not isinstance(store, str):
            self.store: Store = store
        elif advanced.on_fault == "send":
            self.store, damage = open_or_replace(store)
        else:
            self.store = open_store(store)
        name = options.session or f"session-{uuid.uuid4().hex[:12]}"
        self.preparer = CallPreparer(options, self.store, name)
        if damage:
            self.preparer.reports.early_faults.append(self.preparer.reports.log_fault("store", CorruptError(damage)))
        self.calls = PreparedCalls(self.preparer, self.summary_runner)
        self._lock = CallerLock()
        self._is_closed = False
        #: Whether turns were added by hand.
        self.has_manual_turns = False

    @property
    def options(self) -> Options:
        """The options of the next call."""
        return self.preparer.next_options

    @property
    def has_called(self) -> bool:
        """Return whether a call was prepared here."""
        return self.calls.newest_call > 0

    def offer_options(self, options: Options) -> None:
        """Have the next call begin with `options`; they do nothing to a session that has begun here."""
        self.preparer.next_options = options

    @property
    def name(self) -> str:
        """The session's name; in a family the name of the session that the messages continue."""
        return self.calls.session

    @property
    def turn_count(self) -> int:
        """Number of turns in the log of the present history, as far as it was read here."""
        branch = self.preparer.branch
        if branch is None:
            return 0
        return len(branch.log.state.turns)

    @property
    def role(self) -> Role:
        """The role of the agent whose session it is, as far as it is known."""
        branch = self.preparer.branch
        return "main" if branch is None else branch.find_role()

    def __del__(self) -> None:
        # What is left to a file is lost with the process. At its end no logger is there any more.
        if getattr(self, "_is_closed", True) or not self._owns_store or sys.is_finalizing():
            return
        if self.has_called and self.options.store != "memory:":
            _log.warning(
                "session %s was not closed, so its last records are not stored: use `with ContextManager(...)`, or "
                "call close()",
                self.preparer.session,
            )

    @contextmanager
    def enter(self) -> Iterator[None]:
        """Wait until this is the one caller, and the work of the call before is done."""
        with self._lock:
            self.end_work()
            yield

    def run(self, steps: Steps[_T]) -> _T:
        """Run steps in this thread, as the one caller, and return their result."""
        with self._lock:
            self.end_work()
            return run_steps(steps, self.summary_runner)

    async def run_async(self, steps: Steps[_T]) -> _T:
        """Run steps as the one caller, with what takes time off the event loop, and return their result."""
        async with self._lock:
            await self.end_work_async()
            return await run_steps_async(steps, self.summary_runner)

    def end_work(self) -> None:
        """Return when nothing is done for the session any more, and all that was reported meanwhile is in its log."""
        self.calls.think_time.finish()
        self.calls.record_reports()

    async def end_work_async(self) -> None:
        """Do as `end_work`, off the event loop where it waits."""
        if not self.calls.think_time.try_finish():
            await run_off_loop(self.calls.think_time.finish)
        self.calls.record_reports()

    def find_branch(self) -> SessionBranch:
        """Return the present branch, or the stored one that changed last. Raises UnknownHandle, StoreError."""
        found = self.preparer.branch or self.preparer.follower.make_lookup().load_latest_branch()
        if found is None:
            raise UnknownHandle(f"session {self.preparer.session!r} has no turns yet")
        return found

    def is_pass_through(self, *, begun: bool, model: str = "") -> bool:
        """Return whether `prepare` leaves a request unchanged whatever it holds, so that the request need not wait.

        begun: whether the request has a message of the assistant; before that there is nothing to hide.
        model: the model of this call, if it is not the session's.
        """
        own = self.options
        if own.shadow or begun:
            return own.shadow
        if own.tools == "defer":
            return False
        if own.cache_control == "auto" or capabilities.find_capabilities(model or own.model).binds_thinking:
            return False
        branch = self.preparer.branch
        if branch is None:
            return True
        # What was settled when the session began overrides the options.
        state = branch.log.state
        return not (state.has_recall_tools or state.recall_offer == "start")

    def settle(self) -> Fault | None:
        """Write the unsaved records; see `ContextManager.settle`."""
        return self.run(self.calls.settle())

    async def settle_async(self) -> Fault | None:
        """Do as `settle`, with the store off the event loop. Raises only CancelledError."""
        return await self.run_async(self.calls.settle())

    def close(self) -> None:
        """Write the unsaved records, and close the store if it was opened here. A second call does nothing."""
        with self.enter():
            if self._is_closed:
                return
            self._is_closed = True
            self.summary_runner.close()
            try:
                fault = self.run(self.calls.settle())
                if fault is not None:
                    _log.error("session %s: its last records could not be written: %s", self.name, fault.what)
            finally:
                if self._owns_store:
                    self.store.close()


#: Branches of one session that are looked at, those that changed last.
_MAX_BRANCHES: Final = 16


class Exchanges:
    """The exchanges of a session: recorded with it, and found again."""

    def __init__(self, opened: OpenedSession) -> None:
        self._opened = opened

    def record(self, *, node: str, messages: Sequence[str], results: Sequence[str] = ()) -> bool:
        """Record the messages that the provider was sent in place of one message of the client; see `RecallExchanged`.

        They are durable with the next write. Returns False where there is no session to record them in.
        """
        branch = self._opened.preparer.branch
        if branch is None:
            return False
        self._opened.end_work()
        call = branch.log.state.calls
        branch.log.record_event(RecallExchanged(call=call, node=node, messages=tuple(messages), results=tuple(results)))
        return True

    def list_events(self) -> list[RecallExchanged]:
        """Return what `record` recorded in the present history, oldest first; a fork has what it shares."""
        branch = self._opened.preparer.branch
        if branch is None:
            return []
        return _select_exchanges(branch.log.events)

    async def reload_async(self) -> list[RecallExchanged]:
        """Do as `list_events`, after the records of other processes were read where the log is shared (`family`).

        Raises ConflictError.
        """
        return await self._opened.run_async(self._load_exchanges())

    def find_stored(self, messages: Sequence[Any], *, tools: Any = None, system: Any = None) -> list[RecallExchanged]:
        """Return the exchanges of the stored session that begins like `messages`; [] if none does.

        The present history stays. Where two exchanges have the same `node`, the later one counts. Raises DialectError,
        StoreError.
        """
        return self._opened.run(self._find_stored_exchanges(make_incoming_request(messages, tools, system)))

    async def find_stored_async(
        self, messages: Sequence[Any], *, tools: Any = None, system: Any = None
    ) -> list[RecallExchanged]:
        """Do as `find_stored`, with the store off the event loop."""
        return await self._opened.run_async(self._find_stored_exchanges(make_incoming_request(messages, tools, system)))

    def _load_exchanges(self) -> Steps[list[RecallExchanged]]:
        yield from self._opened.preparer.follower.load_news()
        return self.list_events()

    def _find_stored_exchanges(self, incoming: IncomingRequest) -> Steps[list[RecallExchanged]]:
        follower = self._opened.preparer.follower
        call = follower.read_call(incoming, "")
        yield LeaveLoop(partial(follower.choose_place, call.request))
        history = follower.read_history(call)
        family = self._opened.options.advanced.family or self._opened.preparer.session
        found: list[RecallExchanged] = yield StoreCall(lambda: _find_in_store(self._opened.store, family, history))
        return found


def _select_exchanges(events: Iterable[Event]) -> list[RecallExchanged]:
    """Return the exchanges among the events of one log, oldest first."""
    return [event for event in events if isinstance(event, RecallExchanged)]


def _find_in_store(store: Store, family: str, history: History) -> list[RecallExchanged]:
    """Return the exchanges of the stored session that begins like `history`; [] if none does. Raises StoreError.

    Those of its other branches come first: what the history says up to its first exchange does not tell them apart.
    """
    found = store.locate(family, history.list_nodes())
    if found is None:
        return []
    exchanges: dict[RecallExchanged, None] = {}
    for key in [*_list_other_branches(store, family, found[0]), found[0]]:
        exchanges |= dict.fromkeys(_select_exchanges(store.events(key)))
    return list(exchanges)


def _list_other_branches(store: Store, family: str, key: str) -> Iterator[str]:
    """Yield the keys of the session's other branches, the one that changed last at the end."""
    akin = [
        info.key for info in store.sessions() if info.family == family and session_name(info.key) == session_name(key)
    ]
    return reversed([each for each in akin if each != key][:_MAX_BRANCHES])
