"""Read again what was hidden: by the caller, and by the model through the recall tools."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from elision.errors import CorruptError, ElisionError, UnknownHandle
from elision.manager import recall_definitions
from elision.manager.branch import SessionBranch
from elision.manager.deferred_tools import find_definitions
from elision.manager.drivers import ComputeOn, Steps, StoreCall
from elision.manager.lineage import trace_turn
from elision.manager.observation_text import TextPart, extract_part, find_text, format_handle, parse_handle
from elision.manager.opened_session import OpenedSession
from elision.stores.store import Hit, SessionInfo
from elision.trajectory.encodable import make_encodable
from elision.trajectory.events import ObservationRecalled
from elision.trajectory.plan import Key
from elision.trajectory.recall_names import FIND_TOOL, SEARCH_TOOL
from elision.trajectory.turn import Turn


def answer_tool_call(opened: OpenedSession, name: str, arguments: str | Mapping[str, Any]) -> Steps[str]:
    try:
        values = recall_definitions.parse_arguments(arguments)
        if name == FIND_TOOL:
            query = recall_definitions.read_text_argument(values, "query")
            arranged = opened.preparer.follower.arranged
            text = find_definitions(arranged.given.json if arranged else (), query)
        elif name == SEARCH_TOOL:
            query = recall_definitions.read_text_argument(values, "query")
            hits = yield from search_history(opened, query, limit=20)
            text = recall_definitions.format_hits(hits)
        else:
            handle = recall_definitions.read_text_argument(values, "handle")
            part = recall_definitions.parse_part(values)
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
