"""The fenced blocks of a page: what language, what file they are, what is run in them, what they claim is printed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
README, CONTRIBUTING, CHANGELOG = ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"
PAGES = [README, CONTRIBUTING, CHANGELOG, *DOCS]

#: A line of claimed output that stands for any number of lines left out.
LEFT_OUT = "…"

_FENCE = re.compile(r"^```([\w{}-]*)(?: title=(\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """title: the file that the block is the text of, or changes; "" if it is none. start: of its text, in
    characters."""

    language: str
    title: str
    text: str
    line: int
    start: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command line of a block, continuation lines joined, and the output claimed below it."""

    text: str
    printed: tuple[str, ...] = ()


def blocks(page: Path) -> list[Block]:
    """In order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            language=found[1],
            title=found[2] or "",
            text=found[3],
            line=text.count("\n", 0, found.start()) + 1,
            start=found.start(3),
        )
        for found in _FENCE.finditer(text)
    ]


def prose(page: Path) -> str:
    """The page without its blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def commands(block: Block) -> Iterator[Command]:
    """What a `console` or `sh` block runs: lines behind `$ ` with output between them, or every line."""
    text = block.text.replace("\\\n", " ")
    if block.language == "sh":
        yield from (Command(text=line) for line in text.splitlines() if line and not line.startswith("#"))
    elif block.language == "console":
        for piece in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
            first, *printed = piece.rstrip("\n").split("\n")
            yield Command(text=first, printed=tuple(line.rstrip() for line in printed))


def chunks(lines: Sequence[str]) -> list[list[str]]:
    """Claimed output, cut where lines are left out."""
    found: list[list[str]] = [[]]
    for line in lines:
        if line.strip() == LEFT_OUT:
            found.append([])
        else:
            found[-1].append(line)
    return [chunk for chunk in found if chunk]


def place(chunk: Sequence[str], real: Sequence[str], start: int = 0) -> int | None:
    """Where in `real`, from line `start` on, `chunk` stands."""
    ends = range(start, len(real) - len(chunk) + 1)
    return next((at for at in ends if list(real[at : at + len(chunk)]) == list(chunk)), None)


def applied(diff: str, text: str) -> str:
    """`text` changed as `diff` says: hunks parted by `@@`, lines begin with a space, - or +.

    Raises ValueError where `text` does not read as the hunk does.
    """
    for hunk in re.split(r"^@@.*\n", diff, flags=re.MULTILINE):
        lines = [line or " " for line in hunk.splitlines()]
        old = "".join(f"{line[1:]}\n" for line in lines if line[0] != "+")
        new = "".join(f"{line[1:]}\n" for line in lines if line[0] != "-")
        if text.count(old) != 1:
            raise ValueError(f"stands {text.count(old)} times, not once:\n{old}")
        text = text.replace(old, new)
    return text
