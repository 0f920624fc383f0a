"""Heads that a recording leaves out."""

from __future__ import annotations

from elision.lab.run_as_recorded import add_recorded_head
from elision.trajectory.tokens import Sizer, make_counter
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.turn import Head, Message, Turn, make_content
from elision.trajectory.usage import Usage

SIZER = Sizer(make_counter("estimate"))
TASK = Message(role="user", content=make_content("x" * 384))  # 96 tokens and a frame of 4


def test_first_call_with_usage() -> None:
    """The head is what the first billed prompt holds beyond the counted text, as warm as that call's cache read."""
    turns = (Turn(index=1, usage=Usage(input=500, cache_read=400)),)
    head = add_recorded_head(Trajectory(id="a", head=Head(messages=(TASK,)), turns=turns), SIZER).head
    assert (head.hidden_tokens, head.warm_tokens) == (800, 400)


def test_greeting_without_usage() -> None:
    """Turns before the first billed call count to its prompt; what a later call reads is the run's own, not warmth."""
    greeting = Turn(index=1, content=make_content("y" * 384))
    turns = (greeting, Turn(index=2, usage=Usage(input=500, cache_read=400)))
    head = add_recorded_head(Trajectory(id="a", head=Head(messages=(TASK,)), turns=turns), SIZER).head
    assert (head.hidden_tokens, head.warm_tokens) == (700, 0)


def test_no_usage() -> None:
    """Without usage, or with none but empty ones, the trajectory stays as it is."""
    run = Trajectory(id="a", head=Head(), turns=(Turn(index=1), Turn(index=2, usage=Usage(output=3))))
    assert add_recorded_head(run, SIZER) is run
