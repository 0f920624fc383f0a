"""The bytes on disk are those that docs/internals/linear-hash.md lists: a store written today opens in a year."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path

from elision.stores.linear_hash.directory import PAGE, KeyMaker
from elision.stores.linear_hash.records import DICTIONARY, parse_record
from elision.stores.linear_hash.store import LinearHashStore
from elision.stores.packing import hash_text
from tests.stores.session_logs import add_turn, new_session

TEXT = "line of output\n" * 400


def write_store(folder: Path) -> tuple[bytes, bytes]:
    """Return log and directory of a store with one session of two turns, the second with the first one's text."""
    store = LinearHashStore(folder)
    store.create(new_session("s", at=1.5))
    store.append("s", [add_turn(1, TEXT, node="n1")], after=0, at=2.5)
    store.append("s", [add_turn(2, TEXT)], after=1, at=3.5)
    store.close()
    return (folder / "values").read_bytes(), (folder / "directory").read_bytes()


def test_the_header_and_the_frames(tmp_path: Path) -> None:
    """Every field at its offset; the end mark is the last thing in the file."""
    log, _ = write_store(tmp_path)
    for at in (0, 512):
        assert log[at : at + 8] == b"ELISLHV1"
        assert struct.unpack_from("<I", log, at + 24) == (zlib.crc32(log[at : at + 24]),)
    frames, at = 0, 1024
    while True:
        magic, kind, size, offset, checksum, own = struct.unpack_from("<3sBIQII", log, at)
        assert (magic, offset, own) == (b"\xf5LH", at, zlib.crc32(log[at : at + 20]))
        if kind == 2:
            break
        body = log[at + 24 : at + 24 + size]
        assert (kind, checksum, body[-2:]) == (1, zlib.crc32(body), b"\xfa\xce")
        frames += 1
        at += 24 + size
    assert (frames, size, at + 24) == (3, 0, len(log))


def test_a_turn_is_one_record(tmp_path: Path) -> None:
    """Its numbers, its keys, and its payload with the text in it; the next record names the place of that text."""
    log, _ = write_store(tmp_path)
    (key_id,) = struct.unpack_from("<Q", log, 16)
    keys = KeyMaker(key_id)
    first = 1024 + 24 + struct.unpack_from("<I", log, 1024 + 4)[0] + 24
    fields = struct.unpack_from("<IIIIIIBBHHd", log, first)
    size = fields[1]
    assert fields[0] == zlib.crc32(log[first + 4 : first + size])
    assert fields[2:5] == (1, 1, 1)
    assert fields[6:] == (2, 1, 1, 0, 2.5)
    assert log[first + 38 : first + 46] == keys.make_node_key("f", "n1")
    assert log[first + 46 : first + 54] == keys.make_text_key(TEXT.encode())
    second = first + size + 2 + 24
    header = parse_record(log, second, second)
    assert header is not None
    assert (header.number, header.turn, header.at, header.node, header.texts) == (2, 2, 3.5, b"", ())
    assert header.size < 300


def test_the_id_of_an_append(tmp_path: Path) -> None:
    """Its first record has the id and the number of records, after the key of its history."""
    store = LinearHashStore(tmp_path)
    batch = bytes(range(16))
    store.create_with_events(new_session("s"), [add_turn(1, node="n1"), add_turn(2)], at=1.5, batch=batch)
    store.close()
    log = (tmp_path / "values").read_bytes()
    begin = 1024 + 24
    first = begin + struct.unpack_from("<I", log, begin + 4)[0]
    size, flags = struct.unpack_from("<I", log, first + 4)[0], log[first + 25]
    assert flags & 5 == 5
    assert log[first + 46 : first + 66] == batch + b"\0\0\0\2"
    assert log[first + size + 25] & 5 == 0


def test_the_directory(tmp_path: Path) -> None:
    """Page 0, one bucket, the table and the catalogue."""
    log, directory = write_store(tmp_path)
    assert directory[4:12] == b"ELISLHD1"
    assert struct.unpack_from("<I", directory) == (zlib.crc32(directory[4:PAGE]),)
    assert directory[12:28] == log[8:24]
    assert struct.unpack_from("<QIIQII", directory, 28) == (len(log) - 24, 0, 0, 6, 2, 1)
    checksum, count, _, after, number = struct.unpack_from("<IHHII", directory, PAGE)
    assert (checksum, count, after, number) == (zlib.crc32(directory[PAGE + 4 : 2 * PAGE]), 6, 0, 1)
    (key_id,) = struct.unpack_from("<Q", log, 16)
    entries = dict(struct.iter_unpack("<8sQ", directory[PAGE + 16 : PAGE + 16 + 6 * 16]))
    keys = KeyMaker(key_id)
    assert entries[keys.make_record_key(1, 1)] == entries[keys.make_turn_key(1, 1)]
    assert entries[keys.make_text_key(TEXT.encode())] == entries[keys.make_turn_key(1, 1)]
    assert entries[keys.make_node_key("f", "n1")] == 1 << 32 | 1
    table = 2 * PAGE
    assert directory[table + 4 : table + 8] == struct.pack("<I", 1)
    facts = json.loads(zlib.decompress(directory[table + 12 :]))
    assert facts["sessions"][0][:7] == [1, "s", "f", "", "", 1.5, 3.5]


def test_the_dictionary_stays_as_it_is() -> None:
    """It is a part of the format: with another one no record could be read."""
    assert hash_text(DICTIONARY).hex() == "469827a3ced0fe14248e30e095668ed84647a94759d80fb3747dca4f6d59f676"
