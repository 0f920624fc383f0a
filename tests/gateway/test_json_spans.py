"""Where the parts of a JSON text stand."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from elision.gateway import json_spans
from elision.gateway.json_spans import (
    MAX_STRING_BYTES,
    MAX_VALUES,
    Edit,
    JsonArray,
    UnreadableBody,
    apply_edits,
    check_size,
    find_array_end,
    find_array_start,
    parse_elements,
    parse_fields,
    remove_fields,
)
from tests.gateway.random_json import JsonWriter

seeds = st.integers(0, 2**32)


@given(seeds)
def test_fields_stand_where_they_are_said_to(seed: int) -> None:
    """Every pair, doubles included, is found in its order with its name decoded and its own bytes."""
    writer = JsonWriter(random.Random(seed))
    pairs = writer.write_pairs()
    raw = writer.write_object(pairs).encode()
    assert [(field.name, raw[field.start : field.end].decode()) for field in parse_fields(raw)] == pairs
    assert all(
        json.loads(raw[field.key_start : field.start].rstrip().rstrip(b":")) == field.name
        for field in parse_fields(raw)
    )


@given(seeds, st.sets(st.integers(0, 4)))
def test_fields_are_taken_out(seed: int, places: set[int]) -> None:
    """What is left is an object of the others."""
    writer = JsonWriter(random.Random(seed))
    pairs = writer.write_pairs()
    raw = writer.write_object(pairs).encode()
    names = {pairs[place][0] for place in places if place < len(pairs)}
    left = json.loads(apply_edits(raw, remove_fields(parse_fields(raw), names)), object_pairs_hook=list)
    assert repr(left) == repr(
        json.loads(writer.write_object([pair for pair in pairs if pair[0] not in names]), object_pairs_hook=list)
    )


@given(seeds, st.sampled_from([None, "", " ", "\n    "]))
def test_elements_stand_where_they_are_said_to(seed: int, gap: str | None) -> None:
    """Each ends where its bytes do; an array with the same gaps throughout is recognised by its elements."""
    writer = JsonWriter(random.Random(seed), gap=gap)
    values = [writer.write_value() for _ in range(writer.chance.randrange(6))]
    raw = f'{{"x" :{writer.write_array(values)}, "y":[]}}'.encode()
    start = find_array_start(raw, 4)
    assert start == 6
    end = raw.rindex(b', "y"')
    found = parse_elements(raw[start:end])
    assert found == [value.encode() for value in values]
    assert all(raw[:each].endswith(value) for each, value in zip(JsonArray(raw, start, found).ends, found, strict=True))
    assert find_array_end(raw, start, found) in ((end,) if gap is not None else (end, None))
    assert find_array_end(raw, start, [*found, b"1"]) is None
    assert find_array_start(raw, 6) is None


@example(old=[b"1", b"1", b"2"], new=[b"1", b"1", b"4", b"1", b"2"])
@example(old=[b"1", b"1", b"4", b"1", b"2"], new=[b"1", b"1", b"2"])
@given(
    st.lists(st.sampled_from([b"1", b"2", b"33"]), max_size=5),
    st.lists(st.sampled_from([b"1", b"2", b"4"]), max_size=5),
)
def test_an_array_becomes_another(old: list[bytes], new: list[bytes]) -> None:
    """Whatever both have in common, also where the same elements come again and again."""
    for gap in (b",", b" , "):
        raw = b"x[ " + gap.join(old) + b"]"
        changed = apply_edits(raw, JsonArray(raw, 1, old).make_edits(new))
        assert parse_elements(changed[1:]) == new
        assert changed == raw or old != new


def test_edits_are_made_in_their_order() -> None:
    """However they are given; none leave the very object."""
    raw = b"0123456789"
    assert (
        apply_edits(raw, [Edit(8, 10, b"z"), Edit(0, 1, b""), Edit(4, 4, b"[new]"), Edit(4, 5, b"")]) == b"123[new]567z"
    )
    assert apply_edits(raw, []) is raw


def test_a_double_whose_value_begins_like_the_last_one() -> None:
    """12 is not the 1 that counts, and a text is not the longer one that begins with it."""
    raw = b'{"a":12,"b":"x","a":"1\\"","b":"xy","a":1}'
    assert [raw[field.start : field.end] for field in parse_fields(raw)] == [b"12", b'"x"', b'"1\\""', b'"xy"', b"1"]


def test_a_double_of_any_size_and_depth() -> None:
    """Numbers longer than Python takes and brackets within texts do not lead astray."""
    raw = b'{"a":%b,"a":[{"]}":"\\\\\\"]"}, "\xc3\xa9"] ,"a":0}' % (b"9" * 5_000)
    assert [field.end - field.start for field in parse_fields(raw)] == [5_000, 22, 1]


def test_objects_with_too_many_fields_are_unreadable() -> None:
    """Each field is a step in Python: a thousand are enough for any request."""
    assert len(parse_fields(b"{" + b",".join([b'"a":1'] * 1_000) + b"}")) == 1_000
    with pytest.raises(UnreadableBody, match="more than 1000 fields"):
        parse_fields(b"{" + b",".join([b'"a":1'] * 1_001) + b"}")


def test_a_text_is_made_once_however_many_names_stand_twice() -> None:
    """The whole text is decoded for the first value that is not the last of its name, and for no other."""
    decoded: list[str] = []

    class Counted(bytes):
        def decode(self, *given: str) -> str:  # type: ignore[override]
            decoded.append(given[0])
            return super().decode(*given)

    pairs = [f'"a":{place % 9}' for place in range(300)] + [f'"b":[{place}]' for place in range(300)]
    raw = Counted(b"{%b}" % ",".join(pairs).encode())
    assert [f'"{each.name}":{raw[each.start : each.end].decode("ascii")}' for each in parse_fields(raw)] == pairs
    assert decoded.count("latin-1") == 1


@given(seeds)
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


def test_as_many_values_as_are_allowed_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each gap between strings counts as two at least: what it parts, and what the string is."""
    monkeypatch.setattr(json_spans, "MAX_VALUES", 6)
    check_size(b'["a","b"]')
    with pytest.raises(UnreadableBody, match="more than 6 values"):
        check_size(b'["a","b","c"]')
