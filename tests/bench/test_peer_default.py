"""A peer's default: what it clears, and when."""

from __future__ import annotations

from benchmarks.peer_default import KEEP, PEER, RAW, ROWS, TRIGGER, clear_at, replay_default

from elision.lab.results import RECORDED
from elision.strategies.schedules import FixedSchedule
from elision.testing.builders import call, result, trajectory, turn
from elision.trajectory.price_lookup import find_price_set


def test_it_clears_at_each_call_above_the_trigger() -> None:
    """It forgets what it cleared, so that the whole prompt decides again at each call."""
    schedule = clear_at([TRIGGER, TRIGGER + 1, TRIGGER - 1, 2 * TRIGGER]).schedule
    assert schedule == FixedSchedule(mask_calls=frozenset((2, 4)))


def test_it_keeps_the_newest_results_and_rewrites_at_each_call_from_there() -> None:
    """Eight results of some 30,000 tokens: the first one is cleared at call 5, and one more at each call after it."""
    words = " ".join(str(number) for number in range(15_000))
    turns = (turn(index, (call(command=f"cat {index}"), result(words))) for index in range(1, 9))
    rows = {row.strategy: row for row in replay_default(trajectory(*turns), find_price_set("anthropic"))}
    assert list(rows) == list(ROWS)
    assert rows[RECORDED].usd == rows[RAW].usd
    assert rows[RAW].epochs == 1
    assert rows[PEER].masked == 8 - KEEP - 1
    assert rows[PEER].epochs == 1 + rows[PEER].masked
