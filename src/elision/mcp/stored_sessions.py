"""The stored sessions that a server shows, and what it says of them: values and texts.

They are read anew at each call, as an agent may be writing.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from elision.engine import Log
from elision.errors import SpecError, UnknownHandle
from elision.lab.views import build_view
from elision.manager.branch import trace_stored_turn
from elision.manager.observation_text import TextPart, extract_part, find_text, format_handle, parse_handle
from elision.manager.recall_tools import format_hits
from elision.manager.session_history import CallReport, SessionLog, SessionReport, load_session_log
from elision.providers.provider_table import find_provider_or_default
from elision.stores.store import SessionInfo, Store
from elision.strategies.guards import Guards
from elision.telemetry.diagnostics import Costs
from elision.trajectory.events import RequestSent
from elision.trajectory.foreign_text import make_encodable, remove_controls
from elision.trajectory.plan import Key, make_handle
from elision.trajectory.tokens import Sizer
from elision.trajectory.turn import Turn

#: Names that an error lists, and characters of each.
_LISTED: Final = 5
_SHOWN: Final = 80
#: Entries of one answer, at most.
MAX_ENTRIES: Final = 200
#: Sessions whose logs are read to find the one that hides a handle.
_MAX_SEARCHED: Final = 16
#: Characters of a turn's calls in an error.
_SHOWN_CHARS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionScope:
    """The sessions that a server shows; each field that is not "" leaves out others.

    session: a name, how the only one begins, or the id that a client gives the gateway. With it come the sessions that
             it came from and those that came from it.
    prefix:  how names begin.
    owner:   the namespace of an API key at the gateway, or a whole family.
    listing: a file with names, one a line, that is read anew each time. With them come their relatives. A file that is
             not there names none.
    """

    session: str = ""
    prefix: str = ""
    owner: str = ""
    listing: Path | None = None

    def list_visible(self, sessions: Sequence[SessionInfo]) -> list[SessionInfo]:
        """Return those of `sessions` (the one changed last first) that are shown, in their order."""
        inside = [
            info
            for info in sessions
            if info.key.startswith(self.prefix)
            and (not self.owner or self.owner in (info.family, info.family.partition("/")[0]))
        ]
        if self.listing is not None:
            try:
                listed = set(self.listing.read_text(encoding="utf-8").splitlines())
            except OSError:
                listed = set()
            related = _find_relatives(inside, listed)
            inside = [info for info in inside if info.key in related]
        if not self.session:
            return inside
        meant = {info.key for info in _find_named(inside, self.session)}
        related = _find_relatives(inside, meant)
        return [info for info in inside if info.key in related]

    def choose_session(self, sessions: Sequence[SessionInfo], name: str = "") -> SessionInfo:
        """Return the session called `name`, of those that are shown; "": the server's own, or the only one there is.

        Raises UnknownHandle, which names what is shown and nothing else.
        """
        visible = self.list_visible(sessions)
        wanted = name or self.session
        if wanted:
            named = _find_named(visible, wanted)
        else:
            named = [info for info in visible if not info.parent]
        if not named:
            shown = f" {flatten_text(wanted)[:_SHOWN]!r}" if wanted else ""
            if not visible:
                raise UnknownHandle(f"no session{shown} is shown here yet")
            raise UnknownHandle(f"no session{shown}; there are: {list_names(visible)}")
        # The sessions of one conversation, such as those before and after a compaction, are not told apart by its id.
        conversations = {info.family if _client_id(info) == wanted else info.key for info in named}
        if len(conversations) > 1:
            raise UnknownHandle(f"{len(named)} sessions could be meant: {list_names(named)}; give one as `session`")
        return named[0]


def list_names(sessions: Sequence[SessionInfo]) -> str:
    """Return the first names in one line, without anything that a terminal acts on."""
    names = ", ".join(flatten_text(info.key)[:_SHOWN] for info in sessions[:_LISTED])
    if len(sessions) > _LISTED:
        return f"{names} and {len(sessions) - _LISTED} more"
    return names


def flatten_text(text: str) -> str:
    """Return recorded text in one line, without control characters."""
    return " ".join(remove_controls(make_encodable(text)).split())


def _find_named(sessions: Sequence[SessionInfo], name: str) -> list[SessionInfo]:
    """Return the sessions that `name` may mean: the one called so, a client's conversation, or what begins so."""
    exact = [info for info in sessions if info.key == name]
    if exact:
        return exact
    conversation = [info for info in sessions if _client_id(info) == name]
    found = conversation or [info for info in sessions if info.key.startswith(name)]
    # A session and its own branches begin alike: the name of the session is meant.
    return [info for info in found if not info.parent] or found


