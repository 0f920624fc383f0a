"""Events survive packing byte for byte, and large texts are kept once."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.errors import CorruptError, StoreError
from elision.stores.packing import LARGE, PackedEvent, Packer, measure_event
from elision.trajectory.content import Opaque, Text
from elision.trajectory.events import Event, HeadSet, RecallExchanged, TurnAdded
from elision.trajectory.turn import Action, Head, Message, Observation, Turn

texts = st.text(max_size=40) | st.text(alphabet="ab\n\ud800é", min_size=LARGE, max_size=LARGE + 40)
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


def blobs(packed: PackedEvent) -> dict[bytes, bytes]:
    return {blob.address: blob.packed for blob in packed.blobs}


@given(contents, contents)
def test_what_is_packed_is_unpacked(first: tuple[Text | Opaque, ...], second: tuple[Text | Opaque, ...]) -> None:
    """Turns and heads come back equal, whatever letters and parts they hold."""
    packer = Packer()
    head = Head(messages=(Message(role="user", content=first),), tools=({"name": "f"},))
    events: tuple[Event, ...] = (TurnAdded(turn(first, second), "node"), HeadSet(head))
    for event in events:
        packed = packer.pack(event)
        assert packer.unpack(packed.body, blobs(packed).__getitem__) == event
        assert measure_event(event) == packed.size


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
    assert packer.unpack(packed.body, blobs(packed).__getitem__) == event


def test_large_texts_are_kept_once() -> None:
    """The same text in two places is one blob, and small texts stay in the record."""
    long = (Text("x" * LARGE),)
    packed = Packer().pack(TurnAdded(turn((*long, Text("small")), long)))
    assert len(packed.blobs) == 1
    assert packed.size > LARGE


@pytest.mark.parametrize("body", [b"", b"\x07abc", b"\x00{", b"\x01garbage", b"\x00[]", b'\x00{"e": "turn"}'])
def test_bytes_that_were_not_written_are_corrupt(body: bytes) -> None:
    """Whatever stands there, the error is ours."""
    with pytest.raises(CorruptError):
        Packer().unpack(body, dict[bytes, bytes]().__getitem__)


def test_a_text_under_a_wrong_address_is_corrupt() -> None:
    """A blob is held against its address whenever it is read."""
    packer = Packer()
    packed = packer.pack(TurnAdded(turn((Text("x" * LARGE),), ())))
    with pytest.raises(CorruptError):
        packer.unpack(packed.body, lambda _: packer.compress(b"y" * LARGE))


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
    assert packer.unpack(packed.body, blobs(packed).__getitem__) == event
    assert len(packed.blobs) == (len(str(tool)) > LARGE or "blob" in tool)


def test_large_exchanges_are_kept_once() -> None:
    """Long messages that the client never saw stand apart like every large text, and come back as they were."""
    said = json.dumps({"role": "tool", "content": "read again " * 200})
    event = RecallExchanged(call=3, node="n", messages=('{"role":"assistant"}', said), results=(said,))
    packed = Packer().pack(event)
    assert [blob.size for blob in packed.blobs] == [len(said)]
    kept = blobs(packed)
    assert Packer().unpack(packed.body, kept.__getitem__) == event
