"""The directory's file: page 0, the bucket pages, the table of buckets, and the catalogue of sessions."""

from __future__ import annotations

import mmap
import os
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from elision.errors import CorruptError
from elision.stores.linear_hash.bucket_pages import PAGE, U32, compute_checksum, find_damaged_pages
from elision.stores.linear_hash.directory import Directory
from elision.stores.linear_hash.file_access import OsFile, sync_folder

_MAGIC: Final = b"ELISLHD1"
#: Page 0: checksum, magic, log id, key id, offset of the log, level, split, entries, pages, buckets, catalogue's bytes.
_META: Final = struct.Struct("<I8sQQQIIQIIQ")


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedDirectory:
    """What a file has. log_id, key_id: of the log. offset: how much of it the directory has."""

    log_id: int
    key_id: int
    offset: int
    directory: Directory
    catalogue: bytes


def save_directory(path: Path, directory: Directory, ids: tuple[int, int], offset: int, catalogue: bytes) -> None:
    """Write the directory of the log up to `offset` to `path`, durably, by renaming. Raises OSError.

    ids: log id and key id.
    """
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    directory.settle()
    shape = directory.level, directory.split, directory.entries, directory.pages.count, directory.buckets
    meta = bytearray(PAGE)
    _META.pack_into(meta, 0, 0, _MAGIC, *ids, offset, *shape, len(catalogue))
    U32.pack_into(meta, 0, compute_checksum(meta))
    file = OsFile(fresh, writable=True)
    try:
        with os.fdopen(os.dup(file.descriptor), "wb", 1 << 20) as out:
            out.write(meta)
            for page in directory.pages.iterate_sealed():
                out.write(page)
            for part in (struct.pack(f"<{directory.buckets}I", *directory.table), catalogue):
                out.write(U32.pack(zlib.crc32(part)))
                out.write(part)
        file.fsync()
    finally:
        file.close()
    os.replace(fresh, path)
    sync_folder(path.parent)


def load_directory(path: Path) -> SavedDirectory:
    """Return what `save_directory` wrote.

    Every page is verified. Raises CorruptError, FileNotFoundError where there is none, OSError.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        if size < PAGE:
            raise CorruptError(f"{path}: the directory ends {size} bytes into its first page")
        mapped = mmap.mmap(descriptor, size, prot=mmap.PROT_READ)
    finally:
        os.close(descriptor)
    meta = mapped[:PAGE]
    checksum, magic, log_id, key_id, offset, level, split, entries, pages, buckets, length = _META.unpack_from(meta)
    if checksum != compute_checksum(meta) or magic != _MAGIC:
        raise CorruptError(f"{path}: page 0 of the directory has a wrong checksum")
    damaged = find_damaged_pages(mapped, pages)
    if damaged:
        raise CorruptError(f"{path}: page {damaged[0]} of the directory has a wrong checksum")
    table_at = pages * PAGE
    table = _read_part(path, mapped, table_at, buckets * 4)
    catalogue = _read_part(path, mapped, table_at + 4 + len(table), length)
    directory = Directory()
    directory.load_pages(level, split, entries, list(struct.unpack(f"<{buckets}I", table)), mapped, pages)
    return SavedDirectory(log_id=log_id, key_id=key_id, offset=offset, directory=directory, catalogue=catalogue)


def _read_part(path: Path, mapped: mmap.mmap, at: int, size: int) -> bytes:
    part = mapped[at + 4 : at + 4 + size]
    if mapped[at : at + 4] != U32.pack(zlib.crc32(part)):
        raise CorruptError(f"{path}: the table or the catalogue of the directory has a wrong checksum")
    return part