def _client_id(info: SessionInfo) -> str:
    """Return the id that the client gave the conversation at the gateway; "" if it gave none."""
    return info.family.partition("/")[2]


def _find_relatives(sessions: Sequence[SessionInfo], keys: set[str]) -> set[str]:
    """Return `keys`, the sessions that they came from, and all that came from them."""
    parents = {info.key: info.parent for info in sessions}
    found = set(keys)
    for key in keys:
        above = parents.get(key, "")
        while above in parents and above not in found:
            found.add(above)
            above = parents[above]
    below = set(keys)
    while below:
        below = {key for key, parent in parents.items() if parent in below and key not in found}
        found |= below
    return found


@dataclass(slots=True)
class StoredSessions:
    """The sessions of a store that `scope` shows. For any number of threads.

    open_store: opens the store for reading; asked again until it succeeds, as the agent may make the store later.
    Methods that read raise StoreError, and UnknownHandle for what is not there or not shown.
    """

    open_store: Callable[[], Store]
    scope: SessionScope
    sizer: Sizer
    guards: Guards = field(default_factory=Guards)
    _store: Store | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def find_store(self) -> Store:
        """Return the store, opened if it is not yet. Raises MissingStore, StoreError."""
        with self._lock:
            if self._store is None:
                self._store = self.open_store()
            return self._store

    def close(self) -> None:
        with self._lock:
            if self._store is not None:
                self._store.close()
                self._store = None

    # -- what was hidden ------------------------------------------------------------------------------------------

    def recall_text(self, handle: str, session: str, part: TextPart) -> str:
        """Return what is kept under `handle`, or a part of it, word for word.

        A handle that the session itself has not is looked for in what it was handed by those that it came from. Where
        no session is named, it is the one that hides something under `handle`. Raises UnknownHandle if several do:
        sub-agents count alike.
        """
        owner, key = parse_handle(handle)
        store = self.find_store()
        info, turns = self._trace_turn(store, owner, key, session)
        for turn in turns:
            text = find_text(turn, key) if turn is not None else None
            if text is not None:
                return make_encodable(extract_part(text, part))
        where = f"session {flatten_text(info.key)!r} keeps nothing under {format_handle(key)}"
        if not 1 <= key[0] <= info.turns:
            raise UnknownHandle(f"{where}: it has {info.turns} turns")
        (missing,) = store.turns(info.key, key[0], key[0])
        raise UnknownHandle(f"{where}: turn {key[0]} has {len(missing.observations)} results")

    def _trace_turn(
        self, store: Store, owner: str, key: Key, session: str
    ) -> tuple[SessionInfo, Iterable[Turn | None]]:
        """Return the session that a handle is read in, and its turn in it and in those that it came from.

        owner: the session that the handle names, "" for none; then only its own turn is returned.
        """
        sessions = store.sessions()
        hiding = [] if owner or session or self.scope.session else self._find_hiding(store, sessions, key)
        reader = session or self.scope.session or owner
        info = hiding[0] if hiding else self.scope.choose_session(sessions, reader)
        visible = {each.key: each for each in self.scope.list_visible(sessions)}
        lineage = dict(trace_stored_turn(store, visible.get, info, key[0]))
        if owner and owner not in lineage:
            # No session that the reader came from: one that is named as itself.
            info = self.scope.choose_session(sessions, owner)
            lineage = dict(trace_stored_turn(store, visible.get, info, key[0]))
        return info, [lineage[owner]] if owner in lineage else lineage.values()

    def _find_hiding(self, store: Store, sessions: Sequence[SessionInfo], key: Key) -> list[SessionInfo]:
        """Return the session whose newest request hides something under `key`; [] if none does, or too many are shown.

        Raises UnknownHandle, with what each has there, if several do that share no history.
        """
        visible = self.scope.list_visible(sessions)
        if len(visible) > _MAX_SEARCHED:
            return []
        found: list[SessionInfo] = []
        for info in visible:
            shared = {each.key for other in found for each in _list_lineage(visible, other)}
            if info.key in shared or not 1 <= key[0] <= info.turns:
                continue
            state = _replay_whole(load_session_log(store, info, self.sizer, self.guards)).state
            if key[0] <= state.covered_turns or key in state.edits:
                found.append(info)
        if len(found) > 1:
            entries = "; ".join(_describe_place(store, info, key) for info in found)
            raise UnknownHandle(f"{format_handle(key)} is hidden in {len(found)} sessions: {entries}; give `session`")
        return found

    def _find_only_hiding(self) -> str:
        """Return the name of the only session that hides something; "" if there are more, none, or too many to read."""
        store = self.find_store()
        visible = self.scope.list_visible(store.sessions())
        if self.scope.session or len(visible) > _MAX_SEARCHED:
            return ""
        found = []
        for info in visible:
            state = _replay_whole(load_session_log(store, info, self.sizer, self.guards)).state
            if state.covered_turns or state.edits:
                found.append(info.key)
        return found[0] if len(found) == 1 else ""

    def search_text(self, query: str, session: str, limit: int) -> str:
        """Return a line for each place where all words of `query` occur, the newest turn first."""
        if not query.strip():
            raise UnknownHandle("the query is empty; give words that must all occur")
        store = self.find_store()
        info = self.scope.choose_session(store.sessions(), session)
        return make_encodable(format_hits(store.search(info.key, query, min(limit, MAX_ENTRIES))))

    def list_hidden(self, session: str) -> dict[str, Any]:
        """Return what the newest request of a session leaves out: handles, tools, tokens, and what is there instead.

        Where no session is named, it is the only one that leaves something out, if there is one.
        """
        log = self._load_log(session or self._find_only_hiding())
        newest = _replay_whole(log)
        state, scale = newest.state, newest.reports.scale
        entries = []
        for turn in state.turns:
            for place, observation in enumerate(turn.observations, start=1):
                key = (turn.index, place)
                if turn.index <= state.covered_turns:
                    instead = "summary"
                elif key in state.edits:
                    instead = "fold" if state.edits[key].kind == "fold" else "placeholder"
                else:
                    continue
                tokens = scale.convert_part(state.sizer.count_observation(observation))
                entries.append(
                    {
                        "handle": make_handle(key),
                        "tool": flatten_text(observation.tool),
                        "tokens": tokens,
                        "instead": instead,
                    }
                )
        return {
            "session": make_encodable(log.info.key),
            "sent_unchanged": state.shadow,
            "hidden_results": len(entries),
            "hidden_tokens": sum(entry["tokens"] for entry in entries),
            "summarized_turns": state.covered_turns,
            "newest": entries[::-1][:MAX_ENTRIES],
        }

    # -- sessions -------------------------------------------------------------------------------------------------

    def list_sessions(self, limit: int, *, with_costs: bool) -> dict[str, Any]:
        """Return the sessions that are shown, the one changed last first. with_costs: read their logs, too."""
        store = self.find_store()
        visible = self.scope.list_visible(store.sessions())
        entries = []
        for info in visible[: max(0, min(limit, MAX_ENTRIES))]:
            entry = _describe_session(info)
            if with_costs:
                report = load_session_log(store, info, self.sizer, self.guards).build_report()
                entry |= {"model": flatten_text(report.model), "calls": len(report.calls)}
                entry |= _describe_costs(report.final.costs if report.final else Costs())
            entries.append(entry)
        return {"sessions": entries, "in_all": len(visible)}

    def inspect_session(self, session: str, calls: int) -> dict[str, Any]:
        """Return what a session sent, hid and cost, with the reasons, and its newest `calls` acting calls."""
        report = self._load_log(session).build_report()
        acted = []
        for call in report.calls:
            done = call.diagnostics
            if done.acted or done.folded or done.unfolded or call.failed_summaries or call.recalled:
                acted.append(call)
        newest = acted[::-1][: max(0, min(calls, MAX_ENTRIES))]
        final = report.final
        costs = final.costs if final else Costs()
        return {
            **_describe_session(report.info),
            "model": flatten_text(report.model),
            "strategy": flatten_text(report.strategy),
            "sent_unchanged": report.shadow,
            "calls": len(report.calls),
            "sent_tokens": report.sent_tokens,
            "tokens_with_nothing_hidden": report.raw_tokens,
            **_describe_costs(costs),
            "prices_are_of_its_model": report.has_own_prices,
            "why": list(_explain_costs(report, costs)),
            "stop": str(final.stop) if final and final.stop else "",
            "acting_calls": len(acted),
            "newest_acting_calls": [_describe_call(call) for call in newest],
        }

    def read_call(self, session: str, call: str) -> str:
        """Return a request of a session as it was sent, as JSON. call: its number, or "last".

        Raises SpecError for a call that was not made.
        """
        log = self._load_log(session)
        numbers = [event.call for event in log.events if isinstance(event, RequestSent)]
        number = str(numbers[-1]) if call == "last" and numbers else call
        text = ""
        for made, branch in log.iterate_calls():
            # The engine continues with the log: a view is made while it is at its call; of a call that was made again,
            # the newest.
            if made is not None and str(made.diagnostics.call) == number:
                dialect = log.opened.dialect if log.opened else ""
                view = build_view(branch.log, find_provider_or_default(dialect).make_renderer())
                text = json.dumps({**_describe_call(made), "system": view.system, "messages": view.messages})
        if not text:
            raise SpecError(f"session {flatten_text(log.info.key)!r} has no call {flatten_text(call)[:40]!r}")
        return make_encodable(text)

    def _load_log(self, session: str) -> SessionLog:
        store = self.find_store()
        info = self.scope.choose_session(store.sessions(), session)
        return load_session_log(store, info, self.sizer, self.guards)


