"""Trees of records: the live path, the branches, circles."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from elision.formats.branches import Branch, Node, branches

PARENTS = st.lists(st.tuples(st.none() | st.integers(0, 11), st.booleans()), min_size=1, max_size=12)


def nodes(drawn: list[tuple[int | None, bool]]) -> list[Node]:
    return [Node(None if up is None else up % len(drawn), spoken) for up, spoken in drawn]


def test_the_live_path_comes_first() -> None:
    """The live record's path is first, though a newer assistant message stands elsewhere."""
    tree = [Node(None), Node(0, spoken=True), Node(1), Node(0, spoken=True)]
    found, circles = branches(tree, live=2)
    assert found == [Branch((0, 1, 2), own=1, shared=0, start=0), Branch((0, 3), own=1, shared=0, start=3)]
    assert circles == []


def test_without_a_spoken_live_path_the_newest_message_leads() -> None:
    """A live record that no assistant message precedes is no run."""
    found, _ = branches([Node(None), Node(0, spoken=True), Node(None)], live=2)
    assert [branch.path for branch in found] == [(0, 1)]


def test_what_hangs_from_the_last_message_belongs_to_its_branch() -> None:
    """Records behind the last assistant message of a branch are part of its path."""
    found, _ = branches([Node(None, spoken=True), Node(0), Node(1)])
    assert [branch.path for branch in found] == [(0, 1, 2)]


@given(PARENTS)
def test_every_message_is_in_a_branch_and_counted_as_own_once(drawn: list[tuple[int | None, bool]]) -> None:
    """Whatever the parents, circles included: each assistant message is some branch's own exactly once."""
    tree = nodes(drawn)
    found, _ = branches(tree, live=len(tree) - 1)
    spoken = {position for position, node in enumerate(tree) if node.spoken}
    assert {position for branch in found for position in branch.path if position in spoken} == spoken
    assert sum(branch.own for branch in found) == len(spoken)


@given(PARENTS)
def test_a_path_never_meets_a_record_twice(drawn: list[tuple[int | None, bool]]) -> None:
    """Paths end, and each step goes from a record to one that names it as its parent."""
    tree = nodes(drawn)
    for branch in branches(tree, live=0)[0]:
        assert len(set(branch.path)) == len(branch.path)
        assert all(tree[below].parent == above for above, below in zip(branch.path, branch.path[1:], strict=False))
