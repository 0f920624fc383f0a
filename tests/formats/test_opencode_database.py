"""opencode's database: the sessions that a storage folder would have, also while opencode writes."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from elision.errors import FormatError
from elision.formats.registry import read_runs
from tests.formats.found import read_path

TABLES = """
create table session (id text primary key, parent_id text, title text, time_created integer);
create table message (id text primary key, session_id text, time_created integer, data text);
create table part (id text primary key, message_id text, session_id text, time_created integer, data text);
"""
TOKENS = {"input": 3, "output": 20, "reasoning": 0, "cache": {"read": 0, "write": 1_000}, "total": 1_023}


def add_session(connection: sqlite3.Connection, number: int, parent: int | None = None) -> None:
    """A session of two steps, as opencode 1.18 writes one: the ids are columns."""
    session = f"ses_{number}"
    above = None if parent is None else f"ses_{parent}"
    connection.execute("insert into session values (?, ?, 'x', ?)", (session, above, number))
    add_message(connection, session, 1, {"role": "user"}, {"type": "text", "text": "Look."})
    state = {"status": "completed", "input": {"command": "ls"}, "output": "a.txt"}
    tool = {"type": "tool", "tool": "bash", "callID": "c1", "state": state}
    finish = {"type": "step-finish", "tokens": TOKENS, "cost": 0.005}
    about = {"role": "assistant", "modelID": "claude-sonnet-4-5", "time": {"created": 1_795_412_541_360}}
    add_message(connection, session, 2, about, {"type": "step-start"}, tool, finish)
    add_message(connection, session, 3, about, {"type": "text", "text": "One file."}, finish)
    connection.commit()


def add_message(connection: sqlite3.Connection, session: str, number: int, data: Any, *parts: Any) -> None:
    message = f"msg_{session}_{number}"
    connection.execute("insert into message values (?, ?, ?, ?)", (message, session, number, json.dumps(data)))
    for place, part in enumerate(parts):
        row = (f"prt_{message}_{place}", message, session, place, json.dumps(part))
        connection.execute("insert into part values (?, ?, ?, ?, ?)", row)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """opencode's own connection to `opencode.db`, which stays open."""
    with closing(sqlite3.connect(tmp_path / "opencode.db")) as connection:
        connection.execute("pragma journal_mode = wal")
        connection.executescript(TABLES)
        add_session(connection, 1)
        yield connection


def test_sessions_are_runs(database: sqlite3.Connection, tmp_path: Path) -> None:
    """Each with its turns, usage, cost and parent; the newest rows too, which are not in the main file yet."""
    add_session(database, 2, parent=1)
    (first, second), problems = read_path(tmp_path / "opencode.db")
    assert problems == []
    assert (first.id, first.parent, first.format) == ("ses_1", None, "opencode")
    assert (second.id, second.parent) == ("ses_2", "ses_1")
    assert [turn.text for turn in first.turns] == ["", "One file."]
    assert first.turns[0].actions[0].name == "bash"
    usage = first.turns[0].usage
    assert usage is not None
    assert (usage.cache_write, usage.usd) == (1_000, 0.005)


def test_a_copy_without_the_files_beside_it(database: sqlite3.Connection, tmp_path: Path) -> None:
    """It is read where nothing can be written, and no file is made beside it."""
    database.execute("pragma wal_checkpoint(truncate)")
    folder = tmp_path / "copy"
    folder.mkdir()
    (folder / "opencode.db").write_bytes((tmp_path / "opencode.db").read_bytes())
    (run,), _ = read_path(folder)
    assert run.id == "ses_1"
    assert [path.name for path in folder.iterdir()] == ["opencode.db"]


def test_a_broken_row(database: sqlite3.Connection, tmp_path: Path) -> None:
    """It costs itself alone."""
    database.execute("update part set data = '{' where id = 'prt_msg_ses_1_3_0'")
    database.commit()
    (run,), problems = read_path(tmp_path / "opencode.db")
    assert len(run.turns) == 2
    assert "prt_msg_ses_1_3_0" in str(problems[0])


def test_a_database_that_breaks_off(database: sqlite3.Connection, tmp_path: Path) -> None:
    """A damaged file is a problem with its name."""
    database.execute("pragma wal_checkpoint(truncate)")
    half = tmp_path / "half.db"
    half.write_bytes((tmp_path / "opencode.db").read_bytes()[:5_000])
    with pytest.raises(FormatError, match=r"half\.db.*the database cannot be read"):
        list(read_runs(half))


def test_a_database_of_another_program(tmp_path: Path) -> None:
    """In a folder it is passed over; named, an error says what it is not."""
    with closing(sqlite3.connect(tmp_path / "other.db")) as connection:
        connection.execute("create table t (a)")
    with pytest.raises(FormatError, match="without sessions of opencode; a store of Elision"):
        list(read_runs(tmp_path / "other.db"))
    (tmp_path / "run.json").write_text('{"messages": [{"role": "assistant", "content": "Hi."}]}', encoding="utf-8")
    runs, problems = read_path(tmp_path)
    assert (len(runs), problems) == (1, [])
