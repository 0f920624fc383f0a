"""A store that is opened opened read-only: it writes nothing, and sees what other processes write meanwhile."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from elision.errors import StoreError
from elision.stores.store import Store
from elision.stores.store_urls import open_for_reading, open_store
from tests.stores.conftest import Opener
from tests.stores.implementations import STORES
from tests.stores.session_logs import add_turn, begin_session, list_every_event, make_turn, new_session, read_log

#: Every method that changes something.
WRITES: dict[str, Callable[[Store], object]] = {
    "create": lambda store: store.create(new_session("other")),
    "create_with_events": lambda store: store.create_with_events(new_session("other"), list_every_event(), at=1.0),
    "append": lambda store: store.append("s", (add_turn(2),), after=1, at=2.0),
    "delete": lambda store: store.delete("s"),
    "purge": lambda store: store.purge(older_than=9e9),
    "purge to a size": lambda store: store.purge(max_bytes=0),
    "compact": lambda store: store.compact(),
}


@pytest.fixture
def reader(url: str, opener: Opener) -> Iterator[Store]:
    """A reader of a store that keeps one session, whose writer is still open."""
    begin_session(opener(), "s", add_turn(1, "the needle"))
    opened = open_for_reading(url)
    yield opened
    opened.close()


def test_it_reads_everything(reader: Store) -> None:
    """Whatever a store can be asked is answered as the writer's own store answers it."""
    assert [info.key for info in reader.sessions()] == ["s"]
    assert reader.info("s").turns == reader.length("s") == 1
    assert len(read_log(reader)) == 1
    assert reader.turns("s") == [make_turn(1, "the needle")]
    assert reader.observation("s", (1, 1)) == make_turn(1, "the needle").observations[0]
    assert [hit.handle for hit in reader.search("s", "needle")] == ["t1.1"]
    assert reader.footprint().sessions == 1
    assert reader.check() == []


@pytest.mark.parametrize("name", WRITES)
def test_it_never_writes(reader: Store, name: str) -> None:
    """Every method that would change something is refused, and nothing has changed."""
    before = read_log(reader), reader.sessions()
    with pytest.raises(StoreError, match="opened read-only"):
        WRITES[name](reader)
    assert (read_log(reader), reader.sessions()) == before


def test_it_follows_another_process(url: str) -> None:
    """A session that another process begins after the reader was opened is there at the next call."""
    program = (
        "import sys\nfrom elision.stores.store_urls import open_store\n"
        "from tests.stores.session_logs import add_turn, begin_session\n"
        "store = open_store(sys.argv[1])\n"
        "begin_session(store, sys.argv[2], add_turn(1, 'written elsewhere'))\nstore.close()\n"
    )

    def write_elsewhere(session: str) -> None:
        command = [sys.executable, "-c", program, url, session]
        subprocess.run(command, check=True, cwd=Path(__file__).parents[2], timeout=60)

    write_elsewhere("early")
    reader = open_for_reading(url)
    assert {info.key for info in reader.sessions()} == {"early"}
    write_elsewhere("late")
    assert {info.key for info in reader.sessions()} == {"early", "late"}
    assert [hit.handle for hit in reader.search("late", "elsewhere")] == ["t1.1"]
    reader.close()


def test_it_sees_appends(url: str) -> None:
    """Each append of a writer that stays open is seen."""
    writer = open_store(url)
    begin_session(writer, "s", add_turn(1, "first"))
    reader = open_for_reading(url)
    for index in range(2, 6):
        writer.append("s", (add_turn(index, f"result {index}"),), after=index - 1, at=float(index))
        assert [turn.index for turn in reader.turns("s")] == list(range(1, index + 1))
    reader.close()
    writer.close()


def test_it_reads_what_was_closed(url: str, opener: Opener) -> None:
    """The writer has ended before the reader begins."""
    writer = opener()
    begin_session(writer, "s", add_turn(1, "kept"))
    writer.close()
    reader = open_for_reading(url)
    assert [turn.index for turn in reader.turns("s")] == [1]
    reader.close()


def test_a_store_that_is_not_there(url: str, tmp_path: Path) -> None:
    """It is refused, and not made."""
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(StoreError, match="there is no store yet"):
        open_for_reading(url)
    assert sorted(tmp_path.rglob("*")) == before


def test_memory_cannot_be_read_from_elsewhere() -> None:
    """It is in one process alone."""
    with pytest.raises(StoreError, match="beyond its process"):
        open_for_reading("memory:")


def test_a_file_is_left_as_it_is(tmp_path: Path) -> None:
    """Reading and searching a SQLite file, a long session too, changes none of its bytes."""
    url = STORES["sqlite"](tmp_path)
    writer = open_store(url)
    begin_session(writer, "s", *(add_turn(index, f"result {index}") for index in range(1, 700)))
    writer.close()
    before = (tmp_path / "store.db").read_bytes()
    reader = open_for_reading(url)
    assert [hit.handle for hit in reader.search("s", "result 650")] == ["t650.1"]
    reader.close()
    assert (tmp_path / "store.db").read_bytes() == before


def test_files_that_are_no_store(tmp_path: Path) -> None:
    """An empty file, and another program's database."""
    empty, foreign = (tmp_path / name for name in ("empty.db", "foreign.db"))
    empty.touch()
    with pytest.raises(StoreError, match="there is no store yet"):
        open_for_reading(f"sqlite:///{empty}")
    with sqlite3.connect(foreign) as connection:
        connection.execute("CREATE TABLE theirs (a)")
    connection.close()
    with pytest.raises(StoreError, match="another program"):
        open_for_reading(f"sqlite:///{foreign}")
