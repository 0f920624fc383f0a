"""Whole turns in a SQLite file, read with SQL alone: what the log says, whoever wrote it, also in forks."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from elision.errors import StoreError
from elision.stores.readable_tables import make_readable
from elision.stores.store import Store
from elision.stores.store_urls import open_existing, open_store
from elision.trajectory.content import make_content
from elision.trajectory.events import Event, PassDecided, TurnAdded, UsageReported
from elision.trajectory.plan import Edit, Summary
from elision.trajectory.turn import Action, Observation, Turn
from elision.trajectory.usage import Usage
from tests.stores.session_logs import (
    ODD_KEYS,
    add_turn,
    amend_turn,
    begin_session,
    hide_results,
    list_every_event,
    new_session,
)

LONG = "NUL \0, lone \ud800, 大小 🗿\n" * 4_000
COLUMNS = "turn, observation, placeholder, masked_at, summarized_at, summary"


def ask(path: Path, query: str, *parameters: object) -> list[tuple[Any, ...]]:
    """What a person reads with a plain connection, while the store may be open."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query, parameters).fetchall()


def list_rows(path: Path, session: str = "s") -> list[tuple[Any, ...]]:
    return ask(path, f"select {COLUMNS} from agent_context_transcript where session = ? order by turn", session)


def open_whole(path: Path) -> Store:
    return open_store(f"sqlite:///{path}?turns=full")


def test_turns_are_read_whole(tmp_path: Path) -> None:
    """Reasoning, text, calls and results of any length, under the names that people look for."""
    path = tmp_path / "a.db"
    called = Action(id="a", name="bash", arguments='{"command": "' + "x" * 9_000 + '"}')
    results = tuple(Observation(action_id="a", tool="bash", content=make_content(text)) for text in (LONG, "b"))
    whole = Turn(
        index=1, reasoning=LONG, content=make_content("so" + LONG), actions=(called,), observations=results, at=5.0
    )
    with closing(open_whole(path)) as store:
        begin_session(store, "s", TurnAdded(whole))
        assert store.turns("s") == [whole]
    assert ask(
        path, "select session, turn, reasoning, said, action, observation, timestamp from agent_context_turns"
    ) == [
        (
            "s",
            1,
            make_readable(LONG),
            make_readable("so" + LONG),
            f"bash {called.arguments}",
            f"{make_readable(LONG)}\n\nb",
            "1970-01-01T00:00:05+00:00",
        )
    ]


def test_an_action_given_as_text_is_read_as_that_text(tmp_path: Path) -> None:
    """As it is in a prompt string, too; a call of a tool with the same name is a call."""
    path = tmp_path / "a.db"
    given = Action(id="a", name="action", arguments='{"input": "cat \\"a b\\".py"}')
    called = Action(id="b", name="action", arguments='{"input": 3}')
    with closing(open_whole(path)) as store:
        begin_session(store, "s", TurnAdded(Turn(index=1, actions=(given, called))))
    assert ask(path, "select action from agent_context_turns") == [('cat "a b".py\naction {"input": 3}',)]


#: A session in which everything happens, and what is read after it.
EVENTS: list[Event] = [
    add_turn(1, "one", "more"),
    UsageReported(call=2, usage=Usage(input=3, output=2)),
    add_turn(2, "two"),
    hide_results((1, 2), call=3),
    amend_turn(2, "two again"),
    add_turn(3, "three"),
    PassDecided(call=4, reason="fits", edits=(Edit((3, 1), "clip", "thr…"), Edit((1, 1), "mask", "[t1.1]"))),
    hide_results((1, 9), (9, 1), (0, 1), (1, 0), (2**70, 1), (1, 2**70), call=4, covers=2),
]
ROWS = [
    (1, "one\n\nmore", "[t1.1]\n\n[t1.2]", 3, 4, "all"),
    (2, "two again", None, None, 4, "all"),
    (3, "three", "thr…", None, None, None),
]


