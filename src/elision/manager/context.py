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
from elision.dialects.bound_thinking import Way, editable_from, way
from elision.dialects.live.plain import plain
from elision.engine import Session, Terms
from elision.errors import BudgetError, ConflictError, DialectError, ElisionError, LimitError
from elision.manager import exchanges, offering
from elision.manager import recall as recalls
from elision.manager.branch import Branch, stem
from elision.manager.caller_lock import CallerLock
from elision.manager.common_log import TRIES
from elision.manager.drivers import Steps, Where, finished, run, run_async
from elision.manager.handles import Handles
from elision.manager.history import History, ending
from elision.manager.ledger import Ledger
from elision.manager.options import RECALL_TOOLS, SEARCH_TOOLS, Given, Options, SummaryWriter, check_names
from elision.manager.passes import OtherShape, Passes
from elision.manager.plain_form import PlainForm
from elision.manager.reading import newest_call
from elision.manager.report import costs, diagnostics, failed
from elision.manager.scribe import Scribe
from elision.manager.sending import ClientBreakpoints, Outgoing, client_breakpoints, marking, outgoing
from elision.manager.sending import Given as Sent
from elision.manager.usage import usage_in
from elision.manager.view import Admit, ContextView, Standing
from elision.stores.store import Hit, Store
from elision.stores.store_urls import open_store
from elision.strategies.strategy import Strategy
from elision.summarizers.factory import make_summarizer
from elision.telemetry.diagnostics import Costs, Diagnostics, Fault
from elision.trajectory.encodable import make_encodable
from elision.trajectory.events import Answered, Exchanged, Learned, Recalled
from elision.trajectory.redact import Redaction
from elision.trajectory.turn import Head, Turn

if TYPE_CHECKING:
    from elision.config import Settings

#: What a setting may be; any other option is a value of the library's own.
_SETTING: Final = (str, int, float, bool)

_log: Final = logging.getLogger("elision.manager")


