"""Writes the golden digests anew: `python tests/golden/update_digest.py`. Read the difference before committing it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from elision.summarizers import write_digest
from elision.trajectory.plan import SummaryRequest
from elision.trajectory.tokens import make_counter
from elision.trajectory.turn import Action, Message, Observation, Turn, make_content

FOLDER = Path(__file__).parent / "digest"


def cases() -> list[Path]:
    """The excerpts, sorted by name."""
    return sorted(FOLDER.glob("*.json"))


def golden(case: Path) -> Path:
    """Where the digest of `case` is kept."""
    return case.with_suffix(".txt")


def digested(case: Path) -> str:
    """The last of the rolling digests of `case`."""
    data = json.loads(case.read_text(encoding="utf-8"))
    text, count = "", make_counter("o200k").count
    for turns in _stretches(data):
        request = SummaryRequest(previous=text, task=data["task"], turns=turns, max_tokens=data["max_tokens"])
        text = write_digest(request, count)
    return text + "\n"


def _stretches(data: dict[str, Any]) -> Iterator[tuple[Turn, ...]]:
    start = 0
    for end in data["ends"]:
        yield tuple(_turn(value) for value in data["turns"] if start < value["index"] <= end)
        start = end


def _turn(value: dict[str, Any]) -> Turn:
    return Turn(
        index=value["index"],
        content=make_content(value["text"]),
        actions=tuple(Action(**action) for action in value["actions"]),
        observations=tuple(_observation(dict(seen)) for seen in value["observations"]),
        interjections=tuple(Message(role="user", content=make_content(text)) for text in value["interjections"]),
    )


def _observation(value: dict[str, Any]) -> Observation:
    return Observation(content=make_content(value.pop("text")), **value)


if __name__ == "__main__":
    for path in cases():
        golden(path).write_text(digested(path), encoding="utf-8")
