"""Trees of records: the live path, the branches, circles."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from elision.formats.branches import RecordedBranch, TreeNode, split_branches

PARENTS = st.lists(st.tuples(st.none() | st.integers(0, 11), st.booleans()), min_size=1, max_size=12)


def nodes(drawn: list[tuple[int | None, bool]]) -> list[TreeNode]:
    return [TreeNode(None if up is None else up % len(drawn), spoken) for up, spoken in drawn]


def test_the_live_path_comes_first() -> None:
    """The live record's path is first, though a newer assistant message stands elsewhere."""
    tree = [TreeNode(None), TreeNode(0, is_assistant=True), TreeNode(1), TreeNode(0, is_assistant=True)]
    found, circles = split_branches(tree, newest=2)
    assert found == [
        RecordedBranch((0, 1, 2), own_count=1, shared_count=0, start=0),
        RecordedBranch((0, 3), own_count=1, shared_count=0, start=3),
    ]
    assert circles == []


def test_without_a_spoken_live_path_the_newest_message_leads() -> None:
    """A live record that no assistant message precedes is no run."""
    found, _ = split_branches([TreeNode(None), TreeNode(0, is_assistant=True), TreeNode(None)], newest=2)
    assert [branch.path for branch in found] == [(0, 1)]


def test_what_hangs_from_the_last_message_belongs_to_its_branch() -> None:
    """Records behind the last assistant message of a branch are part of its path."""
    found, _ = split_branches([TreeNode(None, is_assistant=True), TreeNode(0), TreeNode(1)])
    assert [branch.path for branch in found] == [(0, 1, 2)]


@given(PARENTS)
def test_every_message_is_in_a_branch_and_counted_as_own_once(drawn: list[tuple[int | None, bool]]) -> None:
    """Whatever the parents, circles included: each assistant message is some branch's own exactly once."""
    tree = nodes(drawn)
    found, _ = split_branches(tree, newest=len(tree) - 1)
    spoken = {position for position, node in enumerate(tree) if node.is_assistant}
    assert {position for branch in found for position in branch.path if position in spoken} == spoken
    assert sum(branch.own_count for branch in found) == len(spoken)


@given(PARENTS)
def test_a_path_never_meets_a_record_twice(drawn: list[tuple[int | None, bool]]) -> None:
    """Paths end, and each step goes from a record to one that names it as its parent."""
    tree = nodes(drawn)
    for branch in split_branches(tree, newest=0)[0]:
        assert len(set(branch.path)) == len(branch.path)
        assert all(tree[below].parent == above for above, below in zip(branch.path, branch.path[1:], strict=False))
