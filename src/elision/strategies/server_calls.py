"""Calls that the provider runs itself, whose result may come in a later turn than the call."""

from __future__ import annotations

from elision.trajectory.content import Opaque
from elision.trajectory.turn import Turn


class ServerCalls:
    """The turns between each such call and its result. A summary may not cover the call alone: a result without its
    call is rejected."""

    def __init__(self) -> None:
        self._open_calls: dict[str, int] = {}
        self._spans: list[tuple[int, int]] = []

    def add_turn(self, turn: Turn) -> None:
        """Learn the calls of `turn`, and which earlier ones its results answer."""
        for part in turn.content:
            if not isinstance(part, Opaque) or part.data is None:
                continue
            if part.kind in ("server_tool_use", "mcp_tool_use"):
                self._open_calls.setdefault(str(part.data.get("id")), turn.index)
            elif part.kind.endswith("_tool_result"):
                called = self._open_calls.get(str(part.data.get("tool_use_id")), turn.index)
                if called < turn.index:
                    self._spans.append((called, turn.index))

    def limit_summary(self, covers: int) -> int:
        """Return the most turns, `covers` or fewer, that a summary may cover without parting a call from its result."""
        for called, answered in reversed(self._spans):
            if called <= covers < answered:
                covers = called - 1
        return covers
