"""Nothing that was acknowledged is lost when the whole server is killed, whenever that is; and many writers at once."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from elision.errors import ConflictError
from elision.stores.store import Store
from elision.stores.store_urls import open_store
from elision.trajectory.events import TurnAdded
from tests.figures import ReportFigures
from tests.processes import start_process, start_processes
from tests.soak import SOAK
from tests.stores.killed_writers import PATIENCE, ROOT, SESSION, make_event
from tests.stores.postgres_server import Server, make_fresh_url, start_server
from tests.stores.session_logs import add_turn, new_session

#: Crashes of the server: a twentieth in every test run, all in a soak; each costs a start with recovery.
CRASHES = 60 if SOAK else 3
#: Processes that want to write the same session, and how often each is to win.
WRITERS, WINS = 8, 60 if SOAK else 6
#: Lives and deaths of sessions, for each of several threads.
ROUNDS = 400 if SOAK else 20


@pytest.fixture
def server() -> Iterator[Server]:
    started = start_server()
    yield started
    started.remove()


def test_no_crash_of_the_server_loses_a_record(server: Server, report_figures: ReportFigures) -> None:
    """Every acknowledged record is there, byte for byte, and one store object sees the session through all crashes."""
    url, chance, acknowledged, kept = server.make_fresh_url(), random.Random(0), 0, 0
    watching = open_store(url)
    watching.create(new_session(SESSION))
    for _ in range(CRASHES):
        heard = _crashed(server, url, chance)
        length = watching.length(SESSION)
        assert length >= heard, "acknowledged records are lost"
        assert list(watching.events(SESSION)) == [make_event(number) for number in range(1, length + 1)]
        acknowledged, kept = max(acknowledged, heard), kept + length - max(heard, acknowledged)
    assert watching.check() == []
    watching.close()
    report_figures(f"postgresql: {CRASHES} crashes of the server, {acknowledged:,} acknowledged records, 0 lost")
    assert acknowledged > CRASHES


def _crashed(server: Server, url: str, chance: random.Random) -> int:
    """Kill the server under a writer, and start it again; the newest record that the writer acknowledged."""
    command = [sys.executable, "-m", "tests.stores.killed_writers", url]
    with start_process(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stderr is not None
        heard = [writer.stdout.readline() for _ in range(chance.choice((1, 2, 5, 20, 60)))]
        server.crash()
        # The writer's only way out is the error that the store raises.
        rest, said = writer.communicate(timeout=PATIENCE)
        heard += rest.splitlines(keepends=True)
    assert b"StoreError" in said, said.decode()
    server.start()
    return int([line for line in heard if line.endswith(b"\n")][-1])


def test_many_processes_write_one_session(report_figures: ReportFigures) -> None:
    """Every acknowledged append is there exactly once, and whoever was too late was told."""
    url = make_fresh_url()
    store = open_store(url)
    store.create(new_session("s"))
    command = [sys.executable, "-m", "tests.stores.test_postgres_crash", url]
    commands = [[*command, str(number)] for number in range(WRITERS)]
    piped = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with start_processes(commands, cwd=ROOT, **piped) as writers:
        said = [writer.communicate(timeout=PATIENCE * 5) for writer in writers]
    assert [writer.returncode for writer in writers] == [0] * WRITERS, said
    won = {(int(place), number) for number, (out, _) in enumerate(said) for place in out.split()[:-1]}
    lost = sum(int(out.split()[-1]) for out, _ in said)
    found = list(store.events("s"))
    store.close()
    assert {(place, _writer(each)) for place, each in enumerate(found, start=1)} == won
    assert len(won) == WRITERS * WINS == len(found)
    report_figures(f"postgresql: {WRITERS} writers, {len(won)} appends acknowledged, 0 lost, {lost} conflicts")


def test_texts_that_come_and_go_at_once_are_not_lost() -> None:
    """Sessions that share large texts are written, deleted, swept and compacted side by side."""
    url = make_fresh_url()
    store = open_store(url)
    texts = [f"text {number} " * 200 for number in range(6)]

    def live(number: int) -> None:
        for step in range(ROUNDS):
            key = f"{number}.{step}"
            results = texts[step % 3 :] if number % 2 else texts[::-1]
            store.create(new_session(key))
            store.append(key, (add_turn(1, *results),), after=0, at=1.0)
            assert [each.text for each in store.turns(key)[0].observations] == results
            if step % 5:
                store.delete(key)
            if step == ROUNDS // 2:
                store.compact()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(live, range(4)))
    assert store.check() == []
    assert len(store.sessions()) == 4 * len(range(0, ROUNDS, 5))
    store.purge(max_bytes=0)
    assert store.footprint().texts == 0
    store.close()


def _writer(event: object) -> int:
    assert isinstance(event, TurnAdded)
    return int(event.turn.text.removeprefix("by "))


def _hammer(store: Store, number: int) -> None:
    """Win WINS times: prints where, and at last how often another was there first."""
    conflicts, after = 0, store.length("s")
    for _ in range(WINS):
        while True:
            try:
                after = store.append("s", (add_turn(after + 1, "x" * 600, said=f"by {number}"),), after=after, at=1.0)
            except ConflictError:
                conflicts, after = conflicts + 1, store.length("s")
            else:
                break
        print(after)
    print(conflicts)


if __name__ == "__main__":
    _hammer(open_store(sys.argv[1]), int(sys.argv[2]))
