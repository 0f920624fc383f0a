"""What a reader finds: documents for it, and its runs and problems apart."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from elision.formats.document import Document, FormatReader, RunOrProblem
from elision.formats.registry import read_runs
from elision.trajectory.trajectory import Problem, Trajectory

DATA = Path(__file__).parents[1] / "data"


def separate(found: Iterable[RunOrProblem]) -> tuple[list[Trajectory], list[Problem]]:
    """Return the runs of `found`, and its problems."""
    items = list(found)
    return [x for x in items if isinstance(x, Trajectory)], [x for x in items if isinstance(x, Problem)]


def separate_by_id(found: Iterable[RunOrProblem]) -> tuple[dict[str, Trajectory], list[Problem]]:
    """Return the runs of `found` by their ids, and its problems."""
    runs, problems = separate(found)
    return {run.id: run for run in runs}, problems


def read_by_id(reader: FormatReader, name: str, data: bytes) -> tuple[dict[str, Trajectory], list[Problem]]:
    """Return the runs of a file called `name` by their ids, and the problems."""
    return separate_by_id(reader.read(Document(name, data)))


def read_one(reader: FormatReader, document: Document) -> tuple[Trajectory, list[Problem]]:
    """Return the one run of a document that `reader` recognizes, and the problems."""
    assert reader.sniff(document)
    (run,), problems = separate(reader.read(document))
    return run, problems


def read_path(path: Path) -> tuple[list[Trajectory], list[Problem]]:
    """Return what the readers that recognize them find in the files at `path`."""
    return separate(read_runs(path))


def load_document(name: str) -> Document:
    """Return a file of `tests/data`."""
    return Document(name, (DATA / name).read_bytes())


def make_document(value: Any) -> Document:
    """Return a file that holds `value` as JSON."""
    return Document("x.json", json.dumps(value).encode())


def encode_lines(*values: Any) -> bytes:
    """Return `values` as JSON lines; a text is a line as it is."""
    return "\n".join(value if isinstance(value, str) else json.dumps(value) for value in values).encode()


def make_lines(*values: Any) -> Document:
    """Return a file of JSON lines."""
    return Document("x.jsonl", encode_lines(*values))
