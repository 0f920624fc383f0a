"""The gist: what the agent has not written itself and is most likely to need again, also out of JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from elision.strategies.gist import _LINES_READ, KnownIdentifiers, write_gist
from elision.trajectory.items import find_items
from elision.trajectory.tokens import make_counter
from tests.claims.checks import find_misplaced_values
from tests.claims.hidden_results import HiddenResult
from tests.properties.builders import call, head, long_text, result, turn, user
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


ORDER = {
    "order_id": "#W6390527",
    "user_id": "mei_kovacs_8020",
    "items": [
        {"name": "Desk Lamp", "product_id": "6817146515", "item_id": "8384507844", "options": {"color": "white"}},
        {"name": "Boots", "product_id": "7363354090", "item_id": "1615379700", "options": {"color": "black"}},
    ],
    "payment_history": [{"transaction_type": "payment", "amount": 1394.03, "payment_method_id": "paypal_7644869"}],
}

#: JSON as tools write it: few keys, so that objects share them.
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(0, 9_999) | st.floats(0, 99) | st.text('ab_1 ,;="\\né', max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["id", "a_b", "c d", "7x"]), inner),
    max_leaves=20,
)


def tell(value: Any, budget: int = 50, *, written: str = "", shown: str = "") -> str:
    known = KnownIdentifiers()
    known.add_head(head(written))
    return write_gist(json.dumps(value), known, budget, COUNTER, shown)


def test_values_stand_under_their_keys() -> None:
    """And those of one object side by side, in the order of the text: no id is taken for another."""
    assert tell(ORDER, 90, written="mei_kovacs_8020", shown="[get_order: #W6390527]") == (
        'name="Desk Lamp" product_id=6817146515 item_id=8384507844 color=white; '
        "name=Boots product_id=7363354090 item_id=1615379700 color=black; "
        "transaction_type=payment amount=1394.03 payment_method_id=paypal_7644869"
    )


def test_what_an_object_is_called_comes_first() -> None:
    """Where there is no room for all of it, ids are told rather than amounts."""
    assert tell(ORDER["payment_history"], 12) == "payment_method_id=paypal_7644869"


def test_values_of_a_list_share_their_key() -> None:
    """They are what the next calls are made with; quotes hold a value together."""
    assert tell({"reservations": ["H8Q05L", "WUNA5K"], "left": 2}) == "reservations=H8Q05L,WUNA5K"
    assert tell({"id": 4711, "cities": ["New York", "Bern"]}) == 'id=4711 cities="New York",Bern'
    assert tell({"ids": [{"name": "Boots"}, 4711]}) == "ids=4711; name=Boots"


def test_names_of_fields_are_not_told_without_a_value() -> None:
    """Nor flags, nor what the placeholder says already; a key that is a name or a path is data."""
    assert tell({"payment_history": [], "is_open": True, "status": "pending"}, shown="-> status pending;") == ""
    assert tell({"src/app_main.py": {"lines": 3}}) == "src/app_main.py"


def test_prose_has_items() -> None:
    """A long text in a field is told like any other."""
    assert tell({"log": f"{'nothing of note here ' * 9} then load_config failed"}) == "load_config"


def test_a_list_of_names_has_no_keys() -> None:
    """And what is no JSON, or is cut in two, is told as it was."""
    assert tell(["src/app_main.py", "load_config"]) == "src/app_main.py load_config"
    text = json.dumps(ORDER)[:-9]
    assert "=" not in write_gist(text, KnownIdentifiers(), 50, COUNTER)


def test_a_shell_wraps_its_output() -> None:
    """JSON that a command printed is read out of its envelope."""
    text = f"<returncode>0</returncode>\n<output>\n{json.dumps({'build_id': 'b_4711'})}\n</output>"
    assert write_gist(text, KnownIdentifiers(), 50, COUNTER) == "build_id=b_4711"


@pytest.mark.parametrize("depth", [30, 60, 900, 100_000])
def test_deep_json_is_no_trouble(depth: int) -> None:
    """It is told as far as it is looked at."""
    text = '{"a_b":' * depth + '"x_1"' + "}" * depth
    assert write_gist(text, KnownIdentifiers(), 50, COUNTER) in {"a_b=x_1", "", "a_b", "x_1", "a_b x_1"}


@given(VALUES, st.integers(0, 60))
@example({"id": [{}, 0]}, 4)
def test_no_value_is_put_under_another_key(value: Any, budget: int) -> None:
    """Whatever the JSON, what is told side by side is of one object, and within the budget."""
    found = tell(value, budget)
    hidden = HiddenResult("", "", json.dumps(value), "", "", is_lookup=False, gist=found)
    assert list(find_misplaced_values(hidden)) == []
    assert COUNTER.count(found) <= budget


def test_many_values_take_linear_time() -> None:
    """All of them are ranked, and few are told."""
    assert_linear(lambda size: tell([{"item_id": number + 10**6, "n": "x"} for number in range(size)]), 300)


def test_who_wrote_what() -> None:
    """Head, agent and user write; observations are only seen, however often."""
    lexicon = KnownIdentifiers()
    lexicon.add_head(head("Mend parse_args in src/cli.py"))
    pair = (call(command="grep handle_one"), result("found handle_two handle_two"))
    lexicon.add_turn(turn(1, pair, text="I look at value_3", said=[user("rather mend_this")]))
    lexicon.add_turn(turn(2, (call(command="ls"), result("handle_two"))))
    assert {"parse_args", "src/cli.py", "handle_one", "value_3", "mend_this"} <= set(lexicon.written_by_agent)
    assert "handle_two" not in lexicon.written_by_agent
    assert lexicon.seen_counts["handle_two"] == 2
    assert lexicon.seen_counts["handle_one"] == 0


def test_words_that_are_taken_back_are_not_known() -> None:
    """What only the user's old words said is forgotten; what others wrote as well stays."""
    known = KnownIdentifiers()
    known.add_turn(turn(1, text="I look at value_3", said=[user("rather mend_this and value_3 in tools.py")]))
    known.add_head(head("Mend tools.py"))
    known.replace_newest_words(turn(1, said=[user("no, mend_that")]))
    assert {"value_3", "tools.py", "mend_that"} <= known.written_by_agent
    assert "mend_this" not in known.written_by_agent
    known.add_turn(turn(2, text="done"))
    known.replace_newest_words(turn(2))
    assert "mend_that" in known.written_by_agent
