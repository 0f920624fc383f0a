"""A zstd file as a stream that can begin anew, and that says where it was cut off."""

from __future__ import annotations

import io
from typing import BinaryIO

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
