"""Write a log to the store, and read what other processes wrote to it.

Their records come before our unsaved ones. Our notes (usage, recalls, learned windows) are kept and written after. So
are the turns and decisions whose request was sent, since it may have been the agent's last, unless theirs have turns.
Where theirs changed the prompt, our calls are recorded as overtaken: their requests did not show that. All else is
dropped: the turns are in the client's messages, and the decision is made again.

A write whose answer is lost is repeated with its id, which writes it once however often it is repeated.

Where the store cannot read what it has of a log, the log in memory is written whole to a new session beside it. What
fails without ending a call is logged, redacted, and reported in the diagnostics of the call.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final, cast

from elision.engine import Log, LogSetup
from elision.errors import CallbackError, ConflictError, CorruptError, StoreError, words_of_error
from elision.manager.branch import SessionBranch, TurnTotals, has_session, map_nodes
from elision.manager.context_options import Options
from elision.manager.drivers import Steps, StoreCall
from elision.manager.history import History
from elision.manager.recall_tools import RECALL_TOOL_DEFINITIONS, RecallEntry
from elision.stores.store import NonBlockingLength, Store
from elision.stores.store_errors import DamagedStoreError, name_check_command, set_aside
from elision.stores.store_urls import describe_set_aside
from elision.strategies.spec import describe_strategy
from elision.telemetry.diagnostics import Fault, FaultKind
from elision.trajectory.events import (
    Event,
    HeadSet,
    HistoryReplaced,
    ObservationRecalled,
    PassDecided,
    RecallExchanged,
    RequestSent,
    SessionOpened,
    TurnAdded,
    TurnAmended,
    TurnsDropped,
    UsageReported,
    WindowLearned,
)
from elision.trajectory.tokens import Sizer, make_counter

_log: Final = logging.getLogger("elision.manager")


class FaultReports:
    """The faults of the newest call, each once. session: the name under which they are logged."""

    def __init__(self, options: Options, session: str) -> None:
        self.options = options
        self.session = session
        self.faults: list[Fault] = []
        #: Of what happened before the next call.
        self.early_faults: list[Fault] = []

    def begin_call(self) -> None:
        """Forget the faults of the call before."""
        self.faults[:] = self.early_faults
        self.early_faults.clear()

    def add_fault(self, kind: FaultKind, error: Exception, then: str = "") -> None:
        """Report a failure that does not end the call. then: what was done. Raises it with `on_fault="raise"`."""
        if isinstance(error, CorruptError):
            cause = error
            error = CorruptError(name_check_command(str(cause)))
            error.__cause__ = cause
        if self.options.advanced.on_fault == "raise" and kind != "budget":
            raise error
        fault = self._make_fault(kind, error, then)
        if fault not in self.faults:
            self.faults.append(self._log_fault(fault))

    def log_fault(self, kind: FaultKind, error: Exception) -> Fault:
        """Log a failure that is in no call, and return it."""
        return self._log_fault(self._make_fault(kind, error))

    def _make_fault(self, kind: FaultKind, error: Exception, then: str = "") -> Fault:
        what = self.options.advanced.redaction.redact_text("; ".join(filter(None, (words_of_error(error), then))))
        cause: BaseException = error
        if isinstance(error, CallbackError) and error.__cause__:
            cause = error.__cause__
        return Fault(kind=kind, cause=type(cause).__name__, what=what[:500])

    def _log_fault(self, fault: Fault) -> Fault:
        _log.warning("session %s: %s: %s", self.session, fault.kind, fault.what)
        return fault


class LogFactory:
    """Makes logs.

    notes: what the diagnostics of every call say about the options. extractor_failures: why the user's extractors
    failed, until the diagnostics report it.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.strategy = options.effective_strategy
        self.prices = options.find_prices()
        self.sizer = Sizer(make_counter(options.advanced.tokens)).count_as(self.prices.tokenizer)
        #: A list of its own: the table is a key in a cache, which must not keep the session in memory.
        self.extractor_failures: list[CallbackError] = []
        # Without the user's it stays the built-in table, in whose cache the digest finds what placeholders looked up.
        self.extractors = options.extractor_table
        if options.advanced.extractors:
            self.extractors = replace(self.extractors, report=self.extractor_failures.append)
        missing_prices = options.describe_missing_prices()
        self.notes = (missing_prices,) if missing_prices else ()
        if missing_prices:
            _warn_once(missing_prices)

    def make_log(self, events: Sequence[Event]) -> Log:
        """Return the log that has `events`."""
        strategy = self.strategy
        opened = find_opened_event(events)
        if opened is not None and opened.handles != strategy.handles:
            # Whether placeholders name handles is fixed with the first of them.
            strategy = replace(strategy, handles=opened.handles)
        setup = LogSetup(strategy, self.prices, self.sizer, self.extractors, self.options.advanced.redaction)
        return Log.fold(events, setup)

    def make_opened_event(self, entry: RecallEntry, *, is_served: bool) -> SessionOpened:
        """Return the first record of a new log.

        entry: when the recall tools enter. is_served: whether the model can call them, as far as is known now.
        """
        return SessionOpened(
            strategy=describe_strategy(self.strategy),
            dialect=self.options.advanced.dialect,
            handles=self.strategy.handles and is_served,
            offer=entry,
            tools=RECALL_TOOL_DEFINITIONS if entry in ("first", "start") else (),
            shadow=self.options.shadow,
            role=self.options.role,
        )


