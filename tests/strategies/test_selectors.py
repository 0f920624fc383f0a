"""Which observations may be hidden, and from which call on."""

from __future__ import annotations

from elision.strategies.selectors import AllButNewestResults, OlderThan, Selector
from elision.trajectory.plan import Key
from elision.trajectory.turn import Turn
from tests.properties.builders import call, result, step, turn


def eligible(selector: Selector, *turns: Turn) -> dict[Key, int]:
    return {key: since for item in turns for since, key in selector.find_due_keys(item)}


def parallel(index: int, count: int) -> Turn:
    return turn(index, *((call(id=str(number)), result("x", id=str(number))) for number in range(count)))


def test_older_than() -> None:
    """At call t the observations of turns i < t - W: turn 1 from call W + 2 on, all results of a turn at once."""
    assert eligible(OlderThan(3), step(1), parallel(2, 2)) == {(1, 1): 5, (2, 1): 6, (2, 2): 6}


def test_all_but_newest_results() -> None:
    """Results are counted, not turns; turns without any do not push others out."""
    found = eligible(AllButNewestResults(2), step(1), turn(2), step(3), turn(4), step(5))
    assert found == {(1, 1): 6}


def test_results_of_the_newest_turn_wait() -> None:
    """A turn with more results than may stay keeps them all until the next turn."""
    found = eligible(AllButNewestResults(2), step(1), parallel(2, 4))
    assert found == {(1, 1): 3, (2, 1): 4, (2, 2): 4}
