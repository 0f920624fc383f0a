"""Turns: atomic, paired, valid by construction; and actions in what an assistant says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.trajectory.turn import (
    Action,
    Message,
    Observation,
    Turn,
    choose_observation_role,
    find_action,
    make_content,
)
from tests.work import assert_linear


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


FENCE = "```"


@pytest.mark.parametrize(
    ("text", "name", "arguments"),
    [
        (f"THOUGHT: look.\n\n{FENCE}bash\nls -l\n{FENCE}", "bash", "ls -l"),
        (f"Now\n{FENCE}\nopen a.py 10\n{FENCE}", "bash", "open a.py 10"),
        (f"{FENCE}mswea_bash_command\nls\n{FENCE}", "bash", "ls"),
        (f"{FENCE}python\nprint(1)\n{FENCE}", "python", "print(1)"),
        (f"{FENCE}sh\nold\n{FENCE}\nno, rather\n{FENCE}sh\nnew\n{FENCE}", "bash", "new"),
        (f'{FENCE}bash\nls\n{FENCE}\ngives\n{FENCE}json\n{{"a": 1}}\n{FENCE}', "bash", "ls"),
        ("I run <execute_bash>\nmake test\n</execute_bash>", "bash", "make test"),
        ("<command>ls</command>", "bash", "ls"),
        ("<function=edit> x </function>", "edit", "x"),
        ("Thought: so\nAction: search\nAction Input: needle", "search", "needle"),
    ],
)
def test_an_action(text: str, name: str, arguments: str) -> None:
    """The last runnable fence, else a tag, else a ReAct line, is the action; it stands in the text already."""
    found = find_action(text)
    assert found is not None
    assert (found.name, found.arguments, found.implicit, found.id) == (name, arguments, True, "")


@pytest.mark.parametrize(
    "text",
    ["", "All done.", f"{FENCE}json\n{{}}\n{FENCE}", f"{FENCE}diff\n- a\n+ b\n{FENCE}", f"{FENCE}bash\n\n{FENCE}"],
)
def test_no_action(text: str) -> None:
    """Talk, data and empty fences are no action."""
    assert find_action(text) is None


def test_auto_decides() -> None:
    """Tools seen: the tool protocol; else text if the first message acts; else a chat, which has no observations."""
    acting = f"{FENCE}bash\nls\n{FENCE}"
    assert choose_observation_role(acting, has_tools=True) == "tools"
    assert choose_observation_role(acting, has_tools=False) == "user"
    assert choose_observation_role("Hello, what can I do?", has_tools=False) == "tools"


@given(st.text())
def test_any_text(text: str) -> None:
    """Whatever an assistant says is read without an error."""
    assert choose_observation_role(text, has_tools=True) == "tools"
    found = find_action(text)
    assert found is None or found.implicit


@pytest.mark.parametrize("mark", [FENCE, "<command>", f"{FENCE}bash\n"])
def test_hostile_text_takes_linear_time(mark: str) -> None:
    """Unclosed marks by the thousand do not stall the reader."""
    assert_linear(lambda times: find_action(mark * times), 300)
