"""JSON with long strings is decoded in pieces."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.gateway import json_decoding
from elision.gateway.json_decoding import decode_json, shorten_strings
from elision.gateway.json_spans import UnreadableBody

texts = st.text(alphabet='a"\\/\n\u0000\x7fé中😀', max_size=60)
values = st.recursive(
    texts | st.integers() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of 14 bytes: no smaller one holds a surrogate pair."""
    monkeypatch.setattr(json_decoding, "PIECE", 14)
    monkeypatch.setattr(json_decoding, "_LONG_STRING_BYTES", 1)


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
