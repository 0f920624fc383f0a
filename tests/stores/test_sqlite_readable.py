"""Whole turns in a SQLite file: what the log says, whoever wrote it, and only where they are asked for."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from elision.errors import StoreError
from elision.stores.store import Store
from elision.stores.store_urls import open_existing, open_store
from tests.stores.session_logs import add_turn, begin_session, new_session
from tests.stores.test_readable_tables import EVENTS, ask_file, list_rows


def open_whole(path: Path) -> Store:
    return open_store(f"sqlite:///{path}?turns=full")


def test_who_wrote_does_not_matter(tmp_path: Path) -> None:
    """Logs written without the option, in part or wholly, read the same, also in forks."""
    path = tmp_path / "a.db"
    with closing(open_store(f"sqlite:///{path}")) as plain:
        begin_session(plain, "before", *EVENTS)
        begin_session(plain, "s", *EVENTS[:3])
        with closing(open_whole(path)) as store:
            begin_session(store, "alone", *EVENTS)
            assert list_rows(store, "before") == list_rows(store, "alone")
            plain.append("s", EVENTS[3:5], after=3, at=1.0)
            store.append("s", EVENTS[5:], after=5, at=1.0)
            store.create(new_session("fork", parent="s", shared=len(EVENTS)))
            assert list_rows(store) == list_rows(store, "fork") == list_rows(store, "alone")


def test_a_turn_has_no_time_of_a_later_turn(tmp_path: Path) -> None:
    """What another process wrote before is shown without a time: nobody knows it any more."""
    path = tmp_path / "a.db"
    with closing(open_whole(path)) as store, closing(open_store(f"sqlite:///{path}")) as plain:
        begin_session(plain, "s", add_turn(1, "one"))
        store.append("s", (add_turn(2, "two"),), after=1, at=5.0)
    times = ask_file(path, "select turn, timestamp from agent_context_turns order by turn")
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
        assert ask_file(path, f"select count(distinct session_id) from agent_context_{table}") == [(1,)]


def test_without_the_option_there_are_no_tables(tmp_path: Path) -> None:
    """The file is as small as it was."""
    path = tmp_path / "a.db"
    for option in ("", "?turns=none"):
        with closing(open_store(f"sqlite:///{path}{option}")) as store:
            begin_session(store, f"s{option}", *EVENTS)
    assert ask_file(path, "select name from sqlite_master where name like 'agent_context%'") == []


def test_the_option_is_no_part_of_the_path(tmp_path: Path) -> None:
    """A store that is there is found with it, and another value is refused."""
    open_whole(tmp_path / "a.db").close()
    open_existing(f"sqlite:///{tmp_path}/a.db?turns=full").close()
    assert [each.name for each in tmp_path.iterdir()] == ["a.db"]
    with pytest.raises(StoreError, match="turns='all' in the SQLite URL: full, or none"):
        open_store(f"sqlite:///{tmp_path}/a.db?turns=all")
