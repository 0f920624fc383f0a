"""A view of one process that is given back to another as the history."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from elision import Advanced, Cache
from elision.manager import ContextManager
from elision.manager.request_notes import NOTE_PLACEHOLDERS
from elision.stores.store_urls import open_store
from tests.manager.agents import SHAPES, make_history

STRATEGY = "masking(window=2, schedule=every-turn, fold=false)"


def open_context(url: str, session: str = "s", strategy: str = STRATEGY) -> ContextManager:
    return ContextManager(
        strategy, store=url, session=session, advanced=Advanced(cache=Cache(control="client")), recall="never"
    )


def count_stored_placeholders(url: str, mark: str = "tokens hidden") -> int:
    with closing(open_store(url)) as store:
        results = [
            result.text for info in store.sessions() for turn in store.turns(info.key) for result in turn.observations
        ]
    return sum(mark in text for text in results)


@pytest.mark.parametrize("shape", ["openai", "openai-responses", "anthropic"])
def test_results_are_put_back_in_another_process(shape: str, tmp_path: Path) -> None:
    """The session continues with the same bytes, no placeholder is stored as a result, and nothing is noted."""
    url = f"sqlite:///{tmp_path}/a.db"
    with open_context(url) as context:
        for steps in range(7):
            shown: Any = context.prepare(make_history(shape, steps)).messages
    assert "tokens hidden" in str(shown)
    with open_context(url) as context:
        given = [*shown]
        for step in (7, 8, 9):
            given += SHAPES[shape](step)
            view = context.prepare(given)
            assert (view.diagnostics.notes, view.diagnostics.faults) == ((), ())
            assert (view.diagnostics.branch, view.diagnostics.history) == ("s", "continue")
            assert view.messages[: len(shown) - 4] == shown[:-4]
            assert view.diagnostics.savings.masked == step - 2
    with open_context(url) as context:
        assert context.prepare(make_history(shape, 9)).messages == view.messages
    assert count_stored_placeholders(url) == 0


@pytest.mark.parametrize("shape", ["openai", "openai-responses", "anthropic"])
@pytest.mark.parametrize("window", [2, 99])
def test_folded_results_are_put_back_in_another_process(shape: str, window: int, tmp_path: Path) -> None:
    """The session continues with the same bytes, and no reference is stored as a result."""
    url, strategy = f"sqlite:///{tmp_path}/a.db", f"masking(window={window}, schedule=every-turn)"
    with open_context(url, strategy=strategy) as context:
        for steps in range(7):
            shown: Any = context.prepare(make_history(shape, steps)).messages
    assert "[same as " in str(shown)
    with open_context(url, strategy=strategy) as context:
        given = [*shown]
        for step in (7, 8, 9):
            given += SHAPES[shape](step)
            view = context.prepare(given)
            assert (view.diagnostics.notes, view.diagnostics.faults) == ((), ())
            assert (view.diagnostics.branch, view.diagnostics.history) == ("s", "continue")
            if window == 99:
                assert view.messages[: len(shown)] == shown
    with open_context(url, strategy=strategy) as context:
        assert context.prepare(make_history(shape, 9)).messages == view.messages
    assert count_stored_placeholders(url, "[same as ") == 0


@pytest.mark.parametrize("shape", ["openai", "openai-responses", "anthropic"])
def test_a_view_that_becomes_the_history_names_no_hidden_lines(shape: str) -> None:
    """When a pass masks what a fold refers to, the lines are shown again, though the client gives the fold back."""
    strategy = "masking(window=2, schedule=every-turn)"
    own, back = (open_context("memory:", strategy=strategy) for _ in range(2))
    given: list[Any] = make_history(shape, 0)
    with own, back:
        for step in range(12):
            given += SHAPES[shape](step) if step else []
            view = back.prepare(given)
            assert view.messages == own.prepare(make_history(shape, step)).messages
            given = [*view.messages]
    assert "[same as " in str(given)


def test_placeholders_of_another_session_are_noted(tmp_path: Path) -> None:
    """Their results are not this session's."""
    url = f"sqlite:///{tmp_path}/a.db"
    with open_context(url) as context:
        for steps in range(7):
            shown = context.prepare(make_history("openai", steps)).messages
    with open_context(url, "another") as context:
        assert context.prepare(shown).diagnostics.notes == (NOTE_PLACEHOLDERS,)


def test_a_text_that_looks_like_one_stays(tmp_path: Path) -> None:
    """The placeholder must be the one that was written for this call's result."""
    url = f"sqlite:///{tmp_path}/a.db"
    with open_context(url) as context:
        for steps in range(7):
            shown = context.prepare(make_history("openai", steps)).messages
    place = next(place for place, each in enumerate(shown) if "tokens hidden" in str(each))
    odd = {**shown[place], "content": shown[place]["content"].replace(" tokens hidden", "0 tokens hidden")}
    with open_context(url) as context:
        view = context.prepare([*shown[:place], odd, *shown[place + 1 :]])
        assert view.diagnostics.notes == (NOTE_PLACEHOLDERS,)
