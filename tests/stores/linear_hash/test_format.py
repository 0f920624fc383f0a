"""The bytes on disk are those that docs/internals/linear-hash-files.md draws: a store written today opens in a year."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest

from elision.errors import CorruptError
from elision.stores.linear_hash.changes import PUT, Change
from elision.stores.linear_hash.file_access import OsFile
from elision.stores.linear_hash.layout import PAGE
from elision.stores.linear_hash.table import bucket_of, make_hasher
from elision.stores.linear_hash.writer import Writer

FILE_ID = 0x0123456789ABCDEF
LARGE = bytes(range(256)) * 20


def written(folder: Path, *, close: bool = True) -> tuple[bytes, bytes]:
    """Page file and log of a store with two records."""
    writer = Writer(OsFile(folder / "pages", writable=True), OsFile(folder / "log", writable=True), file_id=FILE_ID)
    writer.commit([Change(PUT, b"small", b"head", b"value")])
    writer.commit([Change(PUT, b"large", b"", LARGE)])
    if close:
        writer.close()
    return (folder / "pages").read_bytes(), (folder / "log").read_bytes()


def test_the_hash_is_the_same_in_every_process() -> None:
    """Keyed BLAKE2b; a value that changed would lose every record."""
    assert make_hasher(FILE_ID)(b"key") == 0xBA5841B8C0383F24


def test_the_meta_page(tmp_path: Path) -> None:
    """Every field at its offset."""
    pages, _ = written(tmp_path)
    assert struct.unpack_from("<I2sB", pages) == (zlib.crc32(pages[4:PAGE], 0), b"LH", 1)
    assert struct.unpack_from("<8sIIQQ", pages, 32) == (b"LACUNALH", 2, PAGE, FILE_ID, 2)
    assert struct.unpack_from("<II", pages, 64) == (0, 0)
    assert struct.unpack_from("<III", pages, 72) == (len(pages) // PAGE, 0, 0)
    assert struct.unpack_from("<Q", pages, 84) == (2,)
    assert struct.unpack_from("<5I", pages, 100) == (1, 0, 1, 1, 1)
    assert struct.unpack_from("<16I", pages, 120).count(0) == 15
    (directory,) = struct.unpack_from("<I", pages, 256)
    assert pages[directory * PAGE + 6] == 2


def test_bucket_value_and_cells(tmp_path: Path) -> None:
    """A record is found by what the page says, and its value by the pointer behind its head."""
    pages, _ = written(tmp_path)
    (directory,) = struct.unpack_from("<I", pages, 256)
    (bucket,) = struct.unpack_from("<I", pages, directory * PAGE + 32)
    page = pages[bucket * PAGE : (bucket + 1) * PAGE]
    assert struct.unpack_from("<IB", page, 0)[0] == zlib.crc32(page[4:], bucket)
    assert (page[6], struct.unpack_from("<HH", page, 24)[0]) == (3, 2)
    records = {}
    for slot in range(2):
        hashed, start, size = struct.unpack_from("<QHH", page, 32 + 12 * slot)
        key, elsewhere, head = struct.unpack_from("<BBH", page, start)
        name = page[start + 4 : start + 4 + key]
        assert hashed == make_hasher(FILE_ID)(name)
        assert bucket_of(hashed, 0, 0) == 0
        tail = start + 4 + key + head
        records[name] = (elsewhere, page[tail - head : tail], page[tail : start + size])
    assert records[b"small"] == (0, b"head", b"value")
    elsewhere, head, pointer = records[b"large"]
    size, chain, rest, cell = struct.unpack("<IIIB", pointer)
    assert (elsewhere, head, size) == (1, b"", len(LARGE))
    assert pages[chain * PAGE + 32 : (chain + 1) * PAGE] == LARGE[:4_064]
    assert (pages[rest * PAGE + 6], pages[rest * PAGE + 32], cell) == (5, 1, 0)
    assert pages[rest * PAGE + 40 : rest * PAGE + 40 + size - 4_064] == LARGE[4_064:]


def test_the_log(tmp_path: Path) -> None:
    """A header, then frames whose checksums hang on each other."""
    _, log = written(tmp_path, close=False)
    magic, version, page, file_id, salt, crc = struct.unpack_from("<8sIIQQI", log)
    assert (magic, version, page, file_id, crc) == (b"LACUNAWL", 1, PAGE, FILE_ID, zlib.crc32(log[:32]))
    at, seed = 36, salt & 0xFFFF_FFFF
    for lsn in (1, 2):
        checksum, size, number, kind = struct.unpack_from("<IIQB", log, at)
        payload = log[at + 17 : at + 17 + size]
        assert (number, kind, checksum) == (lsn, 1, zlib.crc32(payload, zlib.crc32(log[at + 4 : at + 17], seed)))
        at, seed = at + 17 + size, checksum
    assert not any(log[at : at + 17])


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    """With its number."""
    pages, _ = written(tmp_path)
    newer = bytearray(pages)
    struct.pack_into("<I", newer, 40, 3)
    struct.pack_into("<I", newer, 0, zlib.crc32(newer[4:PAGE], 0))
    (tmp_path / "pages").write_bytes(newer)
    with pytest.raises(CorruptError, match="format 3"):
        Writer(OsFile(tmp_path / "pages", writable=True), OsFile(tmp_path / "log", writable=True))


def test_files_of_two_stores_are_not_mixed(tmp_path: Path) -> None:
    """A log that belongs to another page file is refused, not replayed."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    written(tmp_path / "a")
    other = Writer(OsFile(tmp_path / "b" / "pages", writable=True), OsFile(tmp_path / "b" / "log", writable=True))
    other.commit([Change(PUT, b"k", b"", b"")])
    (tmp_path / "a" / "log").write_bytes((tmp_path / "b" / "log").read_bytes())
    with pytest.raises(CorruptError, match="another page file"):
        Writer(OsFile(tmp_path / "a" / "pages", writable=True), OsFile(tmp_path / "a" / "log", writable=True))
    other.close()


def test_a_log_without_its_page_file_is_refused(tmp_path: Path) -> None:
    """An empty store with the newest changes in it would look like a whole one."""
    writer = Writer(OsFile(tmp_path / "pages", writable=True), OsFile(tmp_path / "log", writable=True))
    writer.commit([Change(PUT, b"k", b"", b"")])
    writer.checkpoint()
    writer.commit([Change(PUT, b"l", b"", b"")])
    (tmp_path / "pages").write_bytes(b"")
    with pytest.raises(CorruptError, match="page file is empty"):
        Writer(OsFile(tmp_path / "pages", writable=True), OsFile(tmp_path / "log", writable=True))
