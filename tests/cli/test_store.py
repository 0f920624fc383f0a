"""`elision sessions` at the terminal."""

from __future__ import annotations

import json
import sqlite3
import stat
import time
from contextlib import closing
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from click.testing import CliRunner, Result

from elision.cli.app import app
from elision.cli.store import SIZES, SPANS, parse_amount
from elision.errors import CorruptError, FormatError, OutputError, SettingError, StoreError, UnknownHandle
from elision.formats.registry import read_runs
from elision.stores.store import SessionInfo
from elision.stores.store_urls import open_store
from elision.trajectory.events import Event
from elision.trajectory.trajectory import Trajectory
from tests.stores.postgres_server import make_fresh_url, shared_server
from tests.stores.session_logs import add_turn, begin_session, list_every_event, new_session

SECRET = "export AWS_ACCESS_KEY_ID=AKIAIOSFODNN7EXAMPLE"


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store with three sessions and a fork, the oldest 100 days old; the working folder is its own."""
    monkeypatch.chdir(tmp_path)
    now = time.time()
    with closing(open_store("sqlite:///elision.db")) as opened:
        begin_session(opened, "old", add_turn(1, "x" * 5_000), at=now - 100 * 86_400)
        begin_session(opened, "run", add_turn(1, SECRET, said="look"), at=now - 86_400 * 2)
        opened.append("run", (add_turn(2, "y" * 9_000),), after=1, at=now - 86_400 * 2)
        begin_session(opened, "odd\x1b[31m\nkey", at=now - 7_200)
        opened.create(new_session("fork", parent="run", shared=1, at=now - 60))
    monkeypatch.setenv("ELISION_STORE", "sqlite:///elision.db")
    return "sqlite:///elision.db"


def run(*arguments: str, width: int = 100) -> Result:
    return CliRunner().invoke(app, ["sessions", *arguments], env={"COLUMNS": str(width)})


def printed(*arguments: str, width: int = 100) -> str:
    result = run(*arguments, width=width)
    assert result.exit_code == 0, (result.output, result.exception)
    # Which store it is, on the lines before the result.
    return "".join(line for line in result.output.splitlines(True) if not line.startswith("store: "))


def failed(kind: type[Exception], *arguments: str) -> str:
    """The sentence of the error that the command ends with."""
    result = run(*arguments)
    assert isinstance(result.exception, kind), (result.output, result.exception)
    return str(result.exception)


def infos(address: str) -> list[SessionInfo]:
    with closing(open_store(address)) as opened:
        return opened.sessions()


def keys(address: str) -> list[str]:
    return sorted(info.key for info in infos(address))


def logs(address: str) -> dict[str, list[Event]]:
    with closing(open_store(address)) as opened:
        return {info.key: list(opened.events(info.key)) for info in opened.sessions()}


# --- du ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [60, 80, 120])
def test_du_is_read_at_a_glance(url: str, width: int) -> None:
    """The whole first, then the largest; numbers are never cut, and no key reaches the terminal as it is."""
    text = printed("--sizes", width=width)
    lines = text.splitlines()
    assert "4 sessions, 4 turns, 4 records" in lines[1]
    assert [line.split()[0] for line in lines[5:8]] == ["run", "old", "fork"]
    assert lines[8].startswith("'odd\\x1b[31m")
    assert lines[5].split()[-3:] == ["2", "d", "ago"]
    assert "\x1b" not in text
    assert max(map(len, lines)) <= width
    assert "kB" in lines[5]


def test_du_lists_twenty(url: str) -> None:
    """The rest is counted, and listed with --all."""
    with closing(open_store(url)) as opened:
        for number in range(30):
            begin_session(opened, f"more{number}", add_turn(1, "z" * 20_000))
    assert "and 14 more sessions; --all lists them" in printed("--sizes")
    assert sum("more" in line for line in printed("--sizes", "--all").splitlines()) == 30


def test_du_of_an_empty_store(tmp_path: Path) -> None:
    """Two lines."""
    address = f"sqlite:///{tmp_path}/empty.db"
    open_store(address).close()
    assert "0 sessions, 0 turns, 0 records" in printed("--sizes", "--store", address)


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    """A misspelt address is said; memory is never there."""
    for address in (f"sqlite:///{tmp_path}/none.db", f"linear-hash:///{tmp_path}/none"):
        assert "there is no store" in failed(StoreError, "--sizes", "--store", address)
    assert list(tmp_path.iterdir()) == []
    assert "memory:" in failed(StoreError, "--sizes", "--store", "memory:")


def test_the_settings_name_the_store(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """ELISION_STORE, unless --store does; the command says which it is, unless it is to be quiet."""
    Path("elision.db").rename("other.db")
    monkeypatch.setenv("ELISION_STORE", "sqlite:///other.db")
    assert "4 sessions" in printed("--sizes")
    assert run("--sizes").stderr == run("gc", "--dry-run").stderr == "store: sqlite:///other.db\n"
    assert run("--sizes", "--quiet").stderr == ""
    assert "no store" in failed(StoreError, "--sizes", "--store", url)


# --- gc ----------------------------------------------------------------------------------------------------------


def test_gc_deletes_what_is_old(url: str) -> None:
    """And says how much; what is younger stays."""
    assert printed("gc", "--older-than", "30d").startswith("1 session deleted, ")
    assert keys(url) == ["fork", "odd\x1b[31m\nkey", "run"]


def test_gc_deletes_what_is_too_much(url: str) -> None:
    """Down to nothing, if nothing may be left."""
    printed("gc", "--max-bytes", "0")
    assert keys(url) == []


def test_gc_ends_what_lives_shortly(url: str) -> None:
    """The first pattern that fits a session's family says how long it lives; others are as they were."""
    with closing(open_store(url)) as opened:
        for name in ("k1/ci-7", "k1/run", "k2/ci-8"):
            begin_session(opened, name, family=name, at=time.time() - 10 * 86_400)
    others = [key for key in keys(url) if not key.startswith("k")]
    lives = ("--ttl", "k2/*=30d", "--ttl", "*/ci-*=7d")
    text = printed("gc", *lives, "--dry-run")
    assert [line.split()[0] for line in text.splitlines()[2:3]] == ["k1/ci-7"]
    assert "1 session would be deleted" in text
    assert printed("gc", *lives).startswith("1 session deleted")
    assert keys(url) == sorted([*others, "k1/run", "k2/ci-8"])
    assert "as in 'k*/ci-*=7d'" in failed(SettingError, "gc", "--ttl", "7d")
    assert "--ttl '7 years'" in failed(SettingError, "gc", "--ttl", "x=7 years")


