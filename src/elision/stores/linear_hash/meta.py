"""The meta page: page 0, with the place and the amount of everything else."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Final

from elision.errors import CorruptError
from elision.stores.linear_hash.layout import BODY, META, PAGE, make_page

VERSION: Final = 2
#: Formats that are read. In format 1 no log record has the id of an append.
_READ_VERSIONS: Final = (1, VERSION)
#: The product's name when the format was made; a file keeps it, so that every store opens.
_MAGIC: Final = b"LACUNALH"
#: magic, version, page size, file id, LSN, level, split, pages, first free page, free pages, records, record bytes,
#: bucket pages, overflow pages, value pages, cell pages, directory pages.
_FIELDS: Final = struct.Struct("<8sIIQQIIIIIQQIIIII")
#: Offsets of the heads of the lists of cell pages, and of the numbers of the directory pages.
_AT_CELLS = BODY + _FIELDS.size
_AT_DIRECTORY = 256
CELL_LISTS: Final = 16
#: Directory pages that the meta page has room for. Beyond them the table stops splitting and its chains grow.
MAX_DIRECTORY: Final = (PAGE - _AT_DIRECTORY) // 4


@dataclass(slots=True, kw_only=True)
class Meta:
    """What the meta page holds.

    level, split:   buckets are numbered 0 ... 2**level + split - 1; `split` is the next to be split.
    pages:          of the file, this one included. free: the first free page, 0 for none.
    record_bytes:   that records take up in bucket pages, their slots included.
    bucket_pages:   first pages of buckets; overflow_pages: the others of their chains.
    cells:          by class, the first page that has a free cell.
    directory:      the pages that hold the page numbers of the buckets.
    """

    file_id: int
    lsn: int = 0
    level: int = 0
    split: int = 0
    pages: int = 1
    free: int = 0
    free_pages: int = 0
    records: int = 0
    record_bytes: int = 0
    bucket_pages: int = 0
    overflow_pages: int = 0
    value_pages: int = 0
    cell_pages: int = 0
    cells: list[int] = field(default_factory=lambda: [0] * CELL_LISTS)
    directory: list[int] = field(default_factory=list)

    @property
    def buckets(self) -> int:
        return (1 << self.level) + self.split

    def pack_page(self) -> bytearray:
        """Return the meta page, unsealed."""
        page = make_page(META)
        numbers = (*(getattr(self, name) for name in _SCALARS), len(self.directory))
        _FIELDS.pack_into(page, BODY, _MAGIC, VERSION, PAGE, *numbers)
        struct.pack_into(f"<{CELL_LISTS}I", page, _AT_CELLS, *self.cells)
        struct.pack_into(f"<{len(self.directory)}I", page, _AT_DIRECTORY, *self.directory)
        return page


#: The plain numbers of `Meta` in the order in which they are stored.
_SCALARS: Final = (
    "file_id",
    "lsn",
    "level",
    "split",
    "pages",
    "free",
    "free_pages",
    "records",
    "record_bytes",
    "bucket_pages",
    "overflow_pages",
    "value_pages",
    "cell_pages",
)


def read_meta(page: bytes | bytearray) -> Meta:
    """Return the meta page's content. Raises CorruptError for a format that this version does not know."""
    magic, version, size, *numbers, directories = _FIELDS.unpack_from(page, BODY)
    if magic != _MAGIC:
        raise CorruptError("page 0 is no meta page of a linear-hash store")
    if version not in _READ_VERSIONS or size != PAGE:
        raise CorruptError(
            f"the store is of format {version} with pages of {size} bytes; this version reads up to {VERSION}"
        )
    return Meta(
        **dict(zip(_SCALARS, numbers, strict=True)),
        cells=list(struct.unpack_from(f"<{CELL_LISTS}I", page, _AT_CELLS)),
        directory=list(struct.unpack_from(f"<{min(directories, MAX_DIRECTORY)}I", page, _AT_DIRECTORY)),
    )
