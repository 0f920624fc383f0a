"""The library's entry point: an agent's messages in, the context of its next call out.

    with ContextManager("hybrid(window=10)", model="claude-sonnet-4-5", store="sqlite:///agent.db") as context:
        view = context.prepare(messages, tools=tools)
        response = client.messages.create(**view.request, ...)
        context.record(response)

`context.session` reads what was hidden and reports; `context.turns` is for a loop without a list of messages.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Final, Never, Self, Unpack

from elision.config import KEYS, TypedOption, load_settings, resolve_name
from elision.errors import SpecError
from elision.manager.advanced_options import Advanced, document_rows, gather_options
from elision.manager.agent_call import AgentCall, CallActions, PreparedCall
from elision.manager.call_diagnostics import compute_costs
from elision.manager.context_options import (
    ContextOptions,
    Options,
    check_option_names,
    check_positions,
    show_option_signature,
)
from elision.manager.context_view import AdmissionCheck, ContextView
from elision.manager.drivers import LeaveLoop, Steps
from elision.manager.manual_turns import ManualTurns
from elision.manager.opened_session import OpenedSession
from elision.manager.outgoing_request import IncomingRequest
from elision.manager.prepared_calls import make_incoming_request
from elision.manager.recall_tools import define_recall_tools
from elision.manager.reported_usage import find_usage
from elision.manager.request_notes import NOTE_BLOCKED_LOOP, NOTE_MIXED, NOTE_RECORDED_TWICE
from elision.manager.session_reader import SessionReader, answer_tool_call
from elision.providers.live.client_messages import convert_to_json
from elision.providers.provider_table import find_provider_or_default
from elision.providers.shared import signals
from elision.stores.store_urls import DEFAULT_STORE
from elision.strategies.strategy import Strategy
from elision.summarizers.factory import make_summarizer
from elision.telemetry.diagnostics import Costs, Fault
from elision.trajectory.events import UsageReported, WindowLearned
from elision.trajectory.tool_definitions import OWN_TOOLS

_log: Final = logging.getLogger("elision.manager")
#: Types that a setting may have. An option of another type is passed on as it is.
_SETTING_TYPES: Final = (str, int, float, bool)

#: The note of a response without usage.
_NOTE_NO_USAGE: Final = (
    "a response was recorded that reports no usage, so costs.billed leaves its call out: give record() the response, "
    'and of a stream the last chunk (OpenAI chat: with stream_options={"include_usage": True})'
)
#: The note of usage for which no log has a call.
_NOTE_NO_CALL: Final = "usage was recorded while no call was prepared: costs.billed leaves it out"


@partial(document_rows, table=Options)
class ContextManager:
    """Keep the context of one agent's session small: the messages in, the next request out.

    A context manager serves one caller at a time. Others wait, in whichever thread or event loop they are.

    Options, all of them keywords but the first. The others are in `Advanced`, and what belongs to a strategy is in its
    text: `"masking(window=5, rules=[rule(tool=plan, keep=true)], budget=budget(reserved=500))"`.

    {rows}

    Raises SpecError, SettingError, PriceError for options without a meaning, StoreError where the store cannot be
    opened.
    """

    @show_option_signature
    def __init__(
        self, strategy: str | Strategy = "masking", *misplaced: Never, **options: Unpack[ContextOptions]
    ) -> None:
        check_positions(type(self).__name__, misplaced)
        check_option_names(options)
        self._open(OpenedSession(Options(strategy=strategy, **options)))
        for doubt in self._opened.options.list_doubts():
            self._opened.calls.warn_once(doubt)
        if "store" not in options:
            _log.info("session %s is kept in %s; store= keeps it elsewhere", self.session.name, DEFAULT_STORE)

    def _open(self, opened: OpenedSession) -> None:
        self._opened = opened
        #: Branch and number of the call whose usage was recorded last.
        self._recorded = ("", 0)
        self._session, self._turns = SessionReader(opened), ManualTurns(opened)

    @classmethod
    def from_env(cls, environment: Mapping[str, str] | None = None, **options: Any) -> ContextManager:
        """Return a context manager with the settings of the environment and elision.toml.

        environment: variables of the settings and of the summarizer's key; the process's own if None.
        options: settings or options, which override those; of `advanced` what is not a default. Raises SettingError,
        which names the place and the remedy.
        """
        surroundings = os.environ if environment is None else environment
        known = {
            name: value
            for name, value in options.items()
            if resolve_name(name) in KEYS and isinstance(value, (*_SETTING_TYPES, TypedOption))
        }
        found = load_settings(surroundings, None, **known)
        writer = None
        if found.is_given("summarizer"):
            writer = make_summarizer(found.summarizer, environment=surroundings, **found.summarizer_options())
        given = gather_options({**found.options(), "summarizer": writer, "redaction": found.redaction})
        rest = {name: value for name, value in options.items() if name not in known}
        rest["advanced"] = given["advanced"].merge(rest.get("advanced", Advanced()))
        values = given | rest
        return cls(values.pop("strategy"), **values)

    @property
    def session(self) -> SessionReader:
        """The session: its name, recall and search in its raw history, reports and summaries."""
        return self._session

    @property
    def turns(self) -> ManualTurns:
        """The turns, for a loop without a list of messages; `len(context.turns)` counts those of any session."""
        return self._turns

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
        # A notebook has a loop that is meant to wait.
        if asyncio._get_running_loop() is not None and "ipykernel" not in sys.modules:
            self._opened.calls.warn_once(NOTE_BLOCKED_LOOP)
        if self._opened.has_manual_turns:
            self._opened.calls.warn_once(NOTE_MIXED)
        return self._opened.run(self._opened.calls.prepare_view(incoming, model, admit))

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
        return await self._opened.run_async(self._opened.calls.prepare_view(incoming, model, admit))

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

        Arguments and errors are those of `prepare`::

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
                prepare=lambda: self._opened.run(self._prepare_call(incoming, model, admit)),
                prepare_async=lambda: self._opened.run_async(self._prepare_call(incoming, model, admit)),
                record=self._record_call,
                note_overflow=self._note_overflow,
            )
        )

    def compact(self, *, summary: bool = False) -> None:
        """Have the next call hide all that the strategy allows, whether or not the schedule finds that it pays.

        summary: have it also replace all turns but the strategy's tail by one summary, however few they are. A note of
        the diagnostics says why where none was made: no turn outside the tail, a failed summary, too little to shorten.

        Raises SpecError for `summary=True` with a strategy that makes no summaries, such as masking.
        """
        if summary and self._opened.preparer.logs.strategy.make_trigger() is None:
            raise SpecError(
                f"compact(summary=True): {self._opened.preparer.logs.strategy.name} makes no summaries; "
                "choose a strategy that does, such as hybrid, or call compact()"
            )
        self._opened.preparer.request_compaction(summary=summary)

    def keep(self, messages: Sequence[Any], *, tools: Any = None, system: Any = None) -> Costs:
        """Store a whole conversation, its last answer included. Nothing is hidden, and no view is made.

        For the end of a run: `prepare` takes trailing messages of the assistant for the beginning of an answer.
        Returns what the session cost, in USD, that answer included. Raises ConflictError, DialectError, StoreError.
        """
        return self._opened.run(self._store_messages(make_incoming_request(messages, tools, system)))

    def record(self, usage: Any, *, call: int = 0, branch: str = "") -> None:
        """Record the usage that the provider reported for the newest call.

        usage: the provider's `usage`, or a response that has one; of a stream the last chunk, or the final message.
               Where a response has none, the next diagnostics note it, once.
        call, branch: of an earlier call whose answer came late, as in its diagnostics. Ignored where the messages
               continue another branch since.

        It waits for nothing, and is stored with the next call, by `settle`, or when the session is closed. Raises
        DialectError for what can report no usage, such as a text or the stream itself.
        """
        found = find_usage(usage)
        self._opened.calls.awaits_response = False
        at_hand = self._opened.preparer.branch
        if found is None:
            self._opened.calls.warn_once(_NOTE_NO_USAGE)
            return
        if at_hand is None or at_hand.log.newest_call is None:
            self._opened.calls.warn_once(_NOTE_NO_CALL)
            return
        if branch not in ("", at_hand.key):
            return
        # Other processes may have made calls since then.
        known = at_hand.log.state.calls
        of_call = min(call or self._opened.calls.newest_call, known) or known
        if not call and self._recorded == (at_hand.key, of_call):
            self._opened.calls.warn_once(NOTE_RECORDED_TWICE)
        self._recorded = (at_hand.key, of_call)
        self._opened.calls.report_usage(at_hand, UsageReported(call=of_call, usage=found))

    def _prepare_call(self, incoming: IncomingRequest, model: str, admit: AdmissionCheck | None) -> Steps[PreparedCall]:
        view = yield from self._opened.calls.prepare_view(incoming, model, admit)
        return PreparedCall(view, self._opened.preparer.branch, self._opened.calls.newest_call)

    def _record_call(self, usage: Any, call: PreparedCall) -> None:
        """Record the usage of `call`, also where the messages continue another branch since."""
        found = find_usage(usage)
        at_hand = self._opened.preparer.branch
        if found is None:
            self.record(None)
        elif call.branch is None:
            self._opened.calls.awaits_response = False
            self._opened.calls.warn_once(_NOTE_NO_CALL)
        elif at_hand is not None and at_hand.key == call.branch.key:
            self.record(found, call=call.number)
        else:
            self._opened.calls.awaits_response = False
            self._opened.calls.report_usage(call.branch, UsageReported(call=call.number, usage=found))

    def _note_overflow(self, error: BaseException) -> bool:
        """Return whether `error` says that the prompt was too long, and make the next view shorter then.

        Where the error names no limit, the next view hides all that the strategy allows.
        """
        if self.overflowed(error):
            return True
        if signals.parse_overflow(_find_error_body(error)) is None:
            return False
        self._opened.preparer.request_compaction(summary=False)
        return True

    def overflowed(self, error: object) -> bool:
        """Return whether `error`, an exception or its text, says that the prompt was too long.

        If it does, the model's window is known from then on: prepare the same messages again.
        """
        self._opened.calls.awaits_response = False
        self._opened.end_work()
        found = signals.parse_overflow(_find_error_body(error))
        branch = self._opened.preparer.branch
        if found is None or found.limit is None or branch is None:
            return False
        branch.log.record_event(
            WindowLearned(call=branch.log.state.calls, window=found.limit, tokens=found.tokens or 0)
        )
        return True

    def _store_messages(self, incoming: IncomingRequest) -> Steps[Costs]:
        follower = self._opened.preparer.follower
        # Trailing messages of the assistant are the end of the run, and not the beginning of an answer.
        call = replace(follower.read_call(incoming, ""), request=incoming)
        yield LeaveLoop(partial(follower.choose_place, incoming))
        yield from follower.load_news()
        yield from follower.follow_history(call)
        assert follower.branch is not None
        yield from self._opened.preparer.writer.write_branch(follower.branch)
        return compute_costs(follower.branch.log, self._opened.calls.open_ledger(follower.branch))

    def tool_definitions(self, dialect: str = "") -> list[dict[str, Any]]:
        """Return the recall tools for the agent's `tools`, the same bytes every time.

        dialect: shape of the definitions; the session's own if "".
        """
        named = dialect or self._opened.options.advanced.dialect
        branch = self._opened.preparer.branch
        if named == "auto" and branch and branch.history:
            named = branch.history.dialect.name
        return define_recall_tools(find_provider_or_default(named).name)

    def handle_tool_call(self, name: str, arguments: str | Mapping[str, Any]) -> str | None:
        """Return the answer to a call of one of Elision's tools; None for any other tool. Never raises."""
        if name not in OWN_TOOLS:
            return None
        return self._opened.run(answer_tool_call(self._opened, name, arguments))

    async def handle_tool_call_async(self, name: str, arguments: str | Mapping[str, Any]) -> str | None:
        """Do as `handle_tool_call`, off the event loop. Other callers wait until it has ended."""
        if name not in OWN_TOOLS:
            return None
        return await self._opened.run_async(answer_tool_call(self._opened, name, arguments))

    def settle(self) -> Fault | None:
        """Write the unsaved records: those of a view that was returned before it was stored, and what was recorded.

        Returns what failed, None where nothing did; the next call tries again. Never raises.
        """
        return self._opened.settle()

    def close(self) -> None:
        """Write the unsaved records, and close the store if it was opened here. A second call does nothing."""
        self._opened.close()

    def __reduce__(self) -> Never:
        raise TypeError("a ContextManager is neither pickled nor copied: open its session again by its name and store")

    def __str__(self) -> str:
        if self._opened.preparer.branch is None:
            return f"session {self.session.name!r}: no call yet"
        return self.session.report().describe()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} session={self.session.name!r} turns={len(self.turns)}>"

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
        await asyncio.to_thread(self.close)


def manage_session(opened: OpenedSession) -> ContextManager:
    """Return the context manager of a session that was opened already, for the pool and the gateway."""
    context = ContextManager.__new__(ContextManager)
    context._open(opened)
    return context


def _find_error_body(error: object) -> object:
    """Return the body that a provider's package keeps of an error, else the error's text."""
    body = getattr(error, "body", None)
    if body is not None:
        return convert_to_json(body)
    if isinstance(error, Mapping):
        return error
    return str(error)
