"""Agents by chance at a gateway, at several over one store, and at others that come after them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.figures import ReportFigures
from tests.gateway.random_agents import RandomAgents
from tests.gateway.random_requests import TrialReport
from tests.soak import SOAK, leave_to_soak

#: Trials of each kind, of `AGENTS` agents that ask `STEPS` times each, and so often again behind a restart.
TRIALS, AGENTS, STEPS = (20, 12, 40) if SOAK else (1, 4, 12)
KINDS: dict[str, dict[str, Any]] = {
    "masking": {},
    "at once": {"strategy": "masking(window=1, schedule=every-turn)"},
    "hybrid": {"strategy": "hybrid(window=2, summarize_at=5, tail=2, schedule=every-turn)", "strict": False},
    # Where agents waver, each process may come to a branch of its own and not know what was recalled in the other's.
    "two processes": {"processes": 2, "gateway_workers": 2, "remembers": False},
}


async def trial(seed: int, store: str, given: dict[str, Any]) -> TrialReport:
    """One gateway's life, and that of the next over the same store."""
    wandering = RandomAgents(seed, agents=AGENTS, store=store, **given)
    await wandering.wander(STEPS // 2)
    wandering.begin_again()
    return await wandering.wander(STEPS // 2)


# What hides at once, and two processes, which mask, show more than masking does.
@pytest.mark.parametrize("kind", leave_to_soak(KINDS, "masking"))
def test_agents_by_chance(kind: str, tmp_path: Path, report_figures: ReportFigures) -> None:
    """No call and no word of theirs is lost or moved, and what was recalled stands in its place for good."""
    toll = TrialReport()
    for seed in range(TRIALS):
        toll += asyncio.run(trial(seed, f"sqlite:///{tmp_path}/{seed}.db", KINDS[kind]))
    report_figures(f"random agents, {kind}: {toll}")
    assert toll.problems == []
    # It is worth it: a good part is hidden in, and recalled from. How much is up to the order in which they come.
    assert toll.edited > toll.bodies // (2 if SOAK else 4)
    assert toll.recalls > (toll.bodies // 20 if SOAK else 0)
