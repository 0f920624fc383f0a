"""What changed in a message is written anew; what did not keeps its bytes."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.gateway.json_patch import append_elements, encode_json, patch_json
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
    """A hidden result: only its `content` is other bytes; white space, order, doubles and odd numbers stay."""
    writer = JsonWriter(random.Random(seed), names=("x", "y", "text", "cache_control"))
    front, back = writer.write_pairs(), writer.write_pairs()
    blocks = [writer.write_object([("type", '"image"'), *writer.write_pairs()]) for _ in range(3)]
    middle = writer.write_object([("type", '"tool_result"'), *front, ("content", writer.write_value()), *back])
    blocks.insert(writer.chance.randrange(4), middle)
    pairs = [("role", '"user"'), ("content", writer.write_array(blocks)), *writer.write_pairs()]
    raw = writer.write_object(pairs)
    before = decode_message(raw.encode())
    after = json.loads(raw)
    after["content"][blocks.index(middle)]["content"] = "[hidden]"
    out = patch_json(raw.encode(), before, after).decode()
    assert json.loads(out) == after
    start, end = raw.index(middle), raw.index(middle) + len(middle)
    assert out.startswith(raw[:start])
    assert out.endswith(raw[end:])
    kept = out[start : len(out) - (len(raw) - end)]
    at = kept.index('"[hidden]"')
    assert middle.startswith(kept[:at])
    assert middle.endswith(kept[at + len('"[hidden]"') :])


RESULT = b"""{ "role":"user", "content" : [
  {"type":"tool_result","tool_use_id":"a","content":"long \\u00e9","x":1.0, "y": 1e5},
  {"type":"tool_result","tool_use_id":"b","content":[{"type":"text","text":"t\\/t"}],"x":123456789012345678901234567890},
  {"type":"text","text":"\\ud83d\\ude00"} ], "z":[0.10, -0] }"""


def test_a_masked_block_among_others() -> None:
    """One block says something else: the rest of it and all others stay."""
    before, after = decode_message(RESULT), decode_message(RESULT)
    after["content"][0]["content"] = "[hidden]"
    assert patch_json(RESULT, before, after) == RESULT.replace(b'"long \\u00e9"', b'"[hidden]"')


def test_a_cache_marker_joins_a_block() -> None:
    """A field that is new stands behind those that were there."""
    before, after = decode_message(RESULT), decode_message(RESULT)
    after["content"][2]["cache_control"] = MARK
    marked = b'"\\ud83d\\ude00","cache_control":{"type":"ephemeral"}}'
    assert patch_json(RESULT, before, after) == RESULT.replace(b'"\\ud83d\\ude00"}', marked)


def test_blocks_that_are_left_out() -> None:
    """Of the blocks that stay each keeps its bytes, wherever the others were."""
    before = decode_message(RESULT)
    lines = RESULT.splitlines()
    first, second, third = (line.strip() for line in (lines[1][:-1], lines[2][:-1], lines[3].split(b" ]")[0]))
    for kept in ([1, 2], [0, 2], [2], [1], [0, 1], [2, 0]):
        after = {**before, "content": [before["content"][place] for place in kept]}
        out = patch_json(RESULT, before, after)
        assert json.loads(out) == json.loads(json.dumps(after))
        assert all((first, second, third)[place] in out for place in (kept if kept != [2, 0] else kept[:1]))
        assert out.endswith(b'], "z":[0.10, -0] }')


def test_a_text_becomes_a_block() -> None:
    """A string content that is now one block keeps the string's own bytes."""
    raw = b'{"content": "caf\\u00e9 \\/", "role":"user"}'
    before = decode_message(raw)
    after = {**before, "content": [{"type": "text", "text": before["content"], "cache_control": MARK}]}
    assert patch_json(raw, before, after) == (
        b'{"content": [{"type":"text","text":"caf\\u00e9 \\/","cache_control":{"type":"ephemeral"}}], "role":"user"}'
    )


