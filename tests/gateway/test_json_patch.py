"""What changed in a message is written anew; what did not keeps its bytes."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.gateway.json_bytes import append_elements, encode_json, patch_json
from elision.gateway.request_body import UnreadableBody, decode_message
from tests.gateway.random_json import NUMBERS, JsonWriter, iterate_requests

seeds = st.integers(0, 2**32)
MARK = {"type": "ephemeral"}


def said(value: Any) -> str:
    """The value exactly, whatever the order of its fields: 1, 1.0 and True are three."""
    return json.dumps(value, sort_keys=True)


def changed(value: Any, chance: random.Random) -> Any:
    """`value` with something in it changed, put in or left out."""
    way = chance.randrange(6)
    if isinstance(value, dict) and way:
        names = [name for name in value if chance.random() < 0.9]
        out = {name: changed(value[name], chance) if chance.random() < 0.4 else value[name] for name in names}
        return {**out, "new": [1, 2.0, "é"]} if chance.random() < 0.4 else out
    if isinstance(value, list) and way:
        items = [changed(each, chance) if chance.random() < 0.4 else each for each in value if chance.random() < 0.8]
        items[chance.randrange(len(items) + 1) : 0] = [{"type": "text", "text": "new"}] * chance.randrange(2)
        return items
    return chance.choice(["", "é😀\n", 1, 1.0, True, None, -0.0, 10**30, {}, [], [{"a": 1}], value])


@given(seeds)
def test_what_is_written_says_what_it_should(seed: int) -> None:
    """Whatever changed, the bytes say the new value exactly; where nothing did they are the very same."""
    writer = JsonWriter(random.Random(seed))
    raw = writer.write_message().encode()
    before = decode_message(raw)
    for _ in range(4):
        after = changed(before, writer.chance)
        assert said(json.loads(patch_json(raw, before, after))) == said(after)
    assert patch_json(raw, before, decode_message(raw)) is raw


@given(seeds)
def test_what_nobody_touched_keeps_its_bytes(seed: int) -> None:
    """A hidden result: every other value of its message has its bytes, escapes and odd numbers included."""
    writer = JsonWriter(random.Random(seed), names=("x", "y", "text", "cache_control"), doubles=False)
    front, back = writer.write_pairs(), writer.write_pairs()
    blocks = [writer.write_object([("type", '"image"'), *writer.write_pairs()]) for _ in range(3)]
    pairs = [("type", '"tool_result"'), *front, ("content", writer.write_value()), *back]
    place = writer.chance.randrange(4)
    blocks.insert(place, writer.write_object(pairs))
    raw = writer.write_object([("role", '"user"'), ("content", writer.write_array(blocks)), *writer.write_pairs()])
    before, after = decode_message(raw.encode()), json.loads(raw)
    after["content"][place]["content"] = "[hidden]"
    out = patch_json(raw.encode(), before, after)
    assert said(json.loads(out)) == said(after)
    own, new = split(raw.encode()), split(out)
    assert list(own) == list(new)
    assert [value for name, value in own.items() if name != "content"] == [
        value for name, value in new.items() if name != "content"
    ]
    elements = msgspec.json.decode(new["content"], type=list[msgspec.Raw])
    assert [bytes(each).decode() for at, each in enumerate(elements) if at != place] == [
        each for at, each in enumerate(blocks) if at != place
    ]
    hidden, was = split(bytes(elements[place])), split(blocks[place].encode())
    assert hidden == {**was, "content": b'"[hidden]"'}


def split(raw: bytes) -> dict[str, bytes]:
    """Each field's bytes."""
    return {name: bytes(value) for name, value in msgspec.json.decode(raw, type=dict[str, msgspec.Raw]).items()}


RESULT = b"""{"role":"user","content":[\
{"type":"tool_result","tool_use_id":"a","content":"long \\u00e9","x":1.0,"y":1e5},\
{"type":"tool_result","tool_use_id":"b","content":[{"type":"text", "text":"t\\/t"}],"x":12345678901234567890123456789},\
{"type":"text","text":"\\ud83d\\ude00"}],"z":[0.10, -0]}"""


def test_a_masked_block_among_others() -> None:
    """One block says something else: the rest of it and all others stay."""
    before, after = decode_message(RESULT), decode_message(RESULT)
    after["content"][0]["content"] = "[hidden]"
    assert patch_json(RESULT, before, after) == RESULT.replace(b'"long \\u00e9"', b'"[hidden]"')


def test_a_cache_marker_joins_a_block() -> None:
    """A field that is new is put after those that were there."""
    before, after = decode_message(RESULT), decode_message(RESULT)
    after["content"][2]["cache_control"] = MARK
    marked = b'"\\ud83d\\ude00","cache_control":{"type":"ephemeral"}}'
    assert patch_json(RESULT, before, after) == RESULT.replace(b'"\\ud83d\\ude00"}', marked)