def find_opened_event(events: Sequence[Event]) -> SessionOpened | None:
    """Return the newest record that says how the session was opened."""
    for event in reversed(events):
        if isinstance(event, SessionOpened):
            return event
    return None


@lru_cache(maxsize=256)
def _warn_once(note: str) -> None:
    """Write `note` to the log, once a process: each session of the model has it."""
    _log.warning("%s", note)


#: How often a call is prepared again because others wrote meanwhile.
PASS_TRIES: Final = 3
#: How often a write is tried again because others wrote. Each time at least one writer succeeds.
WRITE_TRIES: Final = 50
_NOTE_EVENTS: Final = (UsageReported, ObservationRecalled, WindowLearned, RecallExchanged)


class LogWriter:
    """Writes the logs of one context manager, and reads what others wrote. All times are seconds since the epoch.

    faults: of the calls, to which damage is added.
    """

    def __init__(self, store: Store, logs: LogFactory, faults: FaultReports) -> None:
        self.store = store
        self.logs = logs
        self._faults = faults
        # The class is asked: a store that fails may raise at every access to the object.
        self.nonblocking_store: NonBlockingLength | None = None
        if issubclass(type(store), NonBlockingLength):
            self.nonblocking_store = cast("NonBlockingLength", store)

    def write_branch(self, branch: SessionBranch, now: float | None = None) -> Steps[None]:
        """Write the unsaved records.

        now: the clock's time if None. Raises StoreError, ConflictError where others wrote.
        """
        at = self.logs.options.advanced.clock() if now is None else now
        yield from self._survive_damage(branch, lambda: self._write_unsaved(branch, at))

    def _survive_damage(self, branch: SessionBranch, write: Callable[[], Steps[None]]) -> Steps[None]:
        """Do what `write` does: beside what the store has of `branch` where that is damaged, else in a new store."""
        is_new_store = False
        while True:
            try:
                yield from write()
                return
            except CorruptError as error:
                damage = error
            if branch.needs_stored_log:
                self.leave_damage(branch, damage)
            elif is_new_store:
                raise damage
            else:
                yield from self._leave_store(damage)
                is_new_store = True

    def _leave_store(self, damage: CorruptError) -> Steps[None]:
        """Have a new store in the place of one that takes no writes any more. Raises `damage` where it is no such."""
        if not isinstance(damage, DamagedStoreError) or self.logs.options.advanced.on_fault == "raise":
            raise damage
        kept: Path = yield StoreCall(lambda: set_aside(damage))
        self._faults.add_fault("store", CorruptError(describe_set_aside(damage, kept)))

    def _write_unsaved(self, branch: SessionBranch, at: float) -> Steps[None]:
        if branch.pending_attempts:
            yield from self._settle_attempts(branch, at)
        try:
            yield StoreCall(lambda: branch.save(self.store, at))
        except ConflictError:
            if branch.exists:
                # What looks like another writer may be a damaged count.
                yield StoreCall(lambda: _read_others(self.store, branch))
            raise

    def leave_damage(self, branch: SessionBranch, error: CorruptError) -> None:
        """Report damage to the stored log of `branch`, which a new session continues with the next write."""
        named = CorruptError(f"session {branch.key!r}: {error}")
        named.__cause__ = error
        self._faults.add_fault("store", named)
        branch.leave_stored_log()

    def try_write(self, branch: SessionBranch, now: float | None = None) -> Steps[StoreError | None]:
        """Write the unsaved records. Return the error where the store fails. Raises ConflictError."""
        try:
            yield from self.write_branch(branch, now)
        except ConflictError:
            raise
        except StoreError as error:
            return error
        return None

    def catch_up(self, branch: SessionBranch) -> Steps[None]:
        """Write the unsaved records of `branch`, and continue it after what others wrote.

        Raises ConflictError where others write faster, StoreError, UnknownHandle.
        """
        yield from self._survive_damage(branch, lambda: self._catch_up(branch))

    def _catch_up(self, branch: SessionBranch) -> Steps[None]:
        now = self.logs.options.advanced.clock()
        if branch.pending_attempts:
            yield from self._settle_attempts(branch, now)
        store = self.nonblocking_store
        is_saved = branch.exists and not branch.unsaved
        if is_saved and store is not None and store.try_length(branch.key) == branch.saved_events:
            # The store is known, without waiting, to have no records of others.
            return
        for _ in range(WRITE_TRIES):
            theirs: list[Event] | None = yield StoreCall(lambda: self._write_or_read_others(branch, now))
            if theirs is None:
                return
            self._continue_after_others(branch, theirs)
        raise ConflictError(f"session {branch.key!r}: others write to it all the time; nothing was written, try again")

    def _write_or_read_others(self, branch: SessionBranch, at: float) -> list[Event] | None:
        """Write the unsaved records and return None, or return the records that others wrote after the saved ones.

        Returns None too where there was nothing to write and nobody else wrote. Raises StoreError, UnknownHandle.
        """
        try:
            if not branch.exists or branch.unsaved:
                branch.save(self.store, at)
                return None
            if self.store.length(branch.key) == branch.saved_events:
                return None
        except ConflictError:
            if not has_session(self.store, branch.key):
                raise
        return _read_others(self.store, branch)

    def _continue_after_others(self, branch: SessionBranch, theirs: Sequence[Event]) -> None:
        """Continue `branch` after `theirs`, the records that others wrote.

        Work O(theirs) where nothing is unsaved, else O(log). The history of the branch is still the client's:
        `has_same_turns` tells whether it agrees with the log now.
        """
        unsaved = branch.unsaved
        before, head = branch.log, branch.log.state.head
        sent = _take_sent(unsaved, theirs)
        if unsaved:
            branch.log = self.logs.make_log([*before.events[: branch.saved_events], *theirs, *sent])
        else:
            branch.log = before.extend(theirs)
        if branch.log is not before:
            branch.nodes = map_nodes(branch.log.events)
            branch.ledger = None
            branch.totals = TurnTotals(branch.log.sizer, self.logs.options.effective_guards)
        else:
            for event in theirs:
                if isinstance(event, TurnAmended):
                    branch.totals.remove_newest(event.turn.index)
            branch.nodes |= map_nodes(theirs)
        if branch.history is not None and branch.log.state.head != head:
            # What the client sent is no longer what the log has.
            branch.history.ingested_head = None
        branch.saved_events += len(theirs)
        branch.exists = True
        branch.diverged = True
        for event in unsaved[len(sent) :]:
            if isinstance(event, _NOTE_EVENTS):
                branch.log.record_event(event)

    def _settle_attempts(self, branch: SessionBranch, now: float) -> Generator[StoreCall, Any, None]:
        """Have one of the writes whose outcome is not known in the store, and continue after it. Raises StoreError.

        The newest is repeated; where its decision was taken back since, the records that are left are written in its
        place. A decision that turns out to be in the store counts all the same.
        """
        newest = branch.pending_attempts[-1].events
        if branch.count_same_unsaved(newest) < len(newest):
            branch.begin_attempt(now)
        while branch.pending_attempts:
            attempt = branch.pending_attempts[-1]
            try:
                yield StoreCall(partial(attempt.write, self.store))
            except ConflictError:
                # An earlier one is in the store, or others wrote, whose records the next write or read finds.
                branch.pending_attempts.pop()
            else:
                branch.pending_attempts.clear()
                self._continue_after_own(branch, attempt.events)

    def _continue_after_own(self, branch: SessionBranch, written: Sequence[Event]) -> None:
        """Continue `branch` after `written`, which is in the store. Unsaved records that it begins with are saved."""
        branch.exists = True
        same = branch.count_same_unsaved(written)
        if same < len(written):
            saved = branch.log.events[: branch.saved_events]
            left = _drop_held_calls(branch.unsaved[same:], written)
            branch.log = self.logs.make_log([*saved, *written, *left])
            branch.ledger = None
        branch.saved_events += len(written)