def test_two_messages_become_one() -> None:
    """Blocks of another message, and its text, are known by what they say."""
    first = b'{"role":"user","content":[{"type":"text", "text":"a", "n":1.50}],"x":1E2}'
    second = b'{"role":"user","content": "caf\\u00e9"}'
    third = b'{"role":"user","content":[{"n":0.10,"type":"image"}, {"type":"text","text":"b"}]}'
    messages = [decode_message(each) for each in (first, second, third)]
    blocks = [*messages[0]["content"], {"type": "text", "text": "café"}, *messages[2]["content"]]
    out = patch_json(
        first, messages[0], {**messages[0], "content": blocks}, [(messages[1], second), (messages[2], third)]
    )
    assert out == (
        b'{"role":"user","content":[{"type":"text", "text":"a", "n":1.50},{"type":"text","text":"caf\\u00e9"},'
        b'{"n":0.10,"type":"image"},{"type":"text","text":"b"}],"x":1E2}'
    )


def test_results_join_the_front() -> None:
    """Blocks put in front of others leave those as they are."""
    before = decode_message(RESULT)
    after = {**before, "content": [{"type": "tool_result", "tool_use_id": "c", "content": "r"}, *before["content"]]}
    out = patch_json(RESULT, before, after)
    assert json.loads(out) == json.loads(json.dumps(after))
    assert out.endswith(RESULT[RESULT.index(b'{"type"') :])


def test_what_is_equal_comes_before_what_is_alike() -> None:
    """A new text in front of others of its kind takes the bytes of none of them."""
    raw = b'[{"type":"text","n":1.50,"text":"a"}, {"type":"text","n":2.50,"text":"b"}]'
    before = json.loads(raw)
    after = [{"type": "text", "text": "new"}, *before]
    assert patch_json(raw, before, after) == raw.replace(b"[", b'[{"type":"text","text":"new"}, ', 1)


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
    """Of a field that is there twice the last one counts and is the one that changes; left out, both are."""
    raw = b'{"a":1, "b":2, "a":3}'
    assert patch_json(raw, decode_message(raw), {"a": 4, "b": 2}) == b'{"a":1, "b":2, "a":4}'
    assert patch_json(raw, decode_message(raw), {"a": 3, "b": 5}) == b'{"a":1, "b":5, "a":3}'
    assert patch_json(raw, decode_message(raw), {"b": 2, "c": 1}) == b'{"b":2,"c":1}'
    assert patch_json(raw, decode_message(raw), {"c": 1}) == b'{"c":1}'
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
            raw = json.dumps(message, ensure_ascii=False, indent=1).encode()
            after = json.loads(raw)
            for block in after["content"] if isinstance(after["content"], list) else ():
                block |= {"content": "[hidden]"} if block["type"] == "tool_result" else {}
            if message["role"] == "tool":
                after["content"] = "[hidden]"
            expected = json.dumps(after, ensure_ascii=False, indent=1).encode()
            assert patch_json(raw, message, after) == expected


@pytest.mark.parametrize(
    ("array", "items", "expected"),
    [
        (None, [], b"[]"),
        (None, [b"1", b"2"], b"[1,2]"),
        (b"null", [b"1"], b"[1]"),
        (b"[ ]", [b"1", b"2"], b"[1,2 ]"),
        (b"[ 1.0 ]", [b"2"], b"[ 1.0,2 ]"),
        (b"[1,\n 2]", [b"3", b"4"], b"[1,\n 2,\n 3,\n 4]"),
        (b"[1 ,2]", [], b"[1 ,2]"),
    ],
)
def test_elements_are_appended(array: bytes | None, items: list[bytes], expected: bytes) -> None:
    """Behind the last one, as the others are set apart; what was there keeps its bytes."""
    assert append_elements(array, items) == expected


@pytest.mark.parametrize("array", [b"{}", b"[1", b"5", b""])
def test_only_arrays_are_appended_to(array: bytes) -> None:
    """Anything else is unreadable."""
    with pytest.raises(UnreadableBody, match="no JSON array"):
        append_elements(array, [b"1"])
