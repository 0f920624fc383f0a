"""The calls of an agent that has a list of messages: what is sent, what came back, and what is kept of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from elision.errors import SpecError
from elision.manager.agent_call import AgentCall, CallActions, PreparedCall
from elision.manager.call_diagnostics import compute_costs
from elision.manager.context_view import AdmissionCheck, ContextView
from elision.manager.drivers import LeaveLoop, Steps
from elision.manager.opened_session import OpenedSession
from elision.manager.outgoing_request import IncomingRequest
from elision.manager.prepared_calls import make_incoming_request
from elision.manager.reported_usage import find_usage
from elision.providers.live.client_messages import convert_to_json
from elision.providers.shared import capabilities, signals
from elision.telemetry.diagnostics import Costs
from elision.trajectory.events import UsageReported, WindowLearned

#: The note of a response without usage.
_NOTE_NO_USAGE: Final = (
    "a response was recorded that reports no usage, so costs.billed leaves its call out: give record() the response, "
    'and of a stream the last chunk (OpenAI chat: with stream_options={"include_usage": True})'
)
#: The note of usage for which no log has a call.
_NOTE_NO_CALL: Final = "usage was recorded while no call was prepared: costs.billed leaves it out"


class Calls(OpenedSession):
    """The calls of a context manager's session."""

    def prepare(
        self,
        messages: Sequence[Any],
        *,
        tools: Any = None,
        system: Any = None,
        model: str = "",
        request: Mapping[str, Any] | None = None,
        admit: AdmissionCheck | None = None,
    ) -> ContextView:
        """Return the context of the next call, for `messages` in the provider's own shape.

        tools, system: as the request has them beside the messages (Responses: `instructions`); both are counted.
        model: the model of this call, if it is not the session's.
        request: other fields of the body that concern the context (`thinking`, `context_management`, `cache_control`).
        admit: called first, with the session's turns and costs; may raise LimitError.

        Raises BudgetError, ConflictError, DialectError, and the LimitError of `admit`.
        """
        incoming = make_incoming_request(messages, tools, system, request)
        return self._run(self._calls.prepare_view(incoming, model, admit))

    async def prepare_async(
        self,
        messages: Sequence[Any],
        *,
        tools: Any = None,
        system: Any = None,
        model: str = "",
        request: Mapping[str, Any] | None = None,
        admit: AdmissionCheck | None = None,
    ) -> ContextView:
        """Do as `prepare`, with the store and the summarizer off the event loop."""
        incoming = make_incoming_request(messages, tools, system, request)
        return await self._run_async(self._calls.prepare_view(incoming, model, admit))

    def call(
        self,
        messages: Sequence[Any],
        *,
        tools: Any = None,
        system: Any = None,
        model: str = "",
        request: Mapping[str, Any] | None = None,
        admit: AdmissionCheck | None = None,
    ) -> AgentCall:
        """Return one call of the model, for a `with` or an `async with` block, which prepares it.

        Arguments and errors are those of `prepare`:

            with context.call(messages, tools=tools) as call:
                try:
                    response = send(**call.view.request)
                except ProviderError as error:
                    if not call.retry(error):
                        raise
                    response = send(**call.view.request)
                call.record(response)
        """
        incoming = make_incoming_request(messages, tools, system, request)
        return AgentCall(
            CallActions(
                prepare=lambda: self._run(self._prepare_call(incoming, model, admit)),
                prepare_async=lambda: self._run_async(self._prepare_call(incoming, model, admit)),
                record=self._record_call,
                note_overflow=self._note_overflow,
            )
        )

    def foregone(self, *, begun: bool, model: str = "") -> bool:
        """Return whether `prepare` leaves a request unchanged whatever it holds, so that the request need not wait.

        begun: whether the request has a message of the assistant; before that there is nothing to hide.
        model: the model of this call, if it is not the session's.
        """
        own = self.options
        if own.shadow or begun:
            return own.shadow
        if own.cache_control == "auto" or capabilities.find_capabilities(model or own.model).binds_thinking:
            return False
        branch = self._preparer.branch
        if branch is None:
            return True
        # What was settled when the session began overrides the options.
        state = branch.log.state
        return not (state.has_recall_tools or state.recall_offer == "start")

    @property
    def awaits_response(self) -> bool:
        """Whether the newest call was prepared, and neither its usage nor an overflow was reported."""
        return self._calls.awaits_response

    def compact(self, *, summary: bool = False) -> None:
        """Have the next call hide all that the strategy allows, whether or not the schedule finds that it pays.

        summary: have it also replace all turns but the strategy's tail by one summary, however few they are. A note of
        the diagnostics says why where none was made: no turn outside the tail, a failed summary, too little to shorten.

        Raises SpecError for `summary=True` with a strategy that makes no summaries, such as masking.
        """
        if summary and self._preparer.logs.strategy.make_trigger() is None:
            raise SpecError(
                f"compact(summary=True): {self._preparer.logs.strategy.name} makes no summaries; "
                "choose a strategy that does, such as hybrid, or call compact()"
            )
        self._preparer.request_compaction(summary=summary)

    def keep(self, messages: Sequence[Any], *, tools: Any = None, system: Any = None) -> Costs:
        """Store a whole conversation, its last answer included. Nothing is hidden, and no view is made.

        For the end of a run: `prepare` takes trailing messages of the assistant for the beginning of an answer.
        Returns what the session cost, in USD, that answer included. Raises ConflictError, DialectError, StoreError.
        """
        return self._run(self._store_messages(make_incoming_request(messages, tools, system)))

    def record(self, usage: Any, *, call: int = 0, branch: str = "") -> None:
        """Record the usage that the provider reported for the newest call.

        usage: the provider's `usage`, or a response that has one; of a stream the last chunk, or the final message.
               Where a response has none, the next diagnostics note it, once.
        call, branch: of an earlier call whose answer came late, as in its diagnostics. Ignored where the messages
               continue another branch since.

        It is stored with the next call, by `settle`, or when the session is closed. Raises DialectError for what can
        report no usage, such as a text or the stream itself.
        """
        found = find_usage(usage)
        self._calls.awaits_response = False
        self._calls.think_time.finish()
        at_hand = self._preparer.branch
        if found is None:
            self._calls.warn_once(_NOTE_NO_USAGE)
            return
        if at_hand is None or at_hand.log.newest_call is None:
            self._calls.warn_once(_NOTE_NO_CALL)
            return
        if branch not in ("", at_hand.key):
            return
        # Other processes may have made calls since then.
        known = at_hand.log.state.calls
        of_call = min(call or self._calls.newest_call, known) or known
        at_hand.log.record_event(UsageReported(call=of_call, usage=found))

    def _prepare_call(self, incoming: IncomingRequest, model: str, admit: AdmissionCheck | None) -> Steps[PreparedCall]:
        view = yield from self._calls.prepare_view(incoming, model, admit)
        return PreparedCall(view, self._preparer.branch, self._calls.newest_call)

    def _record_call(self, usage: Any, call: PreparedCall) -> None:
        """Record the usage of `call`, also where the messages continue another branch since."""
        found = find_usage(usage)
        at_hand = self._preparer.branch
        if found is None:
            self.record(None)
        elif call.branch is None:
            self._calls.awaits_response = False
            self._calls.warn_once(_NOTE_NO_CALL)
        elif at_hand is not None and at_hand.key == call.branch.key:
            self.record(found, call=call.number)
        else:
            self._calls.awaits_response = False
            self._calls.late_reports.append((call.branch, UsageReported(call=call.number, usage=found)))

    def _note_overflow(self, error: BaseException) -> bool:
        """Return whether `error` says that the prompt was too long, and make the next view shorter then.

        Where the error names no limit, the next view hides all that the strategy allows.
        """
        if self.overflowed(error):
            return True
        if signals.parse_overflow(_find_error_body(error)) is None:
            return False
        self._preparer.request_compaction(summary=False)
        return True

    def overflowed(self, error: object) -> bool:
        """Return whether `error`, an exception or its text, says that the prompt was too long.

        If it does, the model's window is known from then on: prepare the same messages again.
        """
        self._calls.awaits_response = False
        self._calls.think_time.finish()
        found = signals.parse_overflow(_find_error_body(error))
        branch = self._preparer.branch
        if found is None or found.limit is None or branch is None:
            return False
        branch.log.record_event(
            WindowLearned(call=branch.log.state.calls, window=found.limit, tokens=found.tokens or 0)
        )
        return True

    def _store_messages(self, incoming: IncomingRequest) -> Steps[Costs]:
        follower = self._preparer.follower
        # Trailing messages of the assistant are the end of the run, and not the beginning of an answer.
        call = replace(follower.read_call(incoming, ""), request=incoming)
        yield LeaveLoop(partial(follower.choose_place, incoming))
        yield from follower.load_news()
        yield from follower.follow_history(call)
        assert follower.branch is not None
        yield from self._preparer.writer.write_branch(follower.branch)
        return compute_costs(follower.branch.log, self._calls.open_ledger(follower.branch))


def _find_error_body(error: object) -> object:
    """Return the body that a provider's package keeps of an error, else the error's text."""
    body = getattr(error, "body", None)
    if body is not None:
        return convert_to_json(body)
    if isinstance(error, Mapping):
        return error
    return str(error)