def _read_others(store: Store, branch: SessionBranch) -> list[Event]:
    """Return the records that others wrote after the saved ones. Raises CorruptError where saved ones are gone."""
    records = store.length(branch.key)
    if records < branch.saved_events:
        raise CorruptError(name_check_command(f"{records} of {branch.saved_events} records are left"))
    return list(store.events(branch.key, branch.saved_events))


def _take_sent(events: Sequence[Event], theirs: Sequence[Event]) -> Sequence[Event]:
    """Return what is written of our `events` after `theirs`: up to the last request that was sent, if it fits.

    The turns after that request are in the next one. Where `theirs` have turns, nothing is written.
    """
    if any(isinstance(event, TurnAdded | TurnAmended | TurnsDropped | HistoryReplaced) for event in theirs):
        return ()
    is_overtaken = any(map(_changes_prompt, theirs))
    hidden = _find_newest_hidden(theirs)
    sent: list[Event] = []
    end = 0
    for event in events:
        if isinstance(event, TurnAmended) and event.turn.index <= hidden:
            break
        if is_overtaken and isinstance(event, TurnsDropped | SessionOpened):
            # These follow from what was shown then.
            break
        if is_overtaken and isinstance(event, PassDecided):
            reason = "held: another process changed the prompt before this call was stored"
            event = PassDecided(event.call, reason, held=True, bound=event.bound, overtaken=True)
        sent.append(event)
        if isinstance(event, RequestSent):
            end = len(sent)
    return sent[:end]