def test_gc_lets_postgresql_keep_its_space() -> None:
    """With a limit, nothing is rewritten that others write to; deleted rows make room."""
    address = make_fresh_url()
    with closing(open_store(address)) as opened:
        begin_session(opened, "old", add_turn(1, "x" * 5_000), at=1.0)
        begin_session(opened, "new", add_turn(1, "x" * 5_000), at=time.time())
    with shared_server().connect_as_admin() as admin:
        schema = parse_qs(urlsplit(address).query)["schema"][0]
        place = "select pg_relation_filepath(%s)"
        before = admin.execute(place, [f"{schema}.agent_context_log"]).fetchone()
        assert printed("gc", "--store", address, "--older-than", "30d").startswith("1 session deleted, ")
        assert admin.execute(place, [f"{schema}.agent_context_log"]).fetchone() == before
        printed("gc", "--store", address)
        assert admin.execute(place, [f"{schema}.agent_context_log"]).fetchone() != before
    assert keys(address) == ["new"]


def test_gc_without_a_limit_deletes_nothing(url: str) -> None:
    """It gives back space only."""
    assert printed("gc").startswith("0 sessions deleted")
    assert len(keys(url)) == 4


def test_a_dry_run_lists(url: str) -> None:
    """Which, how large and why; and deletes nothing."""
    text = printed("gc", "--older-than", "30d", "--dry-run")
    assert [line.split()[0] for line in text.splitlines()[2:3]] == ["old"]
    assert "too old" in text
    assert "1 session would be deleted, about " in text
    text = printed("gc", "--max-bytes", "1", "--dry-run")
    assert text.count("too much") == 4
    assert printed("gc", "--dry-run") == "nothing would be deleted\n"
    assert len(keys(url)) == 4


