"""Open recordings: a file, a gzip, a tar, a zip or a folder becomes a stream of documents.

Nothing is written to disk, no link inside an archive is followed, and a member's name is only a label. Files that are
one recording together, by their names, are one document, in a folder and in an archive alike.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import tarfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeAlias

from elision.errors import FormatError
from elision.formats.compressed_files import ZIP_START, ZSTD_START, ZipMembers, ZstdFile, is_inspect_log
from elision.formats.document import Document
from elision.trajectory.trajectory import Problem

#: Bytes of one file, decompressed, above which it is skipped: a run is a few MB, a whole benchmark some hundred.
SIZE_LIMIT = 2**30
#: What a recording is usually called, any .gz or .zst left out.
SUFFIXES = (".json", ".jsonl", ".ndjson", ".traj", ".eval")

_CHUNK = 2**20
_GZIP = b"\x1f\x8b"
_TAR_NAMES = (".tar", ".tgz", ".tar.gz")
_ZIP_NAME = ".zip"
#: opencode's database; in a folder only files of this name are opened as one.
_DATABASE_NAME = ".db"
#: What macOS adds to a zip: resource forks, no files of the user.
_MAC_FOLDER = "__MACOSX/"
#: First bytes of a SQLite database; of JSON (a byte order mark included) and of a zip.
_SQLITE_START = b"SQLite format 3\x00"
_STARTS = (b"{", b"[", b"\xef\xbb\xbf", b"PK")
_READ_ERRORS = (EOFError, OSError, tarfile.TarError, zlib.error)

_Bytes: TypeAlias = io.BufferedReader | gzip.GzipFile


def read_documents(path: Path) -> Iterator[Document | Problem]:
    """Yield every file at or below `path`: folders in sorted order, archives in their own.

    Of a folder or archive only files that may hold JSON or a zip are read. A truncated gzip is read as far as possible,
    with a Problem. Raises FormatError if `path` itself cannot be read.
    """
    try:
        path.stat()
        if path.is_file():
            path.open("rb").close()
    except FileNotFoundError as error:
        raise FormatError(f"{path}: there is no such file or folder; give a recorded run") from error
    except OSError as error:
        raise FormatError(f"{path}: cannot be read ({error.strerror}); check its permissions") from error
    if path.is_dir():
        yield from _read_folder(path)
    else:
        yield from _read_file(path, str(path), is_named=True)


def is_candidate(name: str) -> bool:
    """Return whether a file is called like a recording."""
    return name.lower().removesuffix(".gz").removesuffix(".zst").endswith(SUFFIXES)


def derive_run_name(path: str) -> str:
    """Return a readable id for the one run of a file: its name, without folder, archive and suffixes."""
    name = path.rsplit("!", 1)[-1].rstrip("/").rsplit("/", 1)[-1]
    name = re.sub(r"\.(gz|tgz|zst)$", "", name, flags=re.IGNORECASE)
    return re.sub(r"(\.traj)?\.(json|jsonl|ndjson|traj|eval|tar|zip)$", "", name, flags=re.IGNORECASE) or "main"


def _read_folder(root: Path) -> Iterator[Document | Problem]:
    problems: list[Problem] = []

    def unreadable(error: OSError) -> None:
        problems.append(Problem(file=str(error.filename), line=None, reason=f"folder not read ({error.strerror})"))

    names: list[str] = []
    for folder, _, files in os.walk(root, onerror=unreadable):
        names += [(Path(folder) / name).relative_to(root).as_posix() for name in files]
    names.sort()
    yield from problems
    groups = group_files(names)
    for base, own in _list_folders(names, groups):
        yield from _read_event_folder(root, base, own)
    for name in names:
        if name not in groups and _is_worth_reading(root / name):
            yield from _read_file(root / name, str(root / name))


def _list_folders(names: list[str], groups: dict[str, str]) -> list[tuple[str, list[str]]]:
    """Return the folders of `groups` in order, each with its files in the order of `names`."""
    folders: dict[str, list[str]] = {}
    for name in names:
        if name in groups:
            folders.setdefault(groups[name], []).append(name)
    return sorted(folders.items())


def _read_event_folder(root: Path, base: str, names: list[str]) -> Iterator[Document | Problem]:
    members: dict[str, bytes] = {}
    for name in names:
        for piece in _read_file(root / name, str(root / name)):
            if isinstance(piece, Problem):
                yield piece
            else:
                members[name.removeprefix(base)] = piece.data
    yield Document(path=str(root / base), members=members)


def _is_worth_reading(path: Path) -> bool:
    """Return whether a found file may hold a recording, by its name or its first bytes."""
    if is_candidate(path.name) or path.name.lower().endswith(_TAR_NAMES):
        return True
    try:
        with path.open("rb") as file:
            start = file.read(64)
    except OSError:  # an unreadable file that is not called like a recording: a socket, a dangling link
        return False
    if start.startswith(_SQLITE_START):
        return path.name.lower().endswith(_DATABASE_NAME)
    return start.startswith(_GZIP) or start.lstrip().startswith(_STARTS)


def _read_file(path: Path, label: str, *, is_named: bool = False) -> Iterator[Document | Problem]:
    if not path.is_file():
        yield Problem(file=label, line=None, reason="not a file that can be read; left out")
        return
    try:
        with path.open("rb") as raw, _decompress(raw) as file:
            if _peek_beginning(file).startswith(_SQLITE_START):
                yield from _read_sqlite(path, label, is_named=is_named)
                return
            if _is_tar(label, _peek_beginning(file)):
                yield from _read_tar(path, label)
                return
            for piece in _read_whole(file, label):
                yield from _open_zip(piece, is_named=is_named)
    except _READ_ERRORS as error:
        yield Problem(file=label, line=None, reason=f"cannot be read ({error})")


def _read_sqlite(path: Path, label: str, *, is_named: bool) -> Iterator[Document | Problem]:
    # Here, as few sources are databases.
    from elision.formats.opencode_database import read_database

    found = False
    for piece in read_database(path, label):
        found = True
        yield piece
    if is_named and not found:
        reason = "a SQLite database without sessions of opencode; a store of Elision: elision sessions --store"
        yield Problem(file=label, line=None, reason=reason)


def _decompress(raw: io.BufferedReader) -> _Bytes:
    """Decompress `raw` if its first bytes are gzip's or zstd's, whatever its name."""
    start = raw.read(len(ZSTD_START))
    raw.seek(0)
    if start.startswith(_GZIP):
        return gzip.GzipFile(fileobj=raw)
    if start == ZSTD_START:
        return io.BufferedReader(ZstdFile(raw))
    return raw


def _peek_beginning(file: _Bytes) -> bytes:
    """Return the first 512 bytes, or fewer if the file breaks off."""
    try:
        return file.read(512)
    except _READ_ERRORS:
        return b""
    finally:
        file.seek(0)


def _is_tar(name: str, start: bytes) -> bool:
    return start[257:262] == b"ustar" or (name.lower().endswith(_TAR_NAMES) and len(start) == 512)


def _read_whole(file: _Bytes, label: str) -> Iterator[Document | Problem]:
    """Yield the file as one document. It is read in pieces, so that what comes before a break is kept."""
    buffer = io.BytesIO()  # getvalue() hands its bytes over without a copy
    try:
        while piece := file.read1(_CHUNK):  # unlike read(), it hands out what comes before an error
            if buffer.tell() + len(piece) > SIZE_LIMIT:
                reason = f"over {SIZE_LIMIT // 2**20} MB decompressed; left out: split it, one run a file"
                yield Problem(file=label, line=None, reason=reason)
                return
            buffer.write(piece)
    except _READ_ERRORS as error:
        reason = f"breaks off after {buffer.tell():,} bytes ({error}); read as far as it goes"
        yield Problem(file=label, line=None, reason=reason)
    yield Document(path=label, data=buffer.getvalue())


def _read_tar(path: Path, label: str) -> Iterator[Document | Problem]:
    """Yield the files of a tar, in two passes.

    The first only counts the files of each folder of events. So the second can yield a folder as soon as it is
    complete, and need not hold them all.
    """
    groups = group_files([name for name, _ in _open_tar_members(path, [])])
    missing = Counter(groups.values())
    gathered = dict[str, dict[str, bytes]]()
    problems: list[Problem] = []
    for name, stream in _open_tar_members(path, problems):
        base = groups.get(name)
        for piece in _read_member(stream, f"{label}!{name}", wanted=base is not None):
            if isinstance(piece, Document) and base is not None:
                gathered.setdefault(base, {})[name.removeprefix(base)] = piece.data
            else:
                yield piece
        if base is not None:
            missing[base] -= 1
            if not missing[base]:
                yield _make_event_document(label, base, gathered.pop(base, {}))
    for base in sorted(gathered):
        yield _make_event_document(label, base, gathered[base])
    yield from problems


def _open_zip(piece: Document | Problem, *, is_named: bool) -> Iterator[Document | Problem]:
    """Yield the files of `piece` if it is a zip, unless that zip is itself a recording; else `piece`.

    is_named: the user named it. In a folder only what is called a zip is opened: wheels and spreadsheets are zips too.
    """
    if isinstance(piece, Problem) or not piece.data.startswith(ZIP_START):
        yield piece
        return
    is_archive = is_named or piece.path.lower().removesuffix(".gz").endswith(_ZIP_NAME)
    try:
        members = ZipMembers(piece.path, piece.data)
    except FormatError as error:
        yield Problem(file=piece.path, line=None, reason=str(error).removeprefix(f"{piece.path}: "))
        return
    if is_archive and not is_inspect_log(members):
        yield from _read_zip(members, piece.path)
    else:
        yield piece


def _read_zip(members: ZipMembers, label: str) -> Iterator[Document | Problem]:
    """Yield the files of a zip: its folders that are one recording, then the others, each in sorted order."""
    names = sorted(name for name in members.names if not name.endswith("/") and not name.startswith(_MAC_FOLDER))
    groups = group_files(names)
    for base, own in _list_folders(names, groups):
        gathered: dict[str, bytes] = {}
        for name in own:
            for piece in _read_zip_member(members, label, name, wanted=True):
                if isinstance(piece, Document):
                    gathered[name.removeprefix(base)] = piece.data
                else:
                    yield piece
        yield _make_event_document(label, base, gathered)
    for name in names:
        if name not in groups:
            yield from _read_zip_member(members, label, name, wanted=False)


def _read_zip_member(members: ZipMembers, label: str, name: str, *, wanted: bool) -> Iterator[Document | Problem]:
    """Yield one file of a zip, as a document."""
    path = f"{label}!{name}"
    try:
        stream = io.BytesIO(members.read_member(name))
    except FormatError as error:
        yield Problem(file=path, line=None, reason=str(error).removeprefix(f"{path}: "))
        return
    yield from _read_member(stream, path, wanted=wanted)


def _make_event_document(label: str, base: str, members: dict[str, bytes]) -> Document:
    return Document(path=f"{label}!{base.rstrip('/')}" if base else label, members=dict(sorted(members.items())))


def _open_tar_members(path: Path, problems: list[Problem]) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the regular files of a tar, as a stream; each must be read before the next is asked for."""
    try:
        with path.open("rb") as raw, _decompress(raw) as file, tarfile.open(fileobj=file, mode="r|") as tar:
            for info in tar:
                if info.isreg() and (stream := tar.extractfile(info)) is not None:
                    yield info.name, stream
    except _READ_ERRORS as error:
        reason = f"the archive breaks off ({error}); read as far as it goes"
        problems.append(Problem(file=str(path), line=None, reason=reason))


