"""One bill for a tree of agents: sessions that belong together, and what each role among them cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from elision.gateway.dashboard.session_cache import SessionRow
from elision.gateway.dashboard.totals import SavingsTotals
from elision.stores.store import SessionInfo
from elision.trajectory.run_roles import ROLES


class SessionTrees:
    """Which sessions of a listing belong together.

    They came from one another, or their client gave them one id: side calls have that of the agent they serve.
    """

    def __init__(self, infos: Sequence[SessionInfo]) -> None:
        self.infos = infos
        self._by_key = {info.key: info for info in infos}
        self._started = defaultdict[str, list[SessionInfo]](list)
        self._of_family = defaultdict[str, list[SessionInfo]](list)
        for info in infos:
            if info.parent != info.key:
                self._started[info.parent].append(info)
            self._of_family[info.family].append(info)

    def list_branches(self, key: str) -> Sequence[SessionInfo]:
        """Return the sessions that came from session `key`."""
        return self._started.get(key, ())

    def find_tree(self, root: SessionInfo) -> list[SessionInfo]:
        """Return the sessions that belong to `root`, itself included, which may be newer than the listing."""
        found: dict[str, SessionInfo] = {}
        waiting = [root]
        while waiting:
            info = waiting.pop()
            if info.key in found:
                continue
            found[info.key] = info
            waiting += self._started.get(info.key, ())
            # A family without an id is all that one credential has.
            if "/" in info.family:
                waiting += self._of_family.get(info.family, ())
            if info.parent in self._by_key:
                waiting.append(self._by_key[info.parent])
        return list(found.values())


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
