"""The tables for people, of each SQL store: whole turns and what is sent in their place, also in forks."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from elision.stores.postgres.store import PostgresStore
from elision.stores.sql_dialect import make_readable
from elision.stores.sqlite import SqliteStore
from elision.stores.store import Store
from elision.stores.store_urls import open_store
from elision.trajectory.events import Event, PassDecided, TurnAdded, UsageReported
from elision.trajectory.plan import Edit, Summary
from elision.trajectory.turn import Action, Observation, Turn, make_content
from elision.trajectory.usage import Usage
from tests.stores.implementations import STORES
from tests.stores.session_logs import (
    ODD_KEYS,
    add_turn,
    amend_turn,
    begin_session,
    hide_results,
    list_every_event,
    new_session,
    read_log,
)

LONG = "NUL \0, lone \ud800, 大小 🗿\n" * 4_000
USAGE = Usage(input=3, cache_read=90, cache_write=5, output=7)

#: A session in which everything happens, and what is read after it.
EVENTS: list[Event] = [
    add_turn(1, "one" * 300, "more", node="n1"),
    UsageReported(call=2, usage=USAGE),
    add_turn(2, "two", node="n2"),
    hide_results((1, 2), call=3),
    amend_turn(2, "two again", node="n2b"),
    add_turn(3, "three"),
    PassDecided(call=4, reason="fits", edits=(Edit((3, 1), "clip", "thr…"), Edit((1, 1), "mask", "[t1.1]"))),
    # Places that no turn has are kept in the log, and change no row.
    hide_results((1, 9), (9, 1), (0, 1), (1, 0), (-1, -1), (2**70, 1), (1, 2**40), (1, 2**70), call=4, covers=2),
    add_turn(4, "four"),
]
ROWS = [
    (1, f"{'one' * 300}\n\nmore", "[t1.1]\n\n[t1.2]", 3, 4, "all"),
    (2, "two again", None, None, 4, "all"),
    (3, "three", "thr…", None, None, None),
    (4, "four", None, None, None, None),
]


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A store of each kind that writes tables for people."""
    option = "?turns=full" if request.param == "sqlite" else ""
    with closing(open_store(STORES[request.param](tmp_path) + option)) as opened:
        yield opened


def ask(store: Store, query: str, *parameters: object) -> list[tuple[Any, ...]]:
    """Return what a person reads while the store is open. Parameters stand for `?`."""
    if isinstance(store, PostgresStore):
        statement = query.replace("?", "%s").encode()
        return store._database.read(lambda cursor: cursor.execute(statement, parameters).fetchall())
    assert isinstance(store, SqliteStore)
    return ask_file(store._file.path, query, *parameters)


def ask_file(path: Path, query: str, *parameters: object) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query, parameters).fetchall()


def list_rows(store: Store, session: str = "s") -> list[tuple[Any, ...]]:
    columns = "turn, observation, placeholder, masked_at, summarized_at, summary"
    return ask(store, f"select {columns} from agent_context_transcript where session = ? order by turn", session)


def list_tokens(store: Store, session: str = "s") -> list[tuple[int | None, int | None]]:
    query = "select input_tokens, output_tokens from agent_context_turns where session = ? order by turn"
    return ask(store, query, session)  # type: ignore[return-value]


def test_turns_are_read_whole(store: Store) -> None:
    """Reasoning, text, calls and results of any length, under the names that people look for; each character but those
    that a database cannot hold. An action that was given as text is that text."""
    called = Action(id="a", name="bash", arguments='{"command": "' + "x" * 9_000 + '"}')
    given = Action(id="b", name="action", arguments='{"input": "cat \\"a b\\".py"}')
    named = Action(id="c", name="action", arguments='{"input": 3}')
    results = tuple(Observation(action_id="a", tool="bash", content=make_content(text)) for text in (LONG, "", "b"))
    content = make_content("so" + LONG)
    whole = Turn(index=1, reasoning=LONG, content=content, actions=(called, given, named), observations=results, at=5.0)
    begin_session(store, "s", TurnAdded(whole))
    assert store.turns("s") == [whole]
    query = "select session, turn, reasoning, said, action, observation, timestamp from agent_context_turns"
    ((*texts, at),) = ask(store, query)
    shown = make_readable(LONG)
    action = f'bash {called.arguments}\ncat "a b".py\naction {{"input": 3}}'
    assert texts == ["s", 1, shown, "so" + shown, action, f"{shown}\n\n\n\nb"]
    assert datetime.fromisoformat(str(at)) == datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)


