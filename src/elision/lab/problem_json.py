"""What could not be read, as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from elision.trajectory.trajectory import Problem


def encode_problems(problems: Iterable[Problem]) -> list[dict[str, Any]]:
    """Return problems as JSON."""
    return [{"file": problem.file, "line": problem.line, "reason": problem.reason} for problem in problems]