@pytest.mark.parametrize("arguments", [("--older-than", "30"), ("--max-bytes", "much"), ("--older-than", "-1d")])
def test_wrong_limits_are_said(url: str, arguments: tuple[str, str]) -> None:
    """Before anything is deleted."""
    assert arguments[0] in failed(SettingError, "gc", *arguments)
    assert len(keys(url)) == 4


# --- fsck --------------------------------------------------------------------------------------------------------


def test_fsck_of_a_store_in_order(url: str) -> None:
    """One line."""
    assert printed("check") == "in order: 4 sessions, 4 turns, 4 records\n"


def test_fsck_lists_what_is_wrong(url: str) -> None:
    """What is lost first, and the command fails."""
    with closing(sqlite3.connect("elision.db", isolation_level=None)) as connection:
        connection.execute("UPDATE texts SET uses = uses + 1")
        connection.execute("UPDATE records SET body = x'00' WHERE id & 4294967295 = 2")
    assert "3 findings, 1 with losses" in failed(CorruptError, "check")
    lines = run("check").stdout.splitlines()
    assert lines[0].startswith("lost  session 'run', record 2: ")
    assert all(line.startswith("kept  ") for line in lines[1:3])


def test_fsck_repairs_a_linear_hash_store(url: str, tmp_path: Path) -> None:
    """A cut log is told, and rebuilt with --repair; of other stores the sentence names migrate."""
    printed("copy", url, "linear-hash:///lh")
    log = tmp_path / "lh" / "values"
    log.write_bytes(log.read_bytes()[:-1])
    assert "finding" in failed(CorruptError, "check", "--store", "linear-hash:///lh")
    told = printed("check", "--store", "linear-hash:///lh", "--repair", width=300)
    assert told.splitlines()[-1].startswith("4 sessions with 4 records kept, ")
    assert printed("check", "--store", "linear-hash:///lh").startswith("in order: 4 sessions")
    assert "copy" in failed(SettingError, "check", "--store", url, "--repair")


# --- migrate -----------------------------------------------------------------------------------------------------


def test_migrate_copies_everything(url: str) -> None:
    """Into another kind of store, and a second time finds it there."""
    target = "linear-hash:///copy"
    assert "4 sessions copied and verified (4 records)" in printed("copy", url, target)
    assert keys(target) == keys(url)
    assert logs(target) == logs(url)
    assert printed("copy", url, target) == "4 sessions there already\n"


def test_migrate_names_a_conflict(url: str) -> None:
    """Copies the rest, and fails."""
    target = "sqlite:///copy.db"
    with closing(open_store(target)) as opened:
        begin_session(opened, "run", add_turn(1, "mine"))
    said = failed(StoreError, "copy", url, target)
    assert said == "1 session not copied: session 'run' already exists and is different"
    assert keys(target) == keys(url)
    assert logs(target)["run"] == [add_turn(1, "mine")]


def test_migrate_onto_itself_is_refused(url: str) -> None:
    """There is nothing to copy."""
    assert "same" in failed(SettingError, "copy", url, url)


# --- export and import -------------------------------------------------------------------------------------------


def test_an_export_is_a_run(url: str) -> None:
    """`elision replay` and every other reader of runs reads it."""
    printed("export", "run", "--out", "run.jsonl")
    (found,) = [each for each in read_runs(Path("run.jsonl")) if isinstance(each, Trajectory)]
    assert (found.id, len(found.turns)) == ("run", 2)
    printed("export", "--all", "--out", "all.jsonl")
    assert [each.id for each in read_runs(Path("all.jsonl")) if isinstance(each, Trajectory)] == [
        "old",
        "run",
        "odd\x1b[31m\nkey",
        "fork",
    ]


@pytest.mark.parametrize("form", [(), ("--log",)])
def test_secrets_do_not_leave_unasked(url: str, form: tuple[str, ...]) -> None:
    """Whatever the form; --raw keeps them."""
    printed("export", "--all", "--out", "clean.jsonl", *form)
    assert "AKIA" not in Path("clean.jsonl").read_text("ascii")
    assert "[redacted: " in Path("clean.jsonl").read_text("ascii")
    printed("export", "--all", "--out", "raw.jsonl", "--raw", *form)
    assert "AKIA" in Path("raw.jsonl").read_text("ascii")


