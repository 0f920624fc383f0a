"""The library door: an agent's messages in, the context of its next call out.

    with ContextManager("hybrid(window=10)", model="claude-sonnet-4-5", store="sqlite:///agent.db") as context:
        view = context.prepare(messages, tools=tools)
        response = client.messages.create(**view.request, ...)
        context.record(response.usage)

A pass is a generator that yields what takes time (the store, the summarizer); one sync and one async driver run it.
Whatever fails in it, the agent's request goes out (I9): only a budget that nothing fits, a second writer and messages
that are none are told to the caller.
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

from elision.dialects import capabilities, signals
from elision.dialects.bound_thinking import ThinkingPolicy, choose_thinking_policy, find_editable_from
from elision.dialects.live.client_messages import convert_to_json
from elision.engine import CallTerms, Session
from elision.errors import BudgetError, ConflictError, DialectError, ElisionError, LimitError
from elision.manager import exchanges, recall_tools
from elision.manager import observation_text as recalls
from elision.manager.branch import SessionBranch, session_name
from elision.manager.call_diagnostics import build_diagnostics, build_failed_diagnostics, compute_costs
from elision.manager.caller_lock import CallerLock
from elision.manager.context_options import (
    RECALL_TOOLS,
    SEARCH_TOOLS,
    ContextOptions,
    Options,
    SummaryWriter,
    check_option_names,
    show_option_signature,
)
from elision.manager.context_view import AdmissionCheck, ContextView, SessionStatus
from elision.manager.drivers import ComputeOn, Steps, run_off_loop, run_steps, run_steps_async
from elision.manager.history import History, find_history_end
from elision.manager.ingest import find_newest_call
from elision.manager.ledger import Ledger
from elision.manager.manual_turns import ManualTurns
from elision.manager.observation_lookup import ObservationLookup
from elision.manager.outgoing_request import (
    ClientBreakpoints,
    OutgoingRequest,
    build_request,
    find_client_breakpoints,
    needs_breakpoints,
)
from elision.manager.outgoing_request import IncomingRequest as Sent
from elision.manager.preparation import CallPreparer, ShapeMismatch
from elision.manager.reported_usage import find_usage
from elision.manager.shared_log import PASS_TRIES
from elision.manager.summary_worker import SummaryRunner
from elision.stores.store import Hit, Store
from elision.stores.store_urls import open_store
from elision.strategies.strategy import Strategy
from elision.summarizers.factory import make_summarizer
from elision.telemetry.diagnostics import Costs, Diagnostics, Fault
from elision.trajectory.encodable import make_encodable
from elision.trajectory.events import ObservationRecalled, RecallExchanged, UsageReported, WindowLearned
from elision.trajectory.redact import Redaction
from elision.trajectory.turn import Head, Turn

if TYPE_CHECKING:
    from elision.config import Settings

#: What a setting may be; any other option is a value of the library's own.
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
    - `background` (default `False`): whether the agent continues while a summary is written.
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
        self._summary_runner = SummaryRunner(
            _make_writer(writer, self.options.redaction) if writer is None or isinstance(writer, str) else writer,
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
        #: Notes for the next diagnostics, and all that there were.
        self._notes: list[str] = []
        self._past_notes: set[str] = set()

    def __repr__(self) -> str:
        branch = self._preparer.branch
        if branch is not None:
            turns = len(branch.session.state.turns)
        else:
            turns = 0
        return f"<ContextManager session={self.session!r} turns={turns}>"

    @property
    def session(self) -> str:
        """The session's name; in a family that of the session whose history is gone on with."""
        branch = self._preparer.branch
        if self.options.family and branch is not None:
            return session_name(branch.key)
        return self._session_name

    @classmethod
    def from_env(cls, environment: Mapping[str, str] | None = None, **options: Any) -> ContextManager:
        """With the settings of the environment and elision.toml; `options`, of both kinds, go before them.

        Raises SettingError, which names the place and the mend.
        """
        from elision.config import KEYS, load_settings  # the only reader of either, and nothing that other callers need

        surroundings = os.environ if environment is None else environment
        known = {name: value for name, value in options.items() if name in KEYS and isinstance(value, _SETTING_TYPES)}
        rest = {name: value for name, value in options.items() if name not in known}
        return cls.from_settings(load_settings(surroundings, None, **known), surroundings, **rest)

    @classmethod
    def from_settings(
        cls, found: Settings, environment: Mapping[str, str] | None = None, **options: Any
    ) -> ContextManager:
        """With settings that were read already; `options` go before them.

        environment: where the summarizer's key is looked up, the process's own if None.
        """
        writer = make_summarizer(
            found.summarizer,
            base_url=found.summarizer_base_url or "",
            environment=os.environ if environment is None else environment,
            redaction=found.redaction,
        )
        told: dict[str, Any] = {**found.options(), "summarizer": writer, "redaction": found.redaction, **options}
        return cls(told.pop("strategy"), **told)

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
        """Write what is not written yet, and let go of what was opened here; a second time does nothing."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._summary_runner.close()
            try:
                if (fault := run_steps(self._settle(), self._summary_runner)) is not None:
                    _log.error("session %s: its last records could not be written: %s", self.session, fault.what)
            finally:
                if self._owns_store:
                    self._store.close()

    def settle(self) -> Fault | None:
        """Write what happened and is not in the store yet: a pass that went out before it was written (`write_behind`),
        what was recorded. What failed, if anything did: it is tried again at the next pass. Never raises.
        """
        with self._lock:
            return run_steps(self._settle(), self._summary_runner)

    async def settle_async(self) -> Fault | None:
        """`settle`, with the store off the event loop; raises CancelledError alone."""
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
        """The context of the next call: `messages` in the provider's own shape in and out.

        tools, system: as they go beside the messages (Responses: `instructions`), so that they are counted. model: whom
        this call asks, if another than the session's. request: what else its body asks of the context (`thinking`,
        `context_management`, `cache_control`). admit: asked first, with the session as it stands. Raises BudgetError,
        ConflictError, DialectError, and the LimitError of `admit`.
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
        """`prepare`, with store and summarizer off the event loop."""
        async with self._lock:
            return await run_steps_async(
                self._prepare_view(_make_incoming_request(messages, tools, system, request), model, admit),
                self._summary_runner,
            )

    def foregone(self, *, begun: bool, model: str = "") -> bool:
        """Whether a request goes out as it comes, whatever is in it, so that it need not wait for its pass.

        begun: whether the assistant has spoken in it; before that there is nothing to hide. model: whom it asks, if
        another than the session's.
        """
        own = self.options
        branch = self._preparer.branch
        if own.shadow or begun:
            return own.shadow
        adds = (
            own.offer == "start"
            or own.cache_control == "auto"
            or capabilities.find_capabilities(model or own.model).binds_thinking
        )
        # What was settled when the session began goes before the options.
        if branch is not None:
            state = branch.session.state
        else:
            state = None
        return not adds and (state is None or not (state.has_recall_tools or state.recall_offer == "start"))

    def compact(self) -> None:
        """Have the next pass hide all that the strategy allows, whether the schedule finds that it pays or not."""
        self._preparer.must_hide_all = True

    def keep(self, messages: Sequence[Any], *, tools: Any = None, system: Any = None) -> Costs:
        """Store a conversation to its very end, a last answer without results included; nothing is hidden or sent.

        For the end of a run: `prepare` takes trailing messages of the assistant for the beginning of an answer.
        Returns what the session cost, that answer included. Raises ConflictError, DialectError, StoreError.
        """
        with self._lock:
            branch = run_steps(
                self._store_messages(_make_incoming_request(messages, tools, system, None)), self._summary_runner
            )
            return compute_costs(branch.session, self._open_ledger(branch))

    def record(self, usage: Any, *, call: int = 0, branch: str = "") -> None:
        """Take what the provider reported for the newest call: its `usage`, or a response that has one.

        Of a stream: its last chunk, or the final message. Where a response reports none, the next diagnostics note it,
        once. call, branch: of an earlier call, whose answer came late, as its diagnostics say; it is passed over where
        its branch was left since. Stored with the next pass, by `settle`, or when the session is closed. Raises
        DialectError for what can report none, such as a text or the stream itself.
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
        """Whether `error`, an exception or its text, says that the prompt was too long.

        If it does, the model's window is known from now on: prepare the same messages again.
        """
        found = signals.parse_overflow(_find_error_body(error))
        branch = self._preparer.branch
        if found is None or found.limit is None or branch is None:
            return False
        branch.session.record_event(
            WindowLearned(call=branch.session.state.calls, window=found.limit, tokens=found.tokens or 0)
        )
        return True

    # -- what the client never saw ---------------------------------------------------------------------------------

    def exchanged(self, *, node: str, messages: Sequence[str], results: Sequence[str] = ()) -> bool:
        """Note what stands upstream in place of one message that the client was shown; see `RecallExchanged`.

        Durable with the next write. False where there is no session to note it in.
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
        """How many turns the log of the history at hand has, as far as it was read here."""
        branch = self._preparer.branch
        if branch is not None:
            return len(branch.session.state.turns)
        return 0

    def exchanges(self) -> list[RecallExchanged]:
        """What was noted so of the history at hand, oldest first; a fork has what came before it parted."""
        branch = self._preparer.branch
        if branch is not None:
            return exchanges.list_exchanges(branch.session.events)
        return []

    async def heard_exchanges_async(self) -> list[RecallExchanged]:
        """`exchanges`, with those that other processes noted meanwhile where the log is shared (`family`). Raises
        ConflictError."""
        async with self._lock:
            return await run_steps_async(self._load_exchanges(), self._summary_runner)

    def recorded_exchanges(
        self, messages: Sequence[Any], *, tools: Any = None, system: Any = None
    ) -> list[RecallExchanged]:
        """The same of the stored session that `messages` begin like; [] if none does. Nothing is gone on with.

        Where two have the same `node` the later one counts. Raises DialectError, StoreError.
        """
        with self._lock:
            return run_steps(
                self._find_exchanges(_make_incoming_request(messages, tools, system, None)), self._summary_runner
            )

    async def recorded_exchanges_async(
        self, messages: Sequence[Any], *, tools: Any = None, system: Any = None
    ) -> list[RecallExchanged]:
        """`recorded_exchanges`, with the store off the event loop."""
        async with self._lock:
            return await run_steps_async(
                self._find_exchanges(_make_incoming_request(messages, tools, system, None)), self._summary_runner
            )

    # -- turns by hand -------------------------------------------------------------------------------------------

    def begin(self, task: str = "", *, system: str = "", tools: Sequence[Mapping[str, Any]] = ()) -> None:
        """The head of a session whose turns are added by hand."""
        self.begin_with(self._manual_turns.make_head(task, system, tools))

    def begin_with(self, head: Head) -> None:
        """The same with a head that is made already."""
        with self._lock:
            branch = self._preparer.open_manual_branch()
            if branch.session.state.head != head:
                branch.session.set_head(head)

    def add_turn(self, reasoning: str = "", action: Any = None, observation: Any = None, *, text: str = "") -> Turn:
        """One step of a hand-written loop: what the agent thought, did and saw.

        action:      a command or the like as text, {"name": ..., "arguments": ...}, or a list of such. observation: its
                     result as text; a list of as many results. Raises SettingError if they do not fit.
        """
        with self._lock:
            branch = self._preparer.open_manual_branch()
            turn = self._manual_turns.make_turn(
                len(branch.session.state.turns) + 1, reasoning, action, observation, text
            )
            self.add(turn)
            return turn

    def add(self, turn: Turn) -> None:
        """The same with a turn that is made already; durable with the next view."""
        with self._lock:
            branch = self._preparer.open_manual_branch()
            _, answered = find_newest_call(branch.session.events)
            if turn.usage is None and answered is not None:
                turn = replace(turn, usage=answered.usage)
            branch.session.add_turn(turn)

    def view(self, *, model: str = "") -> ContextView:
        """The context of the next call, for turns that were added by hand. Raises BudgetError, ConflictError."""
        with self._lock:
            return run_steps(self._prepare_manual_view(model), self._summary_runner)

    async def view_async(self, *, model: str = "") -> ContextView:
        """`view`, with store and summarizer off the event loop."""
        async with self._lock:
            return await run_steps_async(self._prepare_manual_view(model), self._summary_runner)

    # -- recall --------------------------------------------------------------------------------------------------

    def recall(
        self, handle: str, *, lines: str = "", pattern: str = "", head: int | None = None, by: str = "user"
    ) -> str:
        """What stands under `handle` in the raw history, word for word, or a part of it.

        handle: t12.1, t12 for the whole turn, or SESSION:t12.1 of a session that this one came from.
        lines: "40-80", 1-based. pattern: a regular expression. head: so many lines. Raises UnknownHandle.
        """
        with self._lock:
            session, key = recalls.parse_handle(handle)
            part = recalls.TextPart(lines=lines, pattern=pattern, head=head)
            text = recalls.extract_part(self._lookup.read_text(session, key), part)
            if (branch := self._preparer.branch) is not None:
                tokens = self._preparer.sizer.count(text)
                branch.session.record_event(
                    ObservationRecalled(call=branch.session.state.calls, key=key, tokens=tokens, by=by)
                )
            return text

    def search(self, query: str, limit: int = 20) -> list[Hit]:
        """Where the words of `query` stand in the raw history, newest first. Raises StoreError, UnknownHandle."""
        with self._lock:
            branch = self._lookup.find_branch()
            if self.options.is_shared and branch is self._preparer.branch:
                run_steps(self._preparer.catch_up_branch(branch, self.options.clock()), self._summary_runner)
            else:
                run_steps(self._preparer.write_branch(branch), self._summary_runner)
            return self._store.search(branch.key, query, limit)

    def tool_definitions(self, dialect: str = "") -> list[dict[str, Any]]:
        """The recall tools for the agent's `tools`; the same bytes every time. dialect: the session's own if ""."""
        named = dialect or self.options.dialect
        if named == "auto":
            branch = self._preparer.branch
            if branch and branch.history:
                named = branch.history.dialect.name
            else:
                named = "openai"
        return recalls.define_recall_tools(named)

    def handle_tool_call(self, name: str, arguments: str | Mapping[str, Any]) -> str | None:
        """The answer to a call of one of the recall tools; None if the call is somebody else's. Never raises."""
        if name not in RECALL_TOOLS | SEARCH_TOOLS:
            return None
        given = recalls.parse_arguments(arguments)
        try:
            if name in SEARCH_TOOLS:
                found = recalls.format_hits(self.search(recalls.read_text_argument(given, "query")))
            else:
                part = recalls.parse_part(given)
                handle = recalls.read_text_argument(given, "handle")
                found = self.recall(handle, lines=part.lines, pattern=part.pattern, head=part.head, by="tool")
            # It goes into a request, which may have come by an encoder that escapes halves of surrogate pairs.
            return make_encodable(found)
        except ElisionError as error:
            return f"[not found: {error}]"
        except Exception:  # noqa: BLE001 - the boundary of I9: the agent's loop goes on
            self._log_error("a recall failed")
            return "[not found: the recall failed]"

    async def handle_tool_call_async(self, name: str, arguments: str | Mapping[str, Any]) -> str | None:
        """`handle_tool_call`, off the event loop; nothing else is done with the session before it has ended."""
        async with self._lock:
            return await run_off_loop(partial(self.handle_tool_call, name, arguments))

    # -- a pass --------------------------------------------------------------------------------------------------

    def _prepare_view(self, given: Sent, model: str, admit: AdmissionCheck | None) -> Steps[ContextView]:
        """One pass over messages, with the boundary of I9 around it."""
        started = time.perf_counter()
        self._preparer.faults = []
        try:
            view = yield from self._prepare_with_retries(given, model or self.options.model, started, admit)
        except (BudgetError, LimitError):
            raise
        except Exception as error:
            # The one boundary where Elision's own failures end (I9). Whoever wrote meanwhile is in the store, and what
            # was read halfway counts as not read: the next pass begins from there.
            self._preparer.branch = None
            if isinstance(error, ConflictError | DialectError) or self.options.on_fault == "raise":
                raise
            if isinstance(error, ShapeMismatch):
                # The client's own doing, and its provider's to refuse.
                _log.warning("session %s: the request goes out as it came: %s", self.session, error)
            else:
                self._log_error("the request goes out as it came")
            view = self._pass_through(given, error, time.perf_counter() - started)
        except BaseException:
            # Cancelled or interrupted, at any point: as above.
            self._preparer.branch = None
            raise
        yield ComputeOn.CALLER
        self._notify_listeners(view.diagnostics)
        return view

    def _prepare_with_retries(
        self, given: Sent, model: str, started: float, admit: AdmissionCheck | None
    ) -> Steps[ContextView]:
        """The pass, begun again behind what other processes wrote meanwhile; they may not be the caller's concern."""
        for _ in range(PASS_TRIES - 1 if self.options.is_shared else 0):
            try:
                return (yield from self._prepare_once(given, model, started, admit))
            except ConflictError:
                self._preparer.faults.clear()
        return (yield from self._prepare_once(given, model, started, admit))

    def _settle(self) -> Steps[Fault | None]:
        try:
            return (yield from self._preparer.write_unsaved())
        except Exception as error:  # noqa: BLE001 - as for a pass: what was not written is read again from the messages
            self._log_error("what happened could not be written")
            self._preparer.branch = None
            return self._preparer.report_fault("engine", error)

    def _prepare_once(
        self, given: Sent, model: str, started: float, admit: AdmissionCheck | None
    ) -> Steps[ContextView]:
        dialect = self._preparer.detect_dialect(given, model)
        given = replace(given, end=find_history_end(dialect, given.messages))
        able = capabilities.find_capabilities(model)
        if dialect.name == "anthropic":
            treated = choose_thinking_policy(able, self.options.thinking)
        else:
            treated = "ignore"
        self._preparer.is_thinking_bound = treated != "ignore"
        branch, history, how = yield from self._preparer.follow_history(given, dialect)
        if admit is not None:
            ledger = self._open_ledger(branch)
            told = compute_costs(branch.session, ledger)
            admit(SessionStatus(turns=len(branch.session.state.turns), costs=told, due_usd=ledger.due_usd))
        branch.session.terms = self._make_terms(branch.session, given, history, treated)
        view = yield from self._preparer.decide_view(branch, given, model)
        marks = needs_breakpoints(self.options.cache_control, branch.session)
        if self.options.shadow:
            sent = OutgoingRequest(messages=list(given.messages), system=given.system, tools=given.tools)
        else:
            sent = build_request(given, history, branch.session, view, treated, able, mark=marks)
        sent = recall_tools.add_recall_tools(sent, branch.session, dialect.name)
        if recall_tools.is_offer_refused(branch.session, self.options.offer, bound=self._preparer.is_thinking_bound):
            sent = replace(sent, notes=(*sent.notes, recall_tools.NOTE_BOUND_THINKING))
        if history.unknown_places:
            sent = replace(sent, notes=(*sent.notes, _describe_unknown(history.unknown_places, dialect.name)))
        # Where the provider clears by itself, no placeholder of ours is sent.
        if treated != "native" and recall_tools.names_unread_handles(branch.session, sent.tools):
            self._add_note_once(recall_tools.NOTE_UNREAD_HANDLES)
        return self._make_view(branch, sent, how, model, started, dialect.name)

    def _make_terms(self, session: Session, given: Sent, history: History, treated: ThinkingPolicy) -> CallTerms:
        """What holds for this call. treated: how bound thinking is."""
        client = ClientBreakpoints(has_any=True, hour_messages=None)
        if history.dialect.has_blocks:
            client = find_client_breakpoints(given)
        who = self.options.cache_control
        return CallTerms(
            may_summarize=treated != "native",
            editable_from=find_editable_from(session.state.turns) if treated == "defer" else 1,
            recall_blocked=recall_tools.must_withhold_tools(
                session, given.tools, bound=self._preparer.is_thinking_bound
            ),
            no_cache_marks=who != "client" and not client.has_any,
            breakpoints="gaps" if who == "gaps" else "always",
            hour_turn=None
            if client.hour_messages is None
            else max(0, history.count_intact_turns(client.hour_messages)),
        )

    def _load_exchanges(self) -> Steps[list[RecallExchanged]]:
        yield from self._preparer.catch_up()
        return self.exchanges()

    def _find_exchanges(self, given: Sent) -> Steps[list[RecallExchanged]]:
        dialect = self._preparer.detect_dialect(given, self.options.model)
        given = replace(given, end=find_history_end(dialect, given.messages))
        found: list[RecallExchanged] = yield from self._preparer.find_stored_exchanges(given, dialect)
        return found

    def _store_messages(self, given: Sent) -> Steps[SessionBranch]:
        branch, _, _ = yield from self._preparer.follow_history(
            given, self._preparer.detect_dialect(given, self.options.model)
        )
        yield from self._preparer.write_branch(branch)
        return branch

    def _prepare_manual_view(self, model: str) -> Steps[ContextView]:
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
            # Cancelled or interrupted, at any point; the log knows what was added and decided.
            self._preparer.restore_from_log(branch)
            raise
        messages, system = self._manual_turns.render_messages(view)
        sent = OutgoingRequest(messages=messages, system=system, tools=list(branch.session.state.head.tools) or None)
        sent = recall_tools.add_recall_tools(sent, branch.session, self._manual_turns.dialect)
        if recall_tools.names_unread_handles(branch.session, sent.tools):
            self._add_note_once(recall_tools.NOTE_UNREAD_HANDLES)
        made = self._make_view(branch, sent, "continue", model, started, self._manual_turns.dialect)
        self._notify_listeners(made.diagnostics)
        return made

    # -- what comes out ------------------------------------------------------------------------------------------

    def _make_view(
        self, branch: SessionBranch, sent: OutgoingRequest, how: str, model: str, started: float, dialect: str
    ) -> ContextView:
        waited = self._summary_runner.waited_seconds
        self._summary_runner.waited_seconds = 0.0
        self._newest_call = branch.session.state.calls
        told = build_diagnostics(branch, self._open_ledger(branch), session=self.session, history=how, model=model)
        told = replace(
            told,
            shadow=branch.session.shadow,
            faults=tuple(self._preparer.faults),
            notes=(*sent.notes, *self._preparer.notes, *self._notes),
            seconds=time.perf_counter() - started,
            summarizer_seconds=waited,
        )
        self._notes.clear()
        return _make_context_view(sent, dialect, told)

    def _add_note_once(self, note: str) -> None:
        """Have the next diagnostics say `note`, unless it was said before."""
        if note not in self._past_notes:
            self._past_notes.add(note)
            self._notes.append(note)

    def _open_ledger(self, branch: SessionBranch) -> Ledger:
        """The branch's totals, begun when they are first asked for."""
        if branch.ledger is None:
            branch.ledger = Ledger(self._preparer.prices, self.options.find_prices)
        return branch.ledger

    def _pass_through(self, given: Sent, error: Exception, seconds: float) -> ContextView:
        """The request as it came, and why; the next pass begins from the store."""
        self._preparer.add_fault("engine", error)
        told = build_failed_diagnostics(self.session, tuple(self._preparer.faults), seconds)
        if self.options.dialect != "auto":
            dialect = self.options.dialect
        else:
            dialect = "openai"
        sent = OutgoingRequest(messages=list(given.messages), system=given.system, tools=given.tools)
        return _make_context_view(sent, dialect, told)

    def _notify_listeners(self, told: Diagnostics) -> None:
        for listener in self.options.listeners:
            try:
                listener(told)
            except Exception:
                if self.options.on_fault == "raise":
                    raise
                # A listener must not stop the agent.
                self._log_error("a listener failed")

    def _log_error(self, what: str) -> None:
        """The error at hand with its traceback; what it was raised about may hold secrets."""
        _log.error("session %s: %s\n%s", self.session, what, self._redact(traceback.format_exc()))

    def _redact(self, text: str) -> str:
        return self.options.redaction.redact_text(text)


