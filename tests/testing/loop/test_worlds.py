"""The worlds: real shells, files and databases that judge what is handed in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from elision.agent.environment import ActionResult
from elision.testing.loop.closed_loop import FAMILIES
from elision.testing.loop.task_plan import Knobs
from elision.testing.loop.world import World
from elision.trajectory.turn import Action


def act(world: World, call: tuple[str, dict[str, Any]]) -> ActionResult:
    return world.execute(Action(id="c", name=call[0], arguments=json.dumps(call[1])))


def values_of(world: World, number: int) -> dict[str, str]:
    return {label: world.find_value(label) for label in world.needs[number - 1]}


def wrong_value(world: World) -> str:
    """A value that exists, of another step."""
    return values_of(world, 2)[world.needs[1][0]]


@pytest.fixture
def make_world(tmp_path: Path) -> Any:
    def make(family: str, noticed: float) -> World:
        return FAMILIES[family](3, Knobs(calls=20, noticed=noticed), tmp_path)

    return make


@pytest.mark.parametrize("family", FAMILIES)
def test_documents_show_the_facts(make_world: Any, family: str) -> None:
    """Every fact of a step can be read in the document that the step names, by the family's own skill."""
    world = make_world(family, 1.0)
    for number in range(1, len(world.needs) + 1):
        for label, value in values_of(world, number).items():
            for narrow in ("", label):
                shown = act(world, world.skill.fetch(world.find_document(label), narrow)).text
                assert (label, value) in world.skill.facts.findall(shown)
    world.close()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_value_that_is_cut_short_is_no_fact(make_world: Any, family: str) -> None:
    """Wherever an ellipsis ends a value, nothing is read in its place."""
    world = make_world(family, 1.0)
    for label, value in values_of(world, 1).items():
        before, _, after = act(world, world.skill.fetch(world.find_document(label), "")).text.partition(value)
        for kept in range(len(value)):
            assert label not in dict(world.skill.facts.findall(f"{before}{value[:kept]}…{after}"))
    world.close()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_wrong_value_is_rejected_where_steps_are_checked(make_world: Any, family: str) -> None:
    """The label is named, the step stays open, and the right values are accepted after that."""
    world = make_world(family, 1.0)
    values = values_of(world, 1)
    label = world.needs[0][0]
    result = act(world, world.skill.apply(1, {**values, label: wrong_value(world)}, lambda pattern: None))
    assert f"step 1 rejected: {label} is not right" in result.text
    assert world.rejected == 1
    assert "step 1 accepted" in act(world, world.skill.apply(1, values, lambda pattern: None)).text
    assert "step 1 accepted" in act(world, world.skill.ask_status()).text
    world.close()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_wrong_value_goes_through_elsewhere(make_world: Any, family: str) -> None:
    """It is accepted, and the task is not solved, although everything else is right."""
    world = make_world(family, 0.0)
    for number in range(1, len(world.needs) + 1):
        values = values_of(world, number)
        if number == 1:
            values[world.needs[0][0]] = wrong_value(world)
        assert f"step {number} accepted" in act(world, world.skill.apply(number, values, lambda pattern: None)).text
    report = {label: world.find_value(label) for label in world.report}
    assert act(world, world.skill.submit(report)).done
    assert world.count_wrong_steps() == 1
    assert not world.is_solved
    world.close()


@pytest.mark.parametrize("family", FAMILIES)
def test_the_report_counts(make_world: Any, family: str) -> None:
    """A task whose steps are right is solved with the right report, and not with another."""
    world = make_world(family, 1.0)
    for number in range(1, len(world.needs) + 1):
        act(world, world.skill.apply(number, values_of(world, number), lambda pattern: None))
    report = {label: world.find_value(label) for label in world.report}
    act(world, world.skill.submit({**report, world.report[0]: wrong_value(world)}))
    assert not world.is_solved
    act(world, world.skill.submit(report))
    assert world.is_solved
    world.close()


@pytest.mark.parametrize("family", FAMILIES)
def test_steps_are_done_in_order(make_world: Any, family: str) -> None:
    """A step that is not open is refused, and so is a tool that does not exist."""
    world = make_world(family, 1.0)
    assert "error" in act(world, world.skill.apply(2, values_of(world, 2), lambda pattern: None)).text
    assert act(world, ("no_such_tool", {})).error
    world.close()


def test_balances_change(make_world: Any) -> None:
    """Each case takes its fee from an account, and the account shows what is left."""
    world = make_world("policy", 1.0)
    fee, balance = world.needs[0][-2:]
    before = int(world.find_value(balance))
    act(world, world.skill.apply(1, values_of(world, 1), lambda pattern: None))
    after = before - round(float(world.find_value(fee)))
    shown = act(world, world.skill.fetch(world.find_document(balance), "")).text
    assert (balance, str(after)) in world.skill.facts.findall(shown)


def test_what_reads_an_order_is_no_query(make_world: Any) -> None:
    """An argument is a value, and never part of a query."""
    world = make_world("database", 1.0)
    assert act(world, ("get_order", {"order_id": "' OR 1=1 --"})).error
    world.close()


def test_pages_outside_the_collection_are_not_read(make_world: Any, tmp_path: Path) -> None:
    """Only names of pages are read."""
    world = make_world("research", 1.0)
    (tmp_path / "secret.html").write_text("secret", encoding="utf-8")
    for name in ("secret.html", "../secret.html", "/etc/passwd"):
        assert act(world, ("open_page", {"page": name})).error