def _replay_whole(log: SessionLog) -> Log:
    """Return the engine's log after the last event of a session."""
    (branch,) = (branch for call, branch in log.iterate_calls() if call is None)
    return branch.log


def _list_lineage(visible: list[SessionInfo], info: SessionInfo) -> Iterator[SessionInfo]:
    """Yield `info` and the sessions that it came from, nearest first, as far as they are shown.

    Not the one whose sub-agent it is, as they share no turns.
    """
    known = {each.key: each for each in visible}
    current: SessionInfo | None = info
    while current is not None:
        yield current
        if current.relation == "sub-agent":
            return
        known.pop(current.key, None)
        current = known.get(current.parent)


def _describe_place(store: Store, info: SessionInfo, key: Key) -> str:
    """Return a session's name, and what it keeps under `key`: the tool, and how its arguments begin."""
    (turn,) = store.turns(info.key, key[0], key[0])
    calls = [f"{action.name} {action.arguments}" for action in turn.actions]
    shown = flatten_text(", ".join(calls) or "no tool call")[:_SHOWN_CHARS]
    return f"{flatten_text(info.key)} ({shown})"


def _describe_session(info: SessionInfo) -> dict[str, Any]:
    return {
        "session": make_encodable(info.key),
        "parent": make_encodable(info.parent),
        "relation": info.relation,
        "begun": _format_time(info.begun),
        "changed": _format_time(info.changed),
        "turns": info.turns,
    }