def _make_writer(named: str | None, redaction: Redaction) -> SummaryWriter:
    """A summarizer by name; its key is in the provider's usual variable, as for the provider's own client."""
    return make_summarizer(named or "digest", environment=os.environ, redaction=redaction)


def _make_incoming_request(messages: Sequence[Any], tools: Any, system: Any, request: Mapping[str, Any] | None) -> Sent:
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Iterable):
        raise DialectError(f"messages is a {type(messages).__name__}, not a list of messages")
    # Iterators are read once, and only lists are compared in C.
    if type(messages) is list:
        held = messages
    else:
        held = list(messages)
    return Sent(messages=held, end=len(held), system=system, tools=tools, body_fields=request or {})


def _describe_unknown(places: Sequence[int], dialect: str) -> str:
    """The note for messages in no shape that is known."""
    if len(places) > 1:
        others = f" and {len(places) - 1} more have"
    else:
        others = " has"
    return f"messages[{places[0]}]{others} no role that {dialect} knows: sent as it came, and nothing of it is hidden"


def _make_context_view(sent: OutgoingRequest, dialect: str, told: Diagnostics) -> ContextView:
    return ContextView(
        messages=sent.messages,
        dialect=dialect,
        diagnostics=told,
        system=sent.system,
        tools=sent.tools,
        extra=sent.extra,
        betas=sent.betas,
        added_tools=list(sent.added_tools),
    )


def _find_error_body(error: object) -> object:
    """What a provider's package keeps of an error's body; else its text."""
    body = getattr(error, "body", None)
    if body is not None:
        return convert_to_json(body)
    if isinstance(error, Mapping):
        return error
    return str(error)
