"""Zip and zstd files of recordings: a zstd file as a stream that can begin anew, and the members of a zip in memory.

The standard library reads zstd members (method 93) from Python 3.14 on; before that the raw bytes are found here and
unpacked.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from typing import BinaryIO

from elision.errors import FormatError
from elision.zstd import ZstdDecompressor, ZstdError

#: How a zstd frame begins.
ZSTD_START = b"\x28\xb5\x2f\xfd"
_CHUNK = 2**18


class ZstdFile(io.RawIOBase):
    """The unpacked bytes of `packed`, all frames of it. Reading raises EOFError where a frame is not complete."""

    def __init__(self, packed: BinaryIO) -> None:
        self._packed = packed
        self._begin()

    def _begin(self) -> None:
        self._frame = ZstdDecompressor()
        self._is_between_frames = True
        self._unread = b""
        self._pending = b""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Begin anew. Raises UnsupportedOperation for any other place."""
        if offset or whence:
            raise io.UnsupportedOperation("a zstd file is read from its start")
        self._packed.seek(0)
        self._begin()
        return 0

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._unread and self._unpack_more():
            pass
        piece = self._unread[: len(buffer)]
        self._unread = self._unread[len(piece) :]
        buffer[: len(piece)] = piece
        return len(piece)

    def _unpack_more(self) -> bool:
        """Unpack the next piece, which may be empty; return whether there was one."""
        packed = b""
        if self._frame.needs_input:
            packed = self._pending or self._packed.read(_CHUNK)
            self._pending = b""
            if not packed:
                if self._is_between_frames:
                    return False
                raise EOFError("its last zstd frame is not complete")
        try:
            self._unread = self._frame.decompress(packed, _CHUNK)
        except ZstdError as error:
            raise EOFError(f"broken zstd: {error}") from error
        self._is_between_frames = self._frame.eof
        if self._frame.eof:
            self._pending = self._frame.unused_data
            self._frame = ZstdDecompressor()
        return True


#: Bytes of one member, unpacked, above which it is refused: a few kB can unpack to many GB.
MEMBER_SIZE_LIMIT = 512 * 2**20
#: How a zip begins.
ZIP_START = b"PK\x03\x04"
_ZSTD = 93
#: Members of which every Inspect log has one: a log that was cut off has no header yet, but its start.
INSPECT_HEADERS = ("header.json", "_journal/start.json")
#: Of a local file header: its length, and where it holds the lengths of name and extra field.
_HEADER = 30
_LENGTHS = struct.Struct("<26xHH")


class ZipMembers:
    """The members of a zip, by name. `read_member` raises FormatError for what is broken, encrypted or too large."""

    def __init__(self, path: str, data: bytes) -> None:
        self._path = path
        self._data = data
        try:
            # Opened once: its directory is read whole each time.
            self._archive = zipfile.ZipFile(io.BytesIO(data))
        except (zipfile.BadZipFile, ValueError, NotImplementedError, struct.error, OSError) as error:
            raise FormatError(f"{path}: a broken zip ({error}); copy or record it again") from error
        self._members = {info.filename: info for info in self._archive.infolist()}

    @property
    def names(self) -> list[str]:
        """Return the names in archive order."""
        return list(self._members)

    def read_member(self, name: str) -> bytes:
        """Return a member's bytes, unpacked."""
        info = self._members[name]
        if info.flag_bits & 1:
            raise FormatError(f"{self._path}!{name}: encrypted; unpack it with its password first")
        if info.compress_type == _ZSTD:
            unpacked = self._unpack_zstd(info)
        else:
            try:
                with self._archive.open(info) as member:
                    unpacked = member.read(MEMBER_SIZE_LIMIT + 1)
            except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, ValueError) as error:
                raise FormatError(f"{self._path}!{name}: broken member ({error})") from error
        if len(unpacked) > MEMBER_SIZE_LIMIT:
            raise FormatError(f"{self._path}!{name}: unpacks to more than {MEMBER_SIZE_LIMIT // 2**20} MB; refused")
        return unpacked

    def _unpack_zstd(self, info: zipfile.ZipInfo) -> bytes:
        header = self._data[info.header_offset : info.header_offset + _HEADER]
        if len(header) < _HEADER:
            raise FormatError(f"{self._path}!{info.filename}: broken member (no header)")
        start = info.header_offset + _HEADER + sum(_LENGTHS.unpack(header))
        packed = self._data[start : start + info.compress_size]
        try:
            with io.BufferedReader(ZstdFile(io.BytesIO(packed))) as member:
                unpacked = member.read(MEMBER_SIZE_LIMIT + 1)
        except EOFError as error:
            raise FormatError(f"{self._path}!{info.filename}: broken zstd member ({error})") from error
        if len(unpacked) <= MEMBER_SIZE_LIMIT and zlib.crc32(unpacked) != info.CRC:
            raise FormatError(f"{self._path}!{info.filename}: broken zstd member (checksum)")
        return unpacked


def is_inspect_log(members: ZipMembers) -> bool:
    """Return whether a zip is an Inspect AI log, which is one recording, and no archive of recordings."""
    return any(name in INSPECT_HEADERS for name in members.names)