class ContextManager:
    """One session of one agent, for one caller at a time: others wait, whichever thread or event loop they are in.

    See `Options` for the options.

    Raises SpecError, SettingError, PriceError for options without a meaning, StoreError where the store cannot be
    opened.
    """

    def __init__(self, strategy: str | Strategy = "masking", **options: Unpack[Given]) -> None:
        check_names(options)
        self.options = Options(strategy=strategy, **options)
        self._named = self.options.session or f"session-{uuid.uuid4().hex[:12]}"
        store = self.options.store
        writer = self.options.summarizer
        self._owned = isinstance(store, str)
        self._store: Store = open_store(store) if isinstance(store, str) else store
        self._scribe = Scribe(
            _writer(writer, self.options.redaction) if writer is None or isinstance(writer, str) else writer,
            seconds=self.options.summary_seconds,
            background=self.options.background,
        )
        self._passes = Passes(self.options, self._store, self._named)
        self._handles = Handles(self._store, self._passes)
        self._plain = PlainForm(self.options.dialect)
        self._lock = CallerLock()
        self._closed = False
        #: The newest call that was prepared here.
        self._call = 0
        #: Notes for the next diagnostics, and all that there were.
        self._notes: list[str] = []
        self._noted: set[str] = set()

    def __repr__(self) -> str:
        branch = self._passes.branch
        if branch is not None:
            turns = len(branch.session.state.turns)
        else:
            turns = 0
        return f"<ContextManager session={self.session!r} turns={turns}>"

    @property
    def session(self) -> str:
        """The session's name; in a family that of the session whose history is gone on with."""
        branch = self._passes.branch
        if self.options.family and branch is not None:
            return stem(branch.key)
        return self._named

    @classmethod
    def from_env(cls, environment: Mapping[str, str] | None = None, **options: Any) -> ContextManager:
        """With the settings of the environment and elision.toml; `options`, of both kinds, go before them.

        Raises SettingError, which names the place and the mend.
        """
        from elision.config import KEYS, settings  # the only reader of either, and nothing that other callers need

        surroundings = os.environ if environment is None else environment
        known = {name: value for name, value in options.items() if name in KEYS and isinstance(value, _SETTING)}
        rest = {name: value for name, value in options.items() if name not in known}
        return cls.from_settings(settings(surroundings, None, **known), surroundings, **rest)

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
            self._scribe.close()
            try:
                if (fault := run(self._settled(), self._scribe)) is not None:
                    _log.error("session %s: its last records could not be written: %s", self.session, fault.what)
            finally:
                if self._owned:
                    self._store.close()

    def settle(self) -> Fault | None:
        """Write what happened and is not in the store yet: a pass that went out before it was written (`write_behind`),
        what was recorded. What failed, if anything did: it is tried again at the next pass. Never raises.
        """
        with self._lock:
            return run(self._settled(), self._scribe)

    async def settle_async(self) -> Fault | None:
        """`settle`, with the store off the event loop; raises CancelledError alone."""
        async with self._lock:
            return await run_async(self._settled(), self._scribe)

    # -- messages ------------------------------------------------------------------------------------------------

    def prepare(
        self,
        messages: Sequence[Any],
        *,
        tools: Any = None,
        system: Any = None,
        model: str = "",
        request: Mapping[str, Any] | None = None,
        admit: Admit | None = None,
    ) -> ContextView:
        """The context of the next call: `messages` in the provider's own shape in and out.

        tools, system: as they go beside the messages (Responses: `instructions`), so that they are counted. model: whom
        this call asks, if another than the session's. request: what else its body asks of the context (`thinking`,
        `context_management`, `cache_control`). admit: asked first, with the session as it stands. Raises BudgetError,
        ConflictError, DialectError, and the LimitError of `admit`.
        """
        with self._lock:
            return run(self._pass(_given(messages, tools, system, request), model, admit), self._scribe)

    async def prepare_async(
        self,
        messages: Sequence[Any],
        *,
        tools: Any = None,
        system: Any = None,
        model: str = "",
        request: Mapping[str, Any] | None = None,
        admit: Admit | None = None,
    ) -> ContextView:
        """`prepare`, with store and summarizer off the event loop."""
        async with self._lock:
            return await run_async(self._pass(_given(messages, tools, system, request), model, admit), self._scribe)

    def foregone(self, *, begun: bool, model: str = "") -> bool:
        """Whether a request goes out as it comes, whatever is in it, so that it need not wait for its pass.

        begun: whether the assistant has spoken in it; before that there is nothing to hide. model: whom it asks, if
        another than the session's.
        """
        own = self.options
        branch = self._passes.branch
        if own.shadow or begun:
            return own.shadow
        adds = own.offer == "start" or own.cache_control == "auto" or capabilities.of(model or own.model).bound
        # What was settled when the session began goes before the options.
        if branch is not None:
            state = branch.session.state
        else:
            state = None
        return not adds and (state is None or not (state.offered or state.offer == "start"))

    def compact(self) -> None:
        """Have the next pass hide all that the strategy allows, whether the schedule finds that it pays or not."""
        self._passes.forced = True

    def keep(self, messages: Sequence[Any], *, tools: Any = None, system: Any = None) -> Costs:
        """Store a conversation to its very end, a last answer without results included; nothing is hidden or sent.

        For the end of a run: `prepare` takes trailing messages of the assistant for the beginning of an answer.
        Returns what the session cost, that answer included. Raises ConflictError, DialectError, StoreError.
        """
        with self._lock:
            branch = run(self._kept(_given(messages, tools, system, None)), self._scribe)
            return costs(branch.session, self._ledger(branch))

    def record(self, usage: Any, *, call: int = 0, branch: str = "") -> None:
        """Take what the provider reported for the newest call: its `usage`, or a response that has one.

        Of a stream: its last chunk, or the final message. Where a response reports none, the next diagnostics note it,
        once. call, branch: of an earlier call, whose answer came late, as its diagnostics say; it is passed over where
        its branch was left since. Stored with the next pass, by `settle`, or when the session is closed. Raises
        DialectError for what can report none, such as a text or the stream itself.
        """
        found = usage_in(usage)
        at_hand = self._passes.branch
        if found is None:
            self._note_once("a response was recorded that reports no usage: costs.billed leaves its call out")
            return
        if at_hand is None or at_hand.session.newest is None:
            self._note_once("usage was recorded while no call was prepared: costs.billed leaves it out")
            return
        if branch not in ("", at_hand.key):
            return
        # Other processes may have made calls since then.
        known = at_hand.session.state.calls
        at_hand.session.note(Answered(call=min(call or self._call, known) or known, usage=found))

    def overflowed(self, error: object) -> bool:
        """Whether `error`, an exception or its text, says that the prompt was too long.

        If it does, the model's window is known from now on: prepare the same messages again.
        """
        found = signals.overflow(_body(error))
        branch = self._passes.branch
        if found is None or found.limit is None or branch is None:
            return False
        branch.session.note(Learned(call=branch.session.state.calls, window=found.limit, tokens=found.tokens or 0))
        return True

    # -- what the client never saw ---------------------------------------------------------------------------------

    def exchanged(self, *, node: str, messages: Sequence[str], results: Sequence[str] = ()) -> bool:
        """Note what stands upstream in place of one message that the client was shown; see `Exchanged`.

        Durable with the next write. False where there is no session to note it in.
        """
        branch = self._passes.branch
        if branch is None:
            return False
        call = branch.session.state.calls
        branch.session.note(Exchanged(call=call, node=node, messages=tuple(messages), results=tuple(results)))
        return True

    @property
    def turns(self) -> int:
        """How many turns the log of the history at hand has, as far as it was read here."""
        branch = self._passes.branch
        if branch is not None:
            return len(branch.session.state.turns)
        return 0

    def exchanges(self) -> list[Exchanged]:
        """What was noted so of the history at hand, oldest first; a fork has what came before it parted."""
        branch = self._passes.branch
        if branch is not None:
            return exchanges.of(branch.session.events)
        return []

    async def heard_exchanges_async(self) -> list[Exchanged]:
        """`exchanges`, with those that other processes noted meanwhile where the log is shared (`family`). Raises
        ConflictError."""
        async with self._lock:
            return await run_async(self._heard(), self._scribe)

    def recorded_exchanges(self, messages: Sequence[Any], *, tools: Any = None, system: Any = None) -> list[Exchanged]:
        """The same of the stored session that `messages` begin like; [] if none does. Nothing is gone on with.

        Where two have the same `node` the later one counts. Raises DialectError, StoreError.
        """
        with self._lock:
            return run(self._recorded(_given(messages, tools, system, None)), self._scribe)

    async def recorded_exchanges_async(
        self, messages: Sequence[Any], *, tools: Any = None, system: Any = None
    ) -> list[Exchanged]:
        """`recorded_exchanges`, with the store off the event loop."""
        async with self._lock:
            return await run_async(self._recorded(_given(messages, tools, system, None)), self._scribe)

    # -- turns by hand -------------------------------------------------------------------------------------------

    def begin(self, task: str = "", *, system: str = "", tools: Sequence[Mapping[str, Any]] = ()) -> None:
        """The head of a session whose turns are added by hand."""
        self.begin_with(self._plain.head(task, system, tools))

    def begin_with(self, head: Head) -> None:
        """The same with a head that is made already."""
        with self._lock:
            branch = self._passes.by_hand()
            if branch.session.state.head != head:
                branch.session.begin(head)

    def add_turn(self, reasoning: str = "", action: Any = None, observation: Any = None, *, text: str = "") -> Turn:
        """One step of a hand-written loop: what the agent thought, did and saw.

        action:      a command or the like as text, {"name": ..., "arguments": ...}, or a list of such. observation: its
                     result as text; a list of as many results. Raises SettingError if they do not fit.
        """
        with self._lock:
            branch = self._passes.by_hand()
            turn = self._plain.turn(len(branch.session.state.turns) + 1, reasoning, action, observation, text)
            self.add(turn)
            return turn

    def add(self, turn: Turn) -> None:
        """The same with a turn that is made already; durable with the next view."""
        with self._lock:
            branch = self._passes.by_hand()
            _, answered = newest_call(branch.session.events)
            if turn.usage is None and answered is not None:
                turn = replace(turn, usage=answered.usage)
            branch.session.add(turn)

    def view(self, *, model: str = "") -> ContextView:
        """The context of the next call, for turns that were added by hand. Raises BudgetError, ConflictError."""
        with self._lock:
            return run(self._by_hand(model), self._scribe)

    async def view_async(self, *, model: str = "") -> ContextView:
        """`view`, with store and summarizer off the event loop."""
        async with self._lock:
            return await run_async(self._by_hand(model), self._scribe)

    # -- recall --------------------------------------------------------------------------------------------------

    def recall(
        self, handle: str, *, lines: str = "", pattern: str = "", head: int | None = None, by: str = "user"
    ) -> str:
        """What stands under `handle` in the raw history, word for word, or a part of it.

        handle: t12.1, t12 for the whole turn, or SESSION:t12.1 of a session that this one came from.
        lines: "40-80", 1-based. pattern: a regular expression. head: so many lines. Raises UnknownHandle.
        """
        with self._lock:
            session, key = recalls.parsed(handle)
            part = recalls.Part(lines=lines, pattern=pattern, head=head)
            text = recalls.taken(self._handles.text(session, key), part)
            if (branch := self._passes.branch) is not None:
                tokens = self._passes.sizer.count(text)
                branch.session.note(Recalled(call=branch.session.state.calls, key=key, tokens=tokens, by=by))
            return text

    def search(self, query: str, limit: int = 20) -> list[Hit]:
        """Where the words of `query` stand in the raw history, newest first. Raises StoreError, UnknownHandle."""
        with self._lock:
            branch = self._handles.known()
            if self.options.shared and branch is self._passes.branch:
                run(self._passes.joined(branch, self.options.clock()), self._scribe)
            else:
                run(self._passes.write(branch), self._scribe)
            return self._store.search(branch.key, query, limit)

    def tool_definitions(self, dialect: str = "") -> list[dict[str, Any]]:
        """The recall tools for the agent's `tools`; the same bytes every time. dialect: the session's own if ""."""
        named = dialect or self.options.dialect
        if named == "auto":
            branch = self._passes.branch
            if branch and branch.history:
                named = branch.history.dialect.name
            else:
                named = "openai"
        return recalls.definitions(named)

    def handle_tool_call(self, name: str, arguments: str | Mapping[str, Any]) -> str | None:
        """The answer to a call of one of the recall tools; None if the call is somebody else's. Never raises."""
        if name not in RECALL_TOOLS | SEARCH_TOOLS:
            return None
        given = recalls.arguments_of(arguments)
        try:
            if name in SEARCH_TOOLS:
                found = recalls.listed(self.search(recalls.word_of(given, "query")))
            else:
                part = recalls.part_of(given)
                handle = recalls.word_of(given, "handle")
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
            return await finished(partial(self.handle_tool_call, name, arguments))

    # -- a pass --------------------------------------------------------------------------------------------------

    def _pass(self, given: Sent, model: str, admit: Admit | None) -> Steps[ContextView]:
        """One pass over messages, with the boundary of I9 around it."""
        started = time.perf_counter()
        self._passes.faults = []
        try:
            view = yield from self._tried(given, model or self.options.model, started, admit)
        except (BudgetError, LimitError):
            raise
        except Exception as error:
            # The one boundary where Elision's own failures end (I9). Whoever wrote meanwhile is in the store, and what
            # was read halfway counts as not read: the next pass begins from there.
            self._passes.branch = None
            if isinstance(error, ConflictError | DialectError) or self.options.on_fault == "raise":
                raise
            if isinstance(error, OtherShape):
                # The client's own doing, and its provider's to refuse.
                _log.warning("session %s: the request goes out as it came: %s", self.session, error)
            else:
                self._log_error("the request goes out as it came")
            view = self._as_it_came(given, error, time.perf_counter() - started)
        except BaseException:
            # Cancelled or interrupted, at any point: as above.
            self._passes.branch = None
            raise
        yield Where.HERE
        self._tell(view.diagnostics)
        return view

    def _tried(self, given: Sent, model: str, started: float, admit: Admit | None) -> Steps[ContextView]:
        """The pass, begun again behind what other processes wrote meanwhile; they may not be the caller's concern."""
        for _ in range(TRIES - 1 if self.options.shared else 0):
            try:
                return (yield from self._prepared(given, model, started, admit))
            except ConflictError:
                self._passes.faults.clear()
        return (yield from self._prepared(given, model, started, admit))

    def _settled(self) -> Steps[Fault | None]:
        try:
            return (yield from self._passes.settled())
        except Exception as error:  # noqa: BLE001 - as for a pass: what was not written is read again from the messages
            self._log_error("what happened could not be written")
            self._passes.branch = None
            return self._passes.told_of("engine", error)

    def _prepared(self, given: Sent, model: str, started: float, admit: Admit | None) -> Steps[ContextView]:
        dialect = self._passes.dialect(given, model)
        given = replace(given, end=ending(dialect, given.messages))
        able = capabilities.of(model)
        if dialect.name == "anthropic":
            treated = way(able, self.options.thinking)
        else:
            treated = "ignore"
        self._passes.bound = treated != "ignore"
        branch, history, how = yield from self._passes.follow(given, dialect)
        if admit is not None:
            ledger = self._ledger(branch)
            told = costs(branch.session, ledger)
            admit(Standing(turns=len(branch.session.state.turns), costs=told, due=ledger.due))
        branch.session.terms = self._terms(branch.session, given, history, treated)
        view = yield from self._passes.decided(branch, given, model)
        marks = marking(self.options.cache_control, branch.session)
        if self.options.shadow:
            sent = Outgoing(messages=list(given.messages), system=given.system, tools=given.tools)
        else:
            sent = outgoing(given, history, branch.session, view, treated, able, mark=marks)
        sent = offering.joined(sent, branch.session, dialect.name)
        if offering.refused(branch.session, self.options.offer, bound=self._passes.bound):
            sent = replace(sent, notes=(*sent.notes, offering.BOUND))
        if history.unknown:
            sent = replace(sent, notes=(*sent.notes, _describe_unknown(history.unknown, dialect.name)))
        # Where the provider clears by itself, no placeholder of ours is sent.
        if treated != "native" and offering.names_unread_handles(branch.session, sent.tools):
            self._note_once(offering.UNREAD)
        return self._view(branch, sent, how, model, started, dialect.name)

    def _terms(self, session: Session, given: Sent, history: History, treated: Way) -> Terms:
        """What holds for this call. treated: how bound thinking is."""
        client = ClientBreakpoints(any=True, hour=None)
        if history.dialect.in_blocks:
            client = client_breakpoints(given)
        who = self.options.cache_control
        return Terms(
            may_summarize=treated != "native",
            editable_from=editable_from(session.state.turns) if treated == "defer" else 1,
            recall_blocked=offering.withheld(session, given.tools, bound=self._passes.bound),
            no_cache_marks=who != "client" and not client.any,
            breakpoints="gaps" if who == "gaps" else "always",
            hour_turn=None if client.hour is None else max(0, history.intact(client.hour)),
        )

    def _heard(self) -> Steps[list[Exchanged]]:
        yield from self._passes.join()
        return self.exchanges()

    def _recorded(self, given: Sent) -> Steps[list[Exchanged]]:
        dialect = self._passes.dialect(given, self.options.model)
        given = replace(given, end=ending(dialect, given.messages))
        found: list[Exchanged] = yield from self._passes.recorded(given, dialect)
        return found

    def _kept(self, given: Sent) -> Steps[Branch]:
        branch, _, _ = yield from self._passes.follow(given, self._passes.dialect(given, self.options.model))
        yield from self._passes.write(branch)
        return branch

    def _by_hand(self, model: str) -> Steps[ContextView]:
        started = time.perf_counter()
        self._passes.faults = []
        branch = self._passes.by_hand()
        branch.catch_up()
        model = model or self.options.model
        blocked = offering.withheld(branch.session, branch.session.state.head.tools, bound=False)
        branch.session.terms = replace(branch.session.terms, recall_blocked=blocked)
        try:
            view = yield from self._passes.decided(branch, None, model)
        except BudgetError:
            raise
        except ConflictError:
            self._passes.branch = None
            raise
        except BaseException:
            # Cancelled or interrupted, at any point; the log knows what was added and decided.
            self._passes.taken_up_again(branch)
            raise
        messages, system = self._plain.messages(view)
        sent = Outgoing(messages=messages, system=system, tools=list(branch.session.state.head.tools) or None)
        sent = offering.joined(sent, branch.session, self._plain.dialect)
        if offering.names_unread_handles(branch.session, sent.tools):
            self._note_once(offering.UNREAD)
        made = self._view(branch, sent, "continue", model, started, self._plain.dialect)
        self._tell(made.diagnostics)
        return made

    # -- what comes out ------------------------------------------------------------------------------------------

    def _view(self, branch: Branch, sent: Outgoing, how: str, model: str, started: float, dialect: str) -> ContextView:
        waited = self._scribe.spent
        self._scribe.spent = 0.0
        self._call = branch.session.state.calls
        told = diagnostics(branch, self._ledger(branch), session=self.session, history=how, model=model)
        told = replace(
            told,
            shadow=branch.session.shadow,
            faults=tuple(self._passes.faults),
            notes=(*sent.notes, *self._passes.notes, *self._notes),
            seconds=time.perf_counter() - started,
            summarizer_seconds=waited,
        )
        self._notes.clear()
        return _shown(sent, dialect, told)

    def _note_once(self, note: str) -> None:
        """Have the next diagnostics say `note`, unless it was said before."""
        if note not in self._noted:
            self._noted.add(note)
            self._notes.append(note)

    def _ledger(self, branch: Branch) -> Ledger:
        """The branch's totals, begun when they are first asked for."""
        if branch.ledger is None:
            branch.ledger = Ledger(self._passes.prices, self.options.priced)
        return branch.ledger

    def _as_it_came(self, given: Sent, error: Exception, seconds: float) -> ContextView:
        """The request as it came, and why; the next pass begins from the store."""
        self._passes.fault("engine", error)
        told = failed(self.session, tuple(self._passes.faults), seconds)
        if self.options.dialect != "auto":
            dialect = self.options.dialect
        else:
            dialect = "openai"
        sent = Outgoing(messages=list(given.messages), system=given.system, tools=given.tools)
        return _shown(sent, dialect, told)

    def _tell(self, told: Diagnostics) -> None:
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
        _log.error("session %s: %s\n%s", self.session, what, self._clean(traceback.format_exc()))

    def _clean(self, text: str) -> str:
        return self.options.redaction.text(text)


