"""Files that a command writes: checked before the work begins, so that it is neither lost nor does it destroy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from lacuna.errors import OutputError

#: How our own files begin; a file that begins otherwise is somebody else's and is not overwritten.
OURS: Final[Mapping[str, tuple[bytes, ...]]] = {
    "json": (b'"format": "lacuna.',),
    "html": (b"<!doctype html>",),
    "png": (b"\x89PNG",),
    "out": (b'"format":"lacuna.',),
}


def check(files: Mapping[str, Path | None], inputs: Iterable[Path] = ()) -> None:
    """Raise OutputError for a file that cannot or must not be written. files: kind -> path; "-" is standard output."""
    sources = {path.resolve() for path in inputs}
    taken: set[Path] = set()
    for kind, path in files.items():
        if path is None or str(path) == "-":
            continue
        where = path.resolve()
        if where in sources or where in taken:
            raise OutputError(f"--{kind} {path}: that file is used already in this command; name another one")
        taken.add(where)
        _writable(kind, path)


def _writable(kind: str, path: Path) -> None:
    if path.is_dir() or not path.name:
        raise OutputError(f"--{kind} {path}: that is a folder; name a file in it")
    if not path.absolute().parent.is_dir():
        raise OutputError(f"--{kind} {path}: there is no folder {path.parent}")
    try:
        if path.is_file() and not _ours(kind, path):
            raise OutputError(f"--{kind} {path}: is there already and is none of our reports; name another file")
        with path.open("ab"):
            pass
    except OSError as error:
        raise OutputError(f"--{kind} {path}: cannot be written ({error.strerror or error})") from error


def _ours(kind: str, path: Path) -> bool:
    with path.open("rb") as file:
        start = file.read(200)
    return not start.strip() or any(mark in start for mark in OURS[kind])
