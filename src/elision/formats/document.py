"""One file of a recording as readers see it: its name, its bytes out of any gzip, tar or folder, and the JSON in them.

JSON is read line by line, with a Problem for each broken line, or whole, with an error that names the place. `NaN` and
`Infinity` are read as floats: recordings written by Python hold them. Halves of surrogate pairs become U+FFFD, as
nothing downstream could encode them. Recorders that cut text in the middle of a character leave them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from elision.errors import FormatError
from elision.trajectory.trajectory import Problem, Trajectory

#: What a reader yields: runs, and what it could not read, in any order.
RunOrProblem: TypeAlias = Trajectory | Problem


@dataclass(frozen=True, slots=True)
class Document:
    """One file, or one folder (or tar) whose files belong together.

    path:    as the user named it, a member after "!": "runs.tar.gz!a/b.json". For messages only; never opened again.
    data:    the bytes, decompressed; b"" for a folder.
    members: for a folder or tar: relative path -> bytes, sorted by path. Empty for a single file.
    peeked:  what sniffing has parsed so far: by line the objects in it, by 0 the value of the whole file.
    """

    path: str
    data: bytes = b""
    members: Mapping[str, bytes] = field(default_factory=dict, hash=False)
    peeked: dict[int, Any] = field(default_factory=dict, hash=False, compare=False, repr=False)


class FormatReader(Protocol):
    """One recorded format. Registered in `formats.registry`."""

    @property
    def name(self) -> str:
        """Return the name of the format; a plain class attribute will do."""
        ...

    def sniff(self, document: Document) -> bool:
        """Return whether `document` is in this format, by content. Cheap; does not raise."""
        ...

    def read(self, document: Document) -> Iterator[RunOrProblem]:
        """Yield every run in `document`. A broken record becomes a Problem with its line, and reading continues.

        Raises FormatError only if nothing can be read.
        """
        ...


#: Bytes of one line above which it is skipped: no recorded message comes near, and parsing takes ten times the memory.
LINE_LIMIT = 64 * 2**20
#: Lines that `peek_objects` looks at: enough to get past a broken start and a few bookkeeping records.
PEEK_LINES = 50

_BOM = b"\xef\xbb\xbf"
_DECODER = json.JSONDecoder()
_TEXT = re.compile(rb"\S")


@dataclass(frozen=True, slots=True)
class JsonLine:
    """One JSON object and the 1-based line it is on; several objects on a line share its number."""

    number: int
    value: Mapping[str, Any] = field(hash=False)


def read_json_lines(document: Document) -> Iterator[JsonLine | Problem]:
    """Yield every JSON object of a JSON-lines file. Anything else is a Problem, and the next line is read."""
    for number, start, end in _find_lines(document.data):
        if end - start > LINE_LIMIT:
            size = (end - start) / 2**20
            reason = f"line of {size:.0f} MB, over the limit of {LINE_LIMIT // 2**20} MB; skipped"
            yield Problem(file=document.path, line=number, reason=reason)
        else:
            yield from _parse_objects(document, number, document.data[start:end])


def read_json_value(document: Document) -> Any:
    """Return the one JSON value that the file holds.

    Raises FormatError with file, line, column and what to do about it.
    """
    data = document.data
    if not data or data.isspace():
        raise FormatError(f"{document.path}: the file is empty; was the run recorded?")
    if data[:256].removeprefix(_BOM).lstrip()[:1] not in (b"{", b"["):
        raise FormatError(f"{document.path}:1:1: no JSON object or list; it begins with {quote_beginning(document)}")
    if second := _find_second_value(data):
        raise FormatError(f"{document.path}:{second}:1: more than one JSON value; is it JSON lines under another name?")
    try:
        return _repair_surrogates(json.loads(data.removeprefix(_BOM).decode()), data)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        raise FormatError(
            f"{document.path}:{line}:{column}: byte 0x{data[error.start]:02x} is not UTF-8; "
            "save the file as UTF-8 (iconv -f latin1 -t utf-8, if it is Latin-1)"
        ) from error
    except json.JSONDecodeError as error:
        mend = _suggest_repair(error)
        raise FormatError(f"{document.path}:{error.lineno}:{error.colno}: broken JSON ({error.msg}); {mend}") from error
    except RecursionError as error:
        raise FormatError(f"{document.path}: JSON nested too deeply to read; no recorded run is") from error
    except ValueError as error:
        raise FormatError(f"{document.path}: unreadable JSON ({error})") from error


def peek_objects(document: Document, count: int = 5) -> list[Mapping[str, Any]]:
    """Return the first `count` objects of a JSON-lines file without broken lines, for sniffing. Does not raise."""
    found: list[Mapping[str, Any]] = []
    for number, start, end in _find_lines(document.data):
        if number > PEEK_LINES or len(found) >= count:
            break
        if end - start <= LINE_LIMIT:
            if number not in document.peeked:
                lines = _parse_objects(document, number, document.data[start:end])
                document.peeked[number] = [line.value for line in lines if isinstance(line, JsonLine)]
            found += document.peeked[number]
    return found[:count]


def peek_value(document: Document, *marks: str) -> Any:
    """Return the file's JSON value if its bytes hold every one of `marks`, else None, for sniffing. Does not raise.

    marks: texts that the format needs (a key, for example). They are searched first, as parsing costs far more.
    """
    if not all(mark.encode() in document.data for mark in marks):
        return None
    if 0 not in document.peeked:
        try:
            document.peeked[0] = read_json_value(document)
        except FormatError:
            document.peeked[0] = None
    return document.peeked[0]


def quote_beginning(document: Document) -> str:
    """Return how the file begins, quoted for a message."""
    return repr(document.data[:40].decode(errors="replace"))


def _find_lines(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield (number, start, end) of every line that is not blank; no line is copied."""
    start = len(_BOM) if data.startswith(_BOM) else 0
    number = 0
    while start < len(data):
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        number += 1
        if not data[start : min(end, start + 256)].isspace() and end > start:
            yield number, start, end
        start = end + 1


