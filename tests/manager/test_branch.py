"""What a branch keeps of its session: running totals."""

from __future__ import annotations

from elision.manager.branch import TurnTotals
from elision.strategies.guards import Guards
from tests.properties.builders import SIZER, call, long_text, result, step, turn


def test_a_turn_with_another_ending_is_added_anew() -> None:
    """Totals are those of the turns as they ended, however often the newest one changed."""
    first, begun = step(1), step(2, long_text(40))
    ended = turn(2, (call(), result("one")), (call(id="b"), result("two", id="b")))
    totals, expected = TurnTotals(SIZER, Guards()), TurnTotals(SIZER, Guards())
    totals.add_new([first, begun])
    totals.remove_newest(2)
    totals.add_new([first, ended])
    expected.add_new([first, ended])
    assert totals.turns == expected.turns == 2
    assert totals.observations == expected.observations == [0, 1, 3]
    assert totals.tokens == expected.tokens
    assert totals.compositions == expected.compositions