def test_what_is_sent_in_the_place_of_a_turn(store: Store) -> None:
    """Placeholders, clips and the newest summary; in a fork those of before."""
    begin_session(store, "s", *EVENTS)
    assert read_log(store) == EVENTS
    assert list_rows(store) == ROWS
    newer = PassDecided(call=5, reason="due", summary=Summary(covers=3, text="newer", block="[newer]"))
    store.append("s", (newer,), after=len(EVENTS), at=1.0)
    store.create(new_session("fork", parent="s", shared=len(EVENTS)))
    assert [row[-2:] for row in list_rows(store)] == [(4, "newer"), (4, "newer"), (5, "newer"), (None, None)]
    assert list_rows(store, "fork") == ROWS
    assert ask(store, "select session, call, covers, summary, block from agent_context_summaries order by 1, 2") == [
        ("fork", 4, 2, "all", "[all]"),
        ("s", 4, 2, "all", "[all]"),
        ("s", 5, 3, "newer", "[newer]"),
    ]


def test_tokens_are_shown_whenever_they_come(store: Store) -> None:
    """With the turn, before it, or behind it."""
    begin_session(store)
    store.append("s", (UsageReported(call=1, usage=USAGE),), after=0, at=1.0)
    store.append("s", (add_turn(1), add_turn(2)), after=1, at=1.0)
    store.append("s", (UsageReported(call=2, usage=USAGE), TurnAdded(Turn(index=3, usage=USAGE))), after=3, at=1.0)
    store.append("s", (add_turn(4),), after=5, at=1.0)
    assert list_tokens(store) == [(98, 7), (98, 7), (98, 7), (None, None)]


def test_a_fork_shows_its_turns_as_they_were(store: Store) -> None:
    """What the parent amended, hid or was billed for later is no part of it: each equals a log written that far."""
    begin_session(store, "s", *EVENTS)
    for shared in range(1, len(EVENTS) + 1):
        store.create(new_session(f"fork {shared}", parent="s", shared=shared))
        begin_session(store, f"alone {shared}", *EVENTS[:shared])
        fork, alone = (
            [list_rows(store, session), list_tokens(store, session), list_details(store, session)]
            for session in (f"fork {shared}", f"alone {shared}")
        )
        assert fork == alone, shared
    # One of the events hides a turn of the largest number that there is, which no log here has.
    assert [found for found in store.check() if "it hides turn 1180591620717411303424" not in str(found)] == []


def list_details(store: Store, session: str) -> list[Any]:
    """Return what only PostgreSQL has of a session: its turns with results as JSON, and the number of its words."""
    if not isinstance(store, PostgresStore):
        return []
    rows = ask(store, "select to_jsonb(t) from agent_context_turns t where session = ? order by turn", session)
    words = "select count(*) from agent_context_words w join agent_context_sessions s on s.id = w.session_id "
    shown = [{name: value for name, value in row.items() if name not in ("session_id", "session")} for (row,) in rows]
    return [shown, ask(store, words + "where s.session = ?", session)]


def test_any_session_and_event(store: Store) -> None:
    """No key and no event keeps a row from being written."""
    for key in ODD_KEYS:
        begin_session(store, key, *list_every_event())
    assert ask(store, "select count(distinct session_id) from agent_context_turns") == [(len(ODD_KEYS),)]