def test_an_export_is_for_its_owner_alone(url: str) -> None:
    """It holds what the store holds."""
    printed("export", "run", "--out", "run.jsonl")
    assert stat.S_IMODE(Path("run.jsonl").stat().st_mode) == 0o600


def test_an_export_is_whole_or_not_there(url: str) -> None:
    """A failure in the middle leaves the old file, and nothing beside it."""
    printed("export", "run", "--out", "run.jsonl")
    before = Path("run.jsonl").read_bytes()
    with closing(sqlite3.connect("elision.db", isolation_level=None)) as connection:
        connection.execute("UPDATE records SET body = x'00' WHERE id & 4294967295 = 2")
    failed(CorruptError, "export", "run", "--out", "run.jsonl", "--log")
    assert Path("run.jsonl").read_bytes() == before
    assert sorted(path.name for path in Path().iterdir()) == ["elision.db", "run.jsonl"]


def test_an_export_of_nothing_leaves_the_old_one(url: str) -> None:
    """A store without sessions replaces no export by an empty file."""
    printed("export", "--all", "--out", "all.jsonl")
    before = Path("all.jsonl").read_bytes()
    open_store("sqlite:///empty.db").close()
    said = failed(StoreError, "export", "--all", "--out", "all.jsonl", "--store", "sqlite:///empty.db")
    assert "no session" in said
    assert Path("all.jsonl").read_bytes() == before


def test_other_peoples_files_are_left_alone(url: str) -> None:
    """A file that is not a report of Elision exports is not overwritten; a missing folder is said."""
    Path("notes.txt").write_text("mine", "utf-8")
    assert "not a report of Elision" in failed(OutputError, "export", "run", "--out", "notes.txt")
    assert Path("notes.txt").read_text("utf-8") == "mine"
    assert "no folder" in failed(OutputError, "export", "run", "--out", "none/run.jsonl")


def test_an_export_to_standard_output(url: str) -> None:
    """Nothing but the lines."""
    lines = printed("export", "run", "--out", "-").splitlines()
    assert json.loads(lines[0])["id"] == "run"
    assert len(lines) == 3


def test_what_to_export_is_said_once(url: str) -> None:
    """A session or all of them; an unknown one is named."""
    assert "--all" in failed(SettingError, "export", "--out", "x.jsonl")
    assert "--all" in failed(SettingError, "export", "run", "--all", "--out", "x.jsonl")
    assert "'none'" in failed(UnknownHandle, "export", "none", "--out", "x.jsonl")
    assert not Path("x.jsonl").exists()


def test_an_import_is_a_copy(url: str) -> None:
    """Logs go out and come in elsewhere, event for event."""
    with closing(open_store(url)) as opened:
        begin_session(opened, "every", *list_every_event())
    printed("export", "--all", "--log", "--raw", "--out", "logs.jsonl")
    assert "5 sessions copied and verified" in printed("import", "logs.jsonl", "--store", "sqlite:///copy.db")
    assert logs("sqlite:///copy.db") == logs(url)
    assert infos("sqlite:///copy.db") == infos(url)


def test_a_run_is_no_log(url: str) -> None:
    """Importing the other form says which one it is."""
    printed("export", "run", "--out", "run.jsonl")
    assert "elision replay" in failed(FormatError, "import", "run.jsonl")


@pytest.mark.parametrize(
    ("text", "count"),
    [("0", 0), ("12", 12), ("5 B", 5), ("2GB", 2 * 10**9), ("1.5 mb", 1_500_000), ("1KiB", 1_024), ("3tib", 3 << 40)],
)
def test_sizes_are_read(text: str, count: int) -> None:
    """Decimal and binary units, in any case."""
    assert parse_amount(text, "--max-bytes", SIZES) == count


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("5min", 300), ("12h", 43_200), ("30d", 2_592_000), ("2 w", 1_209_600)]
)
def test_spans_are_read(text: str, seconds: float) -> None:
    """A number with a unit."""
    assert parse_amount(text, "--older-than", SPANS) == seconds


@pytest.mark.parametrize("text", ["", "d", "-1d", "3 months", "1e3d", "30", "1d2h", "٣d", "nand"])
def test_other_spans_are_refused(text: str) -> None:
    """The option is named, with examples; a bare number could be anything."""
    with pytest.raises(SettingError, match=r"--older-than .*30d"):
        parse_amount(text, "--older-than", SPANS)
