"""Folding in live sessions: what is sent, reported, recalled, and what is left whole."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from elision import ContextManager
from tests.properties.builders import lines

PLAN = "masking(window=2, fold=true, schedule=every-turn, gist=0)"

#: How 39 lines are shown that the first result has.
REPEAT = "[same as t1.1 (read_file f1.py)]"


def make_messages(*results: str, tool: str = "read_file") -> list[dict[str, Any]]:
    """A chat in which each call of `tool` had one of `results`."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Mend the parser."}]
    for number, text in enumerate(results, start=1):
        function = {"name": tool, "arguments": json.dumps({"path": f"f{number}.py"})}
        calls = [{"id": f"c{number}", "type": "function", "function": function}]
        messages.append({"role": "assistant", "content": None, "tool_calls": calls})
        messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": text})
    return messages


def list_results(messages: list[dict[str, Any]]) -> list[str]:
    return [message["content"] for message in messages if message["role"] == "tool"]


def test_a_repeat_is_sent_as_a_line() -> None:
    """The diagnostics and the report name it, and the raw bill counts it whole."""
    with ContextManager(PLAN, recall="caller") as context:
        whole = make_messages(lines(1, 40), lines(1, 40))
        context.prepare(whole[:3])
        view = context.prepare(whole)
        assert list_results(view.messages) == [lines(1, 40), REPEAT]
        assert [(each.handle, each.text) for each in view.diagnostics.folded] == [("t2.1", REPEAT)]
        assert (view.diagnostics.epoch, view.diagnostics.phase) == (1, "raw")
        assert view.diagnostics.after < view.diagnostics.raw - 300
        assert context.session.recall("t2.1") == lines(1, 40)


def test_a_hidden_source_is_followed() -> None:
    """When the first reading is masked, the second is whole again, and the third refers to it."""
    with ContextManager(PLAN, recall="caller") as context:
        for count in (0, 1, 2):
            view = context.prepare(make_messages(*[lines(1, 40)] * count))
        assert list_results(view.messages) == [lines(1, 40), REPEAT]
        view = context.prepare(make_messages(*[lines(1, 40)] * 3))
        masked, *others = list_results(view.messages)
        assert masked.startswith("[t1.1 read_file")
        assert others == [lines(1, 40), "[same as t2.1 (read_file f2.py)]"]
        assert view.diagnostics.unfolded == ("t2.1",)


def test_what_is_folded_is_reported() -> None:
    """Diagnostics, report and log say how much was folded, apart from what was masked."""
    with ContextManager(PLAN, recall="caller", session="s") as context:
        for count in (1, 2):
            view = context.prepare(make_messages(*[lines(1, 40)] * count))
        folded = view.diagnostics.folded[0]
        savings = view.diagnostics.savings
        assert (savings.masked, savings.folded, savings.visible) == (0, 1, 1)
        assert savings.folded_tokens == savings.hidden_tokens == folded.tokens - folded.left > 300
        assert savings.masked_tokens == 0
        folds = context.session.report().folds
        assert (folds.results, folds.unfolded, folds.tokens) == (1, 0, savings.folded_tokens)
        assert context.session.report().to_dict()["folds"] == {
            "results": 1,
            "unfolded": 0,
            "tokens": savings.folded_tokens,
        }
        view = context.prepare(make_messages(*[lines(1, 40)] * 3))
        folds = context.session.report().folds
        savings = view.diagnostics.savings
        assert (folds.results, folds.unfolded, folds.tokens) == (2, 1, savings.folded_tokens)
        assert (savings.masked, savings.folded, savings.visible) == (1, 1, 1)
        assert savings.hidden_tokens == savings.masked_tokens + savings.folded_tokens
        assert view.diagnostics.unfolded == ("t2.1",)


def test_what_is_recalled_is_whole() -> None:
    """A result of the recall tool is not folded, however much of it the view shows."""
    with ContextManager(PLAN, recall="caller") as context:
        recalled = make_messages("", lines(1, 40), tool="elision_recall")[3:]
        view = context.prepare([*make_messages(lines(1, 40)), *recalled])
        assert list_results(view.messages) == [lines(1, 40), lines(1, 40)]


def test_in_shadow_mode_everything_is_sent() -> None:
    """What would be folded is reported."""
    with ContextManager(PLAN, shadow=True) as context:
        messages = make_messages(lines(1, 40), lines(1, 40))
        view = context.prepare(messages)
        assert view.messages == messages
        assert len(view.diagnostics.folded) == 1


def test_a_changed_history_is_folded_anew() -> None:
    """An undo, and a source that comes again with another text: no reference names lines that are not there."""
    with ContextManager(PLAN, recall="caller") as context:
        context.prepare(make_messages(lines(1, 40), lines(1, 40)))
        view = context.prepare(make_messages(lines(1, 40)))
        assert list_results(view.messages) == [lines(1, 40)]
        view = context.prepare(make_messages(lines(100, 140), lines(1, 40)))
        assert list_results(view.messages) == [lines(100, 140), lines(1, 40)]


def test_a_newest_result_that_changes_is_no_longer_folded() -> None:
    """The client sends the newest turn again with another result."""
    with ContextManager(PLAN, recall="caller") as context:
        context.prepare(make_messages(lines(1, 40), lines(1, 40)))
        view = context.prepare(make_messages(lines(1, 40), lines(2, 41)))
        assert list_results(view.messages)[0] == lines(1, 40)
        restored = list_results(view.messages)[1]
        assert (
            restored == lines(2, 41) or restored == f"[same as lines 2–39 of t1.1 (read_file f1.py)]\n{lines(40, 41)}"
        )


@pytest.mark.parametrize("calls", [2, 3, 4])
def test_another_process_sends_the_same_bytes(calls: int, tmp_path: Path) -> None:
    """Killed after any call, the session goes on as it was."""
    texts = [lines(1, 40), lines(1, 40), lines(10, 60), lines(30, 70), "end"]

    def send(context: ContextManager, first: int, last: int) -> list[Any]:
        return [context.prepare(make_messages(*texts[:count])).messages for count in range(first, last)]

    with ContextManager(PLAN, store=f"sqlite:///{tmp_path}/one.db", session="a", recall="caller") as context:
        expected = send(context, 1, 6)
    path = f"sqlite:///{tmp_path}/two.db"
    with ContextManager(PLAN, store=path, session="a", recall="caller") as context:
        sent = send(context, 1, calls)
    with ContextManager(PLAN, store=path, session="a", recall="caller") as context:
        sent += send(context, calls, 6)
    assert sent == expected


def test_the_tables_of_a_store_show_what_is_sent(tmp_path: Path) -> None:
    """A folded result is there with its text, and no longer once it is whole again."""
    path = tmp_path / "store.db"
    with ContextManager(PLAN, store=f"sqlite:///{path}?turns=full", session="a", recall="caller") as context:
        context.prepare(make_messages(lines(1, 40), lines(1, 40)))
        assert read_places(path) == [(2, 1, REPEAT)]
        context.prepare(make_messages(lines(1, 40), lines(1, 40), "more"))
        assert [place[:2] for place in read_places(path)] == [(1, 1)]


def read_places(path: Path) -> list[tuple[int, int, str]]:
    with closing(sqlite3.connect(path)) as connection:
        query = "SELECT turn, position, placeholder FROM agent_context_placeholders ORDER BY turn"
        return list(connection.execute(query))
