"""Turns: atomic, paired, valid by construction."""

from __future__ import annotations

import pytest

from elision.trajectory.content import make_content
from elision.trajectory.turn import Action, Message, Observation, Turn


def answer(id: str, role: str = "tool") -> Observation:
    return Observation(action_id=id, tool="bash", content=make_content("done"), role=role)  # type: ignore[arg-type]


@pytest.mark.parametrize("index", [0, -1])
def test_turns_count_from_one(index: int) -> None:
    """Turn i answers call i, and calls count from 1."""
    with pytest.raises(ValueError, match="must be 1 or more"):
        Turn(index=index)


def test_a_result_needs_its_call() -> None:
    """A tool result that answers no call of its turn is refused (I5)."""
    with pytest.raises(ValueError, match="'b' answers no call of the turn"):
        Turn(index=1, actions=(Action(id="a", name="bash"),), observations=(answer("b"),))


def test_a_text_observation_needs_no_call_id() -> None:
    """In a text protocol a user message answers what the text says."""
    turn = Turn(index=1, observations=(answer("", role="user"),))
    assert turn.is_finished


def test_parallel_results_find_their_calls() -> None:
    """Results may come in any order; each knows the call it answers."""
    turn = Turn(
        index=1,
        actions=(Action(id="a", name="read"), Action(id="b", name="bash")),
        observations=(answer("b"), answer("a")),
    )
    assert [turn.find_action(observation).name for observation in turn.observations] == ["bash", "read"]  # type: ignore[union-attr]


def test_an_unfinished_turn() -> None:
    """A call may still wait for its result; then the turn is no tool turn."""
    assert not Turn(index=1, actions=(Action(id="a", name="bash"),)).is_finished


@pytest.mark.parametrize("arguments", ["", "ls -l", "[1]", '"x"', "{", "nul", "1" * 5_000])
def test_arguments_that_are_no_object(arguments: str) -> None:
    """A bare command, a list or broken JSON decode to nothing, and raise nothing."""
    assert Action(id="a", name="bash", arguments=arguments).decoded_arguments == {}


def test_arguments_nested_beyond_reading() -> None:
    """Arguments nested too deep for the reader are as good as broken."""
    assert Action(id="a", name="bash", arguments='{"a":' * 100_000).decoded_arguments == {}


def test_arguments_decode() -> None:
    """Arguments are carried as JSON text and read as a mapping."""
    assert Action(id="a", name="bash", arguments='{"path": "a.py"}').decoded_arguments == {"path": "a.py"}


def test_message_text() -> None:
    """A message's text is its content's."""
    assert Message(role="user", content=make_content("go on")).text == "go on"
