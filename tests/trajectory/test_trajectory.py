"""What an agent wrote itself, where the tokens of a run are, and its task in one line."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from elision.testing.builders import call, long_text, result, step, turn, user
from elision.trajectory.events import HeadSet, SessionOpened
from elision.trajectory.trajectory import (
    TokenComposition,
    find_task,
    join_argument_text,
    join_assistant_text,
    measure_head,
    measure_turn,
    read_task,
)
from elision.trajectory.turn import Action, Head, Message, Observation, Text, Turn, make_content
from elision.trajectory.usage import Usage
from tests.properties.builders import SIZER, run_session


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


@given(lines=st.lists(st.integers(1, 12), min_size=1, max_size=8), words=st.booleans())
def test_the_parts_add_up_to_the_prompt(lines: list[int], words: bool) -> None:
    """Nothing is left out and nothing counted twice."""
    said = {"said": [user("Faster.")]} if words else {}
    turns = [step(number, long_text(number, size), **said) for number, size in enumerate(lines, start=1)]
    session = run_session("raw", turns)
    total = measure_head(session.state.head, SIZER)
    for each in turns:
        total += measure_turn(each, SIZER)
    assert total.total == session.state.raw_track.tokens


def test_each_part_is_where_it_belongs() -> None:
    """Thoughts and words are reasoning, calls are actions, results observations, the user's words the user's."""
    pair = (call("bash", command="ls"), result(long_text(50)))
    one = turn(1, pair, text="I look.", reasoning="Where is it?", said=[user("Faster.")])
    found = measure_turn(one, SIZER)
    assert found.observations == SIZER.count_observation(one.observations[0])
    assert found.reasoning + found.actions == SIZER.count_assistant(one)
    assert found.user == SIZER.count_message(one.interjections[0])
    assert found.reasoning > SIZER.count("I look.") + SIZER.count("Where is it?")
    assert found.actions > SIZER.count(one.actions[0].arguments)


def test_an_action_in_the_text_is_an_action() -> None:
    """A text protocol has the command in what the assistant says; it is not counted twice."""
    action = Action(id="", name="bash", arguments="cat parser.py", implicit=True)
    spoken = turn(1, text="I look.\n```bash\ncat parser.py\n```")
    acted = Turn(index=1, content=spoken.content, actions=(action,))
    found = measure_turn(acted, SIZER)
    assert found.actions == SIZER.count("cat parser.py")
    assert found.reasoning + found.actions == SIZER.count_assistant(acted)


def test_the_share_is_that_of_the_turns() -> None:
    """The head is no part of it, as in the published 84 : 8 : 8."""
    assert TokenComposition(head=10).observation_share == 0.0
    published = TokenComposition(head=500, observations=84, reasoning=8, actions=8)
    assert published.observation_share == pytest.approx(0.84)


@given(st.builds(TokenComposition, **{part: st.integers(0, 10**6) for part in ("head", "observations", "user")}))
def test_a_scale_multiplies_every_part(found: TokenComposition) -> None:
    """On another scale the shares stay, and the sum is that of the scaled parts."""
    scaled = found.scale(1.25)
    assert scaled.total == pytest.approx(1.25 * found.total, abs=3)
    assert scaled.observations == round(1.25 * found.observations)
    assert found.scale(1) == found


def test_a_short_reported_output_leaves_no_negative_part() -> None:
    """Where the reported output is less than our count of the calls, nothing is left for reasoning."""
    one = turn(1, (call("bash", command="ls -la /"), result("a")), text="")
    reported = replace(one, usage=Usage(input=900, output=SIZER.count_assistant(one) * 6 // 10))
    found = measure_turn(reported, SIZER.take_output())
    assert found.reasoning == 0
    assert found.actions == SIZER.take_output().count_assistant(reported)


@pytest.mark.parametrize(
    ("said", "task"),
    [
        ("<system-reminder>\nUse tabs.\n</system-reminder>\nFix  the\nprinter", "Fix the printer"),
        ("<pr_description>\nFix it", "Fix it"),
        ("Fix <b>it</b> " + "x" * 400, "Fix <b>it</b> " + "x" * 285 + "…"),
        ("<system-reminder>only</system-reminder>", ""),
    ],
)
def test_a_task_is_the_users_own_words(said: str, task: str) -> None:
    """In one line, without what clients put before them, and not without end."""
    assert find_task(Head(messages=(Message(role="user", content=(Text(said),)),))) == task


def test_nothing_in_a_task_acts_on_a_terminal() -> None:
    """Colours, a title for the window and what turns the direction of writing are left out."""
    said = "Fix \x1b[31mthe\x1b[0m \x1b]0;owned\x07bug\u202e now\x9b"
    assert find_task(Head(messages=(Message(role="user", content=(Text(said),)),))) == "Fix the bug now"


def test_the_task_of_a_log_is_in_its_first_records() -> None:
    """No other record is read, and a log without a head has no task."""
    head = Head(messages=(Message(role="user", content=(Text("Find it."),)),))
    events = iter([SessionOpened(strategy="raw"), HeadSet(head), SessionOpened(strategy="raw")])
    assert read_task(events) == "Find it."
    assert len(list(events)) == 1
    assert read_task([SessionOpened(strategy="raw")]) == ""
