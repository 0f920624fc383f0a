"""OpenHands in JSON: `output.jsonl` of its evaluations, exported histories, lists of events, folders of V0 sessions.

V0 wrote a flat list of events, and before that pairs of action and observation; V1 events stand in lists too. The
resolver's `output.jsonl` holds an issue a line, its events without a frame.

A V0 session is a folder of `events/0.json`, `events/1.json` ... `event_cache/0-25.json` holds events 0 to 24 again, and
stands in for the files of those that are missing or broken. Source: `openhands/events/event_store.py` and
`openhands/storage/locations.py` of All-Hands-AI/OpenHands 0.62.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from elision.errors import FormatError
from elision.formats.assembler import Assembler, yield_run
from elision.formats.document import Document, RunOrProblem, peek_objects, peek_value, read_json_lines, read_json_value
from elision.formats.openhands_events import V1_EVENT_KINDS, V1RunFeeder, read_bills, read_member
from elision.formats.openhands_v0 import V0RunFeeder, detect_prompt_tokens, is_event, is_flat_event
from elision.formats.source import derive_run_name
from elision.providers.shared.json_reading import Json, cost_in, count_in, list_in, mapping_in, mappings_in, text_in
from elision.trajectory.trajectory import Problem

#: Where a record keeps its events.
_HOLDERS = ("history", "trajectory")
#: Events of a history that are looked at to recognise it.
_PEEK_EVENTS = 10


class OpenHandsOutputReader:
    """Reads `output.jsonl` and histories as one JSON value, V0 and V1."""

    name = "openhands-output"

    def sniff(self, document: Document) -> bool:
        if _is_list(document):
            return _is_history(peek_value(document, "timestamp", "action"))
        if not any(f'"{name}"'.encode() in document.data for name in _HOLDERS):
            return False
        records = peek_objects(document) or [mapping_in(peek_value(document))]
        return any(_is_history(_find_history(record)) for record in records)

    def read(self, document: Document) -> Iterator[RunOrProblem]:
        # One record alone is a JSON value, on one line or several.
        if _is_list(document) or b"\n" not in document.data.rstrip() or not peek_objects(document, 1):
            value = read_json_value(document)
            yield from _read_record(
                document, {"history": value} if isinstance(value, list) else mapping_in(value), None
            )
            return
        for line in read_json_lines(document):
            if isinstance(line, Problem):
                yield line
            elif _is_history(_find_history(line.value)):
                yield from _read_record(document, line.value, line.number)
            else:
                reason = "a record without OpenHands events; left out"
                yield Problem(file=document.path, line=line.number, reason=reason)


def _read_record(document: Document, record: Json, line: int | None) -> Iterator[RunOrProblem]:
    history = _find_history(record)
    if not _is_history(history):
        raise FormatError(f"{document.path}: no OpenHands events in it: neither a list of them nor one in `history`")
    name = _name_record(record) or (f"line {line}" if line else derive_run_name(document.path))
    events: list[Any] = []
    for item in history:
        events += item if isinstance(item, list) else [item]
    assembler = Assembler(document.path, observations="tools")
    _feed_events(assembler, events, record)
    cost = cost_in(mapping_in(record.get("metrics")).get("accumulated_cost"))
    trajectory = assembler.finish(name, format=OpenHandsOutputReader.name, usd=cost)
    yield from yield_run(assembler, trajectory, missing=f"{name}: no assistant message in it", line=line)


def _name_record(record: Json) -> str:
    """Return the task of a benchmark, or the issue that the resolver worked on, `owner/repo#5`; "" if there is none."""
    task = text_in(record.get("instance_id"))
    if task:
        return task
    issue = mapping_in(record.get("issue"))
    owner = text_in(issue.get("owner"))
    repo = text_in(issue.get("repo"))
    number = count_in(issue.get("number"))
    return f"{owner}/{repo}#{number}" if repo and number else ""


def _feed_events(assembler: Assembler, events: list[Any], record: Json) -> None:
    recorded = read_bills([mapping_in(record.get("metrics"))])
    is_v1 = any("kind" in event for event in mappings_in(events))
    run: V0RunFeeder | V1RunFeeder
    if is_v1:
        run = V1RunFeeder(assembler, recorded)
    else:
        run = V0RunFeeder(assembler, detect_prompt_tokens(events), recorded)
    for number, event in enumerate(events, start=1):
        run.take_event(event, number)


def _is_list(document: Document) -> bool:
    return document.data[:256].lstrip().startswith(b"[")


def _find_history(record: Json) -> Any:
    return next((record[name] for name in _HOLDERS if isinstance(record.get(name), list)), None)


def _is_history(value: Any) -> bool:
    return isinstance(value, list) and any(map(_is_openhands_event, value[:_PEEK_EVENTS]))


def _is_openhands_event(item: Any) -> bool:
    """Return whether an item is an event of either version, or a pair of V0 events."""
    if isinstance(item, list):
        return any(map(is_event, item))
    # `source` sets V0 events apart from SWE-agent's steps, which act and observe in one object.
    is_v0 = is_event(item) and ("source" in item or is_flat_event(item))
    return is_v0 or text_in(mapping_in(item).get("kind")) in V1_EVENT_KINDS


_EVENT = re.compile(r"events/(\d+)\.json")
_PAGE = re.compile(r"event_cache/(\d+)-(\d+)\.json")
#: Files that are looked at to recognise a session: the first of them may be broken.
_PEEK_FILES = 10


class OpenHandsSessionReader:
    """Reads folders, tars and zips that hold `events/<number>.json`."""

    name: ClassVar[str] = "openhands-session"

    def sniff(self, document: Document) -> bool:
        """Return whether one of the first event files, or of the first page, holds a V0 event."""
        names = [name for name in document.members if _EVENT.fullmatch(name) or _PAGE.fullmatch(name)]
        for name in sorted(names, key=_read_first_number)[:_PEEK_FILES]:
            value = peek_value(Document(path=name, data=document.members[name]))
            if any(map(is_event, value if isinstance(value, list) else [value])):
                return True
        return False

    def read(self, document: Document) -> Iterator[RunOrProblem]:
        assembler = Assembler(document.path, observations="tools")
        events = _read_events(assembler, document)
        run = V0RunFeeder(assembler, detect_prompt_tokens(events.values()))
        for number in sorted(events):
            run.take_event(events[number], number)
        yield from yield_run(assembler, assembler.finish(derive_run_name(document.path), format=self.name))


def _read_first_number(name: str) -> int:
    found = _EVENT.fullmatch(name) or _PAGE.fullmatch(name)
    return int(found[1]) if found else 0


def _read_events(assembler: Assembler, document: Document) -> Mapping[int, Any]:
    """Return the events by their number, each from its own file, else from the page that holds it."""
    events: dict[int, Any] = {}
    for name in document.members:
        if found := _EVENT.fullmatch(name):
            value = read_member(assembler, document, name)
            if value is not None:
                events[int(found[1])] = value
    for name in document.members:
        found = _PAGE.fullmatch(name)
        if found is None or all(number in events for number in range(int(found[1]), int(found[2]))):
            continue
        page = read_member(assembler, document, name)
        for number, value in enumerate(list_in(page), start=int(found[1])):
            if value is not None:
                events.setdefault(number, value)
    return events