def _describe_costs(costs: Costs) -> dict[str, Any]:
    """Return a bill in USD; `billed_usd` is None where the provider reported no usage."""
    return {
        "cost_usd": round(costs.ours, 6),
        "cost_with_nothing_hidden_usd": round(costs.raw, 6),
        "saved_by_hiding_usd": round(costs.hiding, 6),
        "billed_usd": None if costs.billed is None else round(costs.billed, 6),
    }


def _describe_call(call: CallReport) -> dict[str, Any]:
    made = call.diagnostics
    return {
        "call": made.call,
        "at": "" if call.at is None else _format_time(call.at),
        "reason": flatten_text(made.reason),
        "tokens_before": call.tokens_before,
        "tokens_sent": call.sent_tokens,
        "tokens_with_nothing_hidden": call.raw_tokens,
        "prompt_usd": round(call.bills.ours.usd, 6),
        "masked": [each.handle for each in (*made.masked, *made.clipped)],
        "folded": [each.handle for each in made.folded],
        "unfolded": list(made.unfolded),
        "summarized_turns": [made.summarized.first, made.summarized.last] if made.summarized else [],
        "failed_summaries": len(call.failed_summaries),
        "recalled": [make_handle(each.key) for each in call.recalled],
    }


def _explain_costs(report: SessionReport, costs: Costs) -> Iterator[str]:
    """Yield the reasons for what a session cost, the largest figure of each kind in a sentence."""
    final = report.final
    if final is None:
        yield "No call was made yet."
        return
    if costs.hiding >= 0:
        yield f"Hiding saved ${costs.hiding:.4f} against sending everything with the same cache."
    else:
        yield f"Hiding cost ${-costs.hiding:.4f} more than sending everything with the same cache."
    for cause, count in sorted(final.rewrites.items()):
        yield f"The cached prompt was rewritten {count} times by {cause}; what follows the change is written again."
    if costs.summarizer:
        yield f"Writing summaries cost ${costs.summarizer:.4f}; {report.failed_summary_count} attempts failed."
    if costs.recalls:
        yield f"{final.recalls} recalls put ${costs.recalls:.4f} of hidden text back into prompts."
    if costs.caching > 0:
        yield f"Cache breakpoints that the client does not set saved ${costs.caching:.4f}."
    if not report.has_own_prices:
        yield f"The model's prices are unknown; these are those of {flatten_text(report.prices.name)}."


def _format_time(seconds: float) -> str:
    """Return the time as ISO 8601 in UTC; "" for one that no calendar has."""
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):
        return ""
