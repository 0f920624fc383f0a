"""When a recording's calls started, and by which model: what a replay tells the strategy of the world outside."""

from __future__ import annotations

from collections.abc import Iterator

from elision.trajectory.trajectory import Trajectory


def calls(trajectory: Trajectory) -> Iterator[tuple[float | None, str]]:
    """(seconds since the epoch or None, model) of every call, time never running backwards."""
    latest: float | None = None
    for turn in trajectory.turns:
        if turn.at is not None and (latest is None or turn.at > latest):
            latest = turn.at
        yield (latest if turn.at is not None else None), turn.model
