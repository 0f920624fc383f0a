"""What an agent wrote itself."""

from __future__ import annotations

import json

from elision.trajectory.content import make_content
from elision.trajectory.trajectory import join_argument_text, join_assistant_text
from elision.trajectory.turn import Action, Observation, Turn


def action(arguments: object, **options: bool) -> Action:
    return Action(id="a", name="f", arguments=json.dumps(arguments), **options)


def test_arguments_are_decoded() -> None:
    """An escape in JSON is not what the agent wrote: its value is, one a line."""
    assert join_argument_text(
        action({"old": 'say "a\\b"\n', "count": 3, "deep": {"list": ["x", None, True, 1.5]}})
    ) == ('say "a\\b"\n\n3\nx\n1.5')


def test_arguments_that_are_no_object() -> None:
    """A bare command stands as it is."""
    assert join_argument_text(Action(id="", name="bash", arguments="ls -l")) == "ls -l"


def test_nesting_has_an_end() -> None:
    """Arguments nested without end are read to some depth."""
    deep: object = "bottom"
    for _ in range(200):
        deep = {"a": deep}
    assert join_argument_text(action(deep)) == ""


def test_spoken() -> None:
    """Reasoning, text and arguments count; observations do not, and an implicit action stands in the text already."""
    turn = Turn(
        index=1,
        reasoning="think",
        content=make_content("say"),
        actions=(action({"x": "do"}), action({"x": "twice"}, implicit=True)),
        observations=(Observation(action_id="a", tool="f", content=make_content("see")),),
    )
    assert join_assistant_text(turn) == "think\nsay\ndo"
