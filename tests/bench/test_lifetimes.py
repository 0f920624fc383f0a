"""What cache lifetimes cost: how a rule is asked."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.lifetimes import Call, choose_five_minutes, choose_hour, replay_rule
from msgspec.structs import replace

from elision.testing import builders
from elision.testing.loop.loop_study import find_named_prices
from elision.trajectory.prices import Rates

PRICES = find_named_prices("claude-opus-5-5")
TIMES = (0.0, 10.0, 700.0, 720.0)
RUN = builders.trajectory(
    *(replace(builders.step(turn, "a line\n" * 900), at=at) for turn, at in enumerate(TIMES, start=1)),
    model="claude-opus-5-5",
)


def test_a_rule_sees_only_the_calls_before() -> None:
    """And the pause after each of them."""
    asked: list[tuple[int, list[float]]] = []

    def rule(before: Sequence[Call], pauses: Sequence[float], rates: Rates, ttl: float) -> bool:
        asked.append((len(before), list(pauses)))
        return False

    _, found = replay_rule(RUN, "raw", PRICES, rule)
    assert asked == [(0, []), (1, [10.0]), (2, [10.0, 690.0]), (3, [10.0, 690.0, 20.0])]
    assert [call.pause for call in found] == [0.0, 10.0, 690.0, 20.0]


def test_an_hour_outlasts_the_pause() -> None:
    """The third call finds what was written for an hour, and not what was written for five minutes."""
    brief, lasting = (replay_rule(RUN, "raw", PRICES, rule)[1] for rule in (choose_five_minutes, choose_hour))
    assert brief[2].read == 0
    assert lasting[2].read == lasting[1].tokens
