"""Rules that shorten results, in live sessions: what is sent, reported and recalled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from elision import ContextManager
from tests.manager.test_folded_results import list_results, make_messages, read_places

NOISE = "\n".join(f"Collecting package-{number}" for number in range(80))
OUTPUT = f"$ make\n{NOISE}\nbuilt"
SHOWN = "$ make\n[80 lines of package manager routine left out: t1.1]\nbuilt"
PLAN = 'masking(window=3, gist=0, schedule=every-turn, rules=rule(trim="packages"))'


def talk(*results: str) -> list[dict[str, Any]]:
    return make_messages(*results, tool="bash")


def test_a_shorter_result_is_sent() -> None:
    """The diagnostics name it, the raw bill counts it whole, and recall returns it whole."""
    with ContextManager(PLAN, recall="caller") as context:
        context.prepare(talk())
        view = context.prepare(talk(OUTPUT))
        assert list_results(view.messages) == [SHOWN]
        assert [(each.handle, each.text) for each in view.diagnostics.trimmed] == [("t1.1", SHOWN)]
        assert (view.diagnostics.epoch, view.diagnostics.phase) == (1, "raw")
        assert view.diagnostics.after < view.diagnostics.raw
        assert context.recall("t1.1") == OUTPUT
        later = context.prepare(talk(OUTPUT, "ok"))
        assert list_results(later.messages) == [SHOWN, "ok"]
        assert later.diagnostics.trimmed == ()


def test_in_shadow_mode_everything_is_sent() -> None:
    """What would be shortened is reported."""
    with ContextManager(PLAN, shadow=True) as context:
        view = context.prepare(talk(OUTPUT))
        assert view.messages == talk(OUTPUT)
        assert len(view.diagnostics.trimmed) == 1


def test_a_changed_history_is_shortened_anew() -> None:
    """An undo, and a result that comes again with another text."""
    with ContextManager(PLAN, recall="caller") as context:
        context.prepare(talk(OUTPUT))
        assert list_results(context.prepare(talk("short")).messages) == ["short"]
        assert list_results(context.prepare(talk("short", OUTPUT)).messages) == ["short", SHOWN.replace("t1", "t2")]


@pytest.mark.parametrize("calls", [2, 3, 4])
def test_another_process_sends_the_same_bytes(calls: int, tmp_path: Path) -> None:
    """Killed after any call, the session goes on as it was."""
    texts = [OUTPUT, f"more\n{OUTPUT}", "ok", OUTPUT, "end"]

    def send(context: ContextManager, first: int, last: int) -> list[Any]:
        return [context.prepare(talk(*texts[:count])).messages for count in range(first, last)]

    with ContextManager(PLAN, store=f"sqlite:///{tmp_path}/one.db", session="a", recall="caller") as context:
        expected = send(context, 1, 6)
    path = f"sqlite:///{tmp_path}/two.db"
    with ContextManager(PLAN, store=path, session="a", recall="caller") as context:
        sent = send(context, 1, calls)
    with ContextManager(PLAN, store=path, session="a", recall="caller") as context:
        sent += send(context, calls, 6)
    assert sent == expected


def test_the_tables_of_a_store_show_what_is_sent(tmp_path: Path) -> None:
    """Shortened, folded, and shortened again where the source of the folded lines is masked."""
    tail = "\n".join(
        f"warning {number * number}: unit {number} of the build is not used by any other" for number in range(30)
    )
    first, second = f"one\n{NOISE}\n{tail}", f"two\n{NOISE}\n{tail}"
    path = tmp_path / "store.db"
    plan = 'masking(window=2, gist=0, fold=true, schedule=every-turn, rules=rule(trim="packages"))'
    with ContextManager(plan, store=f"sqlite:///{path}?turns=full", session="a", recall="caller") as context:
        context.prepare(talk(first))
        note = "[80 lines of package manager routine left out: t{}.1]"
        repeat = "[same as lines 3–32 of t1.1 (bash f1.py)]"
        assert read_places(path) == [(1, 1, f"one\n{note.format(1)}\n{tail}")]
        context.prepare(talk(first, second))
        assert read_places(path)[1] == (
            2,
            1,
            f"two\n{note.format(2)}\n{repeat}",
        )
        view = context.prepare(talk(first, second, "ok"))
        assert list_results(view.messages)[1] == f"two\n{note.format(2)}\n{tail}"
        assert read_places(path)[1] == (2, 1, f"two\n{note.format(2)}\n{tail}")
        assert view.diagnostics.unfolded == ("t2.1",)
        assert view.diagnostics.trimmed == ()
