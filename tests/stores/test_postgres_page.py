"""docs/guides/postgres.md: its statements run, and print what is shown; its tables of options and columns are whole."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import fields

import pytest

from elision.stores.postgres.address import PostgresAddress, parse_address
from elision.stores.store import Store
from elision.stores.store_urls import open_store
from elision.trajectory.events import PassDecided, TurnAdded, UsageReported
from elision.trajectory.plan import Edit
from elision.trajectory.turn import Action, Observation, Turn, make_content
from elision.trajectory.usage import Usage
from tests.docs.blocks import ROOT, blocks, prose
from tests.stores.postgres_server import Server, start_server
from tests.stores.session_logs import begin_session

PAGE = ROOT / "docs" / "guides" / "postgres.md"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    started = start_server()
    yield started
    started.remove()


def turn(index: int, tool: str, arguments: str, result: str) -> TurnAdded:
    observation = Observation(action_id="a", tool=tool, content=make_content(result))
    return TurnAdded(
        Turn(
            index=index,
            actions=(Action(id="a", name=tool, arguments=arguments),),
            observations=(observation,),
            at=1_700_000_000.0 + index,
        )
    )


def filled(store: Store) -> None:
    """The session that the page shows."""
    masks = (
        Edit((1, 1), "mask", "[t1.1 bash: ls; 17 chars]"),
        Edit((2, 1), "mask", "[t2.1 read_file: a.py; 3,600 chars]"),
    )
    begin_session(
        store,
        "task-42",
        turn(1, "bash", '{"command": "ls"}', "a.py b.py test.py"),
        turn(2, "read_file", '{"path": "a.py"}', "import sys; " * 300),
        turn(3, "bash", '{"command": "pytest"}', "KeyError: 'x"),
        PassDecided(call=4, reason="due", edits=masks),
        UsageReported(call=3, usage=Usage(input=900, output=40)),
        at=1_700_000_000.0,
    )


def psql(server: Server, statement: str, *, user: str, database: str) -> list[str]:
    given = ["-X", "-q", "-v", "ON_ERROR_STOP=1", "-P", "footer=off", "-h", server.sockets, "-U", user, "-d", database]
    command = [str(each) for each in (server.programs / "psql", *given)]
    done = subprocess.run(command, input=statement, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{statement}\n{done.stderr}"
    return [line.rstrip() for line in done.stdout.splitlines() if line.strip()]


@pytest.fixture(scope="module")
def outputs(server: Server) -> int:
    """Run the page from top to bottom, the first statement as the superuser, the others as the user that it makes; how
    many of its outputs were compared."""
    found = [block for block in blocks(PAGE) if block.language == "sql"]
    psql(server, found[0].text, user="postgres", database="postgres")
    store = open_store(server.build_url(user="agents").replace("/postgres?", "/agents?"))
    filled(store)
    printed: list[str] | None = None
    shown = 0
    for block in blocks(PAGE)[1:]:
        if block.language == "sql" and block != found[0]:
            printed = psql(server, block.text, user="agents", database="agents")
        elif block.language == "text" and printed is not None:
            assert [line.rstrip() for line in block.text.splitlines()] == printed, f"{PAGE}:{block.line}"
            shown += 1
    store.close()
    return shown


def test_the_page_runs(server: Server, outputs: int) -> None:
    """Every output that the page shows is what its statements print; at its end the store is empty and in order."""
    assert outputs == 5
    store = open_store(server.build_url(user="agents").replace("/postgres?", "/agents?"))
    assert store.sessions() == []
    assert store.check() == []
    store.compact()
    assert store.footprint().texts == 0
    store.close()


@pytest.mark.usefixtures("outputs")
def test_who_reads_along_cannot_write(server: Server) -> None:
    """The grants of the page are enough for reading the tables for people, and for nothing else."""
    tables = ("turns", "observations", "summaries", "transcript", "sessions")
    for name in (f"agent_context_{each}" for each in tables):
        psql(server, f"select * from {name}", user="reader", database="agents")
        with pytest.raises(AssertionError, match=r"permission denied|cannot delete from view"):
            psql(server, f"delete from {name}", user="reader", database="agents")
    with pytest.raises(AssertionError, match="permission denied"):
        psql(server, "select * from agent_context_log", user="reader", database="agents")


def test_columns_and_options_are_explained(server: Server) -> None:
    """Every column of the table for people but the store's own two, and every option of the URL."""
    page = prose(PAGE)
    url = server.make_fresh_url()
    open_store(url).close()
    with server.connect_as_admin() as admin:
        rows = admin.execute(
            "select distinct column_name from information_schema.columns where table_name = 'agent_context_turns'"
        ).fetchall()
    named = set(re.findall(r"`(\w+)`", page))
    assert {str(name) for (name,) in rows} - {"session_id", "touched"} <= named
    options = re.findall(r"^\| `(schema|pool|timeout|fsync|turns)` \|.* \| `?(\w+)`? \|$", page, re.MULTILINE)
    assert len(options) == len(fields(PostgresAddress)) - 1
    assert parse_address(f"//host/db?{'&'.join('='.join(pair) for pair in options)}") == parse_address("//host/db")
