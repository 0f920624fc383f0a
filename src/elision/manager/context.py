"""The library's entry point: an agent's messages in, the context of its next call out.

    with ContextManager("hybrid(window=10)", model="claude-sonnet-4-5", store="sqlite:///agent.db") as context:
        view = context.prepare(messages, tools=tools)
        response = client.messages.create(**view.request, ...)
        context.record(response.usage)

Each call is prepared by a generator that yields what takes time (the store, the summarizer). One sync and one async
driver run it. Where it fails, the agent's request is sent unchanged (I9). Only three failures are raised: a budget that
nothing fits, a second writer, and messages that are none.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
import traceback
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, Unpack

import msgspec

from elision.engine import CallTerms, Session
from elision.errors import (
    BudgetError,
    ConflictError,
    DialectError,
    ElisionError,
    LimitError,
    SpecError,
    UnknownHandle,
)
from elision.manager import exchanges, recall_definitions, recall_tools
from elision.manager.branch import SessionBranch, session_name
from elision.manager.call_diagnostics import (
    build_context_report,
    build_diagnostics,
    build_failed_diagnostics,
    compute_costs,
)
from elision.manager.caller_lock import CallerLock
from elision.manager.context_options import (
    RECALL_TOOLS,
    SEARCH_TOOLS,
    ContextOptions,
    Options,
    check_option_names,
    describe_without_recall_rules,
    show_option_signature,
)
from elision.manager.context_view import AdmissionCheck, ContextView, SessionStatus
from elision.manager.drivers import ComputeOn, Steps, run_off_loop, run_steps, run_steps_async
from elision.manager.history import History, find_history_end
from elision.manager.ingest import find_newest_call
from elision.manager.ledger import Ledger
from elision.manager.manual_turns import ManualTurns
from elision.manager.observation_lookup import ObservationLookup
from elision.manager.observation_text import TextPart, extract_part, parse_handle
from elision.manager.outgoing_request import (
    ClientBreakpoints,
    IncomingRequest,
    OutgoingRequest,
    build_request,
    build_unchanged_request,
    find_client_breakpoints,
    needs_breakpoints,
)
from elision.manager.preparation import CallPreparer, ShapeMismatch
from elision.manager.prompt_text import PromptSource
from elision.manager.reported_usage import find_usage
from elision.manager.shared_log import PASS_TRIES
from elision.manager.summary_list import SessionSummary, list_summaries
from elision.manager.summary_worker import SummaryRunner
from elision.providers.anthropic.bound_thinking import ThinkingPolicy, choose_thinking_policy, find_editable_from
from elision.providers.live.client_messages import convert_to_json, remove_tags
from elision.providers.shared import capabilities, signals
from elision.stores.store import Hit, Store
from elision.stores.store_urls import open_store
from elision.strategies.strategy import Strategy
from elision.summarizers.factory import make_summarizer
from elision.telemetry.context_report import ContextReport
from elision.telemetry.diagnostics import Costs, Diagnostics, Fault
from elision.trajectory.encodable import make_encodable
from elision.trajectory.events import ObservationRecalled, RecallExchanged, UsageReported, WindowLearned
from elision.trajectory.turn import Head, Turn

if TYPE_CHECKING:
    from elision.config import Settings

#: Types that a setting may have. An option of another type is passed on as it is.
_SETTING_TYPES: Final = (str, int, float, bool)

_log: Final = logging.getLogger("elision.manager")


class ContextManager:
    """Keep the context of one agent's session small: the messages in, the next request out.

    A context manager serves one caller at a time. Others wait, in whichever thread or event loop they are.

    Options, all of them keywords but the first:

    - `strategy` (default `"masking"`): what may be hidden: a text such as `hybrid(window=10)`, a preset, or a
      Strategy.
    - `model` (default `""`): the model's name; its prices, window and rules apply.
    - `prices` (default `None`): name of a price set or model, or Prices in USD per million tokens; None: the
      model's own.
    - `store` (default `"sqlite:///elision.db"`): a URL or a Store; `memory:` keeps nothing.
    - `session` (default `""`): the session's name, at most 400 characters; made up if empty.
    - `family` (default `""`): name shared by sessions: the one that has the given history continues, whichever
      process wrote it.
    - `parent` (default `""`): name of the session that started this one, for a sub-agent.
    - `dialect` (default `"auto"`): shape of the messages: `openai`, `openai-responses` or `anthropic`; `auto`
      detects it.
    - `observations` (default `"auto"`): which messages are results: `tools`, `user` for actions in plain text, or
      `auto`.
    - `summarizer` (default `None`): `digest`, `anthropic:MODEL`, `openai:MODEL`, `litellm:MODEL` or a function;
      None: the digest.
    - `background` (default `False`): whether the agent continues while a summary is written; above `hard` it
      waits.
    - `summary_seconds` (default `120.0`): seconds that a summary may take.
    - `guards` (default `None`): Guards that say when the run should stop; None: those of the preset.
    - `token_budget` (default `None`): largest view, in tokens; None: the strategy's budget, else the model's
      window.
    - `reserved_for_response` (default `None`): tokens kept for the response; None: the strategy's, which is 1,000
      by default.
    - `max_context_pct` (default `None`): share of the budget that may be used, 0 to 1; None: the strategy's, 0.85
      by default.
    - `on_event` (default `()`): function, or several, called with the Diagnostics of each call; errors are logged.
    - `extractors` (default `{}`): glob on the tool's name -> function that says what placeholders tell of its
      results.
    - `rules` (default `()`): Rules: which results may be hidden, and after how many turns.
    - `pin` (default `None`): function of a message; where it returns true, the message is never hidden.
    - `recall` (default `True`): whether hidden results can be read again, so that placeholders name handles.
    - `offer` (default `"caller"`): who adds the recall tools: the `caller`; Elision with the `first` placeholder or
      from the `start`; `never`.
    - `thinking` (default `"auto"`): how thinking bound to its prefix is treated: `auto`, `defer`, `native`,
      `drop_block`, `ignore`.
    - `cache_control` (default `"auto"`): Anthropic cache breakpoints: `auto` sets them, `gaps` once something is
      hidden, `client` never.
    - `write_behind` (default `False`): whether a view that hides nothing new is returned before it is stored;
      `settle()` stores it.
    - `shadow` (default `False`): whether requests stay unchanged while everything is decided, priced and recorded.
    - `over_budget` (default `"raise"`): when no view fits: `raise` BudgetError, or `send` the smallest view.
    - `on_fault` (default `"send"`): when Elision fails: `send` the request unchanged, or `raise` the error.
    - `tokens` (default `"o200k"`): how tokens are counted: `o200k`, `cl100k` or `estimate`.
    - `redaction` (default `Redaction()`): which secrets are kept out of summaries, placeholders and logs.
    - `clock` (default `time.time`): function that returns the time in seconds since the epoch.

    Raises SpecError, SettingError, PriceError for options without a meaning, StoreError where the store cannot be
    opened.
    """

    @show_option_signature
    def __init__(self, strategy: str | Strategy = "masking", **options: Unpack[ContextOptions]) -> None:
        check_option_names(options)
        self.options = Options(strategy=strategy, **options)
        self._session_name = self.options.session or f"session-{uuid.uuid4().hex[:12]}"
        store = self.options.store
        writer = self.options.summarizer
        self._owns_store = isinstance(store, str)
        self._store: Store = open_store(store) if isinstance(store, str) else store
        if writer is None or isinstance(writer, str):
            # The key is in the provider's usual variable, as for the provider's own client.
            writer = make_summarizer(writer or "digest", environment=os.environ, redaction=self.options.redaction)
        self._summary_runner = SummaryRunner(
            writer,
            seconds=self.options.summary_seconds,
            background=self.options.background,
        )
        self._preparer = CallPreparer(self.options, self._store, self._session_name)
        self._lookup = ObservationLookup(self._store, self._preparer)
        self._manual_turns = ManualTurns(self.options.dialect)
        self._lock = CallerLock()
        self._closed = False
        #: The newest call that was prepared here.
        self._newest_call = 0
        #: Notes for the next diagnostics.
        self._notes: list[str] = []
        #: All notes so far: each is given once.
        self._past_notes: set[str] = set()

    def __repr__(self) -> str:
        return f"<ContextManager session={self.session!r} turns={self.turns}>"

    @property
    def session(self) -> str:
        """The session's name; in a family the name of the session that the messages continue."""
        branch = self._preparer.branch
        if self.options.family and branch is not None:
            return session_name(branch.key)
        return self._session_name

    @classmethod
    def from_env(cls, environment: Mapping[str, str] | None = None, **options: Any) -> ContextManager:
        """Return a context manager with the settings of the environment and elision.toml.

        options: settings or options, which override those. Raises SettingError, which names the place and the remedy.
        """
        from elision.config import KEYS, load_settings  # other callers need none of it

        surroundings = os.environ if environment is None else environment
        known = {name: value for name, value in options.items() if name in KEYS and isinstance(value, _SETTING_TYPES)}
        rest = {name: value for name, value in options.items() if name not in known}
        return cls.from_settings(load_settings(surroundings, None, **known), surroundings, **rest)

    @classmethod
    def from_settings(
        cls, found: Settings, environment: Mapping[str, str] | None = None, **options: Any
    ) -> ContextManager:
        """Return a context manager with settings that were read already; `options` override them.

        environment: variables in which the summarizer's key is looked up; the process's own if None.
        """
        writer = make_summarizer(
            found.summarizer,
            environment=os.environ if environment is None else environment,
            **found.summarizer_options(),
        )
        values: dict[str, Any] = {**found.options(), "summarizer": writer, "redaction": found.redaction, **options}
        return cls(values.pop("strategy"), **values)

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

    def close(self) -> None:
        """Write the unsaved records, and close the store if it was opened here. A second call does nothing."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._summary_runner.close()
            try:
                fault = run_steps(self._settle(), self._summary_runner)
                if fault is not None:
                    _log.error("session %s: its last records could not be written: %s", self.session, fault.what)
            finally:
                if self._owns_store:
                    self._store.close()

    def settle(self) -> Fault | None:
        """Write the unsaved records: those of a view that was returned before it was stored, and what was recorded.

        Returns what failed, None where nothing did; the next call tries again. Never raises.
        """
        with self._lock:
            return run_steps(self._settle(), self._summary_runner)

    async def settle_async(self) -> Fault | None:
        """Do as `settle`, with the store off the event loop. Raises only CancelledError."""
        async with self._lock:
            return await run_steps_async(self._settle(), self._summary_runner)

    # -- messages ------------------------------------------------------------------------------------------------

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
        with self._lock:
            return run_steps(
                self._prepare_view(_make_incoming_request(messages, tools, system, request), model, admit),
                self._summary_runner,
            )

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
        async with self._lock:
            return await run_steps_async(
                self._prepare_view(_make_incoming_request(messages, tools, system, request), model, admit),
                self._summary_runner,
            )

    def foregone(self, *, begun: bool, model: str = "") -> bool:
        """Return whether `prepare` leaves a request unchanged whatever it holds, so that the request need not wait.

        begun: whether the request has a message of the assistant; before that there is nothing to hide.
        model: the model of this call, if it is not the session's.
        """
        own = self.options
        if own.shadow or begun:
            return own.shadow
        if (
            own.offer == "start"
            or own.cache_control == "auto"
            or capabilities.find_capabilities(model or own.model).binds_thinking
        ):
            return False
        branch = self._preparer.branch
        if branch is None:
            return True
        # What was settled when the session began overrides the options.
        state = branch.session.state
        return not (state.has_recall_tools or state.recall_offer == "start")

    def compact(self, *, summary: bool = False) -> None:
        """Have the next call hide all that the strategy allows, whether or not the schedule finds that it pays.

        summary: have it also replace all turns but the strategy's tail by one summary, however few they are. A note of
        the diagnostics says why where none was made: no turn outside the tail, a failed summary, too little to shorten.

        Raises SpecError for `summary=True` with a strategy that makes no summaries, such as masking.
        """
        if summary and self._preparer.strategy.make_trigger() is None:
            raise SpecError(
                f"compact(summary=True): {self._preparer.strategy.name} makes no summaries; "
                "choose a strategy that does, such as hybrid, or call compact()"
            )
        self._preparer.must_hide_all = True
        self._preparer.must_summarize = self._preparer.must_summarize or summary

    def keep(self, messages: Sequence[Any], *, tools: Any = None, system: Any = None) -> Costs:
        """Store a whole conversation, its last answer included. Nothing is hidden, and no view is made.

        For the end of a run: `prepare` takes trailing messages of the assistant for the beginning of an answer.
        Returns what the session cost, in USD, that answer included. Raises ConflictError, DialectError, StoreError.
        """
        with self._lock:
            branch = run_steps(
                self._store_messages(_make_incoming_request(messages, tools, system, None)), self._summary_runner
            )
            return compute_costs(branch.session, self._open_ledger(branch))

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
        at_hand = self._preparer.branch
        if found is None:
            self._add_note_once("a response was recorded that reports no usage: costs.billed leaves its call out")
            return
        if at_hand is None or at_hand.session.newest_call is None:
            self._add_note_once("usage was recorded while no call was prepared: costs.billed leaves it out")
            return
        if branch not in ("", at_hand.key):
            return
        # Other processes may have made calls since then.
        known = at_hand.session.state.calls
        at_hand.session.record_event(UsageReported(call=min(call or self._newest_call, known) or known, usage=found))

    def overflowed(self, error: object) -> bool:
        """Return whether `error`, an exception or its text, says that the prompt was too long.

        If it does, the model's window is known from then on: prepare the same messages again.
        """
        found = signals.parse_overflow(_find_error_body(error))
        branch = self._preparer.branch
        if found is None or found.limit is None or branch is None:
            return False
        branch.session.record_event(
            WindowLearned(call=branch.session.state.calls, window=found.limit, tokens=found.tokens or 0)
        )
        return True

    def report(self) -> ContextReport:
        """Return what the session is so far: phases, summaries, savings, and where its tokens are.

        A session that this object has not read yet is read from the store. Raises StoreError.
        """
        with self._lock:
            try:
                branch = self._lookup.find_branch()
            except UnknownHandle:
                return ContextReport(session=self.session, model=self.options.model, shadow=self.options.shadow)
            newest = branch.session.newest_call
            return build_context_report(
                branch,
                self._open_ledger(branch),
                session=self.session,
                model=(newest.model if newest else "") or self.options.model,
                strategy=describe_without_recall_rules(self._preparer.strategy),
            )

    async def report_async(self) -> ContextReport:
        """Do as `report`, off the event loop. Other callers wait until it has ended."""
        async with self._lock:
            return await run_off_loop(self.report)

    # -- what the client never saw ---------------------------------------------------------------------------------

    def record_exchange(self, *, node: str, messages: Sequence[str], results: Sequence[str] = ()) -> bool:
        """Record the messages that the provider was sent in place of one message of the client; see `RecallExchanged`.

        They are durable with the next write. Returns False where there is no session to record them in.
        """
        branch = self._preparer.branch
        if branch is None:
            return False
        call = branch.session.state.calls
        branch.session.record_event(
            RecallExchanged(call=call, node=node, messages=tuple(messages), results=tuple(results))
        )
        return True

    @property
    def turns(self) -> int:
        """Number of turns in the log of the present history, as far as it was read here."""
        branch = self._preparer.branch
        if branch is None:
            return 0
        return len(branch.session.state.turns)

    def summaries(self) -> list[SessionSummary]:
        """Return the summaries of the session, oldest first, with texts, covered turns, writers, tokens and USD.

        The newest is in the view; it has merged the earlier ones. Before the first call it is read from the store;
        [] where there is none. Raises StoreError.
        """
        with self._lock:
            try:
                session = self._lookup.find_branch().session
            except UnknownHandle:
                return []
            return list_summaries(session.events, session.sizer, session.prices)

    async def summaries_async(self) -> list[SessionSummary]:
        """Do as `summaries`, off the event loop. Other callers wait until it has ended."""
        async with self._lock:
            return await run_off_loop(self.summaries)

    def exchanges(self) -> list[RecallExchanged]:
        """Return what `record_exchange` recorded in the present history, oldest first; a fork has what it shares."""
        branch = self._preparer.branch
        if branch is None:
            return []
        return exchanges.list_exchanges(branch.session.events)

    async def heard_exchanges_async(self) -> list[RecallExchanged]:
        """Do as `exchanges`, after the records of other processes were read where the log is shared (`family`).

        Raises ConflictError.
        """
        async with self._lock:
            return await run_steps_async(self._load_exchanges(), self._summary_runner)

    def recorded_exchanges(
        self, messages: Sequence[Any], *, tools: Any = None, system: Any = None
    ) -> list[RecallExchanged]:
        """Return the exchanges of the stored session that begins like `messages`; [] if none does.

        The present history stays. Where two exchanges have the same `node`, the later one counts. Raises DialectError,
        StoreError.
        """
        with self._lock:
            return run_steps(
                self._find_exchanges(_make_incoming_request(messages, tools, system, None)), self._summary_runner
            )

    async def recorded_exchanges_async(
        self, messages: Sequence[Any], *, tools: Any = None, system: Any = None
    ) -> list[RecallExchanged]:
        """Do as `recorded_exchanges`, with the store off the event loop."""
        async with self._lock:
            return await run_steps_async(
                self._find_exchanges(_make_incoming_request(messages, tools, system, None)), self._summary_runner
            )

    # -- turns by hand -------------------------------------------------------------------------------------------

    def begin(self, task: str = "", *, system: str = "", tools: Sequence[Mapping[str, Any]] = ()) -> None:
        """Set the head of a session whose turns are added by hand."""
        self.begin_with(self._manual_turns.make_head(task, system, tools))

    def begin_with(self, head: Head) -> None:
        """Do as `begin`, with a head that is made already."""
        with self._lock:
            branch = self._preparer.open_manual_branch()
            if branch.session.state.head != head:
                branch.session.set_head(head)

    def add_turn(
        self,
        reasoning: str = "",
        action: Any = None,
        observation: Any = None,
        *,
        text: str = "",
        tags: str | Iterable[str] = (),
    ) -> Turn:
        """Add one step of a hand-written loop, and return it as a turn.

        reasoning, text: what the agent thought, and what it said.
        action:          a command as text, {"name": ..., "arguments": ...}, or a list of such.
        observation:     the result as text, or a list of as many results. Raises SettingError if they do not fit.
        tags:            of its results, for rules: `keep_output`, `remove_output`, or your own.
        """
        with self._lock:
            branch = self._preparer.open_manual_branch()
            turn = self._manual_turns.make_turn(
                len(branch.session.state.turns) + 1, reasoning, action, observation, text, tags
            )
            self.add(turn)
            return turn

    def add(self, turn: Turn) -> None:
        """Add a turn that is made already. It is durable with the next view."""
        with self._lock:
            branch = self._preparer.open_manual_branch()
            _, answered = find_newest_call(branch.session.events)
            if turn.usage is None and answered is not None:
                turn = msgspec.structs.replace(turn, usage=answered.usage)
            branch.session.add_turn(turn)

    def view(self, *, model: str = "") -> ContextView:
        """Return the context of the next call, for turns that were added by hand.

        Raises BudgetError, ConflictError.
        """
        with self._lock:
            return run_steps(self._prepare_manual_view(model), self._summary_runner)

    async def view_async(self, *, model: str = "") -> ContextView:
        """Do as `view`, with the store and the summarizer off the event loop."""
        async with self._lock:
            return await run_steps_async(self._prepare_manual_view(model), self._summary_runner)

    # -- recall --------------------------------------------------------------------------------------------------

    def recall(
        self, handle: str, *, lines: str = "", pattern: str = "", head: int | None = None, by: str = "user"
    ) -> str:
        """Return the text under `handle` in the raw history, or a part of it.

        handle:  t12.1, t12 for the whole turn, or SESSION:t12.1 of a session that this one came from.
        lines:   "40-80", 1-based. pattern: a regular expression. head: number of first lines.
        by:      who asks, for the statistics. Raises UnknownHandle.
        """
        with self._lock:
            session, key = parse_handle(handle)
            part = TextPart(lines=lines, pattern=pattern, head=head)
            text = extract_part(self._lookup.read_text(session, key), part)
            branch = self._preparer.branch
            if branch is not None:
                tokens = self._preparer.sizer.count(text)
                branch.session.record_event(
                    ObservationRecalled(call=branch.session.state.calls, key=key, tokens=tokens, by=by)
                )
            return text

    def search(self, query: str, limit: int = 20) -> list[Hit]:
        """Return where the words of `query` occur in the raw history, newest first, `limit` hits at most.

        Raises StoreError, UnknownHandle.
        """
        with self._lock:
            branch = self._lookup.find_branch()
            if self.options.is_shared and branch is self._preparer.branch:
                run_steps(self._preparer.catch_up_branch(branch, self.options.clock()), self._summary_runner)
            else:
                run_steps(self._preparer.write_branch(branch), self._summary_runner)
            return self._store.search(branch.key, query, limit)

    def tool_definitions(self, dialect: str = "") -> list[dict[str, Any]]:
        """Return the recall tools for the agent's `tools`, the same bytes every time.

        dialect: shape of the definitions; the session's own if "".
        """
        named = dialect or self.options.dialect
        if named == "auto":
            named = "openai"
            branch = self._preparer.branch
            if branch and branch.history:
                named = branch.history.dialect.name
        return recall_definitions.define_recall_tools(named)

    def handle_tool_call(self, name: str, arguments: str | Mapping[str, Any]) -> str | None:
        """Return the answer to a call of one of the recall tools; None for any other tool. Never raises."""
        if name not in RECALL_TOOLS | SEARCH_TOOLS:
            return None
        values = recall_definitions.parse_arguments(arguments)
        try:
            if name in SEARCH_TOOLS:
                query = recall_definitions.read_text_argument(values, "query")
                text = recall_definitions.format_hits(self.search(query))
            else:
                part = recall_definitions.parse_part(values)
                handle = recall_definitions.read_text_argument(values, "handle")
                text = self.recall(handle, lines=part.lines, pattern=part.pattern, head=part.head, by="tool")
            # The answer is put into a request. The stored text may have halves of surrogate pairs, which no UTF-8 has.
            return make_encodable(text)
        except ElisionError as error:
            return f"[not found: {error}]"
        except Exception:  # noqa: BLE001 - the boundary of I9: the agent's loop goes on
            self._log_error("a recall failed")
            return "[not found: the recall failed]"

    async def handle_tool_call_async(self, name: str, arguments: str | Mapping[str, Any]) -> str | None:
        """Do as `handle_tool_call`, off the event loop. Other callers wait until it has ended."""
        async with self._lock:
            return await run_off_loop(partial(self.handle_tool_call, name, arguments))

    # -- preparing a call-----------------------------------------------------------------------------------------------

    def _prepare_view(self, incoming: IncomingRequest, model: str, admit: AdmissionCheck | None) -> Steps[ContextView]:
        """Prepare one call for messages, with the boundary of I9 around it."""
        started = time.perf_counter()
        self._preparer.faults = []
        try:
            view = yield from self._prepare_with_retries(incoming, model or self.options.model, started, admit)
        except (BudgetError, LimitError):
            raise
        except Exception as error:
            # The one boundary where Elision's own failures end (I9). The next call loads the branch from the store,
            # which has what other processes wrote; what was read halfway is read again.
            self._preparer.branch = None
            if isinstance(error, ConflictError | DialectError) or self.options.on_fault == "raise":
                raise
            if isinstance(error, ShapeMismatch):
                # The client sent it so, and its provider may refuse it.
                _log.warning("session %s: the request goes out as it came: %s", self.session, error)
            else:
                self._log_error("the request goes out as it came")
            view = self._pass_through(incoming, error, time.perf_counter() - started)
        except BaseException:
            # Cancelled or interrupted, at any point: as above.
            self._preparer.branch = None
            raise
        yield ComputeOn.CALLER
        self._notify_listeners(view.diagnostics)
        return view

    def _prepare_with_retries(
        self, incoming: IncomingRequest, model: str, started: float, admit: AdmissionCheck | None
    ) -> Steps[ContextView]:
        """Prepare one call, again where other processes wrote meanwhile: in a shared log that is no error."""
        for _ in range(PASS_TRIES - 1 if self.options.is_shared else 0):
            try:
                return (yield from self._prepare_once(incoming, model, started, admit))
            except ConflictError:
                self._preparer.faults.clear()
        return (yield from self._prepare_once(incoming, model, started, admit))

    def _settle(self) -> Steps[Fault | None]:
        """Write the unsaved records. Return what failed."""
        try:
            return (yield from self._preparer.write_unsaved())
        except Exception as error:  # noqa: BLE001 - as above: the messages have what was not written
            self._log_error("what happened could not be written")
            self._preparer.branch = None
            return self._preparer.report_fault("engine", error)

    def _prepare_once(
        self, incoming: IncomingRequest, model: str, started: float, admit: AdmissionCheck | None
    ) -> Steps[ContextView]:
        dialect = self._preparer.detect_dialect(incoming, model)
        incoming = replace(incoming, end=find_history_end(dialect, incoming.messages))
        abilities = capabilities.find_capabilities(model)
        thinking: ThinkingPolicy = "ignore"
        if dialect.name == "anthropic":
            thinking = choose_thinking_policy(abilities, self.options.thinking)
        self._preparer.is_thinking_bound = thinking != "ignore"
        branch, history, how = yield from self._preparer.follow_history(incoming, dialect)
        if admit is not None:
            ledger = self._open_ledger(branch)
            costs = compute_costs(branch.session, ledger)
            admit(SessionStatus(turns=len(branch.session.state.turns), costs=costs, due_usd=ledger.due_usd))
        branch.session.terms = self._make_terms(branch.session, incoming, history, thinking)
        view = yield from self._preparer.decide_view(branch, incoming, model)
        marks = needs_breakpoints(self.options.cache_control, branch.session)
        if self.options.shadow:
            sent = build_unchanged_request(incoming, history)
        else:
            sent = build_request(incoming, history, branch.session, view, thinking, abilities, mark=marks)
        sent = recall_tools.add_recall_tools(sent, branch.session, dialect.name)
        if recall_tools.is_offer_refused(branch.session, self.options.offer, bound=self._preparer.is_thinking_bound):
            sent = replace(sent, notes=(*sent.notes, recall_tools.NOTE_BOUND_THINKING))
        if history.unknown_places:
            sent = replace(sent, notes=(*sent.notes, _describe_unknown(history.unknown_places, dialect.name)))
        # Where the provider clears by itself, the request has no placeholders.
        if thinking != "native" and recall_tools.names_unread_handles(branch.session, sent.tools):
            self._add_note_once(recall_tools.NOTE_UNREAD_HANDLES)
        made = self._make_view(branch, sent, how, model, started, dialect.name)
        unanswered = incoming.messages[incoming.end :]
        if made.source is None or not unanswered:
            return made
        return replace(made, source=replace(made.source, unanswered=unanswered))

    def _make_terms(
        self, session: Session, incoming: IncomingRequest, history: History, thinking: ThinkingPolicy
    ) -> CallTerms:
        """Return the terms of this call. thinking: how bound thinking is treated."""
        client = ClientBreakpoints(has_any=True, hour_messages=None)
        if history.dialect.has_blocks:
            client = find_client_breakpoints(incoming)
        hour_turn = None
        if client.hour_messages is not None:
            hour_turn = max(0, history.count_intact_turns(client.hour_messages))
        who = self.options.cache_control
        return CallTerms(
            may_summarize=thinking != "native",
            editable_from=find_editable_from(session.state.turns) if thinking == "defer" else 1,
            recall_blocked=recall_tools.must_withhold_tools(
                session, incoming.tools, bound=self._preparer.is_thinking_bound
            ),
            no_cache_marks=who != "client" and not client.has_any,
            breakpoints="gaps" if who == "gaps" else "always",
            hour_turn=hour_turn,
        )

    def _load_exchanges(self) -> Steps[list[RecallExchanged]]:
        """Return the exchanges of the present history, those of other processes included."""
        yield from self._preparer.catch_up()
        return self.exchanges()

    def _find_exchanges(self, incoming: IncomingRequest) -> Steps[list[RecallExchanged]]:
        """Return the exchanges of the stored session that begins like the request."""
        dialect = self._preparer.detect_dialect(incoming, self.options.model)
        incoming = replace(incoming, end=find_history_end(dialect, incoming.messages))
        found: list[RecallExchanged] = yield from self._preparer.find_stored_exchanges(incoming, dialect)
        return found

    def _store_messages(self, incoming: IncomingRequest) -> Steps[SessionBranch]:
        """Store the turns of the request, and return their branch."""
        dialect = self._preparer.detect_dialect(incoming, self.options.model)
        branch, _, _ = yield from self._preparer.follow_history(incoming, dialect)
        yield from self._preparer.write_branch(branch)
        return branch

    def _prepare_manual_view(self, model: str) -> Steps[ContextView]:
        """Prepare one call for turns that were added by hand."""
        started = time.perf_counter()
        self._preparer.faults = []
        branch = self._preparer.open_manual_branch()
        branch.count_new_turns()
        model = model or self.options.model
        blocked = recall_tools.must_withhold_tools(branch.session, branch.session.state.head.tools, bound=False)
        branch.session.terms = replace(branch.session.terms, recall_blocked=blocked)
        try:
            view = yield from self._preparer.decide_view(branch, None, model)
        except BudgetError:
            raise
        except ConflictError:
            self._preparer.branch = None
            raise
        except BaseException:
            # Cancelled or interrupted, at any point. The log has what was added and decided.
            self._preparer.restore_from_log(branch)
            raise
        messages, system = self._manual_turns.render_messages(view)
        sent = OutgoingRequest(messages=messages, system=system, tools=list(branch.session.state.head.tools) or None)
        sent = recall_tools.add_recall_tools(sent, branch.session, self._manual_turns.dialect)
        if recall_tools.names_unread_handles(branch.session, sent.tools):
            self._add_note_once(recall_tools.NOTE_UNREAD_HANDLES)
        result = self._make_view(branch, sent, "continue", model, started, self._manual_turns.dialect)
        self._notify_listeners(result.diagnostics)
        return result

    # -- the result ----------------------------------------------------------------------------------------------

    def _make_view(
        self, branch: SessionBranch, sent: OutgoingRequest, how: str, model: str, started: float, dialect: str
    ) -> ContextView:
        """Return the prepared request with its diagnostics. started: by `time.perf_counter`, in seconds."""
        waited = self._summary_runner.waited_seconds
        self._summary_runner.waited_seconds = 0.0
        self._newest_call = branch.session.state.calls
        ledger = self._open_ledger(branch)
        diagnostics = build_diagnostics(branch, ledger, session=self.session, history=how, model=model)
        diagnostics = replace(
            diagnostics,
            shadow=branch.session.shadow,
            faults=tuple(self._preparer.faults),
            notes=(*sent.notes, *self._preparer.notes, *self._notes, *self._preparer.take_summary_note()),
            seconds=time.perf_counter() - started,
            summarizer_seconds=waited,
        )
        self._notes.clear()
        return _make_context_view(sent, dialect, diagnostics, _find_source(branch.session))

    def _add_note_once(self, note: str) -> None:
        """Add `note` to the next diagnostics, unless earlier ones had it."""
        if note not in self._past_notes:
            self._past_notes.add(note)
            self._notes.append(note)

    def _open_ledger(self, branch: SessionBranch) -> Ledger:
        """Return the branch's ledger, made at the first use."""
        if branch.ledger is None:
            branch.ledger = Ledger(self._preparer.prices, self.options.find_prices)
        return branch.ledger

    def _pass_through(self, incoming: IncomingRequest, error: Exception, seconds: float) -> ContextView:
        """Return the request unchanged but for tags, with `error` as a fault. seconds: since the preparation began."""
        self._preparer.add_fault("engine", error)
        diagnostics = build_failed_diagnostics(self.session, tuple(self._preparer.faults), seconds)
        dialect: str = self.options.dialect
        if dialect == "auto":
            dialect = "openai"
        messages = remove_tags(incoming.messages)
        sent = OutgoingRequest(messages=messages, system=incoming.system, tools=incoming.tools)
        return _make_context_view(sent, dialect, diagnostics)

    def _notify_listeners(self, diagnostics: Diagnostics) -> None:
        for listener in self.options.listeners:
            try:
                listener(diagnostics)
            except Exception:
                if self.options.on_fault == "raise":
                    raise
                # A listener must not stop the agent.
                self._log_error("a listener failed")

    def _log_error(self, what: str) -> None:
        """Log the present exception with its traceback, redacted: its message may hold secrets."""
        trace = self.options.redaction.redact_text(traceback.format_exc())
        _log.error("session %s: %s\n%s", self.session, what, trace)


