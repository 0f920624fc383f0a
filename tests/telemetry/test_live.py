"""The collectors behind a context manager that lives through a recorded run."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from elision import ContextManager
from elision.formats.registry import read_runs
from elision.telemetry.diagnostics import Diagnostics
from elision.telemetry.prometheus import Prometheus
from elision.trajectory.trajectory import Trajectory
from tests.telemetry.test_prometheus import scraped

RUN = Path(__file__).parents[2] / "examples" / "runs" / "swe-agent-sympy-20801.traj.gz"
SETTINGS = {
    "AGENT_CONTEXT_STRATEGY": "hybrid(window=5, summarize_at=30, tail=5)",
    "AGENT_CONTEXT_STORE": "memory:",
    "AGENT_CONTEXT_MODEL": "claude-sonnet-4-5",
    "AGENT_CONTEXT_MAX_TURNS": "60",
    "AGENT_CONTEXT_PLATEAU_WINDOW": "2",
}


@pytest.fixture(scope="module")
def lived() -> tuple[list[Diagnostics], dict[str, float]]:
    """What was told of the run, and the page that was scraped behind it."""
    told: list[Diagnostics] = []
    registry = CollectorRegistry()
    (run,) = [found for found in read_runs(RUN) if isinstance(found, Trajectory)]
    with ContextManager.from_env(SETTINGS, on_event=[told.append, Prometheus(registry)]) as context:
        for turn in run.turns:
            context.turns.view()
            action = turn.actions[0].arguments if turn.actions else None
            context.turns.add(turn.text, action, turn.observations[0].text if turn.observations else None)
        context.turns.view()
    return told, scraped(registry)


def test_sums_are_those_of_the_run(lived: tuple[list[Diagnostics], dict[str, float]]) -> None:
    """Passes, tokens, dollars and rewrites on the page are what the diagnostics of all calls come to."""
    told, found = lived
    assert len(told) == 85
    assert sum(value for name, value in found.items() if name.startswith("agent_context_passes_total ")) == 85
    assert found["agent_context_sent_tokens_total claude-sonnet-4-5"] == sum(each.after for each in told)
    costs = told[-1].costs
    assert found["agent_context_cost_usd_total ours claude-sonnet-4-5"] == pytest.approx(costs.ours)
    assert found["agent_context_saved_usd hiding claude-sonnet-4-5"] == pytest.approx(costs.hiding)
    rewrites = sum(value for name, value in found.items() if name.startswith("agent_context_rewrites_total "))
    assert rewrites == sum(told[-1].rewrites.values()) > 0
    assert found["agent_context_tokens_in claude-sonnet-4-5"] == told[-1].raw


def test_nothing_is_unlisted(lived: tuple[list[Diagnostics], dict[str, float]]) -> None:
    """No reason, cause or way of going on of a real run is `other`."""
    assert not [name for name in lived[1] if "other" in name.split()]


def test_guards_speak(lived: tuple[list[Diagnostics], dict[str, float]]) -> None:
    """The limits of the settings are watched: the run is told to stop from its 61st call on, and counted once."""
    told, found = lived
    assert [each.call for each in told if each.stop][:1] == [61]
    assert found["agent_context_stops_total max_turns"] == 1
    assert found["agent_context_stops_total plateau_window"] == 5
    assert [each.call for each in told if each.hint][:1] == [6]
