"""What can be known of a disk without writing to it: whether anything may be written, and whether there is room."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from elision.errors import StoreError

#: Bytes below which a disk counts as full: an append and the log's own pages need some room.
MIN_FREE_BYTES: Final = 1 << 20


def check_disk(folder: Path, min_free_bytes: int = MIN_FREE_BYTES) -> None:
    """Raise StoreError where the disk of `folder` may only be read, or has less room than this."""
    try:
        disk = os.statvfs(folder)
    except OSError as error:
        raise StoreError(f"{folder}: the folder cannot be read ({error.strerror})") from error
    if disk.f_flag & os.ST_RDONLY:
        raise StoreError(f"{folder}: the disk is mounted for reading only; mount it for writing")
    free = disk.f_bavail * disk.f_frsize
    if free < min_free_bytes:
        raise StoreError(f"{folder}: the disk is full ({free:,} bytes are free); make room")