def _make_incoming_request(
    messages: Sequence[Any], tools: Any, system: Any, request: Mapping[str, Any] | None
) -> IncomingRequest:
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Iterable):
        raise DialectError(f"messages is a {type(messages).__name__}, not a list of messages")
    # An iterator is read once, and only lists are compared in C.
    if type(messages) is not list:
        messages = list(messages)
    return IncomingRequest(messages=messages, end=len(messages), system=system, tools=tools, body_fields=request or {})


def _describe_unknown(places: Sequence[int], dialect: str) -> str:
    """Return the note for messages whose role is unknown."""
    others = " has"
    if len(places) > 1:
        others = f" and {len(places) - 1} more have"
    return f"messages[{places[0]}]{others} no role that {dialect} knows: sent as it came, and nothing of it is hidden"


def _find_source(session: Session) -> PromptSource | None:
    """Return what the newest call of `session` shows: the client's own messages in shadow mode."""
    newest = session.newest_call
    if newest is None:
        return None
    if session.shadow:
        return PromptSource(view=newest.raw_view)
    return PromptSource(view=newest.view, covers=session.state.covered_turns)


def _make_context_view(
    sent: OutgoingRequest, dialect: str, diagnostics: Diagnostics, source: PromptSource | None = None
) -> ContextView:
    return ContextView(
        messages=sent.messages,
        dialect=dialect,
        diagnostics=diagnostics,
        system=sent.system,
        tools=sent.tools,
        extra=sent.extra,
        betas=sent.betas,
        added_tools=list(sent.added_tools),
        source=source,
    )


def _find_error_body(error: object) -> object:
    """Return the body that a provider's package keeps of an error, else the error's text."""
    body = getattr(error, "body", None)
    if body is not None:
        return convert_to_json(body)
    if isinstance(error, Mapping):
        return error
    return str(error)
