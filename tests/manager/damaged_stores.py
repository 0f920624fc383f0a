"""A small session in a durable store, and every way to damage one record of it."""

from __future__ import annotations

import shutil
import sqlite3
import struct
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs, urlsplit

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from elision import Advanced, Cache
from elision.manager import ContextManager
from elision.manager.advanced_options import gather_options
from elision.stores.linear_hash.log import FrameReader, OsFile
from elision.stores.linear_hash.records import iterate_records
from tests.manager.agents import make_history
from tests.stores.postgres_server import make_fresh_url, shared_server

STRATEGY = "masking(window=2, schedule=every-turn)"
#: Turns that the session has before it is damaged.
TURNS = 5


class Damage(NamedTuple):
    """One thing that is done to a store. name: for people.

    apply: does it; returns False where it cannot be done. is_quick: whether it is done in every run of the tests.
    """

    name: str
    apply: Callable[[], bool]
    is_quick: bool = True


def open_context(url: str, session: str = "s", **options: Any) -> ContextManager:
    """Return a context manager whose view does not depend on what it costs."""
    return ContextManager(
        STRATEGY,
        store=url,
        session=session,
        **gather_options({"advanced": Advanced(cache=Cache(control="client")), **options}),
    )


def write_session(url: str, session: str = "s") -> None:
    """Store a session of `TURNS` turns, with placeholders, usage and a search index."""
    with open_context(url, session) as context:
        for steps in range(TURNS + 1):
            context.prepare(make_history("openai", steps))
            context.record({"prompt_tokens": 1_000, "completion_tokens": 10})


class DamagedStore:
    """A store with one session, which can be brought back to how it was.

    url: its address. place: how errors name it. session: the session's name.
    """

    url = ""
    place = ""
    session = "s"

    def restore(self) -> None:
        """Have the store as it was before any damage."""
        raise NotImplementedError

    def list_damage(self) -> list[Damage]:
        """Return everything that is done to it."""
        raise NotImplementedError

    def read_contents(self) -> set[Any]:
        """Return what must never go: what is there of turns, events, texts and the session, damaged or not."""
        raise NotImplementedError


# -- SQLite -----------------------------------------------------------------------------------------------------------


class DamagedSqlite(DamagedStore):
    """The file `store.db` in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "store.db"
        self.url = f"sqlite:///{self._file}"
        self.place = str(self._file)
        write_session(self.url)
        self._whole = self._file.read_bytes()

    def restore(self) -> None:
        for beside in self._file.parent.glob("store.db*"):
            beside.unlink()
        self._file.write_bytes(self._whole)

    def read_contents(self) -> set[Any]:
        with closing(sqlite3.connect(self._file)) as connection:
            return {
                *connection.execute("SELECT id, body, batch FROM records"),
                *connection.execute("SELECT session, turn, number, node FROM turns"),
                *connection.execute("SELECT place, body FROM bodies"),
                *connection.execute("SELECT id, key, family, begun FROM sessions"),
            }

    def list_damage(self) -> list[Damage]:
        return list(self._list_row_damage())

    def list_page_damage(self) -> list[Damage]:
        """Return the damage to each page but the first, which says what the file is."""
        return list(list_page_damage(self._file, first=1))

    def _list_row_damage(self) -> Iterator[Damage]:
        """Yield the damage to each value of each row, and each row removed."""
        with closing(sqlite3.connect(self._file)) as connection:
            names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            tables = {name: connection.execute(f"PRAGMA table_info({name})").fetchall() for name in names}
            rows = {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in names}
        for table, columns in tables.items():
            named = [column[1] for column in columns]
            where = " AND ".join(f"{name} IS ?" for name in named)
            for number, row in enumerate(rows[table]):
                place = f"{table}[{number}]"
                yield Damage(f"{place} removed", self._make_statement(f"DELETE FROM {table} WHERE {where}", row))
                for column, value in zip(named, row, strict=True):
                    for place_in_list, (how, wrong) in enumerate(list_wrong_values(value)):
                        statement = f"UPDATE {table} SET {column} = ? WHERE {where}"
                        apply = self._make_statement(statement, (wrong, *row))
                        yield Damage(f"{place}.{column} {how}", apply, is_quick=not place_in_list)

    def _make_statement(self, statement: str, values: tuple[Any, ...]) -> Callable[[], bool]:
        def apply() -> bool:
            try:
                with closing(sqlite3.connect(self._file)) as connection, connection:
                    return bool(connection.execute(statement, values).rowcount)
            except (sqlite3.IntegrityError, OverflowError):
                # No row can have this value.
                return False

        return apply


def list_wrong_values(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what a value may become: a bit of it flipped, cut, of another type."""
    if isinstance(value, bytes) and value:
        middle = len(value) // 2
        yield f"flipped at {middle}", value[:middle] + bytes([value[middle] ^ 4]) + value[middle + 1 :]
        yield "cut", value[:middle]
        yield "flipped at 0", bytes([value[0] ^ 4]) + value[1:]
        yield "emptied", b""
        yield "a number", 7
    elif isinstance(value, int):
        for bit in (0, 1, 9, 33, 62):
            yield f"flipped at bit {bit}", value ^ 1 << bit
        yield "bytes", b"\xff\xfe"
    elif isinstance(value, float):
        (bits,) = struct.unpack("<q", struct.pack("<d", value))
        for bit in (52, 3, 62):
            yield f"flipped at bit {bit}", struct.unpack("<d", struct.pack("<q", bits ^ 1 << bit))[0]
    elif isinstance(value, str) and value:
        yield "flipped", value[:-1] + chr(ord(value[-1]) ^ 4)
        yield "cut", value[:-1]
        yield "bytes", b"\xff\xfe"


