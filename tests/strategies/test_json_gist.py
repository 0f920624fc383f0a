"""Gists of JSON: values under their keys, those of one object side by side."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from elision.strategies.gist import KnownIdentifiers, write_gist
from elision.trajectory.tokens import make_counter
from tests.claims.checks import find_misplaced_values
from tests.claims.hidden_results import HiddenResult
from tests.properties.builders import head
from tests.work import assert_linear

COUNTER = make_counter("o200k")
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
