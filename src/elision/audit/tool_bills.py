"""What each declared tool cost a run: its definition is part of every prompt, whether or not the tool is called."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from elision.trajectory.tokens import Sizer
from elision.trajectory.tool_definitions import get_tool_name, list_tools
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.turn import Head


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolBill:
    """One tool.

    tokens: of its definition, the largest where runs declare different ones. calls: of the tool. usd: what its
    definition cost in all prompts, idle_usd: in those of runs that never call it. runs: that declare it; idle_runs: of
    these, the ones that never call it.
    """

    name: str
    tokens: int
    calls: int = 0
    usd: float = 0.0
    idle_usd: float = 0.0
    runs: int = 1
    idle_runs: int = 0

    def __add__(self, other: ToolBill) -> ToolBill:
        return ToolBill(
            name=self.name,
            tokens=max(self.tokens, other.tokens),
            calls=self.calls + other.calls,
            usd=self.usd + other.usd,
            idle_usd=self.idle_usd + other.idle_usd,
            runs=self.runs + other.runs,
            idle_runs=self.idle_runs + other.idle_runs,
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "tokens": self.tokens,
            "calls": self.calls,
            "usd": self.usd,
            "never_called_usd": self.idle_usd,
            "runs": self.runs,
            "runs_without_call": self.idle_runs,
        }


def count_tools(trajectory: Trajectory, sizer: Sizer) -> dict[str, ToolBill]:
    """Return the tools that a run declares, by name, without a price.

    A run without any call may have been cut off before its first one: none of its tools counts as idle.
    """
    called = Counter(action.name for turn in trajectory.turns for action in turn.actions)
    tokens: Counter[str] = Counter()
    for tool in list_tools(trajectory.head):
        tokens[get_tool_name(tool)] += sizer.count_tools(Head(tools=(tool,)))
    return {
        name: ToolBill(name=name, tokens=own, calls=called[name], idle_runs=int(bool(called) and name not in called))
        for name, own in tokens.items()
    }


def measure_idle_share(tools: Mapping[str, ToolBill]) -> float:
    """Return the share of the definitions' tokens, 0 to 1, that belongs to tools which the run never calls."""
    every = sum(tool.tokens for tool in tools.values())
    return sum(tool.tokens for tool in tools.values() if tool.idle_runs) / every if every else 0.0


def bill_tools(tools: Mapping[str, ToolBill], usd: float) -> dict[str, ToolBill]:
    """Return the tools of one run with what each cost it. usd: what all definitions together cost."""
    every = sum(tool.tokens for tool in tools.values())
    found = {}
    for name, tool in tools.items():
        cost = usd * tool.tokens / every if every else 0.0
        found[name] = replace(tool, usd=cost, idle_usd=cost if tool.idle_runs else 0.0)
    return found


def sum_tools(bills: Iterable[dict[str, ToolBill]]) -> list[ToolBill]:
    """Return the tools of several runs, what was paid for nothing first."""
    found: dict[str, ToolBill] = {}
    for tools in bills:
        for name, bill in tools.items():
            found[name] = found[name] + bill if name in found else bill
    return sorted(found.values(), key=lambda bill: (-bill.idle_usd, -bill.usd, bill.name))
