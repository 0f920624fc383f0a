"""The session of a context manager: its name, what was hidden in it, and what is reported of it."""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping
from functools import partial
from typing import Final

from elision.errors import UnknownHandle
from elision.manager import recall_definitions
from elision.manager.call_diagnostics import build_context_report, count_message
from elision.manager.context_options import describe_without_recall_rules
from elision.manager.drivers import make_steps
from elision.manager.observation_recall import answer_tool_call, recall_text, search_history
from elision.manager.observation_text import TextPart
from elision.manager.opened_session import OpenedSession
from elision.manager.recall_definitions import RecallTool
from elision.manager.summary_list import SessionSummary, list_summaries
from elision.stores.store import Hit
from elision.telemetry.context_report import ContextReport

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
            for tool in recall_definitions.RECALL_TOOL_DEFINITIONS
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
