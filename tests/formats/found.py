"""What a reader finds: documents for it, and its runs and problems apart."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from elision.formats.document import Document, RunOrProblem
from elision.trajectory.trajectory import Problem, Trajectory

DATA = Path(__file__).parents[1] / "data"


def separate(found: Iterable[RunOrProblem]) -> tuple[list[Trajectory], list[Problem]]:
    """Return the runs of `found`, and its problems."""
    items = list(found)
    return [x for x in items if isinstance(x, Trajectory)], [x for x in items if isinstance(x, Problem)]


def load_document(name: str) -> Document:
    """Return a file of `tests/data`."""
    return Document(name, (DATA / name).read_bytes())


def make_document(value: Any) -> Document:
    """Return a file that holds `value` as JSON."""
    return Document("x.json", json.dumps(value).encode())
