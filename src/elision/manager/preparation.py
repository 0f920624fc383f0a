"""Prepare one call: find the branch that the messages continue, decide what is hidden, and make the view.

    messages -> branch (by content) -> turns -> decision -> store -> view

The order is the guarantee: a turn is in the store before anything of it is hidden (I1), and a decision is in the store
before a view that shows it is returned. Where the store fails, the view is what was decided before, and the new records
are kept in memory.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, cast

import msgspec

from elision.engine import (
    SUMMARY_BEING_WRITTEN,
    CallTerms,
    Log,
    LogSetup,
    NotReady,
    SummaryAnswer,
    decide,
    hold_view,
    write_off_attempt,
)
from elision.errors import (
    CallbackError,
    ConflictError,
    ElisionError,
    StoreError,
    SummaryError,
    UnknownHandle,
    describe_error,
    words_of_error,
)
from elision.manager import recall_tools
from elision.manager.branch import HistoryChange, SessionBranch
from elision.manager.branch_lookup import BranchLookup
from elision.manager.context_options import Options
from elision.manager.drivers import ComputeOn, Steps, StoreCall
from elision.manager.history import History
from elision.manager.ingest import ingest_turns
from elision.manager.offload import INLINE_BYTES, LARGE_BYTES, estimate_size
from elision.manager.outgoing_request import IncomingRequest, build_live_prefix, needs_breakpoints
from elision.manager.recall_definitions import RECALL_TOOL_DEFINITIONS
from elision.manager.shared_log import WRITE_TRIES, apply_others, has_same_turns, hides_anything, write_or_read_others
from elision.providers.anthropic.bound_thinking import has_bound_thinking
from elision.providers.detect import detect_provider, recognize_provider
from elision.providers.live.pieces import LiveDialect
from elision.providers.provider_table import find_provider
from elision.stores.store import NonBlockingLength, Store
from elision.strategies.spec import describe_strategy
from elision.telemetry.diagnostics import Fault, FaultKind
from elision.trajectory.events import Event, PassDecided, SessionOpened, SummaryFailed
from elision.trajectory.plan import SummaryRequest
from elision.trajectory.text_protocol import ObservationRole
from elision.trajectory.tokens import Sizer, make_counter
from elision.trajectory.turn import Turn
from elision.trajectory.turn_builder import OPENING_TURNS, TOOL_OUTPUT
from elision.trajectory.view import View

_log: Final = logging.getLogger("elision.manager")

#: Tokens of a history above which a call is prepared off the event loop, however little is new: to summarize it, or to
#: fit it into a budget, is work on all of it.
LONG_HISTORY_TOKENS: Final = 16_000


class ShapeMismatch(ElisionError):  # noqa: N818 - reads as what it is at the call site
    """A history has the text of a known one, and its results answer other calls. Ids are no part of a history's name.

    No provider accepts both, and what is hidden refers to results that are not there.
    """


class CallPreparer:
    """Prepares the calls of one session. faults: what failed in the newest preparation without ending it."""

    def __init__(self, options: Options, store: Store, session: str) -> None:
        self.options = options
        self.store = store
        # The class is asked: a store that fails may raise at every access to the object.
        self._nonblocking_store = (
            cast("NonBlockingLength", store) if issubclass(type(store), NonBlockingLength) else None
        )
        self.session = session
        self.strategy = options.build_strategy()
        self.sizer = Sizer(make_counter(options.tokens))
        self.prices = options.find_prices()
        #: Why the user's extractors failed, until the diagnostics report it. A list of its own: the table is a key in a
        #: cache, which must not keep the session in memory.
        self._extractor_failures: list[CallbackError] = []
        # Without the user's it stays the built-in table, in whose cache the digest finds what placeholders looked up.
        self.extractors = options.extractor_table
        if options.extractors:
            self.extractors = replace(self.extractors, report=self._extractor_failures.append)
        missing_prices = options.describe_missing_prices()
        self.notes = (missing_prices,) if missing_prices else ()
        self.branch: SessionBranch | None = None
        #: The branch of messages that are read again as another dialect.
        self._left_branch: SessionBranch | None = None
        #: Why the store could not be asked what others wrote, until the view is decided.
        self._catch_up_error: StoreError | None = None
        self.faults: list[Fault] = []
        #: Summaries that were paid for in preparations that failed, until a log has them.
        self._unlogged_attempts: list[SummaryFailed | PassDecided] = []
        #: Whether the next call hides all that the strategy allows.
        self.must_hide_all = False
        #: Whether the next call replaces all turns but the tail by a summary.
        self.must_summarize = False
        #: Why the newest call made no summary although it had to; "" if it did, or need not.
        self._summary_note = ""
        #: Whether the model binds its thinking to the messages before it.
        self.is_thinking_bound = False
        #: Whether the history that was read last has such thinking.
        self._has_thought = False
        #: Whether some message showed its dialect.
        self._is_dialect_settled = False
        self._root = session

    @property
    def branch_lookup(self) -> BranchLookup:
        """The lookup of the session's branches.

        Made at each use: a kept one would be in a cycle of references with this object, and a dropped session would
        stay in memory until the garbage collector runs.
        """
        return BranchLookup(
            store=self.store,
            root=self._root,
            family=self.options.family,
            is_shared=self.options.is_shared,
            parent=self.options.parent,
            make_session=self.make_session,
            make_opened_event=self._make_opened_event,
            guards=self.options.effective_guards,
            clock=self.options.clock,
        )

    def make_session(self, events: Sequence[Event]) -> Log:
        """Return the engine's session of a log."""
        strategy = self.strategy
        opened = _find_opened(events)
        if opened is not None:
            # Whether placeholders name handles was fixed when the session began.
            strategy = replace(strategy, handles=opened.handles)
        setup = LogSetup(strategy, self.prices, self.sizer, self.extractors, self.options.redaction)
        return Log.fold(events, setup)

    def _make_opened_event(self) -> SessionOpened:
        handles = self.strategy.handles
        offer = recall_tools.settle_offer(
            self.options, handles=handles, bound=self.is_thinking_bound, begun=self._has_thought
        )
        return SessionOpened(
            strategy=describe_strategy(self.strategy),
            dialect=self.options.dialect,
            handles=handles and offer != "never",
            offer=offer,
            tools=RECALL_TOOL_DEFINITIONS if offer in ("first", "start") else (),
            shadow=self.options.shadow,
        )

    def open_manual_branch(self) -> SessionBranch:
        """Return the branch of a session whose turns are added by hand, loaded where the store has it."""
        if self.branch is None:
            self.branch = self.branch_lookup.load_root_branch() or self.branch_lookup.begin_session()
        return self.branch

    @property
    def is_strict(self) -> bool:
        """Whether a view that does not fit raises BudgetError."""
        return self.options.over_budget == "raise" and not self.options.shadow

    # -- the branch ----------------------------------------------------------------------------------------------

    def detect_dialect(self, request: IncomingRequest, model: str) -> LiveDialect:
        """Return the dialect of the messages. The first message that shows one settles it."""
        if self.options.dialect != "auto":
            return find_provider(self.options.dialect).live
        known = self.branch.history if self.branch else None
        if known is None:
            self._is_dialect_settled = (
                recognize_provider(request.messages, request.system, request.tools, model) is not None
            )
            return detect_provider(request.messages, request.system, request.tools, model).live
        if self._is_dialect_settled:
            return known.dialect
        sign = recognize_provider(request.messages[len(known) :], request.system, request.tools, model)
        self._is_dialect_settled = sign is not None
        if sign is None or sign.live is known.dialect:
            return known.dialect
        # The first messages looked like another dialect's: they are read again.
        self._left_branch = self.branch
        self.branch = None
        return sign.live

    def follow_history(
        self, request: IncomingRequest, dialect: LiveDialect
    ) -> Steps[tuple[SessionBranch, History, HistoryChange]]:
        """Find or make the branch that the request continues, and read its new messages.

        Returns the branch, its history, and how the request continues it.
        """
        yield from self._leave_loop(request)
        body = request.messages[: request.end]
        if self.options.is_shared:
            yield from self.catch_up()
        branch = self.branch
        if branch is None or branch.history is None or branch.unverified:
            return (yield from self._open_branch(body, request, dialect))
        history = branch.history
        common = history.count_common(body)
        if self.options.is_shared and (common == len(history) or branch.diverged):
            return (yield from self._continue_shared(branch, common, body, request, dialect))
        if common == len(history):
            self._ingest_turns(branch, history.extend(body[common:]), request)
            return branch, history, HistoryChange.CONTINUE
        if self._is_amendment(branch, history, common):
            history.truncate(history.conversation.turn_count - 1)
            self._ingest_turns(branch, history.extend(body[len(history) :]), request)
            return branch, history, HistoryChange.AMENDED
        return (yield from self._follow_divergence(branch, history.count_intact_turns(common), body, request, dialect))

    def _continue_shared(
        self, branch: SessionBranch, common: int, body: Sequence[Any], request: IncomingRequest, dialect: LiveDialect
    ) -> Steps[tuple[SessionBranch, History, HistoryChange]]:
        """Continue a branch that other processes write to as well, after what they wrote.

        common: leading messages of `body` that were read before.
        """
        history = branch.history
        assert history is not None
        if common < len(history):
            intact = min(history.count_intact_turns(common), self._count_same_turns(branch, history))
            return (yield from self._follow_divergence(branch, intact, body, request, dialect))
        first = history.extend(body[common:])
        if branch.diverged and not has_same_turns(branch, history):
            same = self._count_same_turns(branch, history)
            return (yield from self._follow_divergence(branch, same, body, request, dialect))
        known = len(branch.session.state.turns)
        if history.conversation.turn_count > known + 1 and (yield from self._is_in_other_branch(history, known)):
            return (yield from self._follow_divergence(branch, known, body, request, dialect))
        if branch.diverged:
            self._adopt_branch(branch, history, request)
        else:
            self._ingest_turns(branch, first, request)
        return branch, history, HistoryChange.CONTINUE

    def _is_in_other_branch(self, history: History, known: int) -> Generator[StoreCall, Any, bool]:
        """Return whether another branch has turns after the `known` ones, which another process was request."""
        nodes = history.list_nodes()[known:]
        try:
            found = yield StoreCall(lambda: self.store.locate(self.branch_lookup.search_family, nodes))
        except StoreError:
            return False
        return found is not None

    @staticmethod
    def _count_same_turns(branch: SessionBranch, history: History) -> int:
        """Return how many leading turns branch and history share."""
        same = 0
        most = min(len(branch.session.state.turns), history.conversation.turn_count)
        while same < most and history.get_node(same + 1) == branch.nodes.get(same + 1):
            same += 1
        return same

    @staticmethod
    def _is_amendment(branch: SessionBranch, history: History, common: int) -> bool:
        """Return whether only the ending of the newest turn differs, and nothing of it that is hidden.

        common: leading messages that are unchanged.
        """
        newest = history.conversation.turn_count
        if not newest or history.count_intact_turns(common) != newest - 1:
            return False
        if common < history.conversation.find_answer_end(newest):
            return False
        hidden = [key for key in branch.session.state.hidden if key[0] == newest]
        return all(place < common for place in history.splice.find_messages(hidden))

    def _open_branch(
        self, body: Sequence[Any], request: IncomingRequest, dialect: LiveDialect
    ) -> Steps[tuple[SessionBranch, History, HistoryChange]]:
        """Find the branch of a history that is read for the first time, or begin one."""
        history = self._read_history(body, request, dialect)
        at_hand = self.branch or self._left_branch
        self._left_branch = None
        if at_hand is None and self._is_new_session(history):
            branch = self.branch_lookup.begin_session()
            self._adopt_branch(branch, history, request)
            return branch, history, HistoryChange.CONTINUE
        try:
            branch, change = yield StoreCall(lambda: self.branch_lookup.find_branch(history, at_hand))
        except ConflictError:
            raise
        except StoreError as error:
            self.add_fault("store", error)
            change = HistoryChange.CONTINUE
            if at_hand is not None and at_hand.unverified and has_same_turns(at_hand, history):
                # The store may have it by now: another branch would be the same session a second time.
                branch = at_hand
            else:
                branch = self.branch_lookup.begin_session()
            branch.unverified = True
        self._adopt_branch(branch, history, request)
        return branch, history, change

    def _is_new_session(self, history: History) -> bool:
        """Return whether the store is known, without waiting, to have no session for a history.

        That is so where the history has no turn to be found by, and no session has the name.
        """
        if not self.options.family or history.conversation.turn_count or self._nonblocking_store is None:
            return False
        try:
            self._nonblocking_store.try_length(self.session)
        except UnknownHandle:
            return True
        except StoreError:
            # The next question to the store reports it.
            return False
        return False

    def _follow_divergence(
        self, current: SessionBranch, intact: int, body: Sequence[Any], request: IncomingRequest, dialect: LiveDialect
    ) -> Steps[tuple[SessionBranch, History, HistoryChange]]:
        """Leave `current`, with which the messages share `intact` turns, for another branch or a fork."""
        history = self._read_history(body, request, dialect)
        intact = min(intact, len(current.session.state.turns))
        if current.exists and current.unsaved:
            failed = yield from self._try_write(current, self.options.clock())
            if failed is not None:
                self.add_fault("store", failed)
        branch, change = yield StoreCall(lambda: self.branch_lookup.follow_divergence(current, history, intact))
        if change is HistoryChange.CONTINUE and branch is not current and branch.session.state.turns:
            change = HistoryChange.FORK
        self._adopt_branch(branch, history, request)
        return branch, history, change

    def read_other_history(self, request: IncomingRequest, dialect: LiveDialect) -> Steps[History]:
        """Return the history that the request has, whichever the present one is."""
        yield from self._leave_loop(request)
        return self._read_history(request.messages[: request.end], request, dialect)

    def _leave_loop(self, request: IncomingRequest) -> Steps[None]:
        """Have the rest computed off the event loop where there is much to read, or much to look through."""
        history = None
        tokens = 0
        if self.branch is not None:
            history = self.branch.history
            tokens = self.branch.session.state.raw_track.tokens
        beside = (request.system, request.tools)
        if history is None:
            new = [*request.messages, *beside]
        else:
            new = history.select_unseen(request.messages)
            if history.ingested_head is None or history.ingested_head[1:] != beside:
                new += beside
        size = estimate_size(LARGE_BYTES, new)
        if size >= LARGE_BYTES:
            yield ComputeOn.LARGE_WORKER
        elif size > INLINE_BYTES or tokens > LONG_HISTORY_TOKENS:
            yield ComputeOn.WORKER

    def _read_history(self, body: Sequence[Any], request: IncomingRequest, dialect: LiveDialect) -> History:
        seed = (self.options.family or self.session).encode("utf-8", "surrogatepass")
        history = History(dialect, seed, observations=self.options.observations, tools=bool(request.tools))
        history.extend(body)
        self._has_thought = self.is_thinking_bound and _has_thinking(history)
        return history

    def _adopt_branch(self, branch: SessionBranch, history: History, request: IncomingRequest) -> None:
        """Continue `branch`, whose turns `history` has. Raises ShapeMismatch."""
        branch.history = history
        known = len(branch.session.state.turns)
        history.conversation.observations = self._settle_observations(branch)
        # Messages that the client added after the newest turn they share belong to that turn.
        first = known + 1
        if 0 < known <= history.conversation.turn_count and history.get_node(known) != branch.nodes.get(known):
            first = known
        for index in range(1, min(known, history.conversation.turn_count) + 1):
            history.conversation.adopt_tags(branch.session.state.turns[index - 1])
            turn, sources = history.conversation.build_turn(index)
            if index < first and _count_parts(turn) != _count_parts(branch.session.state.turns[index - 1]):
                raise ShapeMismatch(f"results of turn {index} answer other calls than when they came first")
            history.splice.set_turn(index, sources)
        self.branch = branch
        branch.diverged = False
        if self.options.shadow != branch.session.state.shadow:
            opened = _find_opened(branch.session.events) or self._make_opened_event()
            branch.session.record_event(msgspec.structs.replace(opened, shadow=self.options.shadow))
        self._ingest_turns(branch, first, request)

    def _settle_observations(self, branch: SessionBranch) -> ObservationRole:
        """Return which messages were tool results in the turns of `branch`. NotReady messages do not change that."""
        turns = branch.session.state.turns
        for turn in turns:
            if any(each.role == "user" and TOOL_OUTPUT not in each.tags for each in turn.observations):
                return "user"
        if self.options.observations == "auto" and len(turns) > OPENING_TURNS:
            return "tools"
        return self.options.observations

    def _ingest_turns(self, branch: SessionBranch, first: int, request: IncomingRequest) -> None:
        ingest_turns(branch, first, request.system, request.tools, self._is_pinned if self.options.pin else None)

    def _is_pinned(self, message: Mapping[str, Any]) -> bool:
        """Return whether the caller's `pin` keeps `message` visible; False where it raises, which is a fault."""
        assert self.options.pin is not None
        try:
            return bool(self.options.pin(message))
        except Exception as error:  # noqa: BLE001 - the caller's function must not stop the caller's agent
            failure = CallbackError(f"pin failed: {describe_error(error)}")
            failure.__cause__ = error
            self.add_fault("callback", failure)
            return False

    # -- the decision --------------------------------------------------------------------------------------------

    def decide_view(self, branch: SessionBranch, request: IncomingRequest | None, terms: CallTerms) -> Steps[View]:
        """Return the view of the next call. What it hides, and the decision to hide it, is in the store.

        request: the client's; None where turns are added by hand. Raises BudgetError, ConflictError.
        """
        now = self.options.clock() if terms.now is None else terms.now
        failed = self._catch_up_error
        self._catch_up_error = None
        if failed is None and (branch.unverified or branch.pending_attempts):
            failed = yield from self._try_write(branch, now)
        if failed is not None:
            return self._hold_view(branch, failed, terms)
        self._write_off_attempts(branch)
        mark = len(branch.session.events)
        try:
            view = yield from self._run_engine(branch, request, terms, now)
            if self._can_write_later(branch, request, mark):
                return view
            failed = yield from self._try_write(branch, now)
        except ConflictError:
            # The caller prepares the call again, after what others wrote.
            self.must_hide_all = self.must_hide_all or terms.hides_all
            self.must_summarize = self.must_summarize or terms.summarizes_all
            self._unlogged_attempts += find_paid_attempts(branch.session.events[mark:])
            raise
        except StoreError as error:
            failed = error
        except Exception:
            self._unlogged_attempts += find_paid_attempts(branch.session.events[mark:])
            raise
        if failed is None:
            return view
        return self._undo_decision(branch, mark, failed, terms)

    def _write_off_attempts(self, branch: SessionBranch) -> None:
        """Put into the log which summaries were paid for in vain, so that the next one is asked for later."""
        attempts = self._unlogged_attempts
        self._unlogged_attempts = []
        for event in attempts:
            write_off_attempt(branch.session, event)

    def _can_write_later(self, branch: SessionBranch, request: IncomingRequest | None, mark: int) -> bool:
        """Return whether the new records of the log, from `mark` on, may be written after the view is returned."""
        # Turns that are added by hand are in no request: only the store can keep them.
        return self.options.write_behind and request is not None and not hides_anything(branch.session.events[mark:])

    def _run_engine(
        self, branch: SessionBranch, request: IncomingRequest | None, terms: CallTerms, now: float
    ) -> Steps[View]:
        """Run the engine for one call. Turns are in the store before a summary of them is requested."""
        self.must_hide_all = False
        self.must_summarize = False
        self._summary_note = ""
        mark = len(branch.session.events)
        steps = decide(branch.session, terms)
        is_paid = False
        try:
            wanted = next(steps)
            while True:
                yield StoreCall(lambda: branch.save(self.store, now))
                wanted = self._add_live_prefix(wanted, branch, request, terms.model)
                answer: SummaryAnswer = yield from self._ask_summarizer(wanted)
                is_paid = is_paid or not isinstance(answer, NotReady)
                wanted = steps.send(answer)
        except StopIteration as done:
            view: View = done.value
        except Exception as error:
            if is_paid and not find_paid_attempts(branch.session.events[mark:]):
                call = len(branch.session.state.turns) + 1
                reason = f"the pass failed: {type(error).__name__}"
                self._unlogged_attempts.append(SummaryFailed(call=call, cause="other", reason=reason))
            raise
        newest = branch.session.newest_call
        assert newest is not None
        if newest.summary_obstacle:
            self._summary_note = f"compact(summary=True): no summary: {newest.summary_obstacle}"
        if newest.decided.reason == SUMMARY_BEING_WRITTEN:
            # What is being written in the background enters with the call that finds it ready.
            self.must_hide_all = self.must_hide_all or terms.hides_all
            self.must_summarize = self.must_summarize or terms.summarizes_all
        for event in branch.session.events[mark:]:
            if isinstance(event, SummaryFailed):
                self.faults.append(Fault(kind="summarizer", cause=event.cause, what=event.reason))
        if newest.budget_error is not None:
            self.add_fault("budget", newest.budget_error)
        while self._extractor_failures:
            self.add_fault("callback", self._extractor_failures.pop(0))
        return view

    def take_summary_note(self) -> tuple[str, ...]:
        """Return why the newest call made no summary although it had to, once."""
        note = self._summary_note
        self._summary_note = ""
        return (note,) if note else ()

    @staticmethod
    def _ask_summarizer(request: SummaryRequest) -> Generator[SummaryRequest, Any, SummaryAnswer]:
        """Return the summarizer's answer; what it raises becomes a SummaryError, which is an answer too."""
        try:
            answer: SummaryAnswer = yield request
        except Exception as error:  # noqa: BLE001 - the engine decides without a summary and asks again later
            return SummaryError(f"no summary could be asked for: {describe_error(error)}")
        return answer

    # -- the log -------------------------------------------------------------------------------------------------

    def catch_up(self) -> Steps[None]:
        """Write unsaved records, and apply what others wrote: a decision needs the whole log."""
        branch = self.branch
        self._catch_up_error = None
        if branch is None or branch.history is None or branch.unverified:
            return
        try:
            yield from self.catch_up_branch(branch, self.options.clock())
        except ConflictError:
            raise
        except StoreError as error:
            self._catch_up_error = error
        except UnknownHandle:
            # The session was deleted meanwhile: the messages begin it again.
            self.branch = None

    def catch_up_branch(self, branch: SessionBranch, now: float) -> Steps[None]:
        """Write the unsaved records of `branch`, and apply what others wrote.

        now: seconds since the epoch. Raises ConflictError where others write faster, StoreError, UnknownHandle.
        """
        yield from self._settle_attempts(branch, now)
        if branch.exists and not branch.unsaved and self._is_current(branch):
            return
        for _ in range(WRITE_TRIES):
            stored: list[Event] | None = yield StoreCall(lambda: write_or_read_others(branch, self.store, now))
            if stored is None:
                return
            apply_others(branch, stored, self.make_session, self.options.effective_guards)
        raise ConflictError(f"session {branch.key!r}: others write to it all the time; nothing was written, try again")

    def _is_current(self, branch: SessionBranch) -> bool:
        """Return whether the store is known, without waiting, to have no records of others."""
        return (
            self._nonblocking_store is not None
            and self._nonblocking_store.try_length(branch.key) == branch.saved_events
        )

    def write_unsaved(self) -> Steps[Fault | None]:
        """Write the unsaved records of the branch. Return what failed, None where nothing did."""
        branch = self.branch
        if branch is None or not branch.has_unsaved:
            return None
        try:
            if self.options.is_shared and branch.history is not None:
                yield from self.catch_up_branch(branch, self.options.clock())
            else:
                yield from self.write_branch(branch)
        except UnknownHandle as error:
            # The session was deleted meanwhile: the messages begin it again.
            self.branch = None
            return self.report_fault("store", error)
        except StoreError as error:
            return self.report_fault("store", error)
        return None

    def _try_write(self, branch: SessionBranch, now: float) -> Generator[StoreCall, Any, StoreError | None]:
        """Write the unsaved records. Return the error where the store fails. Raises ConflictError."""
        try:
            yield from self.write_branch(branch, now)
        except ConflictError:
            raise
        except StoreError as error:
            return error
        return None

    def write_branch(self, branch: SessionBranch, now: float | None = None) -> Generator[StoreCall, Any, None]:
        """Write the unsaved records.

        now: seconds since the epoch; the clock's if None. Raises StoreError, ConflictError where others wrote.
        """
        at = self.options.clock() if now is None else now
        yield from self._settle_attempts(branch, at)
        yield StoreCall(lambda: branch.save(self.store, at))

    def _settle_attempts(self, branch: SessionBranch, now: float) -> Generator[StoreCall, Any, None]:
        """Have one of the writes whose outcome is not known in the store, and continue after it. Raises StoreError.

        now: seconds since the epoch. The newest is repeated; where its decision was taken back since, the records that
        are left are written in its place. A decision that turns out to be in the store counts all the same.
        """
        if branch.pending_attempts:
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
                self._continue_after(branch, attempt.events)

    def _continue_after(self, branch: SessionBranch, written: Sequence[Event]) -> None:
        """Continue `branch` after `written`, which is in the store. Unsaved records that it begins with are saved."""
        branch.exists = True
        same = branch.count_same_unsaved(written)
        if same < len(written):
            saved = branch.session.events[: branch.saved_events]
            branch.session = self.make_session([*saved, *written, *branch.unsaved[same:]])
            branch.ledger = None
        branch.saved_events += len(written)

    def restore_from_log(self, branch: SessionBranch) -> None:
        """Rebuild the session of `branch`, whose preparation was broken off, without the unfinished decision."""
        events = branch.session.events
        while len(events) > branch.saved_events and isinstance(events[-1], SummaryFailed | PassDecided):
            # No request was sent by this decision.
            events = events[:-1]
        branch.session = self.make_session(events)

    def _hold_view(self, branch: SessionBranch, error: StoreError, terms: CallTerms) -> View:
        """Return the view as decided so far, with the new turns whole, because the store fails."""
        self.add_fault("store", error)
        return hold_view(branch.session, "nothing more is hidden while the store fails", terms)

    def _undo_decision(self, branch: SessionBranch, mark: int, error: StoreError, terms: CallTerms) -> View:
        """Take back a decision that could not be stored, and return the view without it.

        mark: length of the log before the decision.
        """
        self._unlogged_attempts += find_paid_attempts(branch.session.events[mark:])
        branch.session = self.make_session(branch.session.events[:mark])
        return self._hold_view(branch, error, terms)

    def add_fault(self, kind: FaultKind, error: Exception) -> None:
        """Report a failure that does not end the preparation, once for each call. Raises it with `on_fault="raise"`."""
        if self.options.on_fault == "raise" and kind != "budget":
            raise error
        fault = self._make_fault(kind, error)
        if fault not in self.faults:
            self.faults.append(self._log_fault(fault))

    def report_fault(self, kind: FaultKind, error: Exception) -> Fault:
        """Log a failure, and return it. Secrets are redacted."""
        return self._log_fault(self._make_fault(kind, error))

    def _make_fault(self, kind: FaultKind, error: Exception) -> Fault:
        what = self.options.redaction.redact_text(words_of_error(error))
        cause: BaseException = error
        if isinstance(error, CallbackError) and error.__cause__:
            cause = error.__cause__
        return Fault(kind=kind, cause=type(cause).__name__, what=what[:500])

    def _log_fault(self, fault: Fault) -> Fault:
        _log.warning("session %s: %s: %s", self.session, fault.kind, fault.what)
        return fault

    def _add_live_prefix(
        self, wanted: SummaryRequest, branch: SessionBranch, request: IncomingRequest | None, model: str
    ) -> SummaryRequest:
        """Return `wanted` with the live prefix, where extending the prefix is the cheaper route and there is one."""
        if wanted.route != "extend" or request is None or branch.history is None:
            return replace(wanted, route="fresh")
        state = branch.session.state
        marks: tuple[int, ...] = ()
        if state.last_view is not None and state.last_view.track is state.track:
            marks = state.last_view.marks
        view = View(call=0, epoch=0, track=state.track, length=len(state.track.segments), marks=marks)
        mark = needs_breakpoints(self.options.cache_control, branch.session)
        ours = recall_tools.list_added_tools(branch.session, branch.history.dialect.name, request.tools)
        tools = [*(request.tools or ()), *ours]
        prefix = build_live_prefix(replace(request, tools=tools or None), branch.history, view, model, mark=mark)
        return replace(wanted, live=prefix)


def find_paid_attempts(events: Sequence[Event]) -> list[SummaryFailed | PassDecided]:
    """Return those of `events` that report a summary which a model was paid for, taken or not."""
    paid: list[SummaryFailed | PassDecided] = []
    for event in events:
        if isinstance(event, SummaryFailed) or (
            isinstance(event, PassDecided) and event.summary is not None and event.summary.route != "model-free"
        ):
            paid.append(event)
    return paid


def _find_opened(events: Sequence[Event]) -> SessionOpened | None:
    for event in events:
        if isinstance(event, SessionOpened):
            return event
    return None


def _has_thinking(history: History) -> bool:
    conversation = history.conversation
    return any(has_bound_thinking(conversation.build_turn(index)[0]) for index in range(1, conversation.turn_count + 1))


def _count_parts(turn: Turn) -> tuple[int, int]:
    """Return the numbers of results and of the user's messages in `turn`."""
    return len(turn.observations), len(turn.interjections)
