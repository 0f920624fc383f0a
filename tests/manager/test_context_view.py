"""A view and a context manager as a user meets them: printed, pickled, in a notebook."""

from __future__ import annotations

import pickle
import xml.etree.ElementTree as ET

from elision import ContextManager, ContextView
from tests.manager.agents import make_history

EAGER = "masking(window=2, schedule=every-turn)"


def prepare(context: ContextManager, steps: int = 5) -> ContextView:
    return context.prepare(make_history("openai", steps, "<script>alert(1)</script>"))


def test_a_view_is_printed_in_one_line() -> None:
    """What was sent, what is hidden and why, what it cost."""
    with ContextManager(EAGER, store="memory:", model="gpt-5") as context:
        view = prepare(context)
        done = view.diagnostics
        assert str(view).startswith(f"call 6: {done.after:,} of {done.raw:,} tokens sent; 3 of 5 tool results hidden (")
        assert f"${done.costs.ours:.4f} so far, ${done.costs.raw:.4f} without Elision" in str(view)
        assert "\n" not in str(view)


def test_a_context_is_printed_in_one_line() -> None:
    """Nothing is read from the store for it."""
    with ContextManager(EAGER, store="memory:", session="task-41") as context:
        assert str(context) == "session 'task-41': no call yet"
        prepare(context)
        assert str(context) == context.session.report().describe()
        assert str(context).startswith("session 'task-41': 1 call, masking; ")
        assert str(context.session) == "task-41"


def test_a_view_can_be_pickled() -> None:
    """A worker may send what another prepared: all parts are there, and the prompt string."""
    with ContextManager(EAGER, store="memory:") as context:
        view = prepare(context)
        copied = pickle.loads(pickle.dumps(view))  # noqa: S301 - it was written in this line
    assert copied.request == view.request
    assert copied.diagnostics == view.diagnostics
    assert copied.text() == view.text()
    assert copied == view


def test_a_notebook_shows_a_view_and_a_report() -> None:
    """A sentence, a chart and a table, as one well-formed element in which no text is markup."""
    with ContextManager(EAGER, store="memory:", session="<b>") as context:
        view = prepare(context)
        for shown in (view._repr_html_(), context.session.report()._repr_html_()):
            element = ET.fromstring(shown)
            assert [child.tag.rpartition("}")[2] for child in element] == ["p", "svg", "table"]
            assert "<script" not in shown
            assert "<b>" not in shown
        assert "t1.1" in view._repr_html_()
