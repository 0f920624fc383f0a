"""What an action reads, runs or changes, and what that makes stale."""

from __future__ import annotations

import json

import pytest

from elision.strategies.resources import ResourceUses, find_resource_use
from elision.trajectory.plan import Key
from elision.trajectory.turn import Action
from tests.properties.builders import result, turn


def act(name: str, **arguments: object) -> Action:
    return Action(id="a", name=name, arguments=json.dumps(arguments))


def stale(*actions: Action, failed: tuple[int, ...] = ()) -> list[tuple[int, Key]]:
    """(turn that makes it stale, observation), one action a turn."""
    resources, found = ResourceUses(), []
    for index, action in enumerate(actions, start=1):
        seen = result("x", action.name, id=action.id, error=index in failed or None)
        found += [(index, key) for key in resources.add_turn(turn(index, (action, seen)))]
    return found


@pytest.mark.parametrize(
    ("action", "kind", "resource"),
    [
        (act("read_file", path="a.py"), "read", "a.py"),
        (act("Read", file_path="/x/a.py"), "read", "/x/a.py"),
        (act("str_replace_editor", command="view", path="a.py"), "read", "a.py"),
        (act("str_replace_editor", command="str_replace", path="a.py", old_str="x"), "edit", "a.py"),
        (act("str_replace_editor", command="create", path="a.py"), "edit", "a.py"),
        (act("Write", file_path="a.py"), "edit", "a.py"),
        (act("bash", command="cat a.py"), "read", "a.py"),
        (act("bash", command="cd /repo && cat src/a.py"), "read", "/repo/src/a.py"),
        (act("bash", command="cat a.py | head"), "run", None),
        (act("bash", command="make test"), "run", None),
        (act("search", query="x"), "run", None),
        (Action(id="", name="bash", arguments="cat a.py", implicit=True), "read", "a.py"),
        (Action(id="", name="bash", arguments="ls", implicit=True), "run", "bash ls"),
    ],
)
def test_touch(action: Action, kind: str, resource: str | None) -> None:
    """Reads and edits name their file; everything else is a run that only the same call repeats."""
    found = find_resource_use(action)
    assert found.kind == kind
    assert resource is None or found.resource == resource


def test_the_order_of_arguments_does_not_matter() -> None:
    """Equal arguments are the same call, however they were written."""
    assert find_resource_use(act("f", a=1, b=2)) == find_resource_use(act("f", b=2, a=1))


def test_a_file_read_again() -> None:
    """The newest reading stays."""
    read = act("read_file", path="a.py")
    assert stale(read, act("read_file", path="b.py"), read, read) == [(3, (1, 1)), (4, (3, 1))]


def test_an_edit_after_a_read() -> None:
    """An edit makes what was read of that file stale, in every part."""
    part = act("read_file", path="a.py", offset=10)
    assert stale(part, act("read_file", path="a.py", offset=20), act("edit_file", path="a.py")) == [
        (3, (1, 1)),
        (3, (2, 1)),
    ]


def test_another_part_is_not_the_same() -> None:
    """Another part of a file says nothing of the first; the whole file says all of both."""
    part, other = act("read_file", path="a.py", offset=10), act("read_file", path="a.py", offset=20)
    assert stale(part, other) == []
    assert stale(part, other, part) == [(3, (1, 1))]
    assert stale(part, other, act("read_file", path="a.py")) == [(3, (1, 1)), (3, (2, 1))]


def test_head_and_tail_are_parts() -> None:
    """Ten lines of a file do not stand for the whole of it; the whole stands for them."""
    whole, ten = act("bash", command="cat a.py"), act("bash", command="head a.py")
    assert stale(whole, ten) == []
    assert stale(ten, whole) == [(2, (1, 1))]
    assert stale(ten, act("bash", command="tail a.py"), ten) == [(3, (1, 1))]


def test_the_same_name_in_another_folder() -> None:
    """A file of that name elsewhere is another file."""
    assert stale(act("bash", command="cd /a && cat x.py"), act("bash", command="cd /b && cat x.py")) == []


def test_a_failed_read_or_edit_makes_nothing_stale() -> None:
    """What failed neither shows nor changes anything."""
    read = act("read_file", path="a.py")
    assert stale(read, read, failed=(2,)) == []
    assert stale(read, act("edit_file", path="a.py"), failed=(2,)) == []


def test_a_call_run_again() -> None:
    """The same command again replaces its earlier outcome, failed or not."""
    run = act("bash", command="make test")
    assert stale(run, act("bash", command="make"), run, failed=(3,)) == [(3, (1, 1))]


def test_within_a_turn_nothing_is_stale() -> None:
    """Parallel calls of one turn do not hide each other: the newest turn is verbatim."""
    read = act("read_file", path="a.py")
    pairs = tuple(
        (Action(id=id, name=read.name, arguments=read.arguments), result("x", "read_file", id=id)) for id in "ab"
    )
    assert list(ResourceUses().add_turn(turn(1, *pairs))) == []


def test_no_arguments_at_all() -> None:
    """Broken or missing arguments are still a call."""
    broken = Action(id="a", name="tool", arguments="{")
    assert stale(broken, broken) == [(2, (1, 1))]
