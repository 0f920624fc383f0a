"""Elision's own format, in both directions: JSON lines, one for the run and its head, then one for each turn.

Runs follow one another in a file; each begins with a line that has `format`. What has its default is left out. File and
format name where the run was first read from, so that runs of several files can be put in one and stay apart.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec.structs import replace

from elision.errors import FormatError
from elision.formats.document import Document, RunOrProblem
from elision.formats.json_lines import JsonLine, peek_objects, read_json_lines
from elision.trajectory.event_json import decode_head, decode_turn, encode_head, encode_turn
from elision.trajectory.run_roles import SaidRole
from elision.trajectory.trajectory import Compaction, Problem, PromptChange, Trajectory
from elision.trajectory.turn import Turn

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
