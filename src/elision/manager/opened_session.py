"""What the parts of a context manager share: its options, store, session and lock, and how they run work."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from elision.errors import CorruptError, UnknownHandle
from elision.manager.branch import SessionBranch
from elision.manager.caller_lock import CallerLock
from elision.manager.context_options import Options
from elision.manager.drivers import Steps, run_off_loop, run_steps, run_steps_async
from elision.manager.preparation import CallPreparer
from elision.manager.prepared_calls import PreparedCalls
from elision.manager.summary_worker import SummaryRunner
from elision.stores.store import Store
from elision.stores.store_urls import open_or_replace, open_store
from elision.summarizers.factory import make_summarizer

_T = TypeVar("_T")


class OpenedSession:
    """One session of one caller, with its store. The methods of a context manager are in the classes that extend it.

    Work that waits for the store or the summarizer is a generator of steps, which `_run` runs for sync methods and
    `_run_async` for async ones. Both let one caller at a time run.
    """

    def __init__(self, options: Options) -> None:
        writer, advanced = options.summarizer, options.advanced
        if writer is None or isinstance(writer, str):
            # The key is in the provider's usual variable, as for the provider's own client.
            writer = make_summarizer(writer or "digest", environment=os.environ, redaction=advanced.redaction)
        self._summary_runner = SummaryRunner(writer, seconds=advanced.summary_seconds, background=advanced.background)
        store = options.store
        self._owns_store = isinstance(store, str)
        damage = ""
        if not isinstance(store, str):
            self._store: Store = store
        elif advanced.on_fault == "send":
            self._store, damage = open_or_replace(store)
        else:
            self._store = open_store(store)
        name = options.session or f"session-{uuid.uuid4().hex[:12]}"
        self._preparer = CallPreparer(options, self._store, name)
        if damage:
            self._preparer.reports.early_faults.append(self._preparer.reports.log_fault("store", CorruptError(damage)))
        self._calls = PreparedCalls(self._preparer, self._summary_runner)
        self._lock = CallerLock()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} session={self.session!r} turns={self.turns}>"

    @property
    def options(self) -> Options:
        """The options of the next call."""
        return self._preparer.next_options

    @property
    def has_called(self) -> bool:
        """Return whether a call was prepared here."""
        return self._calls.newest_call > 0

    def offer_options(self, options: Options) -> None:
        """Have the next call begin with `options`; they do nothing to a session that has begun here."""
        self._preparer.next_options = options

    @property
    def session(self) -> str:
        """The session's name; in a family the name of the session that the messages continue."""
        return self._calls.session

    @property
    def turns(self) -> int:
        """Number of turns in the log of the present history, as far as it was read here."""
        branch = self._preparer.branch
        if branch is None:
            return 0
        return len(branch.log.state.turns)

    @contextmanager
    def _enter(self) -> Iterator[None]:
        """Wait until this is the one caller, and the work of the call before is done."""
        with self._lock:
            self._calls.think_time.finish()
            yield

    def _run(self, steps: Steps[_T]) -> _T:
        """Run steps in this thread, as the one caller, and return their result."""
        with self._lock:
            self._calls.think_time.finish()
            return run_steps(steps, self._summary_runner)

    async def _run_async(self, steps: Steps[_T]) -> _T:
        """Run steps as the one caller, with what takes time off the event loop, and return their result."""
        async with self._lock:
            if self._calls.think_time.is_at_work:
                await run_off_loop(self._calls.think_time.finish)
            self._calls.think_time.finish()
            return await run_steps_async(steps, self._summary_runner)

    def _find_branch(self) -> SessionBranch:
        """Return the present branch, or the stored one that changed last. Raises UnknownHandle, StoreError."""
        found = self._preparer.branch or self._preparer.follower.make_lookup().load_latest_branch()
        if found is None:
            raise UnknownHandle(f"session {self._preparer.session!r} has no turns yet")
        return found
