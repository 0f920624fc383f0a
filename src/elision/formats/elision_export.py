"""Elision's own format, in both directions, and its stored sessions as trajectories.

JSON lines, one for the run and its head, then one for each turn. Runs follow one another in a file; each begins with a
line that has `format`. What has its default is left out. File and format name where the run was first read from, so
that runs of several files can be put in one and stay apart.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec.structs import replace

from elision.errors import FormatError
from elision.formats.document import Document, JsonLine, RunOrProblem, peek_objects, read_json_lines
from elision.stores.store import Store
from elision.trajectory.events import (
    Event,
    HeadSet,
    PassDecided,
    RequestSent,
    SessionOpened,
    UsageReported,
    decode_head,
    decode_turn,
    encode_head,
    encode_turn,
)
from elision.trajectory.run_roles import SaidRole, find_run_role
from elision.trajectory.trajectory import Compaction, Problem, PromptChange, Trajectory
from elision.trajectory.turn import Head, Turn
from elision.trajectory.usage import Usage

VERSION = 1
_FORMAT = re.compile(r"elision\.trajectory/(\d{1,9})")


class _RunHeader(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The line that a run begins with. head: as `encode_head` writes it. observations: "user" or ""."""

    format: str
    id: str
    file: str = ""
    recorded_as: str = ""
    model: str = ""
    observations: str = ""
    compactions: tuple[Compaction, ...] = ()
    changes: tuple[PromptChange, ...] = ()
    parent: str | None = None
    recorded_window: int | None = None
    role: SaidRole = ""
    head: dict[str, Any]


# --- out ---------------------------------------------------------------------------------------------------------


def export(trajectory: Trajectory) -> Iterator[str]:
    """Yield the lines of `trajectory`, without line ends; pure ASCII."""
    header = _RunHeader(
        format=f"elision.trajectory/{VERSION}",
        id=trajectory.id,
        file=trajectory.file,
        recorded_as=trajectory.format,
        model=trajectory.model,
        observations="user" if trajectory.observations == "user" else "",
        compactions=trajectory.compactions,
        changes=trajectory.changes,
        parent=trajectory.parent,
        recorded_window=trajectory.recorded_window,
        role=trajectory.role,
        head=encode_head(trajectory.head),
    )
    yield _dump_line(msgspec.to_builtins(header))
    for turn in trajectory.turns:
        yield _dump_line(encode_turn(turn))


