"""What a session is so far, and its summaries, for the caller of a context manager."""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

from elision.errors import UnknownHandle
from elision.manager.call_diagnostics import build_context_report, count_message
from elision.manager.context_options import describe_without_recall_rules
from elision.manager.drivers import make_steps
from elision.manager.opened_session import OpenedSession
from elision.manager.summary_list import SessionSummary, list_summaries
from elision.telemetry.context_report import ContextReport

_log: Final = logging.getLogger("elision.manager")


class Reports(OpenedSession):
    """The reports of a context manager's session."""

    def report(self) -> ContextReport:
        """Return what the session is so far: phases, summaries, savings, and where its tokens are.

        A session that this object has not read yet is read from the store. One that has no turns there either has an
        empty report with a note, and the log says so: perhaps its name is another. Raises StoreError.
        """
        with self._enter():
            return self._build_report()

    async def report_async(self) -> ContextReport:
        """Do as `report`, off the event loop. Other callers wait until it has ended."""
        return await self._run_async(make_steps(self._build_report))

    def summaries(self) -> list[SessionSummary]:
        """Return the summaries of the session, oldest first, with texts, covered turns, writers, tokens and USD.

        The newest is in the view; it has merged the earlier ones. Before the first call it is read from the store;
        [] where there is none. Raises StoreError.
        """
        with self._enter():
            return self._list_summaries()

    async def summaries_async(self) -> list[SessionSummary]:
        """Do as `summaries`, off the event loop. Other callers wait until it has ended."""
        return await self._run_async(make_steps(self._list_summaries))

    def _build_report(self) -> ContextReport:
        try:
            branch = self._find_branch()
        except UnknownHandle as error:
            note = f"{error}; `list_sessions()` of a pool, or `elision sessions`, names those that the store has"
            if self.options.session:
                _log.warning("an empty report: %s", note)
            return ContextReport(
                session=self.session, model=self.options.model, shadow=self.options.shadow, notes=(note,)
            )
        newest = branch.log.newest_call
        return build_context_report(
            branch,
            self._calls.open_ledger(branch),
            session=self.session,
            model=(newest.model if newest else "") or self.options.model,
            strategy=describe_without_recall_rules(self._preparer.logs.strategy),
        )

    def _list_summaries(self) -> list[SessionSummary]:
        try:
            session = self._find_branch().log
        except UnknownHandle:
            return []
        return list_summaries(session.events, partial(count_message, session), session.prices)