def _writer(named: str | None, redaction: Redaction) -> SummaryWriter:
    """A summarizer by name; its key is in the provider's usual variable, as for the provider's own client."""
    return make_summarizer(named or "digest", environment=os.environ, redaction=redaction)


def _given(messages: Sequence[Any], tools: Any, system: Any, request: Mapping[str, Any] | None) -> Sent:
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Iterable):
        raise DialectError(f"messages is a {type(messages).__name__}, not a list of messages")
    # Iterators are read once, and only lists are compared in C.
    if type(messages) is list:
        held = messages
    else:
        held = list(messages)
    return Sent(messages=held, end=len(held), system=system, tools=tools, request=request or {})


def _describe_unknown(places: Sequence[int], dialect: str) -> str:
    """The note for messages in no shape that is known."""
    if len(places) > 1:
        others = f" and {len(places) - 1} more have"
    else:
        others = " has"
    return f"messages[{places[0]}]{others} no role that {dialect} knows: sent as it came, and nothing of it is hidden"


def _shown(sent: Outgoing, dialect: str, told: Diagnostics) -> ContextView:
    return ContextView(
        messages=sent.messages,
        dialect=dialect,
        diagnostics=told,
        system=sent.system,
        tools=sent.tools,
        extra=sent.extra,
        betas=sent.betas,
        added_tools=list(sent.added),
    )


def _body(error: object) -> object:
    """What a provider's package keeps of an error's body; else its text."""
    body = getattr(error, "body", None)
    if body is not None:
        return plain(body)
    if isinstance(error, Mapping):
        return error
    return str(error)
