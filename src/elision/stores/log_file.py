"""Logs as JSON lines: everything that a store keeps of sessions, to be read by another store.

A session is a line with `format` and `session`, a line for each record, and a line with `end`, the number of them.
Pure ASCII. `redacted` in the first line says whether secrets were replaced: such a log is no exact copy.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from elision.errors import FormatError, StoreError
from elision.stores.store import SessionInfo
from elision.stores.store_errors import missing_session_error
from elision.trajectory.event_json import decode_event, encode_event
from elision.trajectory.events import Event, RecallExchanged, TurnAdded, TurnAmended
from elision.trajectory.foreign_json import parse_json
from elision.trajectory.redact import Redaction

VERSION: Final = 1
_FORMAT: Final = "elision.log/"


def format_log(session: SessionInfo, events: Iterable[Event], redaction: Redaction | None = None) -> Iterator[str]:
    """Yield the lines of one session, without line ends. redaction: None writes everything as it is."""
    header = {"format": f"{_FORMAT}{VERSION}", "session": _describe_session(session)}
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


def _describe_session(session: SessionInfo) -> dict[str, Any]:
    names = ("key", "family", "parent", "relation", "begun", "changed")
    return {name: getattr(session, name) for name in names}


def _format_line(value: Mapping[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"))