def _dump_line(value: Mapping[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"))


# --- in ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _ExportedRun:
    """A run while its turns still come in."""

    line: int
    header: Mapping[str, Any]
    turns: list[Turn] = field(default_factory=list)


class ElisionExportReader:
    """Reads what `export` wrote; keys it does not know are passed over.

    Raises FormatError for a run of a newer format: half-understood runs would be measured wrong.
    """

    name = "elision"

    def sniff(self, document: Document) -> bool:
        first = peek_objects(document, 1)
        found = first[0].get("format") if first else None
        return isinstance(found, str) and found.startswith("elision.trajectory/")

    def read(self, document: Document) -> Iterator[RunOrProblem]:
        run: _ExportedRun | None = None
        for line in read_json_lines(document):
            if isinstance(line, Problem):
                yield line
            elif "format" in line.value:
                yield from _finish_run(document, run)
                run = _begin_run(document, line)
            elif run is None:
                yield _make_problem(document, line.number, "a turn without a run before it; left out")
            else:
                yield from _add_turn(document, run, line)
        yield from _finish_run(document, run)


def _begin_run(document: Document, line: JsonLine) -> _ExportedRun:
    found = _FORMAT.fullmatch(str(line.value["format"]))
    version = int(found[1]) if found else 0
    if not found or version < 1:
        raise FormatError(f"{document.path}:{line.number}: unknown format {str(line.value['format'])[:60]!r}")
    if version > VERSION:
        raise FormatError(
            f"{document.path}:{line.number}: format {found[0]} is newer than this Elision reads "
            f"(elision.trajectory/{VERSION}); update elision"
        )
    return _ExportedRun(line.number, line.value)


def _add_turn(document: Document, run: _ExportedRun, line: JsonLine) -> Iterator[Problem]:
    expected = len(run.turns) + 1
    try:
        # A turn that cannot be read is left out; those after it move up.
        turn = replace(decode_turn(dict(line.value)), index=expected)
    except ValueError as error:
        yield _make_problem(document, line.number, f"unreadable turn ({error}); left out, later turns move up")
        return
    run.turns.append(turn)


def _finish_run(document: Document, run: _ExportedRun | None) -> Iterator[RunOrProblem]:
    if run is None:
        return
    try:
        trajectory = _parse_trajectory(document, run)
    except ValueError as error:
        yield _make_problem(document, run.line, f"unreadable run ({error}); left out")
        return
    yield trajectory


def _make_problem(document: Document, line: int, reason: str) -> Problem:
    return Problem(file=document.path, line=line, reason=reason)


def _parse_trajectory(document: Document, run: _ExportedRun) -> Trajectory:
    header = msgspec.convert(run.header, _RunHeader)
    return Trajectory(
        id=header.id,
        head=decode_head(header.head),
        turns=tuple(run.turns),
        file=header.file,
        format=header.recorded_as,
        model=header.model,
        parent=header.parent,
        compactions=header.compactions,
        changes=header.changes,
        recorded_window=header.recorded_window,
        observations="user" if header.observations == "user" else "tools",
        role=header.role,
    )


def load_stored_session(store: Store, key: str) -> Trajectory:
    """Load the run of session `key`: its raw turns as they are now, under its newest head.

    Turns get usage, times and models from the session's calls; summaries become compactions. Raises UnknownHandle,
    StoreError; FormatError if turns are missing.
    """
    info = store.info(key)
    facts = _read_log(store.events(key))
    turns = tuple(facts.complete_turn(turn) for turn in store.turns(key))
    models = Counter(turn.model for turn in turns if turn.model)
    results = {observation.role for turn in turns for observation in turn.observations}
    try:
        return Trajectory(
            id=key,
            head=facts.head,
            turns=turns,
            model=models.most_common(1)[0][0] if models else "",
            parent=info.parent or None,
            compactions=tuple(facts.compactions),
            changes=tuple(facts.changes),
            observations="user" if results == {"user"} else "tools",
            role=find_run_role(facts.head, turns, is_started=info.relation == "sub-agent", said=facts.role),
        )
    except ValueError as error:
        raise FormatError(f"session {key!r} is not a complete run: {error}") from error


@dataclass(slots=True)
class _LogFacts:
    """What a log says beside its turns."""

    head: Head = field(default_factory=Head)
    calls: dict[int, RequestSent] = field(default_factory=dict)
    usage: dict[int, Usage] = field(default_factory=dict)
    compactions: list[Compaction] = field(default_factory=list)
    changes: list[PromptChange] = field(default_factory=list)
    role: SaidRole = ""

    def note_head(self, head: Head) -> None:
        """Take the head of the next call, and note what of it is another one than at the call before."""
        if self.calls:
            before = max(self.calls) + 1
            if head.tools != self.head.tools:
                self.changes.append(PromptChange(before=before, what="the tools"))
            if head.messages[: len(self.head.messages)] != self.head.messages:
                self.changes.append(PromptChange(before=before, what="the system prompt or the task"))
        self.head = head

    def complete_turn(self, turn: Turn) -> Turn:
        """Return `turn` with what is known of the call that it answers."""
        turn = replace(turn, usage=turn.usage or self.usage.get(turn.index))
        call = self.calls.get(turn.index)
        if call is None:
            return turn
        at = call.at if turn.at is None else turn.at
        return replace(turn, at=at, model=turn.model or call.model)


def _read_log(events: Iterable[Event]) -> _LogFacts:
    facts = _LogFacts()
    for event in events:
        match event:
            case SessionOpened():
                facts.role = facts.role or event.role
            case HeadSet():
                facts.note_head(event.head)
            case RequestSent():
                facts.calls[event.call] = event
            case UsageReported():
                facts.usage[event.call] = event.usage
            case PassDecided() if event.summary is not None:
                facts.compactions.append(Compaction(before=event.call, summary=event.summary.text))
    return facts