def test_blocks_that_are_left_out() -> None:
    """Of the blocks that stay each keeps its bytes, wherever the others were."""
    before = decode_message(RESULT)
    blocks = [bytes(each) for each in msgspec.json.decode(split(RESULT)["content"], type=list[msgspec.Raw])]
    for kept in ([1, 2], [0, 2], [2], [1], [0, 1]):
        after = {**before, "content": [before["content"][place] for place in kept]}
        expected = b'{"role":"user","content":[%b],"z":[0.10, -0]}' % b",".join(blocks[place] for place in kept)
        assert patch_json(RESULT, before, after) == expected
    swapped = {**before, "content": [before["content"][2], before["content"][0]]}
    assert json.loads(patch_json(RESULT, before, swapped)) == json.loads(json.dumps(swapped))


def test_results_join_the_front() -> None:
    """Blocks put before others leave those as they are."""
    before = decode_message(RESULT)
    new = {"type": "tool_result", "tool_use_id": "c", "content": "r"}
    joined = b'[{"type":"tool_result","tool_use_id":"c","content":"r"},'
    assert patch_json(RESULT, before, {**before, "content": [new, *before["content"]]}) == RESULT.replace(
        b"[", joined, 1
    )


@pytest.mark.parametrize("one", [*NUMBERS, "true", "false", "null", '"1"', "[]", "{}"])
def test_equal_in_python_is_not_equal_in_json(one: str) -> None:
    """1, 1.0 and True are three values; each replaces another."""
    for other in ("1", "1.0", "true", "0", "-0.0", "false", "null"):
        raw = f'{{"a": {one} ,"b":7}}'.encode()
        after = json.loads(f'{{"a":{other},"b":7}}')
        out = patch_json(raw, decode_message(raw), after)
        assert repr(json.loads(out)) == repr(after)
        assert repr(json.loads(one)) != repr(json.loads(other)) or out == raw


def test_doubles_in_a_touched_message() -> None:
    """Of a field that is there twice the last one counts, and stays."""
    raw = b'{"a":1, "b":2.0, "a":3.0}'
    assert patch_json(raw, decode_message(raw), decode_message(raw)) == raw
    assert patch_json(raw, decode_message(raw), {"a": 4, "b": 2.0}) == b'{"a":4,"b":2.0}'
    assert patch_json(raw, decode_message(raw), {"a": 3.0, "b": 5}) == b'{"a":3.0,"b":5}'
    assert patch_json(raw, decode_message(raw), {}) == b"{}"


def test_half_a_surrogate_pair_is_written_as_an_escape() -> None:
    """Text that has no UTF-8 is JSON all the same."""
    assert patch_json(b'{"a":1}', {"a": 1}, {"a": "\ud800"}) == b'{"a":"\\ud800"}'
    assert encode_json({"\ud800": 10**30}) == b'{"\\ud800":1000000000000000000000000000000}'


@pytest.mark.parametrize(
    ("raw", "before", "after"),
    [
        (b"{", {"a": 1}, {"a": 2}),
        (b"[1", [1], [2]),
        (b"{}", {}, {"a": object()}),
        (b"[]", {"a": 1}, {"a": {"b": object()}}),
    ],
)
def test_what_cannot_be_written_is_unreadable(raw: bytes, before: Any, after: Any) -> None:
    """One kind of error, whatever is wrong."""
    with pytest.raises(UnreadableBody):
        patch_json(raw, before, after)


def test_endless_depth_is_unreadable() -> None:
    """A value nested deeper than Python goes raises the same."""
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(UnreadableBody):
        patch_json(b"[1]", [1], deep)


def test_a_recorded_run_hidden_piece_by_piece() -> None:
    """Every result of a recorded conversation hidden in turn: nothing else of its message changes."""
    for request in (iterate_requests("anthropic")[-1], iterate_requests("openai")[-1]):
        for message in request["messages"]:
            raw = json.dumps(message, separators=(",", ":")).encode()
            after = json.loads(raw)
            for block in after["content"] if isinstance(after["content"], list) else ():
                block |= {"content": "[hidden]"} if block["type"] == "tool_result" else {}
            if message["role"] == "tool":
                after["content"] = "[hidden]"
            expected = json.dumps(after, separators=(",", ":")).encode()
            assert patch_json(raw, message, after) == expected


@pytest.mark.parametrize(
    ("array", "items", "expected"),
    [
        (None, [], b"[]"),
        (None, [b"1", b"2"], b"[1,2]"),
        (b"null", [b"1"], b"[1]"),
        (b"[ ]", [b"1", b"2"], b"[1,2]"),
        (b"[1.0 ]", [b"2"], b"[1.0,2]"),
        (b'[1,\n {"a" :2}]', [b"3", b"4"], b'[1,{"a" :2},3,4]'),
    ],
)
def test_elements_are_appended(array: bytes | None, items: list[bytes], expected: bytes) -> None:
    """After the last one; what was there keeps its bytes."""
    assert append_elements(array, items) == expected


@pytest.mark.parametrize("array", [b"{}", b"[1", b"5", b""])
def test_only_arrays_are_appended_to(array: bytes) -> None:
    """Anything else is unreadable."""
    with pytest.raises(UnreadableBody, match="no JSON array"):
        append_elements(array, [b"1"])
