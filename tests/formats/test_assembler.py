"""Messages in, turns out."""

from __future__ import annotations

from elision.formats.assembler import Assembler
from elision.trajectory.trajectory import PromptChange, Trajectory
from elision.trajectory.turn import Action, make_content

RUN_LS = "I look around.\n```bash\nls\n```"


def call(id: str) -> Action:
    return Action(id=id, name="bash", arguments='{"command": "ls"}')


def finished(assembler: Assembler) -> Trajectory:
    found = assembler.finish("run", format="test")
    assert found is not None
    return found


def test_parallel_calls_and_late_results_are_one_turn() -> None:
    """A result joins the turn of its call, wherever it comes."""
    assembler = Assembler("f")
    assembler.add_assistant(actions=[call("a"), call("b")])
    assembler.add_result("b", make_content("two"))
    assembler.add_assistant(make_content("next"))
    assembler.add_result("a", make_content("one"))
    first, second = finished(assembler).turns
    assert [observation.text for observation in first.observations] == ["two", "one"]
    assert second.observations == ()
    assert assembler.problems == []


def test_what_does_not_fit_is_reported_and_the_rest_is_kept() -> None:
    """Results without calls, second results and repeated ids each name their line."""
    assembler = Assembler("f")
    assembler.add_result("x", make_content("lost"), line=1)
    assembler.add_assistant(actions=[call("a"), call("a")], line=2)
    assembler.add_result("a", make_content("one"), line=3)
    assembler.add_result("a", make_content("again"), line=4)
    assert [observation.text for observation in finished(assembler).turns[0].observations] == ["one"]
    assert [problem.line for problem in assembler.problems] == [1, 2, 4]


def test_head_and_interjections() -> None:
    """What comes before the first assistant message is the head; later words of the user stand behind their turn."""
    assembler = Assembler("f")
    assembler.add_system(make_content("rules"))
    assembler.add_user(make_content("task"))
    assembler.add_assistant(make_content("hello"))
    assembler.add_user(make_content("go on"))
    found = finished(assembler)
    assert [message.text for message in found.head.messages] == ["rules", "task"]
    assert [message.text for message in found.turns[0].interjections] == ["go on"]
    assert found.observations == "tools"


def test_an_agent_that_acts_in_text() -> None:
    """The user message that answers an action is its observation, and the run says that it was read so."""
    assembler = Assembler("f")
    assembler.add_user(make_content("task"))
    assembler.add_assistant(make_content(RUN_LS))
    assembler.add_user(make_content("a.py"))
    found = finished(assembler)
    (turn,) = found.turns
    assert found.observations == "user"
    assert [(o.role, o.tool, o.text) for o in turn.observations] == [("user", "bash", "a.py")]
    assert turn.actions[0].implicit
    assert turn.interjections == ()


def test_thinking_aloud_first_does_not_make_it_a_chat() -> None:
    """The first answered message that holds an action decides, among the opening ones."""
    assembler = Assembler("f")
    assembler.add_assistant(make_content("Let me think first."))
    assembler.add_user(make_content("Go on."))
    assembler.add_assistant(make_content(RUN_LS))
    assembler.add_user(make_content("a.py"))
    found = finished(assembler)
    assert found.observations == "user"
    assert [turn.is_finished for turn in found.turns] == [False, True]
    assert [message.text for message in found.turns[0].interjections] == ["Go on."]


def test_only_a_user_message_answers_in_text() -> None:
    """A system message between action and answer is no observation."""
    assembler = Assembler("f")
    assembler.add_assistant(make_content(RUN_LS))
    assembler.add_system(make_content("be nice"))
    assembler.add_user(make_content("a.py"))
    (turn,) = finished(assembler).turns
    assert [observation.text for observation in turn.observations] == ["a.py"]
    assert [message.text for message in turn.interjections] == ["be nice"]


def test_tools_win_where_both_occur() -> None:
    """With tool results in the run, user messages are no observations."""
    assembler = Assembler("f")
    assembler.add_assistant(make_content(RUN_LS))
    assembler.add_user(make_content("hm"))
    assembler.add_assistant(actions=[call("a")])
    assembler.add_result("a", make_content("b.py"))
    found = finished(assembler)
    assert found.observations == "tools"
    assert found.turns[0].observations == ()


def test_no_assistant_is_no_run() -> None:
    """A file of user messages alone holds no trajectory."""
    assembler = Assembler("f")
    assembler.add_user(make_content("hello?"))
    assert assembler.finish("run", format="test") is None


def test_calls_without_a_model_have_that_of_their_neighbours() -> None:
    """A request with its response names the model of the last call alone: all calls are that model's. Between two
    models a call without a name is the earlier one's."""
    assembler = Assembler("x")
    for model in ("", "", "m"):
        assembler.add_assistant(make_content("a"), model=model)
    run = assembler.finish("r", format="f", model="asked-for")
    assert run is not None
    assert [turn.model for turn in run.turns] == ["m", "m", "m"]
    for model in ("", "n"):
        assembler.add_assistant(make_content("a"), model=model)
    run = assembler.finish("r", format="f")
    assert run is not None
    assert [turn.model for turn in run.turns] == ["m", "m", "m", "m", "n"]


def test_settings_that_changed_between_two_calls() -> None:
    """What is set back before the next call, and what the first call begins with, changed nothing."""
    assembler = Assembler("f")
    assembler.set_setting("the effort", "low")
    for values in ([], ["high"], ["low", "high"], ["off"]):
        for value in values:
            assembler.set_setting("the effort", value)
        assembler.add_assistant(make_content("a"))
    run = assembler.finish("x", format="f")
    assert run is not None
    assert run.changes == (PromptChange(before=2, what="the effort"), PromptChange(before=4, what="the effort"))
