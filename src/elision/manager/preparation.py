"""Decide what a call hides, and store it: the middle of the loop that `PreparedCalls.step` is.

The order is the guarantee: a turn is in the store before anything of it is hidden (I1), and a decision is in the store
before a view that shows it is returned. Where the store fails, the view is what was decided before, and the new records
are kept in memory.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from elision.engine import (
    SUMMARY_BEING_WRITTEN,
    CallTerms,
    Log,
    NotReady,
    SummaryAnswer,
    decide,
    hold_view,
    make_plain_terms,
    write_off_attempt,
)
from elision.errors import ConflictError, StoreError, SummaryError, UnknownHandle, describe_error
from elision.manager import recall_tools
from elision.manager.branch import SessionBranch
from elision.manager.context_options import Options
from elision.manager.drivers import Steps
from elision.manager.follow_history import HistoryFollower, IncomingCall
from elision.manager.outgoing_request import (
    ClientBreakpoints,
    build_live_prefix,
    find_client_breakpoints,
    needs_breakpoints,
    sets_own_prompt_breakpoints,
    takes_prompt_breakpoints,
)
from elision.manager.shared_log import FaultReports, LogFactory, LogWriter, find_opened_event
from elision.providers.anthropic.bound_thinking import find_editable_from, find_newest_thinking
from elision.stores.store import Store
from elision.telemetry.diagnostics import Fault
from elision.trajectory.cache import AS_FORESEEN
from elision.trajectory.events import Breakpoints, Event, PassDecided, SummaryFailed
from elision.trajectory.plan import SummaryRequest
from elision.trajectory.view import View


class CallPreparer:
    """Decides the calls of one session. Its parts make logs, write them, follow the client's messages, report faults.

    session: the name it was given. next_options: of the next call, where no call has begun the session. cache_control:
    who sets cache breakpoints.
    """

    def __init__(self, options: Options, store: Store, session: str) -> None:
        self.session = session
        self.reports = FaultReports(options, session)
        self._store = store
        self._use_options(options)
        #: Summaries that were paid for in passes that are in no log, until a log has them.
        self._unlogged_attempts: list[SummaryFailed | PassDecided] = []
        #: What the next call does whether it pays or not: hide all, and summarize all but the tail.
        self._hides_all = False
        self._summarizes_all = False

    def _use_options(self, options: Options) -> None:
        self.options = self.next_options = self.reports.options = options
        self.cache_control = options.cache_control
        self.logs = LogFactory(options)
        self.writer = LogWriter(self._store, self.logs, self.reports)
        self.follower = HistoryFollower(self.writer, self.session, self.reports)

    def begin_call(self) -> None:
        """Take the next options, and forget the faults of the call before."""
        if self.next_options is not self.options and self.branch is None:
            self._use_options(self.next_options)
        if self.reports.faults or self.reports.early_faults:
            self.reports.begin_call()

    @property
    def branch(self) -> SessionBranch | None:
        """The branch that the client's messages continued last."""
        return self.follower.branch

    def forget_branch(self) -> None:
        """Have the next call look for its branch in the store."""
        self.follower.branch = None

    def request_compaction(self, *, summary: bool) -> None:
        """Have the next call hide all that the strategy allows. summary: and summarize all turns but the tail."""
        self._hides_all = True
        self._summarizes_all = self._summarizes_all or summary

    # -- terms ---------------------------------------------------------------------------------------------------

    def make_terms(self, branch: SessionBranch, call: IncomingCall) -> CallTerms:
        """Return the terms of a call for messages."""
        client = ClientBreakpoints(has_any=True, hour_messages=None)
        if call.dialect.takes_breakpoints:
            client = find_client_breakpoints(call.request)
        hour_turn = None
        if client.hour_messages is not None and branch.history is not None:
            hour_turn = max(0, branch.history.count_intact_turns(client.hour_messages))
        who = self.cache_control
        ours: Breakpoints = "gaps" if who == "gaps" else "always"
        if takes_prompt_breakpoints(call.capabilities, call.dialect) and (
            who == "client" or sets_own_prompt_breakpoints(call.request)
        ):
            ours = "never"
        log = branch.log
        has_no_marks = who != "client" and not client.has_any
        if (
            has_no_marks
            and self.options.advanced.cache.ttl == "1h"
            and call.thinking != "native"
            and not self.options.shadow
        ):
            hour_turn = len(log.state.turns)
        unbound_from = find_editable_from(log.state.turns) if call.binds_thinking else 1
        return CallTerms(
            now=self.options.advanced.clock(),
            model=call.model,
            hides_all=self._hides_all,
            summarizes_all=self._summarizes_all,
            is_strict=self._is_strict,
            may_summarize=call.thinking != "native",
            editable_from=unbound_from if call.thinking == "defer" else 1,
            new_from=unbound_from,
            may_fold=not (call.request.body_fields and call.request.has_own_edits),
            recall_blocked=self._must_withhold_tools(log, call.request.tools, bound=call.binds_thinking),
            no_cache_marks=ours == "never" or has_no_marks,
            breakpoints=ours,
            hour_turn=hour_turn,
            finding=AS_FORESEEN,
        )

    def make_manual_terms(self, branch: SessionBranch, model: str) -> CallTerms:
        """Return the terms of a call for turns that are added by hand."""
        log = branch.log
        return msgspec.structs.replace(
            make_plain_terms(self.options.advanced.clock(), model or self.options.model),
            hides_all=self._hides_all,
            summarizes_all=self._summarizes_all,
            is_strict=self._is_strict,
            recall_blocked=self._must_withhold_tools(log, log.state.head.tools or None, bound=False),
        )

    def _must_withhold_tools(self, log: Log, tools: Any, *, bound: bool) -> bool:
        """Return whether the recall tools must not enter a request of `tools`; False where nothing brings them."""
        state = log.state
        may_enter = bool(state.recall_tools) and not state.has_recall_tools
        if not may_enter or not (log.policy.decides or state.recall_offer == "start"):
            return False
        if tools is None:
            # The caller sends tools of its own, or none.
            return True
        return recall_tools.must_withhold_tools(log, tools, self.follower.sent, bound=bound)

    @property
    def _is_strict(self) -> bool:
        return self.options.advanced.over_budget == "raise" and not self.options.shadow

    def settle_handles(self, branch: SessionBranch, tools: Any, *, bound: bool) -> None:
        """Have placeholders name handles only where the request of `tools` lets the model recall.

        The first result that is hidden fixes that: what is written stays. bound: whether the model binds its thinking.
        """
        state = branch.log.state
        if not branch.log.policy.decides or state.is_edited or not self.logs.strategy.handles:
            return
        handles = branch.log.strategy.handles
        before = handles or not state.calls
        is_served = recall_tools.is_recall_served(state.recall_offer, tools, self.follower.sent, before)
        if is_served and bound and state.recall_tools and not recall_tools.defines_recall_tools(tools):
            is_served = find_newest_thinking(state.turns) == 0
        opened = find_opened_event(branch.log.events) if is_served != handles else None
        if opened is not None:
            again = msgspec.structs.replace(opened, handles=is_served)
            branch.log = self.logs.make_log([*branch.log.events, again])

    # -- the decision --------------------------------------------------------------------------------------------

    def decide_view(
        self, branch: SessionBranch, call: IncomingCall | None, terms: CallTerms, failed: StoreError | None = None
    ) -> Steps[View]:
        """Return the view of the next call. What it hides, and the decision to hide it, is in the store.

        call: the client's; None where turns are added by hand. failed: why the store could not be asked what others
        wrote. Raises BudgetError, ConflictError.
        """
        if failed is None and (branch.unverified or branch.pending_attempts):
            try:
                failed = yield from self.writer.try_write(branch, terms.now)
            except ConflictError as error:
                if not branch.unverified:
                    raise
                # The store answers again, and has the session: the next call looks for it.
                failed = error
        if failed is not None:
            return self._hold_view(branch, terms, failed)
        # Which summaries were paid for in vain: the next one is asked for later.
        attempts = self._unlogged_attempts
        self._unlogged_attempts = []
        for attempt in attempts:
            write_off_attempt(branch.log, attempt)
        failed = yield from self._run_stored_pass(branch, call, terms)
        if failed is not None:
            return self._hold_view(branch, terms, failed)
        newest = branch.log.newest_call
        assert newest is not None
        if newest.decided.reason != SUMMARY_BEING_WRITTEN:
            # What is being written in the background enters with the call that finds it ready.
            self._hides_all = False
            self._summarizes_all = False
        return newest.view

    def _run_stored_pass(
        self, branch: SessionBranch, call: IncomingCall | None, terms: CallTerms
    ) -> Steps[StoreError | None]:
        """Make the pass and store it. Where the store fails, take it back and return the error: it is not shown."""
        mark = len(branch.log.events)
        try:
            yield from self._run_pass(branch, call, terms)
            # Turns that are added by hand are in no request: only the store can keep them.
            can_wait = self.options.write_behind and call is not None
            if not can_wait or _hides_anything(branch.log.events[mark:]):
                yield from self.writer.write_branch(branch, terms.now)
        except Exception as error:
            self._unlogged_attempts += _find_paid_attempts(branch.log.events[mark:])
            if not isinstance(error, StoreError):
                raise
            branch.log = self.logs.make_log(branch.log.events[:mark])
            if isinstance(error, ConflictError):
                raise
            return error
        return None

    def _run_pass(self, branch: SessionBranch, call: IncomingCall | None, terms: CallTerms) -> Steps[None]:
        """Make the pass. Turns are in the store before a summary of them is requested."""
        mark = len(branch.log.events)
        steps = decide(branch.log, terms)
        is_paid = False
        try:
            wanted = next(steps)
            while True:
                yield from self.writer.write_branch(branch, terms.now)
                answer = yield from _ask_summarizer(self._add_live_prefix(wanted, branch, call))
                is_paid = is_paid or not isinstance(answer, NotReady)
                wanted = steps.send(answer)
        except StopIteration:
            self._report_failures(branch, mark)
        except Exception as error:
            if is_paid and not _find_paid_attempts(branch.log.events[mark:]):
                number = len(branch.log.state.turns) + 1
                reason = f"the pass failed: {type(error).__name__}"
                self._unlogged_attempts.append(SummaryFailed(call=number, cause="other", reason=reason))
            raise

    def _report_failures(self, branch: SessionBranch, mark: int) -> None:
        """Report what failed in the newest pass, whose records begin at `mark`."""
        for event in branch.log.events[mark:]:
            if isinstance(event, SummaryFailed):
                self.reports.faults.append(Fault(kind="summarizer", cause=event.cause, what=event.reason))
        newest = branch.log.newest_call
        if newest is not None and newest.budget_error is not None:
            then = "" if self.options.shadow else "the smallest prompt is sent"
            self.reports.add_fault("budget", newest.budget_error, then)
        while self.logs.extractor_failures:
            self.reports.add_fault("callback", self.logs.extractor_failures.pop(0))

    def _hold_view(self, branch: SessionBranch, terms: CallTerms, error: StoreError) -> View:
        """Return the view as decided so far, with the new turns whole, because the store fails."""
        self.reports.add_fault("store", error)
        return hold_view(branch.log, "nothing more is hidden while the store fails", terms)

    def _add_live_prefix(
        self, wanted: SummaryRequest, branch: SessionBranch, call: IncomingCall | None
    ) -> SummaryRequest:
        """Return `wanted` with the live prefix, where extending the prefix is the cheaper route and there is one."""
        if wanted.route != "extend" or call is None or branch.history is None:
            return replace(wanted, route="fresh")
        state = branch.log.state
        marks: tuple[int, ...] = ()
        if state.last_view is not None and state.last_view.track is state.track:
            marks = state.last_view.marks
        # A copy, since the pass may change the newest segments of the track.
        length = len(state.track.segments)
        view = View(call=0, epoch=0, track=state.track.fork(length), length=length, marks=marks)
        mark = needs_breakpoints(self.cache_control, branch.log)
        tools = call.request.tools
        ours = recall_tools.list_added_tools(branch.log, branch.history.dialect.name, tools)
        request = replace(call.request, tools=[*(tools or ()), *ours] or None)
        prefix = build_live_prefix(request, branch.history, view, call.model, mark=mark)
        return replace(wanted, live=prefix)

    # -- beside the calls ----------------------------------------------------------------------------------------

    def write_unsaved(self) -> Steps[Fault | None]:
        """Write the unsaved records of the branch. Return what failed, None where nothing did."""
        branch = self.branch
        if branch is None or not branch.has_unsaved:
            return None
        try:
            yield from self._write_or_catch_up(branch)
        except (UnknownHandle, StoreError) as error:
            if isinstance(error, UnknownHandle):
                # The session was deleted meanwhile: the messages begin it again.
                self.forget_branch()
            return self.reports.log_fault("store", error)
        return None

    def write_left_branch(self, branch: SessionBranch) -> Steps[None]:
        """Write what came for `branch` after it was left. A failure is logged: others may have continued it."""
        try:
            yield from self._write_or_catch_up(branch)
        except (UnknownHandle, StoreError) as error:
            self.reports.log_fault("store", error)

    def _write_or_catch_up(self, branch: SessionBranch) -> Steps[None]:
        """Write the unsaved records of `branch`. Raises ConflictError, StoreError, UnknownHandle."""
        if self.options.is_shared and branch.history is not None:
            yield from self.writer.catch_up(branch)
        else:
            yield from self.writer.write_branch(branch)

    def fold_saved(self, branch: SessionBranch) -> None:
        """Fold the log of `branch` anew after a pass that was broken off, without its decision."""
        events = branch.log.events
        while len(events) > branch.saved_events and isinstance(events[-1], SummaryFailed | PassDecided):
            # No request was sent by this decision.
            events = events[:-1]
        branch.log = self.logs.make_log(events)


def _ask_summarizer(request: SummaryRequest) -> Generator[SummaryRequest, Any, SummaryAnswer]:
    """Return the summarizer's answer; what it raises becomes a SummaryError, which is an answer too."""
    try:
        answer: SummaryAnswer = yield request
    except Exception as error:  # noqa: BLE001 - the engine decides without a summary and asks again later
        return SummaryError(f"no summary could be asked for: {describe_error(error)}")
    return answer


def _find_paid_attempts(events: Sequence[Event]) -> list[SummaryFailed | PassDecided]:
    """Return those of `events` that report a summary which a model was paid for, taken or not."""
    paid: list[SummaryFailed | PassDecided] = []
    for event in events:
        if isinstance(event, SummaryFailed):
            paid.append(event)
        elif isinstance(event, PassDecided):
            made = event.summary
            if made is not None and made.route != "model-free":
                paid.append(event)
    return paid


def _hides_anything(events: Sequence[Event]) -> bool:
    """Return whether `events`, which preparing a call added, hide anything new or add the recall tools."""
    for event in events:
        if not isinstance(event, PassDecided):
            continue
        if any(edit.kind != "whole" for edit in event.edits) or event.summary or event.offers:
            return True
    return False
