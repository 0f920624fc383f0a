"""When a run should end."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.errors import SpecError
from elision.formats.registry import read_runs
from elision.strategies.guards import REPEAT_TURNS, Guards, RunWatch, is_failure
from elision.trajectory.plan import Stop, StopHint
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.turn import Action, Observation, Opaque, Turn
from tests.properties.builders import call, result, step, steps, turn, user

RUNS = Path(__file__).parents[2] / "examples" / "runs"


def watched(*turns: Turn, **limits: Any) -> RunWatch:
    watch = Guards(**limits).start_watch()
    for item in turns:
        watch.add_turn(item)
    return watch


def hints(*turns: Turn, window: int = 3) -> list[int]:
    """How long the standstill behind each turn is said to be; 0 for no hint."""
    watch, found = Guards(plateau_window=window).start_watch(), []
    for item in turns:
        watch.add_turn(item)
        hint = watch.find_hint()
        found.append(hint.turns if hint else 0)
    return found


def same(index: int, text: str = "12 lines", **options: Any) -> Turn:
    """A turn like any other of its index."""
    return turn(index, (call(command="make test"), result(text)), **options)


def bad(index: int, text: str = "") -> Turn:
    return step(index, text or f"make: *** no rule for target {index}", error=True)


# -- hard limits -------------------------------------------------------------------------------------------------------


def test_no_guard_says_nothing() -> None:
    """Without limits nothing ever stops."""
    watch = watched(*(same(index) for index in range(1, 50)))
    assert watch.find_stop(1e9) is None
    assert watch.find_hint() is None


def test_turns() -> None:
    """The run must stop once it has made its last turn, not before."""
    assert watched(*steps(119), max_turns=120).find_stop(0) is None
    assert watched(*steps(120), max_turns=120).find_stop(0) == Stop(guard="max_turns", limit=120, value=120)
    assert str(watched(*steps(3), max_turns=2).find_stop(0)) == "max_turns: 3 of 2"


def test_cost() -> None:
    """The run must stop once its bill has reached the limit."""
    watch = watched(*steps(2), max_cost_usd=0.5)
    assert watch.find_stop(0.4999) is None
    assert watch.find_stop(0.5) == Stop(guard="max_cost_usd", limit=0.5, value=0.5)


@given(st.integers(1, 30), st.integers(1, 30), st.floats(0, 10), st.floats(0.01, 10))
def test_limits_hold_and_nothing_else(turns: int, most: int, cost: float, usd: float) -> None:
    """There is a stop if and only if a limit is reached."""
    stop = watched(*steps(turns), max_turns=most, max_cost_usd=usd).find_stop(cost)
    assert (stop is not None) == (turns >= most or cost >= usd)


@pytest.mark.parametrize(
    "limits",
    [
        {"max_turns": 0},
        {"max_turns": True},
        {"max_turns": 2.5},
        {"max_cost_usd": 0},
        {"max_cost_usd": -1.0},
        {"max_cost_usd": math.nan},
        {"max_cost_usd": math.inf},
        {"plateau_window": 1},
    ],
)
def test_limits_without_meaning(limits: dict[str, Any]) -> None:
    """A limit without meaning is refused by name."""
    with pytest.raises(SpecError, match=f"guards\\({next(iter(limits))}="):
        Guards(**limits)


# -- standstill --------------------------------------------------------------------------------------------------------


def test_the_same_call_and_result() -> None:
    """The first of equal turns is progress; the hint comes with the third that repeats it, and goes on."""
    assert hints(*(same(index) for index in range(1, 7))) == [0, 0, 0, 3, 4, 5]


def test_a_loop_of_several_calls() -> None:
    """A loop that goes round several calls is one."""
    round_trip = [turn(i, (call(command=f"cat {i % 3}"), result(f"text {i % 3}"))) for i in range(1, 10)]
    assert hints(*round_trip) == [0, 0, 0, 0, 0, 3, 4, 5, 6]


def test_another_result_is_progress() -> None:
    """A call that is made again and says something new is progress: tests while something is mended."""
    assert not any(hints(*(same(index, f"{9 - index} failed") for index in range(1, 9))))


def test_times_and_addresses_are_no_news() -> None:
    """Two runs that differ in how long they took, or where an object lay, gave the same result."""
    texts = [f"<Parser at 0x7f{i:06x}>\n12:00:0{i} 3 failed in 0.1{i}s" for i in range(1, 6)]
    assert hints(*(same(index, text) for index, text in enumerate(texts, start=1)))[-1] == 4


def test_failures() -> None:
    """Failing results in a row are a standstill, each however new; one that works ends it."""
    assert hints(bad(1), bad(2), bad(3), bad(4), step(5), bad(6)) == [0, 0, 3, 4, 0, 0]


def test_both_kinds_add_up() -> None:
    """Failures and repeats in a row are one standstill, and the hint tells them apart."""
    watch = watched(same(1), same(2), bad(3), bad(4), plateau_window=3)
    why = "2 of them failed, 1 repeated earlier calls and got the same results"
    assert watch.find_hint() == StopHint(turns=3, why=why)
    assert str(watch.find_hint()) == f"no progress for 3 turns: {why}"


def test_parallel_calls() -> None:
    """A turn stands still only if all of its calls do."""
    stuck = (call(id="a", command="ls"), result("x", id="a"))
    turns = [turn(i, stuck, (call(id="b", command=f"cat {i}"), result(f"text {i}", id="b"))) for i in range(1, 9)]
    assert not any(hints(*turns))


def test_the_user_speaks_up() -> None:
    """New words of the user begin anew."""
    assert hints(same(1), same(2), same(3, said=[user("try the other one")]), same(4), same(5)) == [0] * 5


def test_only_talk() -> None:
    """Without any call, saying the same again is no progress; saying something else is."""
    assert hints(*(turn(index, text="done") for index in range(1, 5)))[-1] == 3
    assert not any(hints(*(turn(index, text=f"thought {index}") for index in range(1, 9))))


def test_a_second_look_much_later() -> None:
    """A file that is opened again after a while is no loop."""
    looks = [step(index) for index in range(1, 4)]
    others = [step(index) for index in range(4, 4 + REPEAT_TURNS)]
    again = [turn(20 + i, *zip(old.actions, old.observations, strict=True)) for i, old in enumerate(looks)]
    assert not any(hints(*looks, *others, *again))


def test_two_screenshots_are_two_results() -> None:
    """Pictures are compared too: the same call with another picture is progress."""
    pictures = [Opaque("image", 900, {"url": f"data:{index}"}) for index in range(5)]
    turns = [turn(i, (call("look"), result((picture,), "look"))) for i, picture in enumerate(pictures, start=1)]
    assert not any(hints(*turns))
    stuck = [turn(i, (call("look"), result((pictures[0],), "look"))) for i in range(1, 6)]
    assert hints(*stuck)[-1] == 4


@given(st.lists(st.sampled_from("abcde!"), max_size=40), st.integers(2, 8))
def test_larger_windows_hint_later(kinds: list[str], window: int) -> None:
    """A hint counts at least its window; one of a larger window is one of every smaller; the count grows by one."""
    turns = [bad(i) if kind == "!" else same(i, kind) for i, kind in enumerate(kinds, start=1)]
    found, wider = hints(*turns, window=window), hints(*turns, window=window + 1)
    assert all(count == 0 or count >= window for count in found)
    assert all(count in (0, other) for count, other in zip(wider, found, strict=True))
    assert all(later in (0, earlier + 1) for earlier, later in pairwise(found) if earlier)


@given(st.lists(st.sampled_from("abcde!"), max_size=40), st.integers(0, 20))
def test_a_restart_needs_what_is_near(kinds: list[str], start: int) -> None:
    """A watch that is shown only the newest turns hints at nothing that the whole run does not."""
    turns = [bad(i) if kind == "!" else same(i, kind) for i, kind in enumerate(kinds, start=1)]
    assert all(late <= whole for late, whole in zip(hints(*turns[start:]), hints(*turns)[start:], strict=False))


# -- failures ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "error", "expected"),
    [
        ("all well", None, False),
        ("all well", True, True),
        ("Traceback (most recent call last):\n  File\nValueError: no", None, True),
        ("Traceback (most recent call last):\n  File\nValueError: no", False, False),
        ("<returncode>1</returncode>\n<output>\nno\n</output>", None, True),
        ("<returncode>1</returncode>\n<output>\nno\n</output>", False, True),
        ("<returncode>0</returncode>\n<output>\nError: is what the page said\n</output>", None, False),
        ("cat: a.py: No such file or directory", None, True),
        ("No replacement was performed, old_str `x` did not appear", None, True),
        ("", None, False),
    ],
)
def test_failed(text: str, error: bool | None, expected: bool) -> None:
    """What the environment says counts first, then exit codes, then a result that is nothing but an error."""
    assert is_failure(Observation(action_id="a", tool="bash", content=result(text).content, error=error)) is expected


def test_text_protocol_without_a_call() -> None:
    """Where no call could be read, what was said stands for it."""
    odd = [
        Turn(
            index=index,
            content=result("let me think").content,
            observations=(Observation(action_id="", tool="", content=result("give one action").content, role="user"),),
        )
        for index in range(1, 5)
    ]
    assert hints(*odd)[-1] == 3


@given(st.text(st.characters(exclude_categories=()), max_size=900))
def test_any_text(text: str) -> None:
    """No text breaks the watch, and the same text twice is a repeat."""
    action = Action(id="a", name="x", arguments=text)
    turns = [turn(index, (action, result(text))) for index in (1, 2, 3)]
    assert hints(*turns, window=2)[-1] >= 2


# -- recorded runs -----------------------------------------------------------------------------------------------------


def test_the_sample_runs_are_not_called_stuck() -> None:
    """At the recommended window of 5 none of the four real runs, of 577 turns in all, is called stuck."""
    runs = [run for path in sorted(RUNS.glob("*.gz")) for run in read_runs(path) if isinstance(run, Trajectory)]
    assert sum(len(run.turns) for run in runs) == 577
    assert not any(any(hints(*run.turns, window=5)) for run in runs)
