"""Histories that are trees: which run to read out of one, and what was abandoned.

Agents that let their user rewind append the new branch to the same file; each record names its parent. The run is the
path to the newest record; the others are branches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TreeNode:
    """A record of the tree.

    parent: position of its parent, None for a root.
    is_assistant: whether the assistant says something here.
    """

    parent: int | None
    is_assistant: bool = False


@dataclass(frozen=True, slots=True)
class RecordedBranch:
    """A path from a root to a leaf, as positions.

    own_count: how many of its assistant messages are in no branch before it.
    shared_count: how many do.
    start:  position of the first record that is in no branch before it.
    """

    path: tuple[int, ...]
    own_count: int
    shared_count: int
    start: int

    @property
    def is_mostly_own(self) -> bool:
        """Return whether it deserves a run of its own; else the shared calls would count twice for little."""
        return self.own_count >= self.shared_count

    def describe_left_out(self) -> str:
        """Return why it is no run."""
        return f"a branch of {self.own_count} assistant messages starts here, abandoned later; left out"


def name_branch(run: str, parent: str | None, number: int) -> tuple[str, str | None]:
    """Return the name and the parent of branch `number` of `run`, whose own parent is `parent`; 0 is the run itself."""
    if number:
        return f"{run} fork {number}", run
    return run, parent


def split_branches(nodes: Sequence[TreeNode], newest: int | None = None) -> tuple[list[RecordedBranch], list[int]]:
    """Return every branch that holds an assistant message, and the positions where circles of parents were cut.

    newest: the record at which the run ended; its path comes first. The other paths follow, newest first. Each ends in
        an assistant message and its newest descendants.
    """
    parents, circles = _cut_circles([node.parent for node in nodes])
    children: dict[int, list[int]] = {}
    for position, parent in enumerate(parents):
        if parent is not None:
            children.setdefault(parent, []).append(position)
    paths = [_trace_from_root(end, parents) for end in _find_ends(nodes, parents)]
    for path in paths:
        while below := children.get(path[-1]):
            path.append(below[-1])
    if newest is not None:
        paths.insert(0, _trace_from_root(newest, parents))
    seen: set[int] = set()
    found = []
    for path in paths:
        fresh = [position for position in path if position not in seen]
        own = sum(nodes[position].is_assistant for position in fresh)
        if own:
            total = sum(nodes[position].is_assistant for position in path)
            found.append(RecordedBranch(tuple(path), own_count=own, shared_count=total - own, start=fresh[0]))
            seen.update(path)
    return found, circles


def _find_ends(nodes: Sequence[TreeNode], parents: Sequence[int | None]) -> list[int]:
    """Return assistant messages without an assistant message below them, newest first."""
    inner: set[int] = set()
    for position, node in enumerate(nodes):
        up = parents[position] if node.is_assistant else None
        while up is not None and up not in inner:
            inner.add(up)
            up = parents[up]
    return [
        position for position in reversed(range(len(nodes))) if nodes[position].is_assistant and position not in inner
    ]


def _trace_from_root(end: int, parents: Sequence[int | None]) -> list[int]:
    """Return the path from the root to `end`."""
    path = [end]
    up = parents[end]
    while up is not None:
        path.append(up)
        up = parents[up]
    path.reverse()
    return path


def _cut_circles(parents: list[int | None]) -> tuple[list[int | None], list[int]]:
    """Return `parents` without circles: the earliest record of each becomes a root."""
    done: set[int] = set()
    circles = []
    for start in range(len(parents)):
        walk: dict[int, int] = {}
        here: int | None = start
        while here is not None and here not in done and here not in walk:
            walk[here] = len(walk)
            here = parents[here]
        if here is not None and here in walk:
            first = min(list(walk)[walk[here] :])
            parents[first] = None
            circles.append(first)
        done.update(walk)
    return parents, circles
