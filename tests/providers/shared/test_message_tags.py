"""Tags in a client's messages: read wherever they are, and taken out."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.providers.shared.json_reading import TAG_FIELDS, MessageTags, find_tags, take_tags


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"tags": ["tool_output", "logs"]}, {"tool_output", "logs"}),
        ({"tags": "keep_output"}, {"keep_output"}),
        ({"tags": []}, set()),
        ({"tags": ["", "a"]}, {"a"}),
        ({"observation.type": "tool_output"}, {"tool_output"}),
        ({"observation": {"type": "tool_output", "bytes": 3}}, {"tool_output"}),
        ({"observation_type": "tool_output"}, {"tool_output"}),
        ({"keep_output": True}, {"keep_output"}),
        ({"remove_output": True, "keep_output": False}, {"remove_output"}),
        ({"tags": ["a"], "observation": {"type": "b"}, "remove_output": True}, {"a", "b", "remove_output"}),
    ],
)
def test_fields(fields: dict[str, Any], expected: set[str]) -> None:
    """Each field's tags are read, and the field is taken out; the given message is left as it is."""
    message = {"role": "tool", "tool_call_id": "a", "content": "x", **fields}
    before = copy.deepcopy(message)
    bare, tags = take_tags(message)
    assert bare == {"role": "tool", "tool_call_id": "a", "content": "x"}
    assert tags is not None
    assert tags.whole == tags.of_text == find_tags(message) == expected
    assert message == before


@pytest.mark.parametrize(
    "fields",
    [
        {"tags": {"a": 1}},
        {"tags": [{"name": "a"}]},
        {"tags": None},
        {"observation": "it rained"},
        {"observation": {"kind": "a"}},
        {"observation.type": 3},
        {"keep_output": "yes"},
        {"metadata": {"tags": ["a"]}},
    ],
)
def test_fields_of_others_stay(fields: dict[str, Any]) -> None:
    """A field of such a name with a value of another type is not ours."""
    message = {"role": "user", "content": [{"type": "text", "text": "x", **fields}], **fields}
    bare, tags = take_tags(message)
    assert bare is message
    assert tags is None


def test_blocks_and_calls() -> None:
    """Blocks of content and calls have tags of their own."""
    results = [
        {"type": "tool_result", "tool_use_id": "a", "content": "x", "tags": ["one"]},
        {"type": "image", "source": {}, "tags": ["theirs"]},
        {"type": "text", "text": "y", "keep_output": True},
    ]
    bare, tags = take_tags({"role": "user", "content": results})
    assert tags == MessageTags(blocks={0: frozenset({"one"}), 2: frozenset({"keep_output"})})
    assert bare["content"][1] is results[1]
    assert bare["content"][2] == {"type": "text", "text": "y"}
    use = {"type": "tool_use", "id": "c", "name": "n", "input": {"tags": ["inside"]}, "tags": "two"}
    bare, tags = take_tags({"role": "assistant", "content": [use]})
    assert tags == MessageTags(calls={"c": frozenset({"two"})})
    assert bare["content"] == [{"type": "tool_use", "id": "c", "name": "n", "input": {"tags": ["inside"]}}]
    call = {"id": "d", "type": "function", "function": {"name": "n", "arguments": "{}"}, "tags": ["three"]}
    bare, tags = take_tags({"role": "assistant", "content": None, "tool_calls": [call]})
    assert tags == MessageTags(calls={"d": frozenset({"three"})})
    assert "tags" not in bare["tool_calls"][0]


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*sorted(TAG_FIELDS), "type", "content", "id"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from([*sorted(TAG_FIELDS), "content", "tool_calls", "role", "type"]), _VALUES))
def test_any_message(message: dict[str, Any]) -> None:
    """Whatever a message holds: nothing raises, nothing but our fields is lost, and a second time takes nothing."""
    before = copy.deepcopy(message)
    bare, tags = take_tags(message)
    assert message == before
    assert (tags is None) == (bare is message)
    assert take_tags(bare) == (bare, None)
    assert {name: value for name, value in bare.items() if name not in ("content", "tool_calls")} == {
        name: value for name, value in message.items() if name in bare and name not in ("content", "tool_calls")
    }
    assert set(message) - set(bare) <= TAG_FIELDS