def _changes_prompt(event: Event) -> bool:
    """Return whether the request after `event` shows something else than the one before it."""
    if isinstance(event, PassDecided):
        return bool(event.edits or event.summary or event.offers)
    return isinstance(event, HeadSet | SessionOpened)


def _find_newest_hidden(events: Sequence[Event]) -> int:
    """Return the newest turn of which a pass among `events` hides something; 0 where none does."""
    hidden = 0
    for event in events:
        if isinstance(event, PassDecided):
            covered = event.summary.covers if event.summary is not None else 0
            hidden = max(hidden, covered, *(edit.key[0] for edit in event.edits))
    return hidden


def _drop_held_calls(events: Sequence[Event], written: Sequence[Event]) -> list[Event]:
    """Return `events` without the calls that `written` has.

    Their passes were held because the answer to the write was lost. Each request went out once, and is recorded once.
    """
    recorded = {event.call for event in written if isinstance(event, RequestSent)}
    left: list[Event] = []
    held_call = 0
    for event in events:
        if isinstance(event, PassDecided) and event.held and event.call in recorded:
            held_call = event.call
        elif isinstance(event, RequestSent) and event.call == held_call:
            held_call = 0
        else:
            left.append(event)
    return left


def has_same_turns(branch: SessionBranch, history: History) -> bool:
    """Return whether `history` begins with the turns of `branch`; the newest of them may have another ending."""
    known = len(branch.log.state.turns)
    if known > history.turns.turn_count:
        return False
    for index in range(1, known):
        if history.get_node(index) != branch.nodes.get(index):
            return False
    return not known or history.get_node(known) == branch.nodes.get(known) or branch.is_amended_by(history)
