"""The gist: what the agent has not written itself and is most likely to need again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.strategies.gist import _LINES_READ, KnownIdentifiers, write_gist
from elision.trajectory.items import find_items
from elision.trajectory.tokens import make_counter
from tests.properties.builders import head, long_text, turn
from tests.work import assert_linear

COUNTER = make_counter("o200k")

#: Items, and lines that have them: in a margin, a definition, an error, a path, and more than one in a line.
ITEMS = ["load_config", "src/app/main.py", "main.py", "ERR_4711", "parseLine", "a.b.c_d", "1234", "x9_y"]
ITEM_LINES = [
    "def load_config(path):",
    "12: parseLine(a.b.c_d) in src/app/main.py",
    "error: ERR_4711 in main.py",
    "1234: load_config x9_y",
    "plain words",
    "ERR_4711 1234 5678 x9_y",
]


def told(text: str, budget: int = 50, *, written: str = "") -> list[str]:
    lexicon = KnownIdentifiers()
    lexicon.add_head(head(written))
    return write_gist(text, lexicon, budget, COUNTER).split()


def test_what_was_written_is_left_out() -> None:
    """The view shows what the agent wrote anyway."""
    assert told("handle_a calls handle_b", written="see handle_a") == ["handle_b"]


def test_no_budget_no_gist() -> None:
    """gist=0 is the published plain placeholder."""
    assert told(long_text(1), 0) == []
    assert told(long_text(1), -3) == []


def test_nothing_code_like() -> None:
    """Plain words have no gist."""
    assert told("nothing of note in here, all went well") == []


def test_the_most_telling_come_first() -> None:
    """An error's line and a line that names what the agent knows come before furniture."""
    text = "\n".join(
        ["plain_one", "plain_two", "plain_three", "plain_four", "Error in broken_part", "known_name uses near_it"]
    )
    found = told(text, 500, written="known_name")
    assert set(found[:2]) == {"broken_part", "near_it"}


def test_a_path_is_not_told_twice() -> None:
    """The last part of a path says nothing that the path does not."""
    found = told("in src/deep/mod_a.py and mod_a.py")
    assert found == ["src/deep/mod_a.py"]


@pytest.mark.parametrize(
    "text",
    [
        "  4711\tdef run_it():\n  4712\t    pass\n",
        "src/a.py:4711:def run_it():\n",
        "346-    x = 1\n347-    y = 2\n--\n4711-    run_it()\n--\n",
    ],
)
def test_line_numbers_are_not_told(text: str) -> None:
    """They move with every edit; the same number elsewhere is told."""
    assert "4711" not in told(text)
    assert "4711" in told(f"{text}\nerror: see 4711")


def test_ties_stay_in_order() -> None:
    """Equal items are told in order of appearance, in every process."""
    assert told("zz_1 aa_2 mm_3 bb_4") == ["zz_1", "aa_2", "mm_3", "bb_4"]


@given(st.text(max_size=300) | st.integers(0, 40).map(long_text), st.integers(0, 80))
def test_within_its_budget(text: str, budget: int) -> None:
    """However much there is to tell, a gist keeps within its tokens and tells items of the text, each once."""
    found = write_gist(text, KnownIdentifiers(), budget, COUNTER)
    assert sum(COUNTER.count(" " + item) for item in found.split(" ") if item) <= budget
    assert set(found.split(" ")) - {""} <= {item for line in text.split("\n") for item in find_items(line)}


def test_it_depends_on_the_log_alone() -> None:
    """The same observation and the same log give the same gist."""
    one, other = KnownIdentifiers(), KnownIdentifiers()
    for lexicon in (one, other):
        lexicon.add_turn(turn(1, text="value_1_1"))
    assert write_gist(long_text(1), one, 30, COUNTER) == write_gist(long_text(1), other, 30, COUNTER)


@pytest.mark.parametrize("write", [partial(long_text, 1), "x_".__mul__, "\n".__mul__])
def test_a_huge_observation_takes_linear_time(write: Callable[[int], str]) -> None:
    """Megabytes are looked at from both ends only."""
    texts = {size: write(size) for size in (30_000, 480_000)}
    assert_linear(lambda size: write_gist(texts[size], KnownIdentifiers(), 50, COUNTER), 30_000)


@given(
    st.lists(st.sampled_from(ITEM_LINES), min_size=1, max_size=12),
    st.sets(st.sampled_from(ITEMS)),
    st.lists(st.sampled_from(ITEMS), max_size=20),
)
def test_a_text_that_was_read_before_has_the_same_gist(lines: list[str], written: set[str], seen: list[str]) -> None:
    """What the agent wrote since, and what it saw since, counts all the same."""
    text = "\n".join(lines)
    known = KnownIdentifiers()
    _LINES_READ.clear()
    write_gist(text, known, 30, COUNTER)
    known.written_by_agent |= written
    known.seen_counts.update(seen)
    after_reading = write_gist(text, known, 30, COUNTER)
    _LINES_READ.clear()
    assert after_reading == write_gist(text, known, 30, COUNTER)
