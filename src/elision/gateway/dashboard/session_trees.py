"""One bill for a tree of agents: sessions that belong together, and what each role among them cost."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from elision.gateway.dashboard.session_cache import SessionRow
from elision.gateway.dashboard.totals import SavingsTotals
from elision.stores.store import SessionInfo
from elision.trajectory.run_roles import ROLES


class TreeIndex:
    """Which sessions belong together, kept from one listing of a store to the next. Several threads may use it.

    Sessions belong together if they came from one another, or if their client gave them one id: side calls have that
    of the agent they serve.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listing: Sequence[SessionInfo] = ()
        self._infos: dict[str, SessionInfo] = {}
        # Sessions by what they share: the key of a parent, or "/" and a client's id.
        self._members: dict[str, dict[str, None]] = defaultdict(dict)

    def find_tree(self, listing: Sequence[SessionInfo], root: SessionInfo) -> list[SessionInfo]:
        """Return the sessions that belong to `root`, itself included. listing: of the store; it may be a little older.

        A listing that was given before is not read again, so do not change it.
        """
        with self._lock:
            if listing is not self._listing:
                self._read_listing(listing)
            self._put(root)
            found: dict[str, SessionInfo] = {}
            waiting = [root.key]
            while waiting:
                info = self._infos.get(waiting.pop())
                if info is None or info.key in found:
                    continue
                found[info.key] = info
                waiting.append(info.parent)
                waiting += self._members.get(info.key, ())
                if "/" in info.family:
                    waiting += self._members.get(f"/{info.family}", ())
            return list(found.values())

    def _read_listing(self, listing: Sequence[SessionInfo]) -> None:
        for info in listing:
            self._put(info)
        if len(self._infos) > len(listing):
            keys = {info.key for info in listing}
            for info in [info for info in self._infos.values() if info.key not in keys]:
                self._remove(info)
        self._listing = listing

    def _put(self, info: SessionInfo) -> None:
        before = self._infos.get(info.key)
        if before is None or (before.parent, before.family) != (info.parent, info.family):
            if before is not None:
                self._remove(before)
            for link in _list_links(info):
                self._members[link][info.key] = None
        self._infos[info.key] = info

    def _remove(self, info: SessionInfo) -> None:
        del self._infos[info.key]
        for link in _list_links(info):
            del self._members[link][info.key]
            if not self._members[link]:
                del self._members[link]


def _list_links(info: SessionInfo) -> list[str]:
    """Return what joins a session to others. A family without an id is all that one credential has."""
    links = [info.parent] if info.parent else []
    return [*links, f"/{info.family}"] if "/" in info.family else links


def render_roles(rows: Iterable[SessionRow]) -> dict[str, Any]:
    """Render what each role cost that occurs, in calls of its own. usd: as reported, else at the simulated cache."""
    found: dict[str, list[SavingsTotals]] = defaultdict(list)
    for row in rows:
        found[row.role].append(row.own_totals)
    return {
        role: {
            "sessions": len(found[role]),
            "calls": sum(each.calls for each in found[role]),
            "usd": sum(each.ours.total for each in found[role]),
        }
        for role in ROLES
        if role in found
    }