def test_what_is_sent_in_the_place_of_a_turn(tmp_path: Path) -> None:
    """Placeholders, clips and the newest summary; odd addresses change nothing."""
    path = tmp_path / "a.db"
    with closing(open_whole(path)) as store:
        begin_session(store, "s", *EVENTS)
        assert list_rows(path) == ROWS
        newer = PassDecided(call=5, reason="due", summary=Summary(covers=3, text="newer", block="[newer]"))
        store.append("s", (newer,), after=len(EVENTS), at=1.0)
        assert [row[-2:] for row in list_rows(path)] == [(4, "newer"), (4, "newer"), (5, "newer")]
    assert ask(path, "select call, covers, summary, block from agent_context_summaries order by call") == [
        (4, 2, "all", "[all]"),
        (5, 3, "newer", "[newer]"),
    ]
    assert ask(path, "select input_tokens, output_tokens from agent_context_turns order by turn")[1] == (3, 2)


def test_who_wrote_does_not_matter(tmp_path: Path) -> None:
    """Logs written without the option, in part or wholly, or in forks, read the same."""
    path = tmp_path / "a.db"
    with closing(open_whole(path)) as store:
        begin_session(store, "alone", *EVENTS)
    plain = open_store(f"sqlite:///{path}")
    begin_session(plain, "before", *EVENTS)
    begin_session(plain, "s", *EVENTS[:3])
    with closing(open_whole(path)) as store:
        assert list_rows(path, "before") == list_rows(path, "alone")
        plain.append("s", EVENTS[3:5], after=3, at=1.0)
        store.append("s", EVENTS[5:], after=5, at=1.0)
        for shared in range(1, len(EVENTS) + 1):
            store.create(new_session(f"fork {shared}", parent="s", shared=shared))
            begin_session(store, f"alone {shared}", *EVENTS[:shared])
            assert list_rows(path, f"fork {shared}") == list_rows(path, f"alone {shared}")
        # One of the events hides a turn of the largest number that there is, which no log here has.
        assert [found for found in store.check() if "it hides turn 1180591620717411303424" not in str(found)] == []
    plain.close()
    assert list_rows(path) == list_rows(path, "alone")


def test_a_turn_has_no_time_of_a_later_turn(tmp_path: Path) -> None:
    """What another process wrote before is shown without a time: nobody knows it any more."""
    path = tmp_path / "a.db"
    with closing(open_whole(path)) as store, closing(open_store(f"sqlite:///{path}")) as plain:
        begin_session(plain, "s", add_turn(1, "one"))
        store.append("s", (add_turn(2, "two"),), after=1, at=5.0)
    times = ask(path, "select turn, timestamp from agent_context_turns order by turn")
    assert times == [(1, None), (2, "1970-01-01T00:00:05+00:00")]


def test_rows_go_with_their_session(tmp_path: Path) -> None:
    """Also where a store without the option deletes it."""
    path = tmp_path / "a.db"
    with closing(open_whole(path)) as store:
        begin_session(store, "s", *EVENTS)
        begin_session(store, "t", *EVENTS)
    with closing(open_store(f"sqlite:///{path}")) as plain:
        plain.delete("s")
    for table in ("turns", "placeholders", "summaries", "progress"):
        assert ask(path, f"select count(distinct session_id) from agent_context_{table}") == [(1,)]


def test_any_session_and_event(tmp_path: Path) -> None:
    """No key and no event keeps a row from being written."""
    path = tmp_path / "a.db"
    with closing(open_whole(path)) as store:
        for key in ODD_KEYS:
            begin_session(store, key, *list_every_event())
    assert ask(path, "select count(*) from agent_context_progress") == [(len(ODD_KEYS),)]


def test_without_the_option_there_are_no_tables(tmp_path: Path) -> None:
    """The file is as small as it was."""
    path = tmp_path / "a.db"
    for option in ("", "?turns=none"):
        with closing(open_store(f"sqlite:///{path}{option}")) as store:
            begin_session(store, f"s{option}", *EVENTS)
    assert ask(path, "select name from sqlite_master where name like 'agent_context%'") == []


def test_the_option_is_no_part_of_the_path(tmp_path: Path) -> None:
    """A store that is there is found with it, and another value is refused."""
    open_whole(tmp_path / "a.db").close()
    open_existing(f"sqlite:///{tmp_path}/a.db?turns=full").close()
    assert [each.name for each in tmp_path.iterdir()] == ["a.db"]
    with pytest.raises(StoreError, match="turns='all' in the SQLite URL: full, or none"):
        open_store(f"sqlite:///{tmp_path}/a.db?turns=all")
