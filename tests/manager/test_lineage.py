"""What a session reads of those that it came from: what was handed on to it, and nothing that came later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from elision.errors import UnknownHandle
from elision.manager import ContextManager
from elision.manager.advanced_options import gather_options
from elision.manager.branch import trace_stored_turn
from elision.manager.observation_text import TextPart
from elision.mcp.stored_sessions import SessionScope, StoredSessions
from elision.stores.store import NewSession, Store
from elision.stores.store_urls import open_store
from elision.trajectory.events import SessionOpened
from elision.trajectory.tokens import Sizer, make_counter

WHOLE = TextPart()
Message = dict[str, Any]


@pytest.fixture(params=["memory:", "sqlite", "linear-hash"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """An empty store."""
    opened = open_store(request.param if request.param == "memory:" else f"{request.param}:///{tmp_path}/store")
    yield opened
    opened.close()


def open_context(store: Store, session: str = "s", **options: Any) -> ContextManager:
    return ContextManager(
        "masking(window=2, schedule=every-turn)", store=store, session=session, **gather_options(options)
    )


def make_history(*words: str, task: str = "Mend the parser.") -> list[Message]:
    """A history whose result of each turn has a word."""
    messages: list[Message] = [{"role": "user", "content": task}]
    for number, word in enumerate(words, start=1):
        function = {"name": "look", "arguments": f'{{"{word}": {number}}}'}
        call = {"id": f"c{number}", "type": "function", "function": function}
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{number}", "content": f"{word} of turn {number}\n" * 40},
        ]
    return messages


def make_fork(store: Store) -> tuple[ContextManager, str, str]:
    """Return a fork after two turns, its key and its parent's, which has three more turns."""
    parent = open_context(store)
    for turns in range(6):
        parent.prepare(make_history(*["theirs"] * turns))
    parent.settle()
    fork = open_context(store)
    view = fork.prepare(make_history("theirs", "theirs", "own"))
    fork.settle()
    return fork, view.diagnostics.branch, parent.session.name


def can_read(context: ContextManager, handle: str) -> bool:
    try:
        return context.session.recall(handle) != ""
    except UnknownHandle:
        return False


def test_a_fork_reads_what_it_shares_and_nothing_later(store: Store) -> None:
    """By handle, by its parent's name, and by words; its own turns are what its handles name."""
    fork, key, parent = make_fork(store)
    assert store.info(key).relation == "fork"
    assert [can_read(fork, f"{parent}:t{turn}.1") for turn in range(1, 7)] == [True, True, *[False] * 4]
    assert [can_read(fork, f"t{turn}") for turn in range(1, 7)] == [True, True, True, *[False] * 3]
    assert fork.session.recall("t3.1").startswith("own of turn 3")
    assert fork.session.recall(f"{parent}:t2.1") == fork.session.recall("t2.1") != ""
    assert [hit.turn for hit in fork.session.search("theirs")] == [2, 1]
    with pytest.raises(UnknownHandle, match="shares nothing under t4"):
        fork.session.recall("s:t4.1")
    assert fork.handle_tool_call("elision_recall", {"handle": "s:t4"}) == (
        "[not found: session 's' shares nothing under t4 with this one]"
    )
    assert [hit.turn for hit in open_context(store).session.search("theirs")] != []


def test_a_fork_of_a_fork_reads_what_all_three_share(store: Store) -> None:
    """What its parent had of its own is the parent's; of the one before, only what reached it."""
    fork, key, parent = make_fork(store)
    fork.prepare(make_history("theirs", "theirs", "own", "own", "own"))
    fork.settle()
    second = open_context(store)
    view = second.prepare(make_history("theirs", "theirs", "own", "third"))
    second.settle()
    assert store.info(view.diagnostics.branch).parent == key
    assert [can_read(second, f"{key}:t{turn}.1") for turn in range(1, 6)] == [True, True, True, False, False]
    assert [can_read(second, f"{parent}:t{turn}.1") for turn in range(1, 6)] == [True, True, *[False] * 3]


def test_a_rewritten_history_reads_what_its_client_had_before(store: Store) -> None:
    """All turns before the client rewrote it, and none that the old session gets afterwards; its forks as well."""
    old = open_context(store)
    before = make_history(*["early"] * 5)
    for turns in range(1, 6):
        old.prepare(before[: 1 + 2 * turns])
    old.settle()
    rewritten = open_context(store)
    compacted = [before[0], {"role": "user", "content": "Summary: much was done."}, *make_history("after")[1:]]
    view = rewritten.prepare(compacted)
    rewritten.settle()
    assert store.info(view.diagnostics.branch).relation == "replaced"
    # The old session goes on in another process.
    another = open_context(store)
    another.prepare(make_history(*["early"] * 5, "later"))
    another.settle()
    assert [can_read(rewritten, f"s:t{turn}.1") for turn in range(1, 7)] == [*[True] * 5, False]
    assert [can_read(rewritten, f"t{turn}.1") for turn in range(1, 7)] == [*[True] * 5, False]
    child = open_context(store)
    child.prepare([*compacted, *make_history("its")[1:]])
    forked = child.prepare([*compacted, *make_history("other")[1:]])
    child.settle()
    assert store.info(forked.diagnostics.branch).relation == "fork"
    assert [can_read(child, f"s:t{turn}.1") for turn in range(1, 7)] == [*[True] * 5, False]


def test_a_sub_agent_reads_all_of_its_parent(store: Store) -> None:
    """Its caller named the parent; also what the parent did since."""
    parent = open_context(store, "main")
    parent.prepare(make_history("theirs"))
    scout = open_context(store, "scout", parent="main")
    scout.prepare(make_history(task="Look it up."))
    parent.prepare(make_history("theirs", "theirs"))
    parent.settle()
    assert can_read(scout, "main:t2.1")
    assert can_read(scout, "t2.1")


def test_a_server_and_a_terminal_read_the_same(store: Store) -> None:
    """A session that is named itself is read whole, as far as the server shows it."""
    _, key, parent = make_fork(store)
    infos = {info.key: info for info in store.sessions()}
    for index, ours, theirs in ((2, True, True), (3, True, False), (4, False, False)):
        traced = dict(trace_stored_turn(store, infos.get, infos[key], index))
        assert {name: turn is not None for name, turn in traced.items()} == {key: ours, parent: theirs}
    served = StoredSessions(lambda: store, SessionScope(), Sizer(make_counter("estimate")))
    assert served.recall_text(f"{parent}:t2.1", key, WHOLE) == served.recall_text("t2.1", key, WHOLE)
    assert served.recall_text("t5.1", parent, WHOLE).startswith("theirs of turn 5")
    for handle in (f"{parent}:t3.1", f"{parent}:t5.1", "t5.1"):
        with pytest.raises(UnknownHandle):
            served.recall_text(handle, key, WHOLE)
    scoped = StoredSessions(lambda: store, SessionScope(session=key), Sizer(make_counter("estimate")))
    with pytest.raises(UnknownHandle):
        scoped.recall_text(f"{parent}:t5.1", "", WHOLE)


def test_parents_that_go_round_in_a_circle(store: Store) -> None:
    """They are read once each."""
    for name, parent in (("a", "b"), ("b", "a")):
        store.create_with_events(
            NewSession(key=name, family=name, at=1.0, parent=parent, relation="sub-agent"),
            [SessionOpened(strategy="raw")],
            at=1.0,
        )
    found = trace_stored_turn(store, lambda key: store.info(key), store.info("a"), 1)
    assert list(found) == [("a", None), ("b", None)]
