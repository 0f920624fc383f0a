"""Calls in short, and the ledger of what was tried and failed."""

from __future__ import annotations

import pytest

from elision.summarizers.call_lines import (
    NO_OUTPUT,
    Attempt,
    count_failures,
    parse_attempt,
    rank_attempts,
    update_ledger,
)
from tests.summarizers.turns import make_turn


def test_same_call_and_error_is_one_entry_with_its_count() -> None:
    """A call that fails the same way again adds to the count of its entry."""
    ledger = update_ledger(
        make_turn(n, command="pytest tests/x.py", result="ValueError: bad width 7", error=True) for n in (3, 5, 9)
    )
    assert [str(entry) for entry in ledger] == ["3x `pytest tests/x.py` -> ValueError: bad width 7 [3-9]"]


def test_numbers_in_an_error_do_not_make_it_another() -> None:
    """Line numbers, times and addresses in an error are set aside when entries are compared."""
    ledger = update_ledger(make_turn(n, command="make", result=f"ValueError: line {n}0", error=True) for n in (1, 2))
    assert [(entry.count, entry.error) for entry in ledger] == [(2, "ValueError: line 20")]


def test_another_error_is_another_entry() -> None:
    """A call that fails in a new way has moved on, and gets an entry of its own."""
    ledger = update_ledger(
        [
            make_turn(1, command="make", result="ValueError: a", error=True),
            make_turn(2, command="make", result="KeyError: b", error=True),
        ]
    )
    assert [entry.error for entry in ledger] == ["ValueError: a", "KeyError: b"]


def test_paging_and_spacing_do_not_make_a_call_another() -> None:
    """`cd`, `2>&1 | tail` and spacing are left out when calls are compared."""
    commands = ("cd /app && make  all 2>&1 | tail -20", "make all")
    ledger = update_ledger(
        make_turn(n, command=command, result="ValueError: a", error=True) for n, command in enumerate(commands, start=1)
    )
    assert [entry.count for entry in ledger] == [2]


def test_long_calls_that_differ_in_the_middle_stay_apart() -> None:
    """What is cut from a long call is there as a checksum."""
    bodies = ("x" * 400 + middle + "y" * 400 for middle in ("one", "two"))
    ledger = update_ledger(
        make_turn(n, command=f"python - <<E\n{body}\nE", result="ValueError: a", error=True)
        for n, body in enumerate(bodies, start=1)
    )
    assert [entry.count for entry in ledger] == [1, 1]


def test_a_call_that_works_later_says_so() -> None:
    """Success after failure is noted with its turn; a new failure takes the note away."""
    bad, good = {"result": "ValueError: a", "error": True}, {"result": "fine", "error": False}
    ledger = update_ledger([make_turn(1, command="make", **bad), make_turn(4, command="make", **good)])
    assert ledger[0].worked_turn == 4
    assert update_ledger([make_turn(6, command="make", **bad)], ledger)[0] == Attempt(
        action="`make`", error="ValueError: a", count=2, first_turn=1, last_turn=6
    )


def test_a_silent_failure_is_named() -> None:
    """A failing call without output is told apart from one with an error line."""
    ledger = update_ledger([make_turn(1, command="grep -rn nowhere src", result="", error=True)])
    assert ledger[0].error == NO_OUTPUT


@pytest.mark.parametrize(
    "attempt",
    [
        Attempt(action="`make`", error="KeyError: 'a'", first_turn=3, last_turn=3),
        Attempt(action="get(id=4)", error="not found [404]", count=12, first_turn=3, last_turn=40),
        Attempt(
            action="`a -> b`".replace(" -> ", "->"), error="x -> y", count=2, first_turn=1, last_turn=2, worked_turn=9
        ),
    ],
)
def test_a_line_reads_back(attempt: Attempt) -> None:
    """What an entry is written as is what it is read from."""
    assert parse_attempt(str(attempt)) == attempt


def test_other_lines_are_no_attempts() -> None:
    """A line that no entry wrote is not taken for one."""
    assert parse_attempt("3x something happened") is None


def test_the_stuck_come_first() -> None:
    """Entries that never worked and were tried most often are kept longest."""
    once = Attempt(action="a", error="e", first_turn=9, last_turn=9)
    often = Attempt(action="b", error="e", count=4, first_turn=1, last_turn=5)
    solved = Attempt(action="c", error="e", count=5, first_turn=1, last_turn=5, worked_turn=7)
    assert rank_attempts([solved, once, often]) == [often, once, solved]
    assert count_failures([solved, once, often]) == 10
