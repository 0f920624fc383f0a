"""Which recorded turn answers a history."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.providers.shared.json_reading import AssistantMessage
from elision.testing.builders import call, result, step, trajectory, turn
from elision.testing.parsed_request import ParsedRequest
from elision.testing.recorded_run import (
    ENDING_TEXT,
    SILENT_TEXT,
    RecordedReply,
    RecordedRun,
    RunIndex,
    make_assistant_message,
)
from elision.trajectory.trajectory import Trajectory
from tests.properties.trajectories import trajectories


def said(reply: RecordedReply) -> AssistantMessage:
    return make_assistant_message(reply.text, *reply.calls)


def asked(*said: AssistantMessage, model: str = "m", users: tuple[str, ...] = ()) -> ParsedRequest:
    return ParsedRequest(model=model, stream=False, assistant_messages=said, user_texts=users)


@given(trajectories())
def test_every_history_of_a_run_is_answered_with_its_next_turn(run: Trajectory) -> None:
    """The first t-1 answers of a run are followed by turn t, behind the last by the end."""
    recorded = RecordedRun(run)
    for number in range(1, len(run.turns) + 2):
        history = [said(recorded.get_reply(index)) for index in range(1, number)]
        assert recorded.find_next_turn(history) == number


@given(trajectories(least=3), st.data())
def test_hidden_turns_do_not_change_the_answer(run: Trajectory, data: st.DataObject) -> None:
    """A history whose oldest turns were summarized away is answered alike, if its newest turn made a call."""
    recorded = RecordedRun(run)
    number = data.draw(st.integers(2, len(run.turns)))
    newest = recorded.get_reply(number)
    if newest.calls:
        assert recorded.find_next_turn([said(newest)]) == number + 1


def test_words_said_twice_are_told_apart_by_what_stands_before() -> None:
    """A text-only turn that repeats is the first one behind the last known place."""
    run = trajectory(turn(1, text="Hm."), step(2), turn(3, text="Hm."), turn(4, text="Well."))
    recorded = RecordedRun(run)
    made = [said(reply) for reply in recorded.replies]
    assert recorded.find_next_turn(made[:1]) == 2
    assert recorded.find_next_turn(made[:3]) == 4
    assert recorded.find_next_turn(made[1:3]) == 4


def test_rounds_of_other_tools_are_passed_over() -> None:
    """An assistant message that is not of the run does not move the place."""
    recorded = RecordedRun(trajectory(step(1), step(2)))
    history = [said(recorded.get_reply(1)), make_assistant_message("", call("recall", id="elsewhere", handle="t1.1"))]
    assert recorded.find_next_turn(history) == 2


def test_a_strange_history_has_no_answer() -> None:
    """Where nothing of a history is of the run, no turn follows it."""
    assert RecordedRun(trajectory(step(1))).find_next_turn([make_assistant_message("Quite another run.")]) is None


def test_ids_are_unique_and_sayable() -> None:
    """Calls that were recorded under one id, none, or one with strange letters get ids of their own."""
    made = [call(id=id) for id in ("a", "a", "", "x:1")]
    recorded = RecordedRun(
        trajectory(turn(1, (made[0], result("1"))), turn(2, *((each, result("", id=each.id)) for each in made[1:])))
    )
    ids = [each.id for reply in recorded.replies for each in reply.calls]
    assert len(set(ids)) == 4
    assert all(id.replace("_", "").isalnum() for id in ids)


def test_silence_and_the_end_are_said() -> None:
    """A turn without words and calls, and the call behind the last turn, are answered in words."""
    recorded = RecordedRun(trajectory(turn(1)))
    assert recorded.get_reply(1).text == SILENT_TEXT
    assert recorded.get_reply(2).text == ENDING_TEXT


def test_a_run_is_found_by_name_history_task_or_model() -> None:
    """In that order; a named run that does not exist, or never said that, is not found."""
    first = trajectory(step(1), id="a", task="Bake.", model="m1")
    second = trajectory(turn(1, text="Here."), id="b", task="Brew.", model="m2")
    shelf = RunIndex([first, second])

    def name(question: ParsedRequest) -> str | None:
        found = shelf.find_reply(question)
        return found.recorded.run.id if found else None

    assert name(asked(model="run:b")) == "b"
    assert name(asked(make_assistant_message("Here."), users=("Bake.",))) == "b"
    assert name(asked(users=("Brew.",))) == "b"
    assert name(asked(users=("Please: Brew.", "Now."))) == "b"
    assert name(asked(model="m2")) == "b"
    assert name(asked()) == "a"
    assert name(asked(model="run:c")) is None
    assert name(asked(make_assistant_message("Here."), model="run:a")) is None


def test_no_runs_are_an_error() -> None:
    """A shelf without runs says so."""
    with pytest.raises(ValueError, match="at least one run"):
        RunIndex([])
