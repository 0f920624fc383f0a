"""Prepare the calls of one session: a request in, the context of its next call out, with what failed in its place.

Where preparing fails, the agent's request is sent unchanged (I9). Only three failures are raised: a budget that nothing
fits, a second writer, and messages that are none.
"""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from elision.engine import Log, expect_request
from elision.errors import BudgetError, ConflictError, DialectError, LimitError
from elision.manager import recall_tools
from elision.manager.branch import HistoryChange, SessionBranch, session_name
from elision.manager.call_diagnostics import CallFacts, build_diagnostics, build_failed_diagnostics, compute_costs
from elision.manager.context_options import Listener, Options
from elision.manager.context_view import AdmissionCheck, ContextView, PromptSource, SessionStatus
from elision.manager.drivers import ComputeOn, LeaveLoop, Steps
from elision.manager.follow_history import HistoryFollower, IncomingCall, ShapeMismatch
from elision.manager.ledger import Ledger
from elision.manager.outgoing_request import (
    IncomingRequest,
    OutgoingRequest,
    build_request,
    build_unchanged_request,
    make_unchanged_request,
    needs_breakpoints,
)
from elision.manager.preparation import CallPreparer
from elision.manager.request_notes import (
    MOST_SECONDS,
    NOTE_BACKWARDS,
    NOTE_MILLISECONDS,
    NOTE_VIEW_RETURNED,
    describe_odd_parts,
)
from elision.manager.shared_log import PASS_TRIES
from elision.manager.summary_worker import SummaryRunner
from elision.manager.think_time import INLINE_BYTES, Deferred, ThinkTime
from elision.providers.live.client_messages import remove_tags
from elision.providers.provider_table import find_provider_or_default
from elision.telemetry.diagnostics import Diagnostics, Fault
from elision.telemetry.metric_table import is_deferrable
from elision.trajectory.events import UsageReported
from elision.trajectory.foreign_text import make_encodable
from elision.trajectory.view import View

_log: Final = logging.getLogger("elision.manager")

#: The note of the first summary of a session for which nobody chose a summarizer.
NOTE_DEFAULT_WRITER: Final = (
    "no model wrote this summary: it is a digest of lines quoted from the run. Give a summarizer such as "
    '"anthropic:MODEL", or summarizer="digest" if that is what you want'
)


