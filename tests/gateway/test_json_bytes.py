"""JSON of any size is decoded in pieces, and what is unchanged keeps its bytes."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.gateway import json_bytes
from elision.gateway.json_bytes import (
    MAX_STRING_BYTES,
    MAX_VALUES,
    UnreadableBody,
    append_elements,
    check_size,
    decode_json,
    encode_json,
    patch_json,
    shorten_strings,
)
from elision.gateway.request_body import decode_message
from tests.gateway.random_json import NUMBERS, JsonWriter, iterate_requests

texts = st.text(alphabet='a"\\/\n\u0000\x7fé中😀', max_size=60)
values = st.recursive(
    texts | st.integers() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of 14 bytes: no smaller one holds a surrogate pair."""
    monkeypatch.setattr(json_bytes, "PIECE", 14)
    monkeypatch.setattr(json_bytes, "_LONG_STRING_BYTES", 1)


@pytest.mark.usefixtures("small_pieces")
@given(values, st.booleans())
def test_pieces_come_to_the_same(value: object, is_ascii: bool) -> None:
    """Wherever escapes, surrogate pairs and characters of several bytes stand."""
    raw = json.dumps([value, value], ensure_ascii=is_ascii).encode()
    assert decode_json(raw) == [value, value]


@pytest.mark.usefixtures("small_pieces")
@given(st.binary(max_size=80) | st.text(alphabet='"\\u0dD89abc[]{},:é ', max_size=80).map(str.encode))
def test_what_cannot_be_read_is_found_in_pieces_too(raw: bytes) -> None:
    """What is no JSON as a whole is none in pieces, and the other way round."""
    raw = b'["%b%b"]' % (b"x" * 60, raw)
    try:
        expected = msgspec.json.decode(raw)
    except ValueError:
        with pytest.raises(UnreadableBody):
            decode_json(raw)
    else:
        assert decode_json(raw) == expected


@pytest.mark.parametrize("letter", ["a", "\n", "é", "😀"])
@pytest.mark.parametrize("is_ascii", [True, False], ids=["escaped", "plain"])
def test_no_call_decodes_more_than_a_piece(letter: str, is_ascii: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message of a megabyte holds up no other thread for longer."""
    raw = json.dumps({"role": "user", "content": letter * 300_000}, ensure_ascii=is_ascii).encode()
    decode = msgspec.json.decode
    sizes: list[int] = []

    def note_size(raw: bytes, **given: Any) -> Any:
        sizes.append(len(raw))
        return decode(raw, **given)

    monkeypatch.setattr(msgspec.json, "decode", note_size)
    assert decode_json(raw)["content"] == letter * 300_000
    assert max(sizes) <= 64 * 1024 + 2


@pytest.mark.parametrize("is_ascii", [True, False], ids=["escaped", "plain"])
def test_only_the_beginning_of_a_long_string_stays(is_ascii: bool) -> None:
    """Whatever the cut meets: escapes, surrogate pairs, characters of several bytes. All else is as it was."""
    text = 'a"\\\né中😀' * 40_000
    raw = json.dumps({"id": "x", "content": text, "usage": {"input": 7}}, ensure_ascii=is_ascii).encode()
    found = json.loads(shorten_strings(raw))
    assert found == {"id": "x", "content": found["content"], "usage": {"input": 7}}
    assert text.startswith(found["content"])
    assert 500 < len(found["content"]) < 5_000


def test_a_text_of_short_strings_is_not_shortened() -> None:
    """Its strings are not looked at one by one."""
    raw = json.dumps(["word"] * 50_000).encode()
    assert shorten_strings(raw) is raw


# -- how large it is -------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**32))
def test_what_is_usual_is_surveyed_without_a_word(seed: int) -> None:
    """Any text of an ordinary size, whatever is in its strings, from wherever it is looked at; cut ones too."""
    writer = JsonWriter(random.Random(seed))
    raw = writer.write_object(writer.write_pairs()).encode()
    check_size(raw)
    check_size(raw, len(raw) // 2)
    check_size(raw[: len(raw) // 2])


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b'{"a":"%b"}' % (b"x" * (MAX_STRING_BYTES + 1)), "a string has more than"),
        (b'{"a":"%b"}' % (b"\\n" * MAX_STRING_BYTES), "a string has more than"),
        (b'"%b' % (b"x" * (MAX_STRING_BYTES + 1)), "a string has more than"),
        (b"[%b0]" % (b"[]," * MAX_VALUES), "values"),
        (b"[%b0]" % (b'"",' * MAX_VALUES), "values"),
        (b"[%b0]" % (b"{}," * MAX_VALUES), "values"),
        (b"[%b0]" % (b" " * 2_000_000), "between two strings"),
        (b"[%b]" % (b"1" * 2_000_000), "between two strings"),
    ],
    ids=["long", "long, escaped", "long, without an end", "lists", "strings", "objects", "white space", "a number"],
)
def test_more_than_is_read_is_unreadable(raw: bytes, why: str) -> None:
    """It is found out without a value being made of it."""
    with pytest.raises(UnreadableBody, match=why):
        check_size(raw)


def test_a_string_may_end_where_a_piece_does() -> None:
    """Quotes and backslashes at the edge of what is looked through at once are what they are."""
    for size in range(2**18 - 3, 2**18 + 3):
        for text in ("x" * size, "x" * size + '\\"', "\\" * size, "x" * size + "\\" * 3):
            check_size(json.dumps([text, "y"]).encode() + b"1" * 100)
            with pytest.raises(UnreadableBody):
                check_size(json.dumps([text, "y" * MAX_STRING_BYTES + "yy"]).encode())


def test_only_what_is_new_is_surveyed() -> None:
    """What stands in front of the place is known."""
    raw = b'{"a":"%b","b":""}' % (b"x" * (MAX_STRING_BYTES + 1))
    check_size(raw, len(raw) - 10)


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
