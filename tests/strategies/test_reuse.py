"""Results by the time since they were made or used."""

from __future__ import annotations

import pickle
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from elision.strategies.reuse import MOST_RUNS, MOST_WRITTEN, NEWEST_SHOWN, Unused
from elision.strategies.selectors import OlderThan
from elision.trajectory.plan import Key
from elision.trajectory.turn import Turn
from tests.properties.builders import call, result, turn
from tests.work import count_calls


def look(index: int, text: str, says: str = "", command: str = "") -> Turn:
    """A turn that reads something of its own, unless `command` says what, and writes `says`."""
    return turn(index, (call(command=command or f"cat file_{index}.py"), result(text)), text=says)


def find_due(window: int, turns: Sequence[Turn]) -> dict[Key, int]:
    selector = Unused(window)
    return {key: since for each in turns for since, key in selector.find_due_keys(each)}


def test_what_is_used_stays() -> None:
    """A result that shows what the agent writes next is as young as that turn."""
    turns = [look(1, "see parse_header and read_body"), look(2, "plain words")]
    turns += [look(3, "x", says="parse_header is wrong"), *(look(index, "x") for index in range(4, 9))]
    assert find_due(3, turns) == {(2, 1): 6, (1, 1): 7, (3, 1): 7, (4, 1): 8, (5, 1): 9}


def test_what_the_agent_knows_already_is_no_use() -> None:
    """An item that it wrote before the result was made, or uses again, says nothing of the result."""
    known = [look(1, "x", says="parse_header"), look(2, "see parse_header")]
    known += [look(index, "x", says="parse_header") for index in range(3, 9)]
    assert find_due(3, known)[2, 1] == 6
    again = [look(1, "see parse_header"), *(look(index, "x", says="parse_header") for index in range(2, 9))]
    assert find_due(3, again)[1, 1] == 2 + 3 + 1


def test_a_command_that_is_run_again_stays_for_less() -> None:
    """Not a file that is read again, all of it or a part, nor an edit."""
    turns = [look(1, "x", command="cat a.py"), look(2, "x", command="make"), look(3, "x", command="cat a.py")]
    turns += [look(4, "x", command="make"), *(look(index, "x") for index in range(5, 12))]
    found = find_due(5, turns)
    assert {key: since - key[0] for key, since in found.items() if key[0] < 5} == {
        (1, 1): 6,
        (2, 1): 6,
        (3, 1): 6,
        (4, 1): 3,
    }


def test_an_item_of_many_results_counts_for_the_newest() -> None:
    """A name that everything shows does not keep everything."""
    turns = [look(index, "see parse_header") for index in range(1, NEWEST_SHOWN + 3)]
    turns.append(look(NEWEST_SHOWN + 3, "x", says="parse_header"))
    turns += [look(index, "x") for index in range(NEWEST_SHOWN + 4, 60)]
    late = [key for key, since in find_due(20, turns).items() if since - key[0] > 21]
    assert late == [(index, 1) for index in range(3, NEWEST_SHOWN + 3)]


def test_work_and_memory_per_turn_stay_flat() -> None:
    """To 5,000 turns: each writes names and runs a command that no turn before had, and its result shows such names."""
    selector = Unused(10)
    calls, sizes = {}, {}
    for index in range(1, 5_001):
        names = " ".join(f"name_{index:05}_{number}" for number in range(4))
        newest = look(
            index, f"see seen_{index:05} and {names}", says=f"{names} seen_{index - 1:05}", command=f"make {index:05}"
        )
        if index in (2_500, 5_000):
            # What is looked up in caches that all sessions share is looked up before.
            list(Unused(10).find_due_keys(newest))
            calls[index] = count_calls(lambda each=newest: list(selector.find_due_keys(each)))
            sizes[index] = len(pickle.dumps(selector))
        else:
            list(selector.find_due_keys(newest))
    assert calls[2_500] == calls[5_000]
    assert sizes[5_000] <= sizes[2_500] * 1.01
    assert (len(selector._written), len(selector._runs)) == (MOST_WRITTEN, MOST_RUNS)


def test_what_was_written_long_ago_is_a_use_again() -> None:
    """The newest names that the agent wrote are remembered; writing one again makes it the newest."""
    some = " ".join(f"first_{number:02}" for number in range(60))
    many = " ".join(f"name_{number:05}" for number in range(MOST_WRITTEN - 40))
    turns = [look(1, "x", says="old_name kept_name"), look(2, "x", says=f"{some} kept_name"), look(3, "x", says=many)]
    turns += [look(4, "see old_name"), look(5, "see kept_name"), look(6, "x")]
    turns += [look(7, "x", says="old_name kept_name"), *(look(index, "x") for index in range(8, 12))]
    found = find_due(3, turns)
    assert (found[4, 1], found[5, 1]) == (7 + 3 + 1, 5 + 3 + 1)


_WORDS = st.lists(st.sampled_from(["get_a", "get_b", "get_c", "get_d"]), max_size=3).map(" ".join)


@given(st.lists(st.tuples(_WORDS, _WORDS), max_size=30), st.integers(1, 6))
def test_never_sooner_than_by_age(words: list[tuple[str, str]], window: int) -> None:
    """Each first look is due once, not before its age is `window`; nothing is kept of what was due."""
    turns = [look(index, shown, says) for index, (shown, says) in enumerate(words, start=1)]
    selector, plain = Unused(window), OlderThan(window)
    found: dict[Key, int] = {}
    for each in turns:
        for since, key in selector.find_due_keys(each):
            assert key not in found
            found[key] = since
    by_age = {key: since for each in turns for since, key in plain.find_due_keys(each)}
    assert all(since >= by_age[key] for key, since in found.items())
    assert selector._shown.keys() == by_age.keys() - found.keys()
    assert {key for keys in selector._shown_by.values() for key in keys} <= selector._shown.keys()
