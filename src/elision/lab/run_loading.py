"""The runs of a study: read from files, once each, and what windows they were recorded under."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from elision.errors import FormatError, SpecError
from elision.formats.registry import read_runs
from elision.trajectory.trajectory import Problem, Trajectory


@dataclass(frozen=True, slots=True)
class Loaded:
    """What the paths held."""

    runs: tuple[Trajectory, ...]
    problems: tuple[Problem, ...]


def load_runs(paths: Sequence[Path]) -> Loaded:
    """Every run under `paths`, and everything that could not be read. A path that is no recording is a problem too,
    unless there is no run at all: then it is a FormatError."""
    for path in paths:
        if not path.exists():
            raise FormatError(f"{path}: there is no such file or folder; give a recorded run, or try `elision demo`")
    runs: list[Trajectory] = []
    problems: list[Problem] = []
    failures: list[tuple[Path, FormatError]] = []
    for path in dict.fromkeys(paths):
        try:
            for found in read_runs(path):
                if isinstance(found, Trajectory):
                    runs.append(found)
                else:
                    problems.append(found)
        except FormatError as error:
            failures.append((path, error))
    if failures and not runs:
        raise failures[0][1]
    for path, failure in failures:
        # Without the path, which a Problem names itself.
        problems.append(Problem(file=str(path), line=None, reason=str(failure).removeprefix(f"{path}: ")))
    return Loaded(number_duplicates(runs), tuple(problems))


def set_recorded_windows(loaded: Loaded, windows: Mapping[str, int]) -> Loaded:
    """`loaded` with the window under which runs of a format were recorded, where the files do not say it themselves.

    Raises SpecError for a format of which there is no run.
    """
    for reader in windows:
        if not any(run.format == reader for run in loaded.runs):
            formats = ", ".join(sorted({run.format for run in loaded.runs}))
            raise SpecError(f"--recorded-window {reader}: no run of that format was read; there are: {formats}")
    runs = tuple(
        replace(run, recorded_window=windows[run.format]) if run.format in windows else run for run in loaded.runs
    )
    return replace(loaded, runs=runs)


def number_duplicates(runs: Sequence[Trajectory]) -> tuple[Trajectory, ...]:
    """Return `runs` with ids that are unique within each file."""
    seen: dict[tuple[str, str], int] = defaultdict(int)
    result = []
    for run in runs:
        seen[run.file, run.id] += 1
        count = seen[run.file, run.id]
        result.append(run if count == 1 else replace(run, id=f"{run.id} ({count})"))
    return tuple(result)
