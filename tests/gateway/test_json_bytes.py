"""JSON with long strings is decoded in pieces."""

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
    check_size,
    decode_json,
    shorten_strings,
)
from tests.gateway.random_json import JsonWriter

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