def _read_member(stream: IO[bytes], label: str, *, wanted: bool) -> Iterator[Document | Problem]:
    start = stream.read(512)
    if not (wanted or is_candidate(label) or start.startswith(_GZIP) or start.lstrip().startswith(_STARTS)):
        return
    rest = _ResumedStream(start, stream)
    if _is_tar(label, start) or label.lower().endswith(_ZIP_NAME):
        yield Problem(file=label, line=None, reason="an archive inside an archive is not opened; unpack it first")
    elif start.startswith(_GZIP):
        yield from _read_whole(gzip.GzipFile(fileobj=rest), label)
    else:
        yield from _read_whole(io.BufferedReader(rest), label)


class _ResumedStream(io.RawIOBase):
    """Bytes already read, then the rest of the stream they came from."""

    def __init__(self, start: bytes, rest: IO[bytes]) -> None:
        self._start = start
        self._rest = rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        piece = self._start[: len(buffer)] or self._rest.read(len(buffer))
        self._start = self._start[len(piece) :]
        buffer[: len(piece)] = piece
        return len(piece)


# -- folders whose files are one recording ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FolderLayout:
    """How a recorder lays its files out. The first group of each pattern is the recording's folder, "" or with "/".

    parts:  files without which a folder is no such recording.
    extras: files that belong to it where it is one.
    """

    parts: re.Pattern[str]
    extras: re.Pattern[str]


