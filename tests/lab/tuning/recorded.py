"""Small runs to tune on: two tools, of which the agent needs one again and again."""

from __future__ import annotations

import json
from pathlib import Path

from elision.lab.run_loading import Loaded
from elision.testing.builders import call, long_text, openai_messages, result, trajectory, turn
from elision.trajectory.trajectory import Trajectory


def make_run(number: int, turns: int = 24, *, format: str = "openai-chat", needed_after: int = 12) -> Trajectory:
    """Return a run that reads and lists in turns; each read names what one `needed_after` turns before showed.

    That is in the middle of the result, so that no gist holds it.
    """
    made = []
    for index in range(1, turns + 1):
        tool = "read" if index % 2 else "list"
        is_needed = index % 2 and index > needed_after
        wanted = f"value_{number}{index - needed_after}_25" if is_needed else "nothing"
        text = long_text(int(f"{number}{index}"), lines=30)
        made.append(turn(index, (call(tool, about=f"step {index} with {wanted}"), result(text, tool))))
    return trajectory(*made, id=f"run-{number}", file=f"runs/run-{number}.json", format=format)


def make_runs(count: int, turns: int = 24) -> Loaded:
    """Return `count` such runs, as if they had been read."""
    return Loaded(tuple(make_run(number, turns) for number in range(1, count + 1)), ())


def write_runs(folder: Path, count: int, turns: int = 24) -> list[Path]:
    """Write `count` such runs as recordings of OpenAI chat, a file each."""
    paths = []
    for number in range(1, count + 1):
        path = folder / f"run-{number}.json"
        path.write_text(json.dumps({"messages": openai_messages(make_run(number, turns))}), encoding="utf-8")
        paths.append(path)
    return paths
