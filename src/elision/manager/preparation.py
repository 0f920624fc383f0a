"""One pass: which branch the messages go on with, what is hidden, and the view that goes out.

    given messages -> branch (by content) -> turns -> decision -> store -> view

The order is the promise: a turn is in the store before anything of it is hidden (I1), and a decision is in the store
before a view that shows it leaves. Where the store fails, the view is what was decided before, and nothing is lost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, cast

from elision.dialects.bound_thinking import has_bound_thinking
from elision.dialects.live.detect import LIVE_DIALECTS, detect_dialect, recognize_dialect
from elision.dialects.live.pieces import LiveDialect
from elision.engine import NotReady, Session, SummaryAnswer
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
from elision.manager import exchanges, recall_tools
from elision.manager.branch import SessionBranch
from elision.manager.branch_lookup import BranchLookup
from elision.manager.context_options import Options
from elision.manager.drivers import ComputeOn, Steps, StoreCall
from elision.manager.history import History
from elision.manager.ingest import ingest_turns
from elision.manager.observation_text import RECALL_TOOL_DEFINITIONS
from elision.manager.offload import INLINE_BYTES, LARGE_BYTES, estimate_size
from elision.manager.outgoing_request import IncomingRequest, build_live_prefix, needs_breakpoints
from elision.manager.shared_log import WRITE_TRIES, apply_others, has_same_turns, hides_anything, write_or_read_others
from elision.stores.store import NonBlockingLength, Store
from elision.strategies.spec import describe_strategy
from elision.telemetry.diagnostics import Fault, FaultKind
from elision.trajectory.events import Event, PassDecided, RecallExchanged, SessionOpened, SummaryFailed
from elision.trajectory.plan import SummaryRequest
from elision.trajectory.text_protocol import ObservationRole
from elision.trajectory.tokens import Sizer, make_counter
from elision.trajectory.turn import Turn
from elision.trajectory.turn_builder import OPENING_TURNS
from elision.trajectory.view import View

_log: Final = logging.getLogger("elision.manager")

#: Tokens of a history from which on a pass leaves the event loop whatever is new: a summary of it, or fitting it into
#: a budget, is work on all of it.
LONG_HISTORY_TOKENS: Final = 16_000
#: Makes the pass's `SummaryRequest` complete just before it is asked.
_Enrich = Callable[[SummaryRequest], SummaryRequest]


class ShapeMismatch(ElisionError):  # noqa: N818 - reads as what it is at the call site
    """A history says what is known and is built in another way: ids that pair calls and results are not what names it.

    No provider takes both; what is hidden refers to places that are not there.
    """


class CallPreparer:
    """The passes of one session. faults: what failed in the newest one and was passed over."""

    def __init__(self, options: Options, store: Store, session: str) -> None:
        self.options = options
        self.store = store
        # Its class is asked, not the store: one that fails says so at every question.
        self._nonblocking_store = (
            cast("NonBlockingLength", store) if issubclass(type(store), NonBlockingLength) else None
        )
        self.session = session
        self.strategy = options.build_strategy()
        self.sizer = Sizer(make_counter(options.tokens))
        self.prices = options.find_prices()
        #: Why extractors of the user's failed, until the pass tells it. A list of its own: the table is a key in a
        #: cache, which must not keep the session in memory.
        self._extractor_failures: list[CallbackError] = []
        # Without any it stays the built-in one, by which the digest finds what placeholders looked up.
        table = options.extractor_table
        self.extractors = replace(table, report=self._extractor_failures.append) if options.extractors else table
        self.notes = (said,) if (said := options.describe_missing_prices()) else ()
        self.branch: SessionBranch | None = None
        #: The branch of messages that are read again in another dialect.
        self._left_branch: SessionBranch | None = None
        #: Why the store could not be asked what others wrote, until the pass has decided.
        self._catch_up_error: StoreError | None = None
        self.faults: list[Fault] = []
        #: What was paid for summaries in passes that came to nothing, until a log knows it.
        self._unlogged_attempts: list[SummaryFailed | PassDecided] = []
        #: Whether the next pass hides all that the strategy allows.
        self.must_hide_all = False
        #: Whether the model at hand binds its thinking to what stands in front of it, and whether there is any in the
        #: history that was read last.
        self.is_thinking_bound = self._has_thought = False
        #: Whether the messages bore a sign of their dialect.
        self._is_dialect_settled = False
        self._root = session

    @property
    def branch_lookup(self) -> BranchLookup:
        """The session's branches. Made when it is asked for: kept, it would hold this object in a cycle of references,
        and a session that is let go would stay in memory until somebody looks for garbage."""
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

    def make_session(self, events: Sequence[Event]) -> Session:
        """The engine's session of a log."""
        opened = next((event for event in events if isinstance(event, SessionOpened)), None)
        # Whether placeholders name handles was fixed when the session began.
        if opened is None:
            strategy = self.strategy
        else:
            strategy = replace(self.strategy, handles=opened.handles)
        session = Session(strategy, self.prices, self.sizer, self.extractors, self.options.redaction)
        session.replay_events(events)
        return session

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
        """The branch of a session without messages: taken up where the store has it."""
        if self.branch is None:
            self.branch = self.branch_lookup.load_root_branch() or self.branch_lookup.begin_session()
        return self.branch

    # -- which history -------------------------------------------------------------------------------------------

    def detect_dialect(self, given: IncomingRequest, model: str) -> LiveDialect:
        """Whose messages these are; settled by the first that bear a sign of it."""
        if self.options.dialect != "auto":
            return LIVE_DIALECTS[self.options.dialect]
        known = self.branch.history if self.branch else None
        if known is None:
            self._is_dialect_settled = recognize_dialect(given.messages, given.system, given.tools, model) is not None
            return detect_dialect(given.messages, given.system, given.tools, model)
        if self._is_dialect_settled:
            sign = None
        else:
            sign = recognize_dialect(given.messages[len(known) :], given.system, given.tools, model)
        self._is_dialect_settled = self._is_dialect_settled or sign is not None
        if sign is None or sign is known.dialect:
            return known.dialect
        # What came first looked like another dialect's: it is read again.
        self._left_branch = self.branch
        self.branch = None
        return sign

    def follow_history(self, given: IncomingRequest, dialect: LiveDialect) -> Steps[tuple[SessionBranch, History, str]]:
        """Find or make the branch that `given` goes on with, and read what is new; how it went on."""
        yield from self._leave_loop(given)
        body = given.messages[: given.end]
        if self.options.is_shared:
            yield from self.catch_up()
        branch = self.branch
        if branch is None or branch.history is None or branch.unverified:
            return (yield from self._open_branch(body, given, dialect))
        history = branch.history
        common = history.count_common(body)
        if self.options.is_shared and (common == len(history) or branch.diverged):
            return (yield from self._continue_shared(branch, common, body, given, dialect))
        if common == len(history):
            self._ingest_turns(branch, history.extend(body[common:]), given)
            return branch, history, "continue"
        if self._is_amendment(branch, history, common):
            history.truncate(history.conversation.turn_count - 1)
            self._ingest_turns(branch, history.extend(body[len(history) :]), given)
            return branch, history, "amended"
        return (yield from self._follow_divergence(branch, history.count_intact_turns(common), body, given, dialect))

    def _continue_shared(
        self, branch: SessionBranch, common: int, body: Sequence[Any], given: IncomingRequest, dialect: LiveDialect
    ) -> Steps[tuple[SessionBranch, History, str]]:
        """Go on with a branch that others write to as well, where they left it."""
        history = branch.history
        moved = branch.diverged
        assert history is not None
        if common < len(history):
            intact = min(history.count_intact_turns(common), self._count_same_turns(branch, history))
            return (yield from self._follow_divergence(branch, intact, body, given, dialect))
        first = history.extend(body[common:])
        known = len(branch.session.state.turns)
        if moved and not has_same_turns(branch, history):
            return (
                yield from self._follow_divergence(
                    branch, self._count_same_turns(branch, history), body, given, dialect
                )
            )
        if history.conversation.turn_count > known + 1 and (yield from self._is_in_other_branch(history, known)):
            return (yield from self._follow_divergence(branch, known, body, given, dialect))
        if moved:
            self._adopt_branch(branch, history, given)
        else:
            self._ingest_turns(branch, first, given)
        return branch, history, "continue"

    def _is_in_other_branch(self, history: History, known: int) -> Generator[StoreCall, Any, bool]:
        """Whether another branch holds turns behind the `known` ones, which came in between to another process."""
        try:
            return (
                yield StoreCall(
                    lambda: self.store.locate(self.branch_lookup.search_family, history.list_nodes()[known:])
                )
            ) is not None
        except StoreError:
            return False

    @staticmethod
    def _count_same_turns(branch: SessionBranch, history: History) -> int:
        """Leading turns that branch and history share."""
        most = min(len(branch.session.state.turns), history.conversation.turn_count)
        return next((turn for turn in range(most) if history.get_node(turn + 1) != branch.nodes.get(turn + 1)), most)

    @staticmethod
    def _is_amendment(branch: SessionBranch, history: History, common: int) -> bool:
        """Whether only the ending of the newest turn came another way, and what is hidden of it is not
        touched."""
        newest = history.conversation.turn_count
        if (
            not newest
            or history.count_intact_turns(common) != newest - 1
            or common < history.conversation.find_answer_end(newest)
        ):
            return False
        hidden = [key for key in branch.session.state.hidden if key[0] == newest]
        return all(place < common for place in history.splice.find_messages(hidden))

    def _open_branch(
        self, body: Sequence[Any], given: IncomingRequest, dialect: LiveDialect
    ) -> Steps[tuple[SessionBranch, History, str]]:
        history = self._read_history(body, given, dialect)
        at_hand = self.branch or self._left_branch
        self._left_branch = None
        if at_hand is None and self._is_new_session(history):
            self._adopt_branch(branch := self.branch_lookup.begin_session(), history, given)
            return branch, history, "continue"
        try:
            branch, how = yield StoreCall(lambda: self.branch_lookup.find_branch(history, at_hand))
        except ConflictError:
            raise
        except StoreError as error:
            self.add_fault("store", error)
            # What was begun so and is gone on with may be in the store by now: another one would be a second of it.
            goes_on = at_hand is not None and at_hand.unverified and has_same_turns(at_hand, history)
            branch = at_hand if at_hand is not None and goes_on else self.branch_lookup.begin_session()
            how = "continue"
            branch.store_error = str(error)
            branch.unverified = True
        self._adopt_branch(branch, history, given)
        return branch, history, how

    def _is_new_session(self, history: History) -> bool:
        """Whether a history is nobody's in the store, as far as that is known without waiting: it has no turn by which
        it could be found, and no session has the name."""
        if not self.options.family or history.conversation.turn_count or self._nonblocking_store is None:
            return False
        try:
            self._nonblocking_store.try_length(self.session)
        except UnknownHandle:
            return True
        except StoreError:
            # Whoever asks again is told so.
            pass
        return False

    def _follow_divergence(
        self, current: SessionBranch, intact: int, body: Sequence[Any], given: IncomingRequest, dialect: LiveDialect
    ) -> Steps[tuple[SessionBranch, History, str]]:
        history = self._read_history(body, given, dialect)
        intact = min(intact, len(current.session.state.turns))
        if (
            current.exists
            and current.unsaved
            and (failed := (yield from self._try_write(current, self.options.clock())))
        ):
            self.add_fault("store", failed)
        branch, how = yield StoreCall(lambda: self.branch_lookup.follow_divergence(current, history, intact))
        if how == "continue" and branch is not current and branch.session.state.turns:
            how = "fork"
        self._adopt_branch(branch, history, given)
        return branch, history, how

    def find_stored_exchanges(self, given: IncomingRequest, dialect: LiveDialect) -> Steps[list[RecallExchanged]]:
        """What the client never saw of the stored session that `given` begins like."""
        yield from self._leave_loop(given)
        history = self._read_history(given.messages[: given.end], given, dialect)
        found: list[RecallExchanged] = yield StoreCall(
            lambda: exchanges.find_stored_exchanges(self.store, self.branch_lookup.search_family, history)
        )
        return found

    def _leave_loop(self, given: IncomingRequest) -> Steps[None]:
        """Have the pass computed beside the event loop where there is much to read or to look through."""
        if self.branch is not None:
            history = self.branch.history
        else:
            history = None
        if history is None:
            new = list(given.messages)
        else:
            new = history.select_unseen(given.messages)
        if history is None or history.ingested_head is None or history.ingested_head[1:] != (given.system, given.tools):
            new += (given.system, given.tools)
        size = estimate_size(LARGE_BYTES, new)
        if size >= LARGE_BYTES:
            yield ComputeOn.LARGE_WORKER
        elif size > INLINE_BYTES or (
            self.branch is not None and self.branch.session.state.raw_track.tokens > LONG_HISTORY_TOKENS
        ):
            yield ComputeOn.WORKER

    def _read_history(self, body: Sequence[Any], given: IncomingRequest, dialect: LiveDialect) -> History:
        seed = (self.options.family or self.session).encode("utf-8", "surrogatepass")
        history = History(dialect, seed, observations=self.options.observations, tools=bool(given.tools))
        history.extend(body)
        said = history.conversation
        self._has_thought = self.is_thinking_bound and any(
            has_bound_thinking(said.build_turn(index)[0]) for index in range(1, said.turn_count + 1)
        )
        return history

    def _adopt_branch(self, branch: SessionBranch, history: History, given: IncomingRequest) -> None:
        """Go on with `branch`, whose turns stand in `history`."""
        branch.history = history
        known = len(branch.session.state.turns)
        history.conversation.observations = self._settle_observations(branch)
        # Words that the client put behind the newest turn they share belong to it.
        grown = 0 < known <= history.conversation.turn_count and history.get_node(known) != branch.nodes.get(known)
        for index in range(1, min(known, history.conversation.turn_count) + 1):
            turn, sources = history.conversation.build_turn(index)
            if not (grown and index == known) and _count_parts(turn) != _count_parts(
                branch.session.state.turns[index - 1]
            ):
                raise ShapeMismatch(f"results of turn {index} answer other calls than when they came first")
            history.splice.set_turn(index, sources)
        self.branch = branch
        branch.diverged = False
        if self.options.shadow != branch.session.shadow:
            begun = next(
                (event for event in branch.session.events if isinstance(event, SessionOpened)),
                self._make_opened_event(),
            )
            branch.session.record_event(replace(begun, shadow=self.options.shadow))
        self._ingest_turns(branch, known if grown else known + 1, given)

    def _settle_observations(self, branch: SessionBranch) -> ObservationRole:
        """Which messages were observations in the turns of `branch`: a decision that later messages do not change."""
        turns = branch.session.state.turns
        if any(seen.role == "user" for turn in turns for seen in turn.observations):
            return "user"
        settled = self.options.observations == "auto" and len(turns) > OPENING_TURNS
        if settled:
            return "tools"
        return self.options.observations

    def _ingest_turns(self, branch: SessionBranch, first: int, given: IncomingRequest) -> None:
        ingest_turns(branch, first, given.system, given.tools, self._is_pinned if self.options.pin else None)
        branch.count_new_turns()

    def _is_pinned(self, message: Mapping[str, Any]) -> bool:
        """Whether the caller pins `message`; where its function fails, the message is treated as without one."""
        assert self.options.pin is not None
        try:
            return bool(self.options.pin(message))
        except Exception as error:  # noqa: BLE001 - the caller's function must not stop the caller's agent
            failure = CallbackError(f"pin failed: {describe_error(error)}")
            failure.__cause__ = error
            self.add_fault("callback", failure)
            return False

    # -- what is hidden ------------------------------------------------------------------------------------------

    def decide_view(self, branch: SessionBranch, given: IncomingRequest | None, model: str) -> Steps[View]:
        """The view of the next call; nothing is hidden in it that is not in the store.

        Raises BudgetError, ConflictError.
        """
        now = self.options.clock()
        forced = self.must_hide_all
        failed = self._catch_up_error
        self._catch_up_error = None
        if failed is None and (branch.store_error or branch.pending_attempts):
            failed = yield from self._try_write(branch, now)
        if failed is not None:
            return self._hold_view(branch, failed, model, now)
        self._write_off_attempts(branch)
        mark = len(branch.session.events)
        try:
            view = yield from self._run_engine(branch, given, model, now)
            if self._can_write_later(branch, given, mark):
                return view
            failed = yield from self._try_write(branch, now)
        except ConflictError:
            # It is decided again behind what others wrote.
            self.must_hide_all = forced
            self._unlogged_attempts += find_paid_attempts(branch.session.events[mark:])
            raise
        except StoreError as error:
            failed = error
        except Exception:
            self._unlogged_attempts += find_paid_attempts(branch.session.events[mark:])
            raise
        if failed is None:
            return view
        return self._undo_decision(branch, mark, failed, model, now)

    def _write_off_attempts(self, branch: SessionBranch) -> None:
        """Have the log know what was paid for summaries in passes that came to nothing: asking backs off."""
        lost = self._unlogged_attempts
        self._unlogged_attempts = []
        for event in lost:
            branch.session.write_off_summary(event)

    def _can_write_later(self, branch: SessionBranch, given: IncomingRequest | None, mark: int) -> bool:
        """Whether what the pass added to the log may be written when the view is out."""
        # Turns that were added by hand come from nowhere again.
        return self.options.write_behind and given is not None and not hides_anything(branch.session.events[mark:])

    def _run_engine(self, branch: SessionBranch, given: IncomingRequest | None, model: str, now: float) -> Steps[View]:
        """The engine's pass; turns are in the store before a summary of them is asked for."""
        forced = self.must_hide_all
        self.must_hide_all = False
        mark = len(branch.session.events)
        strict = self.options.over_budget == "raise" and not self.options.shadow
        steps = branch.session.prepare_view(now, model, forced=forced, strict=strict)
        is_paid = False
        try:
            request = next(steps)
            while True:
                yield StoreCall(lambda: branch.save(self.store, now))
                answer: SummaryAnswer = yield from self._ask_summarizer(
                    self._add_live_prefix(request, branch, given, model)
                )
                is_paid = is_paid or not isinstance(answer, NotReady)
                request = steps.send(answer)
        except StopIteration as done:
            view: View = done.value
        except Exception as error:
            if is_paid and not find_paid_attempts(branch.session.events[mark:]):
                call = len(branch.session.state.turns) + 1
                why = f"the pass failed: {type(error).__name__}"
                self._unlogged_attempts.append(SummaryFailed(call=call, cause="other", reason=why))
            raise
        for event in branch.session.events[mark:]:
            if isinstance(event, SummaryFailed):
                self.faults.append(Fault(kind="summarizer", cause=event.cause, what=event.reason))
        if (exceeded := branch.session.budget_error) is not None:
            self.add_fault("budget", exceeded)
        while self._extractor_failures:
            self.add_fault("callback", self._extractor_failures.pop(0))
        return view

    @staticmethod
    def _ask_summarizer(request: SummaryRequest) -> Generator[SummaryRequest, Any, SummaryAnswer]:
        """The summarizer's answer; whatever is raised instead is one as well."""
        try:
            answer: SummaryAnswer = yield request
        except Exception as error:  # noqa: BLE001 - the engine decides without a summary then, and asks later
            return SummaryError(f"no summary could be asked for: {describe_error(error)}")
        return answer

    # -- the log -------------------------------------------------------------------------------------------------

    def catch_up(self) -> Steps[None]:
        """Write what is owed, and catch up with what others wrote: who is behind must not decide."""
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
            # Deleted meanwhile: what the messages say begins a session again.
            self.branch = None

    def catch_up_branch(self, branch: SessionBranch, now: float) -> Steps[None]:
        """The same for one branch. Raises ConflictError where others write faster, StoreError, UnknownHandle."""
        if branch.exists and not branch.unsaved and self._is_current(branch):
            return
        for _ in range(WRITE_TRIES):
            there: list[Event] | None = yield StoreCall(lambda: write_or_read_others(branch, self.store, now))
            if there is None:
                return
            if branch.is_own_write(there):
                self._rebase_on_stored(branch, there)
            else:
                apply_others(branch, there, self.make_session, self.options.effective_guards)
        raise ConflictError(f"session {branch.key!r}: others write to it all the time; nothing was written, try again")

    def _is_current(self, branch: SessionBranch) -> bool:
        """Whether nobody wrote, as far as that can be known without waiting."""
        return (
            self._nonblocking_store is not None
            and self._nonblocking_store.try_length(branch.key) == branch.saved_events
        )

    def write_unsaved(self) -> Steps[Fault | None]:
        """Write what is owed to the log; what failed."""
        branch = self.branch
        if branch is None or not branch.has_unsaved:
            return None
        try:
            if self.options.is_shared and branch.history is not None:
                yield from self.catch_up_branch(branch, self.options.clock())
            else:
                yield from self.write_branch(branch)
        except UnknownHandle as error:
            # Deleted meanwhile: what the messages say begins a session again.
            self.branch = None
            return self.report_fault("store", error)
        except StoreError as error:
            # Where others write, the next pass reads what they wrote: nothing of it fails.
            if not isinstance(error, ConflictError):
                branch.store_error = str(error)
            return self.report_fault("store", error)
        return None

    def _try_write(self, branch: SessionBranch, now: float) -> Generator[StoreCall, Any, StoreError | None]:
        """Write what is new; the error where that fails. Raises ConflictError."""
        try:
            yield from self.write_branch(branch, now)
        except ConflictError:
            raise
        except StoreError as error:
            return error
        return None

    def write_branch(self, branch: SessionBranch, now: float | None = None) -> Generator[StoreCall, Any, None]:
        """Write what is owed to the log, between passes. What an earlier try wrote, though its answer was lost, is
        gone on behind.

        now: seconds since the epoch; asked of the clock if None. Raises StoreError, ConflictError where others wrote.
        """
        at = self.options.clock() if now is None else now
        try:
            yield StoreCall(lambda: branch.save(self.store, at))
            return
        except ConflictError:
            there: list[Event] = yield StoreCall(lambda: branch.find_own_write(self.store))
            if not there:
                raise
        self._rebase_on_stored(branch, there)
        yield StoreCall(lambda: branch.save(self.store, at))

    def _rebase_on_stored(self, branch: SessionBranch, there: list[Event]) -> None:
        """What is in the log was written by an earlier try: what differs from it is given up, and what is new goes
        behind it."""
        unsaved = branch.unsaved
        same = next((at for at, pair in enumerate(zip(there, unsaved, strict=False)) if pair[0] != pair[1]), len(there))
        branch.replace_session(
            self.make_session([*branch.session.events[: branch.saved_events], *there, *unsaved[same:]])
        )
        branch.saved_events = branch.saved_events + len(there)
        branch.ledger = None
        branch.pending_attempts = []

    def restore_from_log(self, branch: SessionBranch) -> None:
        """A session that was left in the middle of a pass, as its log has it."""
        branch.store_error = branch.store_error or "the last pass was broken off"
        events = branch.session.events
        while len(events) > branch.saved_events and isinstance(events[-1], SummaryFailed | PassDecided):
            # No request went out by it.
            events = events[:-1]
        branch.replace_session(self.make_session(events))

    def _hold_view(self, branch: SessionBranch, error: StoreError, model: str, now: float) -> View:
        """The view as it was decided so far, and what is new."""
        self.add_fault("store", error)
        branch.store_error = str(error)
        return branch.session.hold_view("nothing more is hidden while the store fails", now, model)

    def _undo_decision(self, branch: SessionBranch, mark: int, error: StoreError, model: str, now: float) -> View:
        """A decision that could not be stored is not made: the session as it stood before, and a pass that holds."""
        self._unlogged_attempts += find_paid_attempts(branch.session.events[mark:])
        branch.replace_session(self.make_session(branch.session.events[:mark]))
        return self._hold_view(branch, error, model, now)

    def add_fault(self, kind: FaultKind, error: Exception) -> None:
        """Something failed and was passed over; in one pass the same is told once. Raised with `on_fault="raise"`."""
        if self.options.on_fault == "raise" and kind != "budget":
            raise error
        if (fault := self._make_fault(kind, error)) not in self.faults:
            self.faults.append(self._log_fault(fault))

    def report_fault(self, kind: FaultKind, error: Exception) -> Fault:
        """What failed, logged; without secrets."""
        return self._log_fault(self._make_fault(kind, error))

    def _make_fault(self, kind: FaultKind, error: Exception) -> Fault:
        what = self.options.redaction.redact_text(words_of_error(error))
        if isinstance(error, CallbackError) and error.__cause__:
            cause = error.__cause__
        else:
            cause = error
        return Fault(kind=kind, cause=type(cause).__name__, what=what[:500])

    def _log_fault(self, fault: Fault) -> Fault:
        _log.warning("session %s: %s: %s", self.session, fault.kind, fault.what)
        return fault

    def _add_live_prefix(
        self, request: SummaryRequest, branch: SessionBranch, given: IncomingRequest | None, model: str
    ) -> SummaryRequest:
        """With the live prefix, where extending it is the cheaper route and there is one."""
        if request.route != "extend" or given is None or branch.history is None:
            return replace(request, route="fresh")
        state = branch.session.state
        if state.last_view is not None and state.last_view.track is state.track:
            marks = state.last_view.marks
        else:
            marks = ()
        view = View(call=0, epoch=0, track=state.track, length=len(state.track.segments), marks=marks)
        mark = needs_breakpoints(self.options.cache_control, branch.session)
        tools = [
            *(given.tools or ()),
            *recall_tools.list_added_tools(branch.session, branch.history.dialect.name, given.tools),
        ]
        given = replace(given, tools=tools or None)
        return replace(request, live=build_live_prefix(given, branch.history, view, model, mark=mark))


def find_paid_attempts(events: Sequence[Event]) -> list[SummaryFailed | PassDecided]:
    """Those of `events` that say what became of a summary which a model was asked for."""
    return [
        event
        for event in events
        if isinstance(event, SummaryFailed)
        or (isinstance(event, PassDecided) and event.summary is not None and event.summary.route != "model-free")
    ]


def _count_parts(turn: Turn) -> tuple[int, int]:
    return len(turn.observations), len(turn.interjections)