class PreparedCalls:
    """The calls of one session, in their order.

    newest_call: number of the newest call that was prepared here. awaits_response: whether nothing was reported of it.
    """

    def __init__(self, preparer: CallPreparer, summary_runner: SummaryRunner) -> None:
        self.newest_call = 0
        self.awaits_response = False
        self._preparer = preparer
        self._summary_runner = summary_runner
        #: Reported, and not in a log yet.
        self._reports: deque[tuple[SessionBranch, UsageReported]] = deque()
        #: What is done between two calls.
        self.think_time = ThinkTime()
        #: Listeners that are called while the model thinks; the others are called before a view is returned.
        self._collectors = [each for each in self.options.listeners if is_deferrable(each)]
        self._listeners = [each for each in self.options.listeners if not is_deferrable(each)]
        if self.options.advanced.on_fault == "raise":
            # Whatever fails is raised by the call in which it fails.
            self._listeners = list(self.options.listeners)
            self._collectors = []
        #: Place and message of the first one that the newest view has in place of the client's own.
        self._first_edit: tuple[int, Any] = (0, None)
        #: Messages of the newest call, which are not looked at again.
        self._seen_messages = 0
        #: When the newest call was prepared, by the clock of the options.
        self._newest_time = 0.0
        #: Notes for the next diagnostics.
        self._notes: list[str] = []
        #: All notes so far: each is given once.
        self._past_notes: set[str] = set()
        #: The reported prompt that a note is about.
        self._noted_report: tuple[int, int] | None = None
        #: Of the newest call: what the options say of their own is among the notes of every call.
        self._newest_model = self.options.model

    @property
    def options(self) -> Options:
        """The options of the session."""
        return self._preparer.options

    @property
    def session(self) -> str:
        """The session's name; in a family the name of the session that the messages continue."""
        branch = self._preparer.branch
        if self.options.advanced.family and branch is not None:
            return session_name(branch.key)
        return self._preparer.session

    def prepare_view(self, incoming: IncomingRequest, model: str, admit: AdmissionCheck | None) -> Steps[ContextView]:
        """Prepare one call for messages, with the boundary of I9 around it."""
        started = time.perf_counter()
        self._preparer.begin_call()
        try:
            if self._reports:
                yield from self._write_left_reports()
            view = yield from self.step(incoming, model, started, admit)
        except (BudgetError, LimitError):
            raise
        except Exception as error:
            # The one boundary where Elision's own failures end (I9). The next call loads the branch from the store,
            # which has what other processes wrote; what was read halfway is read again.
            self._preparer.forget_branch()
            if isinstance(error, ConflictError | DialectError) or self.options.advanced.on_fault == "raise":
                raise
            if isinstance(error, ShapeMismatch):
                # The client sent it so, and its provider may refuse it.
                _log.warning("session %s: the request is sent unchanged: %s", self.session, error)
            else:
                self.log_error("the request is sent unchanged")
            view = self._pass_through(incoming, error, time.perf_counter() - started)
        except BaseException:
            # Cancelled or interrupted, at any point: as above.
            self._preparer.forget_branch()
            raise
        yield ComputeOn.CALLER
        self.awaits_response = True
        self.finish_call(view)
        return view

    def step(
        self, incoming: IncomingRequest, model: str, started: float, admit: AdmissionCheck | None
    ) -> Steps[ContextView]:
        """Make one call: load, follow, decide, summarize, append, render.

        A conflict begins it again: another process wrote meanwhile, which in a shared log is no error.
        """
        tries = PASS_TRIES if self.options.is_shared else 1
        while True:
            tries -= 1
            try:
                follower = self._preparer.follower
                call = follower.read_call(incoming, model)
                yield LeaveLoop(partial(follower.choose_place, call.request))
                failed = yield from follower.load_news()
                if follower.branch is None:
                    call = yield from follower.restore_results(call)
                else:
                    call = follower.restore_trimmed(call)
                change = yield from follower.follow_history(call)
                change = yield from follower.settle_dropped(call, change)
                self._warn_of_request(follower, incoming)
                branch = follower.branch
                assert branch is not None
                assert branch.history is not None
                for place, given in call.returned.items():
                    branch.history.note_returned(given, place)
                if admit is not None:
                    ledger = self.open_ledger(branch)
                    costs = compute_costs(branch.log, ledger)
                    admit(SessionStatus(turns=len(branch.log.state.turns), costs=costs, due_usd=ledger.due_usd))
                # Where the provider clears by itself, the request has no placeholders.
                if call.thinking != "native":
                    self._preparer.settle_handles(branch, call.request.tools, bound=call.binds_thinking)
                terms = self._preparer.make_terms(branch, call)
                now = terms.now or 0.0
                if now > MOST_SECONDS:
                    self.warn_once(NOTE_MILLISECONDS)
                elif now < self._newest_time - 1:
                    self.warn_once(NOTE_BACKWARDS)
                self._newest_time = now
                view = yield from self._preparer.decide_view(branch, call, terms, failed)
                return self._render(call, branch, change, view, started)
            except ConflictError:
                if not tries:
                    raise
                self._preparer.reports.faults.clear()

    def _render(
        self, call: IncomingCall, branch: SessionBranch, change: HistoryChange, view: View, started: float
    ) -> ContextView:
        """Return the request of `view` with its diagnostics. started: by `time.perf_counter`, in seconds."""
        log = branch.log
        history = branch.history
        assert history is not None
        dialect = call.dialect.name
        if self.options.shadow:
            sent = build_unchanged_request(call.request, history)
        else:
            mark = needs_breakpoints(self._preparer.cache_control, log)
            sent = build_request(call.request, history, log, view, call.thinking, call.capabilities, mark=mark)
        if arranged := self._preparer.follower.arranged:
            sent = replace(sent, tools=arranged.tools, added_tools=arranged.added, defers_tools=True)
        if log.state.has_recall_tools:
            sent = recall_tools.add_recall_tools(sent, log, dialect)
        if call.binds_thinking and recall_tools.is_entry_refused(log, self.options):
            sent = replace(sent, notes=(*sent.notes, recall_tools.NOTE_BOUND_THINKING))
        if history.unknown_places:
            sent = replace(sent, notes=(*sent.notes, _describe_unknown(history.unknown_places, dialect)))
        newest = log.newest_call
        # Where the provider clears by itself, the request has no placeholders.
        if call.thinking != "native" and newest is not None and newest.decided.edits and newest.decided.masks:
            self.warn_once(recall_tools.describe_lost_recall(log, self.options, sent.tools))
        self._first_edit = _find_first_edit(sent, call.request) if log.state.is_edited else (0, None)
        made = self.make_view(branch, sent, change, call.model, started, dialect)
        unanswered = call.request.messages[call.request.end :]
        if made.source is not None and unanswered:
            return replace(made, source=replace(made.source, unanswered=unanswered))
        return made

    def settle(self) -> Steps[Fault | None]:
        """Write the unsaved records. Return what failed."""
        try:
            yield from self._write_left_reports()
            return (yield from self._preparer.write_unsaved())
        except Exception as error:  # noqa: BLE001 - as above: the messages have what was not written
            self.log_error("what happened could not be written")
            self._preparer.forget_branch()
            return self._preparer.reports.log_fault("engine", error)

    def report_usage(self, branch: SessionBranch, reported: UsageReported) -> None:
        """Record the usage of a call of `branch`: at once, or when the work that has the log is done."""
        self._reports.append((branch, reported))
        if not self.think_time.is_under_way:
            self.think_time.finish()
            self.record_reports()

    def record_reports(self) -> None:
        """Record what was reported for the present branch; no other work has its log."""
        for _ in range(len(self._reports)):
            branch, reported = self._reports.popleft()
            at_hand = self._preparer.branch
            if at_hand is not None and at_hand.key == branch.key:
                at_hand.log.record_event(reported)
            else:
                self._reports.append((branch, reported))

    def _write_left_reports(self) -> Steps[None]:
        """Record the usage that came after its branch was left, each with its call. Failures are logged."""
        while self._reports:
            branch, reported = self._reports.popleft()
            branch.log.record_event(reported)
            yield from self._preparer.write_left_branch(branch)

    def make_view(
        self,
        branch: SessionBranch,
        sent: OutgoingRequest,
        change: HistoryChange,
        model: str,
        started: float,
        dialect: str,
    ) -> ContextView:
        """Return the prepared request with its diagnostics. started: by `time.perf_counter`, in seconds."""
        summarizer_seconds, self._summary_runner.waited_seconds = self._summary_runner.waited_seconds, 0.0
        self.newest_call = branch.log.state.calls
        newest = branch.log.newest_call
        odd_report = branch.log.reports.odd_report
        if odd_report is not None and odd_report != self._noted_report:
            self._noted_report = odd_report
            self.warn_once(_describe_odd_report(*odd_report))
        if model != self._newest_model:
            self._newest_model = model
            self.add_note_once(self.options.describe_missing_prices(model))
        # Where the strategy makes no summaries of its own, a digest is what a budget needs: no model would be asked.
        nobody_chose = self.options.summarizer is None and branch.log.policy.trigger is not None
        if newest is not None and newest.decided.summary is not None and nobody_chose:
            self.warn_once(NOTE_DEFAULT_WRITER)
        notes = [*sent.notes, *self._preparer.logs.notes, *self._notes]
        if newest is not None and newest.summary_obstacle:
            notes.append(f"compact(summary=True): no summary: {newest.summary_obstacle}")
        facts = CallFacts(
            session=self.session,
            history=change.value,
            model=model,
            faults=tuple(self._preparer.reports.faults),
            notes=tuple(notes),
            seconds=time.perf_counter() - started,
            summarizer_seconds=summarizer_seconds,
        )
        self._notes.clear()
        deferred = Deferred(partial(self._build_diagnostics, branch, facts))
        if self.options.advanced.on_fault == "raise":
            deferred.read()
        source = None
        if newest is not None:
            # What the client sees of its own messages in shadow mode.
            source = PromptSource(view=newest.raw_view)
            if not branch.log.state.shadow:
                source = PromptSource(view=newest.view, covers=branch.log.state.covered_turns)
        return ContextView(sent, dialect, deferred, source, self._preparer.follower.sent)

    def _build_diagnostics(self, branch: SessionBranch, facts: CallFacts) -> Diagnostics:
        """Return the diagnostics of the newest call; where that fails, those of a call that failed (I9)."""
        try:
            return build_diagnostics(branch, self.open_ledger(branch), facts)
        except Exception as error:
            if self.options.advanced.on_fault == "raise":
                raise
            self.log_error("the diagnostics of a call failed")
            faults = (*facts.faults, self._preparer.reports.log_fault("engine", error))
            return build_failed_diagnostics(facts.session, faults, facts.seconds)

    def finish_call(self, view: ContextView) -> None:
        """Call the listeners with the diagnostics of `view`, some of them while the model thinks."""
        if self._listeners:
            self._notify_listeners(self._listeners, view)
        report = partial(self._notify_listeners, self._collectors, view)
        branch = self._preparer.branch
        # The user's extractors are called by calls alone, in the thread of each.
        is_known = branch is not None and branch.log.policy.decides and branch.log.state.turns
        if branch is not None and is_known and not self.options.advanced.extractors:
            # Beside an event loop, a thread would want the interpreter just when the loop sends the request.
            loop = None
            policy = branch.log.policy
            if not self._collectors and policy.trigger is None:
                loop = asyncio._get_running_loop()
            if loop is not None and policy.candidates.count_ahead_characters(branch.log.state) > INLINE_BYTES:
                loop = None
            self.think_time.begin(report, _look_ahead(branch.log, self._summary_runner), loop)
        elif self._collectors:
            self.think_time.begin(report, iter(()))
        else:
            # The diagnostics alone are no work for a thread: `record` builds them, after the response.
            self.think_time.hold(report)

    def add_note_once(self, note: str) -> bool:
        """Add `note` to the next diagnostics, unless it is empty or earlier ones had it. Return whether it is new."""
        if not note or note in self._past_notes:
            return False
        self._past_notes.add(note)
        self._notes.append(note)
        return True

    def warn_once(self, note: str) -> None:
        """Add `note` to the next diagnostics and to the log, unless it is empty or was given before."""
        if self.add_note_once(note):
            _log.warning("session %s: %s", make_encodable(self.session), note)

    def _warn_of_request(self, follower: HistoryFollower, incoming: IncomingRequest) -> None:
        """Say once each of what the request is probably not meant to be."""
        seen, self._seen_messages = min(self._seen_messages, len(incoming.messages)), len(incoming.messages)
        for note in (*follower.notes, describe_odd_parts(incoming.messages, incoming.tools, first=seen)):
            if note:
                self.warn_once(note)
        place, edited = self._first_edit
        if edited is not None and place < len(incoming.messages) and incoming.messages[place] is edited:
            self.warn_once(NOTE_VIEW_RETURNED)
        follower.notes.clear()

    def open_ledger(self, branch: SessionBranch) -> Ledger:
        """Return the branch's ledger, made at the first use."""
        if branch.ledger is None:
            branch.ledger = Ledger(self._preparer.logs.prices, self.options.find_prices)
        return branch.ledger

    def _pass_through(self, incoming: IncomingRequest, error: Exception, seconds: float) -> ContextView:
        """Return the request unchanged but for tags, with `error` as a fault. seconds: since the preparation began."""
        self._preparer.reports.add_fault("engine", error)
        diagnostics = build_failed_diagnostics(self.session, tuple(self._preparer.reports.faults), seconds)
        dialect = find_provider_or_default(self.options.advanced.dialect).name
        sent = make_unchanged_request(incoming, remove_tags(incoming.messages))
        return ContextView(sent, dialect, Deferred(lambda: diagnostics))

    def _notify_listeners(self, listeners: Iterable[Listener], view: ContextView) -> None:
        diagnostics = view.diagnostics
        for listener in listeners:
            try:
                listener(diagnostics)
            except Exception:
                if self.options.advanced.on_fault == "raise":
                    raise
                # A listener must not stop the agent.
                self.log_error("a listener failed")

    def log_error(self, what: str) -> None:
        """Log the present exception with its traceback, redacted: its message may hold secrets."""
        trace = self.options.advanced.redaction.redact_text(traceback.format_exc())
        _log.error("session %s: %s\n%s", self.session, what, trace)


