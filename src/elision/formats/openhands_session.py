"""OpenHands V0: the folder of a session, an event a file.

`events/0.json`, `events/1.json` ... are the session. `event_cache/0-25.json` holds events 0 to 24 again, and stands in
for the files of those that are missing or broken. Source: `openhands/events/event_store.py` and
`openhands/storage/locations.py` of All-Hands-AI/OpenHands 0.62.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from elision.formats.assembler import Assembler, yield_run
from elision.formats.document import Document, RunOrProblem
from elision.formats.json_lines import peek_value
from elision.formats.openhands_events import read_member
from elision.formats.openhands_v0 import V0RunFeeder, detect_prompt_tokens, is_event
from elision.formats.source import derive_run_name
from elision.providers.shared.json_reading import list_in

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
