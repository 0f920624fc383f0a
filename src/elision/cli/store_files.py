"""Stored sessions as lines of a file, and writing such a file: whole or not at all."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from elision.cli.outputs import check_outputs, replace_file
from elision.formats.elision_export import export
from elision.formats.stored_session import load_stored_session
from elision.stores.log_file import format_log
from elision.stores.store import SessionInfo, Store
from elision.trajectory.redact import Redaction


def export_run(store: Store, session: SessionInfo, redaction: Redaction | None) -> Iterator[str]:
    """`session` as a recorded run (`elision.trajectory/1`). redaction: None leaves secrets in."""
    for line in export(load_stored_session(store, session.key)):
        yield json.dumps(redaction.redact_tree(json.loads(line)), separators=(",", ":")) if redaction else line


def export_log(store: Store, session: SessionInfo, redaction: Redaction | None) -> Iterator[str]:
    """`session` as a log (`elision.log/1`)."""
    return format_log(session, store.events(session.key), redaction)


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write a file that is there when all of it is, readable by its owner alone; "-" is standard output.

    Raises OutputError before anything is read if it cannot or must not be written.
    """
    if str(path) == "-":
        for line in lines:
            sys.stdout.write(line + "\n")
        return
    check_outputs({"out": path})
    replace_file(path, (f"{line}\n".encode("ascii") for line in lines), private=True)
