"""Actions inside what an assistant says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.trajectory.turn import choose_observation_role, find_action
from tests.work import assert_linear

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