def list_page_damage(file: Path, first: int) -> Iterator[Damage]:
    """Yield the damage to each page of a file from page `first` on: bits flipped, a page emptied, the file cut."""
    whole = file.read_bytes()
    size = 4096
    for start in range(first * size, len(whole), size):
        places = [start + at for at in (0, 3, 9, 13, 1999, 2900, 4050, 4090)]
        for at in filter(lambda place: place < len(whole), places):
            yield Damage(f"{file.name}: byte {at} flipped", _make_write(file, _flip(whole, at)))
        emptied = whole[:start] + bytes(len(whole[start : start + size])) + whole[start + size :]
        yield Damage(f"{file.name}: page {start // size} emptied", _make_write(file, emptied))
        yield Damage(f"{file.name}: cut at page {start // size}", _make_write(file, whole[:start]))


# -- linear hash ------------------------------------------------------------------------------------------------------


class DamagedLinearHash(DamagedStore):
    """The folder `store` in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "store"
        self.url = f"linear-hash:///{self._folder}"
        self.place = "the log"
        write_session(self.url)
        self._whole = {file.name: file.read_bytes() for file in self._folder.iterdir()}
        with closing(OsFile(self._folder / "values", writable=False)) as file:
            self._frames = list(FrameReader(file).iterate_frames())

    def restore(self) -> None:
        for aside in self._folder.parent.glob("store.damaged*"):
            shutil.rmtree(aside)
        for name, data in self._whole.items():
            (self._folder / name).write_bytes(data)

    def read_contents(self) -> set[Any]:
        values = self._folder / "values"
        data = values.read_bytes() if values.exists() else b""
        return {data[frame.start : frame.start + len(frame.data)] for frame in self._frames}

    def list_damage(self) -> list[Damage]:
        return [*self._list_record_damage(), *self._list_directory_damage()]

    def list_cuts(self) -> list[Damage]:
        """Return what leaves a log without its end: the store takes no writes then."""
        values = self._folder / "values"
        whole = self._whole["values"]
        return [Damage(f"cut at {frame.start}", _make_write(values, whole[: frame.start])) for frame in self._frames]

    def _list_record_damage(self) -> Iterator[Damage]:
        values = self._folder / "values"
        whole = self._whole["values"]
        for at in (0, 12, 512, 520):
            yield Damage(f"the log's header, byte {at} flipped", _make_write(values, _flip(whole, at)))
        for number, frame in enumerate(self._frames):
            yield Damage(f"frame {number}, head flipped", _make_write(values, _flip(whole, frame.start - 8)))
            for record in iterate_records(frame.data, frame.start):
                place = f"record {record.number} of session {record.session}"
                for at in (record.size // 2, 0, 5, 9, 13, 17, 26, record.size - 1):
                    flipped = _make_write(values, _flip(whole, record.place + at))
                    yield Damage(f"{place}, byte {at} flipped", flipped, is_quick=at == record.size // 2)
                rest = whole[record.place + record.size :]
                emptied = whole[: record.place] + b"\x01" * record.size + rest
                yield Damage(f"{place} overwritten", _make_write(values, emptied))
                half = record.size // 2
                cut = whole[: record.place + half] + b"\x01" * (record.size - half) + rest
                yield Damage(f"{place} cut", _make_write(values, cut))

    def _list_directory_damage(self) -> Iterator[Damage]:
        directory = self._folder / "directory"

        def remove() -> bool:
            directory.unlink()
            return True

        yield Damage("the directory is removed", remove)
        yield from list_page_damage(directory, first=0)


def _flip(whole: bytes, at: int) -> bytes:
    return whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :]


def _make_write(file: Path, data: bytes) -> Callable[[], bool]:
    def apply() -> bool:
        file.write_bytes(data)
        return True

    return apply


# -- PostgreSQL -------------------------------------------------------------------------------------------------------

#: Tables of a session, and how its rows are found in each, in an order that is the same for each session.
_OF_SESSION: Final = {
    "sessions": "id = %(id)s",
    "log": "session_id = %(id)s order by position",
    "uses": "session_id = %(id)s order by address",
    "turns": "session_id = %(id)s order by turn",
    "words": "session_id = %(id)s order by turn, position",
    "texts": "address in (select address from agent_context_uses where session_id = %(id)s) order by address",
}


class DamagedPostgres(DamagedStore):
    """A schema of its own on the server that tests share. Each restore begins another session in it."""

    def __init__(self) -> None:
        self.url = make_fresh_url()
        self.place = "PostgreSQL database"
        (schema,) = parse_qs(urlsplit(self.url).query)["schema"]
        self._admin = shared_server().connect_as_admin()
        self._admin.execute(sql.SQL("set search_path = {}").format(sql.Identifier(schema)))
        # Damage keeps to no foreign key.
        self._admin.execute("set session_replication_role = replica")
        self._number = 0
        self.restore()

    def close(self) -> None:
        """Disconnect."""
        self._admin.close()

    def restore(self) -> None:
        self._number += 1
        # No damage to the name of one makes it the name of another.
        self.session = f"s{self._number}x"
        write_session(self.url, self.session)

    def read_contents(self) -> set[Any]:
        # `agent_context_turns` is made from the log and never read back: a row with a wrong number gives way to the
        # turn that has it.
        statements = (
            "select session_id, position, body, token from agent_context_log",
            "select id, session, family, begun from agent_context_sessions",
        )
        return {row for statement in statements for row in self._admin.execute(statement)}

    def list_damage(self) -> list[Damage]:
        return list(self._list_damage())

    def _list_damage(self) -> Iterator[Damage]:
        for table in _OF_SESSION:
            for number, row in enumerate(self._read_rows(table)):
                place = f"{table}[{number}]"
                yield Damage(f"{place} removed", partial(self._remove, table, number))
                for column, value in row.items():
                    # A row under another session's id is one that is removed.
                    if column in ("ctid", "id", "session_id"):
                        continue
                    for index, (how, _) in enumerate(list_wrong_values(value)):
                        apply = partial(self._change, table, number, column, index)
                        is_quick = not index or column == "session"
                        yield Damage(f"{place}.{column} {how}", apply, is_quick)

    def _read_rows(self, table: str) -> list[dict[str, Any]]:
        (id,) = self._admin.execute("select id from agent_context_sessions where session = %s", [self.session])
        query = f"select ctid, * from agent_context_{table} where {_OF_SESSION[table]}"
        cursor = self._admin.cursor(row_factory=dict_row)
        return cursor.execute(query, {"id": id[0]}).fetchall()

    def _remove(self, table: str, number: int) -> bool:
        row = self._read_rows(table)[number]
        self._admin.execute(f"delete from agent_context_{table} where ctid = %s", [row["ctid"]])
        return True

    def _change(self, table: str, number: int, column: str, index: int) -> bool:
        row = self._read_rows(table)[number]
        _, wrong = list(list_wrong_values(row[column]))[index]
        statement = f"update agent_context_{table} set {column} = %s where ctid = %s"
        try:
            return bool(self._admin.execute(statement, [wrong, row["ctid"]]).rowcount)
        except psycopg.Error:
            # No row can have this value.
            return False
