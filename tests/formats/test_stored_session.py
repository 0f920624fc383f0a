"""A stored session becomes a run to replay."""

from __future__ import annotations

import pytest

from elision.audit.run_partition import find_role
from elision.errors import FormatError, UnknownHandle
from elision.formats.elision_export import load_stored_session
from elision.stores.memory import MemoryStore
from elision.stores.store import NewSession, Relation
from elision.trajectory.events import (
    Event,
    HeadSet,
    PassDecided,
    RequestSent,
    SessionOpened,
    TurnAdded,
    TurnAmended,
    UsageReported,
)
from elision.trajectory.plan import Summary
from elision.trajectory.run_roles import SaidRole
from elision.trajectory.trajectory import Compaction, Trajectory
from elision.trajectory.turn import Action, Head, Message, Observation, Turn, make_content
from elision.trajectory.usage import Usage


def stored(*events: Event, parent: str = "", relation: Relation = "") -> Trajectory:
    store = MemoryStore()
    store.create(NewSession(key="s", family="f", at=0.0, parent=parent, relation=relation))
    store.append("s", events, after=0, at=0.0)
    return load_stored_session(store, "s")


def turn(index: int, said: str = "", model: str = "") -> Turn:
    return Turn(index=index, content=make_content(said), model=model)


def head(text: str) -> HeadSet:
    return HeadSet(Head(messages=(Message(role="user", content=make_content(text)),)))


def test_turns_stand_as_they_are_now() -> None:
    """Under the newest head; an amended turn once."""
    run = stored(head("old"), TurnAdded(turn(1)), TurnAdded(turn(2, "a")), TurnAmended(turn(2, "b")), head("new"))
    assert run.id == "s"
    assert run.head.messages[0].text == "new"
    assert run.turns == (turn(1), turn(2, "b"))
    assert run.parent is None


@pytest.mark.parametrize(
    ("relation", "said", "role"),
    [("", "", "main"), ("fork", "", "main"), ("sub-agent", "", "sub-agent"), ("sub-agent", "side", "side")],
)
def test_a_role_is_what_the_client_said_first(relation: Relation, said: SaidRole, role: str) -> None:
    """Else that of a session which another one started; a fork of an agent's history is no other agent."""
    opened = SessionOpened(strategy="raw", role=said), SessionOpened(strategy="raw")
    run = stored(*opened, head("mend it"), TurnAdded(turn(1)), parent="p", relation=relation)
    assert run.role == find_role(run) == role


def test_calls_fill_what_turns_leave_open() -> None:
    """Usage, time and model of the call that a turn answers; what the turn says itself stays."""
    usage = Usage(input=5, output=2)
    known = Turn(index=2, usage=Usage(input=9), at=7.0, model="own")
    run = stored(
        RequestSent(call=1, at=3.0, model="m", tokens=5),
        UsageReported(call=1, usage=usage),
        TurnAdded(turn(1)),
        RequestSent(call=2, at=4.0, model="m", tokens=5),
        TurnAdded(known),
        TurnAdded(turn(3, model="m")),
    )
    first, second, third = run.turns
    assert (first.usage, first.at, first.model) == (usage, 3.0, "m")
    assert second == known
    assert (third.usage, third.at) == (None, None)
    assert run.model == "m"


def test_summaries_are_compactions() -> None:
    """The run was recorded with them; decisions that only mask are not."""
    summary = Summary(covers=1, text="all well", block="[summary] all well")
    run = stored(TurnAdded(turn(1)), PassDecided(2, "due"), PassDecided(3, "due", summary=summary), parent="p")
    assert run.compactions == (Compaction(before=3, summary="all well"),)
    assert run.parent == "p"


def test_a_text_protocol_is_told_by_its_results() -> None:
    """Where all results came as user messages."""
    action = Action(id="", name="bash", implicit=True)
    result = Observation(action_id="", tool="bash", content=make_content("ok"), role="user")
    whole = Turn(index=1, actions=(action,), observations=(result,))
    assert stored(TurnAdded(whole)).observations == "user"
    assert stored(TurnAdded(turn(1))).observations == "tools"


def test_a_session_with_gaps_is_no_run() -> None:
    """The error names it; an unknown one likewise."""
    with pytest.raises(FormatError, match="'s' is not a complete run"):
        stored(TurnAdded(turn(2)))
    with pytest.raises(UnknownHandle):
        load_stored_session(MemoryStore(), "none")


def test_a_head_that_changed_between_two_calls() -> None:
    """The newest head counts, and what changed of it is kept with its call; words after the task change nothing."""
    sent = [RequestSent(call=call, at=1.0, model="m", tokens=5) for call in (1, 2, 3)]
    tools = HeadSet(Head(messages=(Message(role="user", content=make_content("b")),), tools=({"name": "t"},)))
    run = stored(
        head("a"), head("b"), sent[0], TurnAdded(turn(1)), tools, sent[1], TurnAdded(turn(2)), head("c"), sent[2]
    )
    assert [(each.before, each.what) for each in run.changes] == [
        (2, "the tools"),
        (3, "the tools"),
        (3, "the system prompt or the task"),
    ]