#: A reader of `Document.members` decides by content; files that no reader takes as a folder are read one by one.
LAYOUTS = (
    # OpenHands V1: `events/event-00000-<id>.json`, or that folder itself.
    FolderLayout(
        parts=re.compile(r"((?:.*?/)??)(?:events/)?event-\d[^/]*\.json"),
        extras=re.compile(r"((?:.*/)?)(?:base_state|meta)\.json"),
    ),
    # OpenHands V0: `events/0.json`, `events/1.json` ..., and pages of them again in `event_cache/0-25.json`.
    FolderLayout(
        parts=re.compile(r"((?:.*?/)??)(?:events/\d+|event_cache/\d+-\d+)\.json"),
        extras=re.compile(r"((?:.*/)?)(?:metadata|init)\.json"),
    ),
    # opencode: `message/<session>/<message>.json` and `part/<message>/<part>.json`, below `session/` at first.
    FolderLayout(
        parts=re.compile(
            r"((?:.*?/)??)(?:session/)?(?:message/ses_[^/]+/msg_[^/]+|part/(?:ses_[^/]+/)?msg_[^/]+/prt_[^/]+)\.json"
        ),
        extras=re.compile(r"((?:.*?/)??)(?:session/[^/]+|session_diff|session_share|share|todo|project)/[^/]+\.json"),
    ),
)


def group_files(names: Sequence[str]) -> dict[str, str]:
    """Return which of `names` belong to a folder that is one recording: name -> that folder."""
    groups: dict[str, str] = {}
    for layout in LAYOUTS:
        own = {name: found[1] for name in names if (found := layout.parts.fullmatch(name))}
        folders = set(own.values())
        for name in names:
            if (found := layout.extras.fullmatch(name)) and found[1] in folders:
                own[name] = found[1]
        groups = own | groups
    return groups