def _look_ahead(log: Log, summary_runner: SummaryRunner) -> Iterator[None]:
    """Do what the next call would do with what is known by now; caches keep what is found."""
    yield from log.policy.folding.look_ahead(log.state)
    yield from log.policy.candidates.look_ahead(log.state)
    if log.policy.trigger is not None and log.state.turns:
        summary_runner.look_ahead(log.state.turns[-1])
        yield
        expected = expect_request(log)
        if expected is not None:
            summary_runner.write_ahead(expected)


def make_incoming_request(
    messages: Sequence[Any], tools: Any, system: Any, request: Mapping[str, Any] | None = None
) -> IncomingRequest:
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Iterable):
        kind = f"messages is a {type(messages).__name__}, not a list of messages"
        if isinstance(messages, Mapping) and ("messages" in messages or "input" in messages):
            raise DialectError(f'{kind}: of a whole request give prepare(body["messages"], tools=body.get("tools"))')
        raise DialectError(f'{kind}: give such as [{{"role": "user", "content": "..."}}]')
    # An iterator is read once, and only lists are compared in C.
    if type(messages) is not list:
        messages = list(messages)
    return IncomingRequest(messages=messages, end=len(messages), system=system, tools=tools, body_fields=request or {})


def _find_first_edit(sent: OutgoingRequest, given: IncomingRequest) -> tuple[int, Any]:
    """Return place and text of the first message that is not the client's own; (0, None) where there is none."""
    pairs = zip(sent.messages, given.messages, strict=False)
    return next(((place, ours) for place, (ours, theirs) in enumerate(pairs) if ours is not theirs), (0, None))


def _describe_odd_report(counted: int, reported: int) -> str:
    """Return the note for a reported prompt that was not used. counted, reported: its tokens."""
    return (
        f"{reported:,} tokens were reported for a prompt of about {counted:,}: reports so far off are not used. "
        "Look at what a proxy before the provider reports as usage"
    )


def _describe_unknown(places: Sequence[int], dialect: str) -> str:
    """Return the note for messages whose role is unknown."""
    others = " has"
    if len(places) > 1:
        others = f" and {len(places) - 1} more have"
    return f"messages[{places[0]}]{others} no role that {dialect} knows: sent unchanged, and nothing of it is hidden"
