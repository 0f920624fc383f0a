"""Runs as they were sent: within a fraction of what they were billed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from elision.formats.registry import read_runs
from elision.lab.replay import replay_run
from elision.lab.results import BILLED, RECORDED
from elision.lab.run_as_recorded import add_recorded_head, size_run, sizer
from elision.lab.run_loading import find_recorded_prices
from elision.lab.sent_rows import SentRows, replay_as_sent
from elision.strategies.spec import parse_strategy
from elision.trajectory.price_lookup import find_prices
from elision.trajectory.prices import Prices
from elision.trajectory.trajectory import Trajectory
from tests.corpus import CORPUS, reproduces

RUNS = Path(__file__).parents[2] / "examples/runs"
#: Formats of the corpus whose runs hold the usage of a cache.
BILLED_FOLDERS = (
    *("claude-code", "cline", "inspect-ai", "mini-swe-agent", "openhands-output", "openhands-v1-events", "pi-session"),
)


def read(path: Path) -> list[Trajectory]:
    return [found for found in read_runs(path) if isinstance(found, Trajectory)]


def send(run: Trajectory, prices: Prices | None = None) -> SentRows:
    prices = prices or find_recorded_prices(run)
    plain = sizer("anthropic" if prices.cache.kind == "breakpoints" else "openai", "o200k")
    told = add_recorded_head(run, size_run(run, prices, plain))
    return replay_as_sent(told, prices, size_run(told, prices, plain))


def bill(rows: SentRows) -> tuple[float, float]:
    """Return the run as billed and as recorded, in USD."""
    costs = {row.strategy: row.usd for row, _ in rows.rows}
    return costs[BILLED], costs[RECORDED]


@reproduces("that runs as recorded cost what they were billed")
def test_as_recorded_is_as_billed() -> None:
    """On every recording with the usage of a cache: within 2 % in all, and within 5 % each."""
    billed = recorded = 0.0
    runs = 0
    for folder in BILLED_FOLDERS:
        for run in read(CORPUS / folder):
            if not any(turn.usage and turn.usage.cache_read for turn in run.turns):
                continue
            ours = bill(send(run))
            assert ours[1] == pytest.approx(ours[0], rel=0.05), run.file
            billed, recorded, runs = billed + ours[0], recorded + ours[1], runs + 1
    assert runs == 20
    assert recorded == pytest.approx(billed, rel=0.01)


def test_an_agent_that_condensed_is_cut_where_it_did() -> None:
    """The bill is reproduced with the agent's own summaries; sending everything costs more, and never happened."""
    (run,) = read(RUNS / "openhands-pylint.tar.gz")
    rows = send(run)
    assert rows.sent.cuts
    assert len(rows.sent.summaries) == len(rows.sent.cuts)
    billed, recorded = bill(rows)
    assert recorded == pytest.approx(billed, rel=0.01)
    prices = find_recorded_prices(run)
    plain = sizer("anthropic", "o200k")
    told = add_recorded_head(run, size_run(run, prices, plain))
    counting = size_run(told, prices, plain)
    everything = replay_run(told, parse_strategy("raw"), prices, counting, sent=rows.sent)
    assert everything.usd > 1.1 * recorded


def test_without_a_bill_there_is_no_row_of_it() -> None:
    """A recording that holds no usage has a row of what it sent, by our count."""
    (run,) = read(RUNS / "swe-agent-sympy-20801.traj.gz")
    rows = send(run, find_prices("claude-opus-4-5"))
    assert [row.strategy for row, _ in rows.rows] == [RECORDED]
    assert rows.summary.billed_runs == 0


def test_another_models_prices_are_no_bill() -> None:
    """What was paid stays beside it, at the prices of the model that was paid, and is compared with nothing."""
    (run,) = read(RUNS / "mini-swe-agent-marshmallow-1343.traj.json.gz")
    rows = send(run, find_prices("claude-opus-4-5"))
    billed = rows.rows[0][0]
    assert billed.strategy == BILLED
    assert billed.to_recorded is None
    assert not rows.summary.own_prices
    assert billed.usd == pytest.approx(bill(send(run))[0])


def test_a_window_of_the_agents_own_is_kept() -> None:
    """An agent that saw its newest five results only is replayed as it saw them."""
    (run,) = read(RUNS / "swe-agent-sympy-20801.traj.gz")
    prices = find_prices("claude-opus-4-5")
    whole = send(run, prices)
    windowed = send(replace(run, recorded_window=5), prices)
    assert windowed.summary.windowed_runs == 1
    assert windowed.replay.masked > 0 == whole.replay.masked
    assert windowed.replay.peak < whole.replay.peak


def test_calls_of_another_model_stand_as_they_were_billed() -> None:
    """A run whose last call another model made: its bill is in each row, whatever is hidden."""
    (run,) = read(RUNS / "mini-swe-agent-marshmallow-1343.traj.json.gz")
    last = msgspec.structs.replace(run.turns[-1], model="gpt-4o-mini")
    mixed = replace(run, turns=(*run.turns[:-1], last))
    rows = send(mixed)
    assert rows.summary.other_calls == 1
    assert list(rows.sent.others) == [last.index]
    assert rows.replay.calls[-1].usd == pytest.approx(rows.sent.others[last.index].usd)
