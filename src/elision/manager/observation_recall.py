"""Read again what was hidden: by the caller, and by the model through the recall tools."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from elision.errors import CorruptError, ElisionError, UnknownHandle
from elision.manager import recall_definitions
from elision.manager.branch import SessionBranch
from elision.manager.drivers import ComputeOn, Steps, StoreCall
from elision.manager.lineage import trace_turn
from elision.manager.observation_text import TextPart, extract_part, find_text, format_handle, parse_handle
from elision.manager.opened_session import OpenedSession
from elision.manager.recall_definitions import RecallTool
from elision.providers.provider_table import find_provider_or_default
from elision.stores.store import Hit, SessionInfo
from elision.trajectory.encodable import make_encodable
from elision.trajectory.events import ObservationRecalled
from elision.trajectory.plan import Key
from elision.trajectory.recall_names import RECALL_TOOLS, SEARCH_TOOL
from elision.trajectory.turn import Turn


class Recall(OpenedSession):
    """The raw history of a context manager's session, and of the sessions that it came from."""

    def recall(
        self, handle: str, *, lines: str = "", pattern: str = "", head: int | None = None, by: str = "user"
    ) -> str:
        """Return the text under `handle` in the raw history, or a part of it.

        handle:  t12.1, t12 for the whole turn, or SESSION:t12.1 of a session that this one came from. Of that one
                 only what this one was handed: a fork reads what both share, and nothing later.
        lines:   "40-80", 1-based. pattern: a regular expression. head: number of first lines.
        by:      who asks, for the statistics. Raises UnknownHandle.
        """
        with self._enter():
            return self._recall_text(handle, TextPart(lines=lines, pattern=pattern, head=head), by)

    def search(self, query: str, limit: int = 20) -> list[Hit]:
        """Return where the words of `query` occur in the raw history, newest first, `limit` hits at most.

        Raises StoreError, UnknownHandle.
        """
        return self._run(self._search_history(query, limit))

    def tool_definitions(self, dialect: str = "") -> list[dict[str, Any]]:
        """Return the recall tools for the agent's `tools`, the same bytes every time.

        dialect: shape of the definitions; the session's own if "".
        """
        named = dialect or self.options.advanced.dialect
        branch = self._preparer.branch
        if named == "auto" and branch and branch.history:
            named = branch.history.dialect.name
        return recall_definitions.define_recall_tools(find_provider_or_default(named).name)

    def recall_tools(self) -> list[RecallTool]:
        """Return the recall tools with what answers them, for a framework that has tools of its own kind.

        `tool_definitions` has the same tools in the shape of a request.
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

    def _call_tool(self, name: str, arguments: str | Mapping[str, Any]) -> str:
        return self._run(self._answer_tool_call(name, arguments))

    async def _call_tool_async(self, name: str, arguments: str | Mapping[str, Any]) -> str:
        return await self._run_async(self._answer_tool_call(name, arguments))

    def handle_tool_call(self, name: str, arguments: str | Mapping[str, Any]) -> str | None:
        """Return the answer to a call of one of the recall tools; None for any other tool. Never raises."""
        if name not in RECALL_TOOLS:
            return None
        return self._call_tool(name, arguments)

    async def handle_tool_call_async(self, name: str, arguments: str | Mapping[str, Any]) -> str | None:
        """Do as `handle_tool_call`, off the event loop. Other callers wait until it has ended."""
        if name not in RECALL_TOOLS:
            return None
        return await self._call_tool_async(name, arguments)

    # -- their steps ---------------------------------------------------------------------------------------------

    def _answer_tool_call(self, name: str, arguments: str | Mapping[str, Any]) -> Steps[str]:
        try:
            values = recall_definitions.parse_arguments(arguments)
            if name == SEARCH_TOOL:
                query = recall_definitions.read_text_argument(values, "query")
                hits = yield from self._search_history(query, limit=20)
                text = recall_definitions.format_hits(hits)
            else:
                handle = recall_definitions.read_text_argument(values, "handle")
                part = recall_definitions.parse_part(values)
                text = yield StoreCall(lambda: self._recall_text(handle, part, by="tool"))
            # The answer is put into a request. The stored text may have halves of surrogate pairs, which no UTF-8 has.
            return make_encodable(text)
        except ElisionError as error:
            return f"[not found: {error}]"
        except Exception:  # noqa: BLE001 - the boundary of I9: the agent's loop goes on
            self._calls.log_error("a recall failed")
            return "[not found: the recall failed]"

    def _recall_text(self, handle: str, part: TextPart, by: str) -> str:
        session, key = parse_handle(handle)
        text = extract_part(self._read_text(session, key), part)
        branch = self._preparer.branch
        if branch is not None:
            tokens = self._preparer.logs.sizer.count(text)
            branch.log.record_event(ObservationRecalled(call=branch.log.state.calls, key=key, tokens=tokens, by=by))
        return text

    def _search_history(self, query: str, limit: int) -> Steps[list[Hit]]:
        yield ComputeOn.WORKER
        branch: SessionBranch = yield StoreCall(self._find_branch)
        if self.options.is_shared and branch is self._preparer.branch:
            yield from self._preparer.writer.catch_up(branch)
        else:
            yield from self._preparer.writer.write_branch(branch)
        hits: list[Hit] = yield StoreCall(lambda: self._store.search(branch.key, query, limit))
        return hits

    # -- the text under a handle -----------------------------------------------------------------------------------

    def _read_text(self, session: str, key: Key) -> str:
        """Return the raw text under `key` (position 0: the whole turn).

        session: whose; if "" this one's, or else that of the nearest it came from. Of those only what they handed on.
        Raises UnknownHandle, StoreError.
        """
        try:
            branch = self._find_branch()
        except CorruptError:
            # What can be read of it is found turn by turn.
            turns = self._store.turns(self._preparer.session, key[0], key[0])
            if not turns:
                raise UnknownHandle(
                    f"session {self._preparer.session!r} keeps nothing under {format_handle(key)}"
                ) from None
            return _extract_text(turns[0], key)
        turns = branch.log.state.turns
        own = turns[key[0] - 1] if key[0] <= len(turns) else None
        if session in ("", branch.key) and own is not None:
            return _extract_text(own, key)
        for ancestor, turn in self._trace_turn(branch, key[0], own):
            if session == ancestor and turn is None:
                raise UnknownHandle(f"session {session[:60]!r} shares nothing under {format_handle(key)} with this one")
            if session in ("", ancestor) and turn is not None:
                return _extract_text(turn, key)
        if session in ("", branch.key):
            raise UnknownHandle(f"session {self._preparer.session!r} keeps nothing under {format_handle(key)}")
        raise UnknownHandle(f"this session did not come from {session[:60]!r}")

    def _trace_turn(self, branch: SessionBranch, index: int, own: Turn | None) -> Iterator[tuple[str, Turn | None]]:
        events = branch.log.events
        return trace_turn(self._store, self._find_info, branch.new, index, turn=own, events=events)

    def _find_info(self, session: str) -> SessionInfo | None:
        try:
            return self._store.info(session)
        except UnknownHandle:
            return None


def _extract_text(turn: Turn, key: Key) -> str:
    found = find_text(turn, key)
    if found is None:
        raise UnknownHandle(f"turn {key[0]} has {len(turn.observations)} results, not {key[1]}")
    return found
