"""How far back the facts are that agents use."""

from __future__ import annotations

from benchmarks.fact_distances import measure_distances

from elision.testing.builders import call, result, trajectory, turn


def test_first_uses_are_counted_from_the_newest_result() -> None:
    """A fact counts once, at its first use, from the newest result that shows it; one that the task names does not."""
    run = trajectory(
        turn(1, (call(command="ls"), result("src/parser.py src/lexer.py order_4711"))),
        turn(2, (call(command="grep"), result("src/lexer.py:3: total"))),
        turn(3, text="It is in src/lexer.py, says order_4711."),
        turn(4, text="Again src/lexer.py; and src/parser.py."),
        task="Mend src/parser.py.",
    )
    assert measure_distances([run]) == {1: 1, 2: 1}
