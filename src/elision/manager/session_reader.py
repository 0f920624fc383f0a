"""The session of a context manager: its name, what was hidden in it and can be read again, and its reports.

The model reads what was hidden through the recall tools, its user through these methods.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from elision.errors import CorruptError, ElisionError, UnknownHandle
from elision.manager import recall_tools
from elision.manager.branch import SessionBranch, trace_turn
from elision.manager.call_diagnostics import build_context_report, count_message
from elision.manager.context_options import describe_without_recall_rules
from elision.manager.deferred_tools import find_definitions
from elision.manager.drivers import ComputeOn, Steps, StoreCall, make_steps
from elision.manager.ledger import SessionSummary, list_summaries
from elision.manager.observation_text import TextPart, extract_part, find_text, format_handle, parse_handle
from elision.manager.opened_session import OpenedSession
from elision.manager.recall_tools import RecallTool
from elision.stores.store import Hit, SessionInfo
from elision.telemetry.context_report import ContextReport
from elision.trajectory.events import ObservationRecalled
from elision.trajectory.foreign_text import make_encodable
from elision.trajectory.plan import Key
from elision.trajectory.tool_definitions import FIND_TOOL, SEARCH_TOOL
from elision.trajectory.turn import Turn


def answer_tool_call(opened: OpenedSession, name: str, arguments: str | Mapping[str, Any]) -> Steps[str]:
    try:
        values = recall_tools.parse_arguments(arguments)
        if name == FIND_TOOL:
            query = recall_tools.read_text_argument(values, "query")
            arranged = opened.preparer.follower.arranged
            text = find_definitions(arranged.given.json if arranged else (), query)
        elif name == SEARCH_TOOL:
            query = recall_tools.read_text_argument(values, "query")
            hits = yield from search_history(opened, query, limit=20)
            text = recall_tools.format_hits(hits)
        else:
            handle = recall_tools.read_text_argument(values, "handle")
            part = recall_tools.parse_part(values)
            text = yield StoreCall(lambda: recall_text(opened, handle, part, by="tool"))
        # The answer is put into a request. The stored text may have halves of surrogate pairs, which no UTF-8 has.
        return make_encodable(text)
    except ElisionError as error:
        return f"[not found: {error}]"
    except Exception:  # noqa: BLE001 - the boundary of I9: the agent's loop goes on
        opened.calls.log_error("a recall failed")
        return "[not found: the recall failed]"


def recall_text(opened: OpenedSession, handle: str, part: TextPart, by: str) -> str:
    session, key = parse_handle(handle)
    text = extract_part(_read_text(opened, session, key), part)
    branch = opened.preparer.branch
    if branch is not None:
        tokens = opened.preparer.logs.sizer.count(text)
        branch.log.record_event(ObservationRecalled(call=branch.log.state.calls, key=key, tokens=tokens, by=by))
    return text


def search_history(opened: OpenedSession, query: str, limit: int) -> Steps[list[Hit]]:
    yield ComputeOn.WORKER
    branch: SessionBranch = yield StoreCall(opened.find_branch)
    if opened.options.is_shared and branch is opened.preparer.branch:
        yield from opened.preparer.writer.catch_up(branch)
    else:
        yield from opened.preparer.writer.write_branch(branch)
    hits: list[Hit] = yield StoreCall(lambda: opened.store.search(branch.key, query, limit))
    return hits


def _read_text(opened: OpenedSession, session: str, key: Key) -> str:
    """Return the raw text under `key` (position 0: the whole turn).

    session: whose; if "" this one's, or else that of the nearest it came from. Of those only what they handed on.
    Raises UnknownHandle, StoreError.
    """
    try:
        branch = opened.find_branch()
    except CorruptError:
        # What can be read of it is found turn by turn.
        turns = opened.store.turns(opened.preparer.session, key[0], key[0])
        if not turns:
            raise UnknownHandle(
                f"session {opened.preparer.session!r} keeps nothing under {format_handle(key)}"
            ) from None
        return _extract_text(turns[0], key)
    turns = branch.log.state.turns
    own = turns[key[0] - 1] if key[0] <= len(turns) else None
    if session in ("", branch.key) and own is not None:
        return _extract_text(own, key)
    find_info = partial(_find_info, opened)
    for ancestor, turn in trace_turn(opened.store, find_info, branch.new, key[0], turn=own, events=branch.log.events):
        if session == ancestor and turn is None:
            raise UnknownHandle(f"session {session[:60]!r} shares nothing under {format_handle(key)} with this one")
        if session in ("", ancestor) and turn is not None:
            return _extract_text(turn, key)
    if session in ("", branch.key):
        raise UnknownHandle(f"session {opened.preparer.session!r} keeps nothing under {format_handle(key)}")
    raise UnknownHandle(f"this session did not come from {session[:60]!r}")


def _find_info(opened: OpenedSession, session: str) -> SessionInfo | None:
    try:
        return opened.store.info(session)
    except UnknownHandle:
        return None


def _extract_text(turn: Turn, key: Key) -> str:
    found = find_text(turn, key)
    if found is None:
        raise UnknownHandle(f"turn {key[0]} has {len(turn.observations)} results, not {key[1]}")
    return found


_log: Final = logging.getLogger("elision.manager")


class SessionReader:
    """The session of a context manager, as `context.session`; a text of it is its name."""

    def __init__(self, opened: OpenedSession) -> None:
        self._opened = opened

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<session {self.name!r}>"

    @property
    def name(self) -> str:
        """The session's name; in a family the name of the session that the messages continue."""
        return self._opened.name

    @property
    def awaits_response(self) -> bool:
        """Whether the newest call was prepared, and neither its usage nor an overflow was reported."""
        return self._opened.calls.awaits_response

    def recall(
        self, handle: str, *, lines: str = "", pattern: str = "", head: int | None = None, by: str = "user"
    ) -> str:
        """Return the text under `handle` in the raw history, or a part of it.

        handle:  t12.1, t12 for the whole turn, or SESSION:t12.1 of a session that this one came from. Of that one
                 only what this one was handed: a fork reads what both share, and nothing later.
        lines:   "40-80", 1-based. pattern: a regular expression. head: number of first lines.
        by:      who asks, for the statistics. Raises UnknownHandle.
        """
        with self._opened.enter():
            return recall_text(self._opened, handle, TextPart(lines=lines, pattern=pattern, head=head), by)

    def search(self, query: str, limit: int = 20) -> list[Hit]:
        """Return where the words of `query` occur in the raw history, newest first, `limit` hits at most.

        Raises StoreError, UnknownHandle.
        """
        return self._opened.run(search_history(self._opened, query, limit))

    def recall_tools(self) -> list[RecallTool]:
        """Return the recall tools with what answers them, for a framework that has tools of its own kind.

        `ContextManager.tool_definitions` has the same tools in the shape of a request.
        """
        return [
            RecallTool(
                name=tool["name"],
                description=tool["description"],
                schema=copy.deepcopy(dict(tool["input_schema"])),
                call=partial(self._call_tool, tool["name"]),
                call_async=partial(self._call_tool_async, tool["name"]),
            )
            for tool in recall_tools.RECALL_TOOL_DEFINITIONS
        ]

    def _call_tool(self, name: str, arguments: str | Mapping[str, object]) -> str:
        return self._opened.run(answer_tool_call(self._opened, name, arguments))

    async def _call_tool_async(self, name: str, arguments: str | Mapping[str, object]) -> str:
        return await self._opened.run_async(answer_tool_call(self._opened, name, arguments))

    def report(self) -> ContextReport:
        """Return what the session is so far: phases, summaries, savings, and where its tokens are.

        A session that this object has not read yet is read from the store. One that has no turns there either has an
        empty report with a note, and the log says so: perhaps its name is another. Raises StoreError.
        """
        with self._opened.enter():
            return self._build_report()

    async def report_async(self) -> ContextReport:
        """Do as `report`, off the event loop. Other callers wait until it has ended."""
        return await self._opened.run_async(make_steps(self._build_report))

    def summaries(self) -> list[SessionSummary]:
        """Return the summaries of the session, oldest first, with texts, covered turns, writers, tokens and USD.

        The newest is in the view; it has merged the earlier ones. Before the first call it is read from the store;
        [] where there is none. Raises StoreError.
        """
        with self._opened.enter():
            return self._list_summaries()

    async def summaries_async(self) -> list[SessionSummary]:
        """Do as `summaries`, off the event loop. Other callers wait until it has ended."""
        return await self._opened.run_async(make_steps(self._list_summaries))

    def _build_report(self) -> ContextReport:
        try:
            branch = self._opened.find_branch()
        except UnknownHandle as error:
            note = f"{error}; `list_sessions()` of a pool, or `elision sessions`, names those that the store has"
            if self._opened.options.session:
                _log.warning("an empty report: %s", note)
            return ContextReport(
                session=self.name, model=self._opened.options.model, shadow=self._opened.options.shadow, notes=(note,)
            )
        newest = branch.log.newest_call
        return build_context_report(
            branch,
            self._opened.calls.open_ledger(branch),
            session=self.name,
            model=(newest.model if newest else "") or self._opened.options.model,
            strategy=describe_without_recall_rules(self._opened.preparer.logs.strategy),
        )

    def _list_summaries(self) -> list[SessionSummary]:
        try:
            session = self._opened.find_branch().log
        except UnknownHandle:
            return []
        return list_summaries(session.events, partial(count_message, session), session.prices)
