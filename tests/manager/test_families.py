"""A family of sessions: a history is gone on with in whatever session of the family knows it, and in no other."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from elision import Advanced, Cache
from elision.errors import StoreError, UnknownHandle
from elision.manager import ContextManager, ContextView
from elision.stores.memory import MemoryStore
from elision.stores.store import NewSession
from tests import flat_options
from tests.manager.agents import SHAPES, make_history

EAGER = "masking(window=2, schedule=every-turn)"


def manager(store: Any, family: str = "f", strategy: str = EAGER, **options: Any) -> ContextManager:
    return flat_options.open_context(
        strategy,
        store=store,
        **{"advanced": Advanced(family=family, cache=Cache(control="client")), **options},
    )


def walk(context: ContextManager, shape: str, first: int, last: int, words: str = "Mend the parser.") -> ContextView:
    for steps in range(first, last + 1):
        view = context.prepare(make_history(shape, steps, words))
    return view


def dumped(view: ContextView) -> str:
    return json.dumps(view.messages)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_history_is_found_whatever_session_holds_it(shape: str, tmp_path: Path) -> None:
    """Another process, which knows no session's name, goes on with the same view and the same log."""
    url = f"sqlite:///{tmp_path}/a.db"
    with manager(url) as first:
        before = walk(first, shape, 0, 9)
    with manager(url) as second:
        again = second.prepare(make_history(shape, 9))
        assert dumped(again) == dumped(before)
        assert again.diagnostics.branch == before.diagnostics.branch == first.session.name == second.session.name
        assert again.diagnostics.session == first.session.name
        assert again.diagnostics.history == "continue"


@pytest.mark.parametrize("shape", SHAPES)
def test_an_unknown_history_begins_a_session(shape: str) -> None:
    """What no session of the family knows is another run, however many there are: a root of its own."""
    store = MemoryStore()
    for words in ("Mend the parser.", "Write a poem.", "Write another."):
        view = walk(manager(store), shape, 0, 3, words)
        assert view.diagnostics.history == "continue"
    infos = store.sessions()
    assert len({info.key for info in infos}) == 3
    assert {(info.family, info.parent, info.relation) for info in infos} == {("f", "", "")}


def test_families_share_nothing() -> None:
    """The same words in another family are another run."""
    store = MemoryStore()
    walk(manager(store, "one"), "openai", 0, 4)
    view = walk(manager(store, "two"), "openai", 4, 4)
    assert [info.family for info in store.sessions()] == ["two", "one"]
    assert view.diagnostics.turns == 4
    one, two = ({event.node for event in store.events(info.key) if hasattr(event, "node")} for info in store.sessions())
    assert not one & two


def test_a_name_that_is_taken_is_no_obstacle() -> None:
    """`session` only names a new root: where the name is somebody's, of this family or another, the next one is
    taken."""
    store = MemoryStore()
    store.create(NewSession(key="s", family="another", at=0.0))
    for words in ("Mend the parser.", "Write a poem."):
        walk(manager(store, session="s"), "openai", 0, 2, words)
    assert sorted((info.key, info.family) for info in store.sessions()) == [
        ("s", "another"),
        ("s~2", "f"),
        ("s~3", "f"),
    ]


class Unfindable(MemoryStore):
    """A store that writes while it cannot look histories up: `failures` times."""

    def __init__(self, failures: int) -> None:
        super().__init__()
        self.failures = failures

    def locate(self, family: str, nodes: Sequence[str]) -> tuple[str, int] | None:
        if self.failures:
            self.failures -= 1
            raise StoreError("the index is locked")
        return super().locate(family, nodes)


@pytest.mark.parametrize("write_behind", [False, True])
@pytest.mark.parametrize("failures", range(1, 7))
def test_what_was_begun_unseen_is_gone_on_with(failures: int, write_behind: bool) -> None:
    """While the store cannot say whose a history is, its session is the one that was begun, not a new one each time."""
    store = Unfindable(failures)
    with manager(store, session="s", write_behind=write_behind) as context:
        # A history without turns is looked up nowhere.
        view = walk(context, "openai", 1, 8)
    assert not view.diagnostics.faults
    assert [(info.key, info.turns) for info in store.sessions()] == [("s", 8)]
    assert view.diagnostics.savings.masked == 6


def test_an_undo_and_a_fork_in_another_process() -> None:
    """Histories that turn back are branches of the session that was found, named behind it."""
    store = MemoryStore()
    first = manager(store)
    views = [dumped(first.prepare(make_history("openai", steps))) for steps in range(8)]
    second = manager(store)
    back = second.prepare(make_history("openai", 5))
    assert (back.diagnostics.history, dumped(back)) == ("undo", views[5])
    assert back.diagnostics.branch == f"{first.session.name}~2"
    other = manager(store).prepare([*make_history("openai", 3), *SHAPES["openai"](77)])
    assert other.diagnostics.branch == f"{first.session.name}~3"
    assert other.diagnostics.session == first.session.name
    assert {info.family for info in store.sessions()} == {"f"}


def test_a_client_that_compacts_by_itself_is_known_again() -> None:
    """A manager that holds the history recognises what was rewritten of it; one that does not begins a root."""
    store = MemoryStore()
    context = manager(store)
    walk(context, "openai", 0, 6)
    rewritten = [{"role": "user", "content": "Summary of four turns."}, *SHAPES["openai"](5), *SHAPES["openai"](6)]
    view = context.prepare(rewritten)
    assert view.diagnostics.history == "replaced"
    assert store.info(view.diagnostics.branch).parent == view.diagnostics.session
    cold = manager(store, "g").prepare(rewritten)
    assert (cold.diagnostics.history, store.info(cold.diagnostics.branch).relation) == ("continue", "")


def test_another_run_through_the_same_manager() -> None:
    """Messages that have nothing in common with the branch at hand are no fork of it."""
    store = MemoryStore()
    context = manager(store)
    walk(context, "openai", 0, 3)
    first = context.session.name
    view = walk(context, "openai", 0, 3, "Write a poem.")
    assert view.diagnostics.branch != first
    assert {info.relation for info in store.sessions()} == {""}


def test_recall_without_a_history_knows_no_session() -> None:
    """Other runs of the family are not read by whoever brings no history of theirs."""
    store = MemoryStore()
    walk(manager(store), "openai", 0, 4)
    context = manager(store)
    with pytest.raises(UnknownHandle):
        context.session.recall("t1.1")
    walk(context, "openai", 4, 4)
    assert "value" in context.session.recall("t1.1")