def _parse_objects(document: Document, number: int, raw: bytes) -> Iterator[JsonLine | Problem]:
    try:
        values = _parse_values(raw)
    except UnicodeDecodeError as error:
        reason = f"byte 0x{raw[error.start]:02x} at column {error.start + 1} is not UTF-8; line skipped"
        yield Problem(file=document.path, line=number, reason=reason)
        return
    for value in values:
        if isinstance(value, dict):
            yield JsonLine(number, value)
        else:
            wrong = f"a JSON {type(value).__name__} instead of an object"
            reason = str(value) if isinstance(value, _BrokenRest) else wrong
            yield Problem(file=document.path, line=number, reason=reason)


class _BrokenRest(str):
    """Why the rest of a line is unreadable."""

    __slots__ = ()


def _parse_values(raw: bytes) -> list[Any]:
    """Return the JSON values on one line; from where it breaks on, a `_BrokenRest`."""
    text = raw.decode().strip()
    at = 0
    values = list[Any]()
    while at < len(text):
        try:
            value, at = _DECODER.raw_decode(text, at)
            values.append(_repair_surrogates(value, raw))
        except json.JSONDecodeError as error:
            why = f"broken JSON at column {error.colno} ({error.msg}); rest of the line skipped"
            return [*values, _BrokenRest(why)]
        except RecursionError:
            return [*values, _BrokenRest("JSON nested too deeply to read; line skipped")]
        except ValueError as error:
            return [*values, _BrokenRest(f"unreadable JSON ({error}); line skipped")]
        at += len(text[at : at + 64]) - len(text[at : at + 64].lstrip())
    return values


def _find_second_value(data: bytes) -> int:
    """Return the line of a second value if the first line is a value by itself; else 0.

    The file is not decoded: readers that take both layouts ask this of every JSON-lines file.
    """
    _, start, end = next(_find_lines(data), (0, 0, 0))
    more = _TEXT.search(data, end) if 0 < end - start <= LINE_LIMIT else None
    if more is None:
        return 0
    try:
        json.loads(data[start:end].decode())
    except (ValueError, RecursionError):
        return 0
    return data.count(b"\n", 0, more.start()) + 1


def _repair_surrogates(value: Any, raw: bytes) -> Any:
    """Return `value` without halves of surrogate pairs; only an escape can have made one."""
    return _replace_surrogates(value) if b"\\ud" in raw or b"\\uD" in raw else value


def _replace_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_replace_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {_replace_surrogates(key): _replace_surrogates(item) for key, item in value.items()}
    return value


def _suggest_repair(error: json.JSONDecodeError) -> str:
    if error.msg == "Extra data":
        return "one value is expected; is it JSON lines under another name?"
    if error.pos >= len(error.doc.rstrip()) - 1 or error.msg.startswith("Unterminated string"):
        return "the file looks cut off; record or copy it again"
    return "fix it there, or record it again"
