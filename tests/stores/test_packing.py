"""Events survive packing byte for byte, and large texts are kept once."""

from __future__ import annotations

import json
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from elision.errors import CorruptError, StoreError
from elision.stores import packing
from elision.stores.packing import (
    LARGE,
    LARGE_IN_TURN,
    PackedRecords,
    Packer,
    address_text,
    encode_json,
    hash_text,
    measure_event,
    split_event,
)
from elision.trajectory.events import Event, HeadSet, RecallExchanged, TurnAdded, TurnAmended, encode_event
from elision.trajectory.foreign_text import PIECE, split_text
from elision.trajectory.turn import Action, Head, Message, Observation, Opaque, Text, Turn
from tests.stores.session_logs import list_every_event

texts = (
    st.text(max_size=40)
    | st.text(alphabet="ab\n\ud800é", min_size=LARGE, max_size=LARGE + 40)
    | st.integers(0, 40).map(lambda more: "long\n" * (LARGE_IN_TURN // 5 + more))
)
parts = st.builds(Text, texts) | st.builds(
    Opaque, st.just("image"), st.integers(0, 9), st.dictionaries(st.text(max_size=3), texts, max_size=2)
)
contents = st.lists(parts, max_size=3).map(tuple)


def turn(content: tuple[Text | Opaque, ...], result: tuple[Text | Opaque, ...]) -> Turn:
    return Turn(
        index=3,
        content=content,
        actions=(Action(id="a", name="f"),),
        observations=(Observation(action_id="a", tool="f", content=result),),
        interjections=(Message(role="user", content=result),),
    )


def blobs(packed: PackedRecords) -> dict[bytes, bytes]:
    return {blob.address: blob.packed for blob in packed.blobs}


@given(contents, contents)
def test_what_is_packed_is_unpacked(first: tuple[Text | Opaque, ...], second: tuple[Text | Opaque, ...]) -> None:
    """Turns and heads come back equal, whatever letters and parts they hold."""
    packer = Packer()
    head = Head(messages=(Message(role="user", content=first),), tools=({"name": "f"},))
    events: tuple[Event, ...] = (TurnAdded(turn(first, second), "node"), HeadSet(head))
    for event in events:
        packed = packer.pack(event)
        assert packer.unpack(packed.body, blobs(packed).__getitem__) == [event]
        assert measure_event(event) == packed.size


@given(contents, contents, st.booleans(), st.sampled_from(["", "node", 'n"\n', "lone \ud800"]))
def test_the_quick_way_writes_the_same_bytes(
    first: tuple[Text | Opaque, ...], second: tuple[Text | Opaque, ...], amended: bool, node: str
) -> None:
    """Where an event is written without a look at its parts, its JSON is that of the long way."""
    made = turn(first, second)
    event = TurnAmended(made, node) if amended else TurnAdded(made, node)
    split = split_event(event, address_text)
    if not split.texts:
        assert split.body == encode_json(encode_event(event))
    tagged = replace(made, observations=(replace(made.observations[0], tags=frozenset({"b", "a", "c"})),))
    assert b'"tags":["a","b","c"]' in split_event(TurnAdded(tagged), address_text).body


@given(contents, contents)
def test_a_large_text_is_measured_in_pieces(
    first: tuple[Text | Opaque, ...], second: tuple[Text | Opaque, ...]
) -> None:
    """Their lengths come to that of the whole, lone surrogates included, and the event keeps its texts."""
    event = TurnAdded(turn(first, second))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(packing, "PIECE", 7)
        patched.setattr(packing, "split_text", partial(split_text, size=7))
        assert measure_event(event) == len(encode_json(encode_event(event)))
        assert split_event(event, address_text).size == measure_event(event)


def test_every_kind_of_event_is_written_the_same() -> None:
    for event in list_every_event():
        split = split_event(event, address_text)
        assert split.size == measure_event(event)
        assert split.texts or split.body == encode_json(encode_event(event))
    packed = Packer().pack(*list_every_event())
    assert Packer().unpack(packed.body, blobs(packed).__getitem__) == [*list_every_event()]
    assert Packer().unpack(packed.body, blobs(packed).__getitem__, only=3) == [list_every_event()[3]]


def test_a_record_of_a_newer_version_is_no_damage() -> None:
    """Its error names the version, so that nobody repairs what an update would read."""
    packer = Packer()
    body = packer.compress(json.dumps({"e": "opened", "strategy": "raw", "v": 9}).encode())
    with pytest.raises(StoreError, match="version 9") as caught:
        packer.unpack(body, dict[bytes, bytes]().__getitem__)
    assert not isinstance(caught.value, CorruptError)


@pytest.mark.parametrize("number", [float("inf"), 10**40, -0.0])
def test_numbers_of_a_client_come_back_as_they_were(number: float) -> None:
    """What only Python's JSON can write is not turned into null."""
    packer = Packer()
    value = {"default": number}
    event = HeadSet(Head(messages=(Message(role="user", content=(Opaque("x", 0, value),)),), tools=(value,)))
    packed = packer.pack(event)
    assert packer.unpack(packed.body, blobs(packed).__getitem__) == [event]


def test_large_texts_are_kept_once() -> None:
    """The same text in two places is one blob, and small texts stay in the record."""
    long = (Text("x" * LARGE_IN_TURN),)
    packed = Packer().pack(TurnAdded(turn((*long, Text("small")), long)))
    assert len(packed.blobs) == 1
    assert packed.size > LARGE_IN_TURN


@pytest.mark.parametrize("body", [b"", b"\x07abc", b"\x00{", b"\x01garbage", b"\x00[]", b'\x00{"e": "turn"}'])
def test_bytes_that_were_not_written_are_corrupt(body: bytes) -> None:
    """Whatever stands there, the error is ours."""
    with pytest.raises(CorruptError):
        Packer().unpack(body, dict[bytes, bytes]().__getitem__)


def test_a_text_under_a_wrong_address_is_corrupt() -> None:
    """A blob is held against its address whenever it is read."""
    packer = Packer()
    packed = packer.pack(TurnAdded(turn((Text("x" * LARGE_IN_TURN),), ())))
    with pytest.raises(CorruptError):
        packer.unpack(packed.body, lambda _: packer.compress(b"y" * LARGE_IN_TURN))


@pytest.mark.parametrize("data", [b"", b"small", b"large " * 100, bytes(range(256)) * 4])
def test_no_changed_bit_changes_what_is_read(data: bytes) -> None:
    """In what is compressed and in what is not: an error, or (zstd's header has unused bits) the same bytes."""
    packer = Packer()
    packed = packer.compress(data)
    for place in range(len(packed)):
        changed = bytes([*packed[:place], packed[place] ^ 4, *packed[place + 1 :]])
        assert read(packer, changed) in (data, None)
        assert read(packer, packed[:place]) is None


def read(packer: Packer, packed: bytes) -> bytes | None:
    try:
        return packer.decompress(packed)
    except CorruptError:
        return None


@pytest.mark.parametrize(
    "tool",
    [
        {"name": "f"},
        {"name": "f", "description": "x" * LARGE},
        {"blob": "00" * 32, "of": "tool"},
        {"name": "f", "text": "y" * LARGE, "data": {"blob": "z" * LARGE}},
    ],
)
def test_large_tools_are_kept_once(tool: dict[str, object]) -> None:
    """Every session of an agent has the same; whatever keys a definition has, it comes back equal."""
    packer = Packer()
    event = HeadSet(Head(tools=(tool, tool)))
    packed = packer.pack(event)
    assert packer.unpack(packed.body, blobs(packed).__getitem__) == [event]
    assert len(packed.blobs) == (len(str(tool)) > LARGE or "blob" in tool)


def test_large_exchanges_are_kept_once() -> None:
    """Long messages that the client never saw stand apart like every large text, and come back as they were."""
    said = json.dumps({"role": "tool", "content": "read again " * 200})
    event = RecallExchanged(call=3, node="n", messages=('{"role":"assistant"}', said), results=(said,))
    packed = Packer().pack(event)
    assert [blob.size for blob in packed.blobs] == [len(said)]
    kept = blobs(packed)
    assert Packer().unpack(packed.body, kept.__getitem__) == [event]


@pytest.mark.parametrize("letters", ["word ", "é中😀", "lone \ud800"])
def test_a_large_text_is_packed_in_pieces(letters: str) -> None:
    """Its address is that of its bytes, and they come back, also where a piece ends within them."""
    text = letters * (3 * PIECE)
    packed = Packer().pack(TurnAdded(turn((Text(text),), ())))
    (blob,) = packed.blobs
    data = text.encode("utf-8", "surrogatepass")
    assert blob.address == hash_text(data)
    assert blob.size == len(data)
    assert Packer().decompress(blob.packed) == data
    assert len(blob.packed) < len(data) // 100


def test_rows_hold_as_many_turns_as_are_small() -> None:
    """A row ends before a turn, and only where it has its bytes: what belongs to a turn stays beside it."""
    small = TurnAdded(turn((), (Text("x"),)))
    # Large texts stand apart, and are no part of a row.
    large = TurnAdded(turn((), tuple(Text("x" * (LARGE // 2)) for _ in range(2 * packing._ROW_BYTES // LARGE))))
    head = HeadSet(Head())
    for events, records in (
        ((small, small, small), [3]),
        ((small, large, head, head, small), [4, 1]),
        ((large, head, large, small, small), [2, 1, 2]),
        ((large, head), [2]),
    ):
        assert [row.records for row in Packer().pack_rows(events)] == records
