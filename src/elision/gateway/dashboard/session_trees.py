"""One bill for a tree of agents: sessions that belong together, and what each role among them cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from elision.gateway.dashboard.session_cache import SessionRow
from elision.gateway.dashboard.totals import SavingsTotals
from elision.stores.store import SessionInfo
from elision.trajectory.run_roles import ROLES


def find_tree(infos: Iterable[SessionInfo], root: SessionInfo) -> list[SessionInfo]:
    """Return the sessions that belong to `root`, itself included. infos: of the store; they may be a little older.

    They came from one another, or their client gave them one id: side calls have that of the agent they serve.
    """
    near: dict[str, list[SessionInfo]] = defaultdict(list)
    by_key = {info.key: info for info in infos} | {root.key: root}
    for info in by_key.values():
        near[info.parent or info.key].append(info)
        # A family without an id is all that one credential has.
        if "/" in info.family:
            near[f"/{info.family}"].append(info)
    found: dict[str, SessionInfo] = {}
    waiting = [root]
    while waiting:
        info = waiting.pop()
        if info.key in found:
            continue
        found[info.key] = info
        waiting += near[info.key]
        if "/" in info.family:
            waiting += near[f"/{info.family}"]
        if info.parent in by_key:
            waiting.append(by_key[info.parent])
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
