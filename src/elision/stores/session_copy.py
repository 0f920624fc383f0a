"""Copies of sessions from one place to another, resumable, verified, without overwriting another session.

A place is a store, or a file of logs as JSON lines: everything that a store keeps of sessions. A session is a line with
`format` and `session`, a line for each record, and a line with `end`, the number of them. Pure ASCII. `redacted` in the
first line says whether secrets were replaced: such a log is no exact copy.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec
from msgspec.structs import replace

from elision.errors import ConflictError, CorruptError, FormatError, StoreError, UnknownHandle
from elision.stores.store import NewSession, SessionInfo, Store
from elision.stores.store_errors import missing_session_error
from elision.trajectory.events import Event, RecallExchanged, TurnAdded, TurnAmended, decode_event, encode_event
from elision.trajectory.foreign_text import parse_json
from elision.trajectory.redact import Redaction

#: Records written in one append.
_AT_ONCE: Final = 256
#: Of the format of logs.
VERSION: Final = 1
_FORMAT: Final = "elision.log/"
#: What a log says of its session.
_NAMES: Final = ("key", "family", "parent", "relation", "begun", "changed")


class SessionSource(Protocol):
    """A place to read sessions from: a store, or a file of logs."""

    def sessions(self) -> Sequence[SessionInfo]: ...
    def events(self, session: str, after: int = 0) -> Iterator[Event]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyResult:
    """One session after its copy.

    is_new: whether the target had no such session. existing_records: that it had. added_records: that were written.
    """

    key: str
    is_new: bool
    existing_records: int
    added_records: int


def copy_session(source: SessionSource, session: SessionInfo, target: Store) -> CopyResult:
    """Copy `session`, or what the target lacks of it; then compare both logs.

    A fork is written whole; its large texts are stored once all the same. Raises ConflictError if the target has
    another session of that name.
    """
    existing = _count_existing(source, session, target)
    length = existing or 0
    added = 0
    rest = source.events(session.key, after=length)
    while batch := list(islice(rest, _AT_ONCE)):
        added += len(batch)
        length = target.append(session.key, batch, after=length, at=session.changed)
    _verify_copy(source, session.key, target)
    return CopyResult(key=session.key, is_new=existing is None, existing_records=existing or 0, added_records=added)


def _count_existing(source: SessionSource, session: SessionInfo, target: Store) -> int | None:
    """Return how many records the target has; None if it had no such session, which is made. Raises ConflictError."""
    try:
        existing = target.info(session.key)
    except UnknownHandle:
        target.create(
            NewSession(
                key=session.key,
                family=session.family,
                at=session.begun,
                parent=session.parent,
                relation=session.relation,
            )
        )
        return None
    if (existing.family, existing.parent, existing.begun) != (session.family, session.parent, session.begun):
        raise ConflictError(f"session {session.key!r} already exists and is different")
    _verify_copy(source, session.key, target)
    return existing.records


def _verify_copy(source: SessionSource, key: str, target: Store) -> None:
    """Raise ConflictError unless one log is the beginning of the other."""
    pairs = zip_longest(source.events(key), target.events(key))
    for number, (ours, theirs) in enumerate(pairs, start=1):
        if ours is None or theirs is None:
            return
        if ours != theirs:
            raise ConflictError(f"session {key!r} already exists and differs from record {number} on")


def copy_all(source: SessionSource, target: Store, keys: Sequence[str] = ()) -> Iterator[CopyResult | StoreError]:
    """Copy all sessions, or those named, oldest first; yield each result, or the error of a conflict or damage."""
    for session in reversed(source.sessions()):
        if keys and session.key not in keys:
            continue
        try:
            yield copy_session(source, session, target)
        except (ConflictError, CorruptError) as error:
            yield error


# -- logs as JSON lines -----------------------------------------------------------------------------------------------


def format_log(session: SessionInfo, events: Iterable[Event], redaction: Redaction | None = None) -> Iterator[str]:
    """Yield the lines of one session, without line ends. redaction: None writes everything as it is."""
    header = {"format": f"{_FORMAT}{VERSION}", "session": {name: getattr(session, name) for name in _NAMES}}
    yield _format_line({**header, "redacted": redaction is not None})
    count = 0
    for event in events:
        count += 1
        yield _format_line(encode_event(event) if redaction is None else _redact_event(event, redaction))
    yield _format_line({"end": count})


def _redact_event(event: Event, redaction: Redaction) -> Mapping[str, Any]:
    if isinstance(event, RecallExchanged):
        # Texts within a text: an escaped line break before a secret would hide it.
        event = replace(
            event,
            messages=tuple(_redact_json(message, redaction) for message in event.messages),
            results=tuple(_redact_json(result, redaction) for result in event.results),
        )
    value: Mapping[str, Any] = redaction.redact_tree(encode_event(event))
    return value


def _redact_json(text: str, redaction: Redaction) -> str:
    value = parse_json(text)
    return text if value is None else _format_line(redaction.redact_tree(value))


@dataclass(frozen=True, slots=True)
class _LogSection:
    info: SessionInfo
    offset: int
    line: int


class LogFile:
    """The sessions of a file that `format_log` wrote.

    Reads it whole once, so that nothing is copied out of a file that is cut off. Raises FormatError with file, line and
    a hint.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._sections = {section.info.key: section for section in self._scan_sections()}

    def sessions(self) -> list[SessionInfo]:
        """Return the sessions in the order of `Store.sessions`."""
        sessions = [section.info for section in self._sections.values()]
        return sorted(sessions, key=lambda info: (info.changed, info.key), reverse=True)

    def events(self, session: str, after: int = 0) -> Iterator[Event]:
        if session not in self._sections:
            raise missing_session_error(session)
        return self._iterate_events(self._sections[session], after)

    def _iterate_events(self, section: _LogSection, after: int) -> Iterator[Event]:
        with self._path.open("rb") as file:
            file.seek(section.offset)
            for position, line in enumerate(file, start=1):
                value = self._parse_line(line, section.line + position)
                if "end" in value:
                    return
                if position > after:
                    yield self._parse_event(value, section.line + position)

    def _scan_sections(self) -> Iterator[_LogSection]:
        header: Mapping[str, Any] | None = None
        header_line = 0
        start = 0
        turns = records = 0
        offset = 0
        with self._path.open("rb") as file:
            for line_number, line in enumerate(file, start=1):
                offset += len(line)
                value = self._parse_line(line, line_number)
                if header is None:
                    header = self._parse_header(value, line_number)
                    header_line = line_number
                    start = offset
                    turns = records = 0
                elif "end" in value:
                    if value["end"] != records:
                        what = f"{value['end']} records are announced, {records} are there"
                        raise self._make_error(line_number, what)
                    yield _LogSection(self._parse_info(header, header_line, records, turns), start, header_line)
                    header = None
                else:
                    event = self._parse_event(value, line_number)
                    records += 1
                    if isinstance(event, TurnAdded | TurnAmended):
                        turns = max(turns, event.turn.index)
        if header is not None:
            raise self._make_error(header_line, "this session has no end; the file was cut off, export it again")

    def _parse_header(self, value: Mapping[str, Any], line: int) -> Mapping[str, Any]:
        form = str(value.get("format", ""))
        if not form.startswith(_FORMAT):
            raise self._make_error(
                line, "no line of `elision sessions export --log`; a recorded run is read by `elision replay`"
            )
        if form != f"{_FORMAT}{VERSION}":
            raise self._make_error(line, f"format {form[:40]!r} is newer than this Elision reads; update elision")
        session = value.get("session")
        if not isinstance(session, dict):
            raise self._make_error(line, "`session` is no object")
        return session

    def _parse_info(self, value: Mapping[str, Any], line: int, records: int, turns: int) -> SessionInfo:
        try:
            return msgspec.convert({**value, "records": records, "turns": turns}, SessionInfo)
        except ValueError as error:
            raise self._make_error(line, f"unreadable session ({error})") from error

    def _parse_event(self, value: dict[str, Any], line: int) -> Event:
        try:
            return decode_event(value)
        except (ValueError, StoreError) as error:
            raise self._make_error(line, f"unreadable record ({error})") from error

    def _parse_line(self, line: bytes, line_number: int) -> dict[str, Any]:
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            hint = "give a whole file of `elision sessions export --log`"
            raise self._make_error(line_number, f"it is not a record of a log; {hint}") from error
        if not isinstance(value, dict):
            raise self._make_error(line_number, "no JSON object")
        return value

    def _make_error(self, line: int, what: str) -> FormatError:
        return FormatError(f"{self._path}:{line}: {what}")


def _format_line(value: Mapping[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"))
