"""The errors that users meet most: each says what happened, where, and what to do, in at most two sentences."""

from __future__ import annotations

import re
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.cli import stored
from tests.cli.in_process import run_elision

RUN: Final = "run.traj.gz"
STORE: Final = ("--store", "sqlite:///agent.db")
#: A gateway that asks no other machine.
ALONE: Final = ("--port", "0", "--store", "memory:", "--upstream-anthropic", "none", "--upstream-gemini", "none")
STORES: Final = "memory:, sqlite:///FILE, postgresql://HOST/DATABASE, linear-hash:///FOLDER"
SUMMARIZERS: Final = "digest, anthropic:MODEL, gemini:MODEL, openai:MODEL, openai-responses:MODEL, litellm:MODEL"

#: Arguments -> how the sentences begin, and how they end.
COMMANDS: Final = {
    # Recordings.
    ("replay", "missing.json"): (
        "missing.json: there is no such file or folder; ",
        "give a recorded run, or try `elision demo`",
    ),
    ("replay", "notes.txt"): ("notes.txt: no known trajectory format; it begins with 'hello", "; formats known: "),
    ("replay", "cut.json"): ("cut.json: 1:15: broken JSON ", "the file looks cut off; record or copy it again"),
    ("replay", "empty.json"): ("empty.json: the file is empty", "; record or copy it again"),
    ("replay", "folder"): ("folder: no trajectory in it.", " Formats known: "),
    ("replay", "s3://bucket/runs"): ("s3://bucket/runs: runs in an object store ", "; add --out FOLDER"),
    ("replay",): ("give the recorded runs: files or folders", "; or --report STUDY"),
    ("view", "missing.json"): ("missing.json: there is no such file or folder; ", "give a recorded run"),
    ("view", RUN, "--call", "999"): ("no call '999': the run has 84; ", "give a number from 1 to 84, or last"),
    ("audit", "missing.json"): ("missing.json: there is no such file or folder; ", "give the logs of an agent"),
    # Strategies, models, prices, counts, summaries.
    ("replay", RUN, "--strategy", "maskng"): ("no strategy 'maskng'; ", "did you mean masking?"),
    ("replay", RUN, "--strategy", "masking(windw=3)"): (
        "strategy masking has no option 'windw'; ",
        "did you mean window?",
    ),
    ("replay", RUN, "--strategy", "masking(window=0)"): ("masking(window=0): ", "give a whole number, 1 or more"),
    ("replay", RUN, "--model", "gpt-55"): ("no price for model 'gpt-55' in our table", "Give it with --price input="),
    ("replay", RUN, "--prices", "antropic"): ("no price set 'antropic'; there are: ", "anthropic, fable, openai"),
    ("replay", RUN, "--price", "input=x"): ("--price: input='x' is not a number; ", "give USD per million tokens"),
    ("replay", RUN, "--model", "gpt-5", "--prices", "openai"): ("--model and --prices contradict", "; give one"),
    ("replay", RUN, "--tokens", "o20k"): ("no token counter 'o20k'; ", "there are: o200k, cl100k, estimate"),
    ("replay", RUN, "--summarizer", "opnai:gpt-5"): ("no summarizer 'opnai:gpt-5'; ", f"there are: {SUMMARIZERS}"),
    ("replay", RUN, "--strategy", "hybrid", "--summarizer", "openai:gpt-5"): (
        "no key for https://api.openai.com/v1; ",
        "set OPENAI_API_KEY",
    ),
    # Files that are written.
    ("replay", RUN, "--html", "nowhere/report.html"): (
        "--html nowhere/report.html: there is no folder nowhere; ",
        "make it first",
    ),
    ("replay", RUN, "--html", "folder"): ("--html folder: that is a folder; ", "name a file in it"),
    ("replay", RUN, "--html", "notes.txt"): ("--html notes.txt: it exists and is not a report", "; name another file"),
    ("replay", RUN, "--html", "/proc/x.html"): ("--html /proc/x.html: cannot be written (", "; name a file elsewhere"),
    # Stores and sessions.
    ("sessions", "--store", "sqlite:"): (
        "sqlite:////",
        "sessions.db: there is no store yet; run an agent first, or name another with --store",
    ),
    ("sessions", "--store", "agent.db"): ("'agent.db' is not the address of a store; ", "did you mean sqlite:///agent"),
    ("sessions", "--store", "mysql://h/d"): ("'mysql://h/d' is not the address of a store; ", f"give one of: {STORES}"),
    ("sessions", "--store", "sqlite:///notes.txt"): ("notes.txt: it is not an SQLite data", "; name another file"),
    ("sessions", "--store", "sqlite:///foreign.db"): (
        "foreign.db: it is a database of another program; ",
        "name another file",
    ),
    ("sessions", "--store", "sqlite:///damaged.db"): (
        "damaged.db: the file is damaged ",
        "; `elision sessions check` lists what is damaged",
    ),
    ("sessions", "--store", "sqlite:///folder"): ("folder: is a folder; ", "name a file in it"),
    ("sessions", "--store", "memory:"): ("memory: keeps nothing beyond its process; ", "name a store that does"),
    ("sessions", "--store", "postgresql://127.0.0.1:9/x"): (
        "PostgreSQL database 'x' at 127.0.0.1:9: connection failed",
        "; see that the server runs, and that host, user, password and database of the URL are right",
    ),
    ("sessions", "show", "god", *STORE): ("no session 'god'; ", "the nearest: good"),
    ("sessions", "show", "good", "--call", "99", *STORE): ("no call '99': ", "give a number from 1 to 4, or last"),
    ("sessions", "recall", "good", "xyz", *STORE): (
        "'xyz' is not a handle; handles look like t12.1; ",
        "--search WORDS",
    ),
    ("sessions", "gc", "--older-than", "30x", *STORE): ("--older-than '30x': ", "give a number with a unit"),
    ("sessions", "import", "notes.txt", *STORE): (
        "notes.txt:1: it is not a record of a log; ",
        "give a whole file of `elision sessions export --log`",
    ),
    ("sessions", "copy", "sqlite:///agent.db", "sqlite:///agent.db"): (
        "sqlite:///agent.db: both addresses are the same; ",
        "name another store to copy to",
    ),
    # The gateway and agents.
    ("serve", *ALONE, "--port", "{taken}"): ("cannot listen at 127.0.0.1:{taken}: Address", "Choose another --port"),
    ("serve", *ALONE, "--host", "nowhere.invalid", "--token", "0123456789abcdef"): (
        "cannot listen at nowhere.invalid: ",
        "; give an address of this machine with --host",
    ),
    ("serve", *ALONE, "--host", "0.0.0.0"): ("--host '0.0.0.0': others can reach it", "; give an admin token"),
    ("serve", *ALONE, "--token", "short"): ("--token: the value is not valid; ", "give 16 or more letters, digits"),
    ("serve", *ALONE, "--upstream-openai", "api.openai.com"): (
        "--upstream-openai: 'api.openai.com' is not valid; ",
        "give an address that begins with http:// or https://",
    ),
    ("serve", *ALONE, "--store", "sqlite:///no/x.db"): ("no/x.db: there is no folder no; ", "make it first"),
    ("serve", *ALONE, "--workers", "2"): ("--workers 2: a store at memory: serves one process; ", "give another store"),
    ("wrap",): ("name an agent (claude, codex, ", "or any other program: elision wrap -- COMMAND"),
    ("wrap", "nosuchprogram"): (
        "nosuchprogram: there is no such program on the PATH; ",
        "install it, or name its path",
    ),
    ("wrap", "--gateway", "http://127.0.0.1:9", "--", "true"): (
        "--gateway http://127.0.0.1:9: no gateway answers there; ",
        "start one with `elision serve`",
    ),
    # Commands and options.
    ("relpay",): ("No such command 'relpay'. ", "Did you mean 'replay'?"),
    ("replay", "--strateg", "x"): ("No such option '--strateg'. ", "Did you mean '--strategy'?"),
    ("show", "good"): ("elision show: the command is ", "elision sessions show"),
}
#: Settings, by variable or in the file -> the same.
SETTINGS: Final = {
    "ELISION_STRATEGY=nope": ("ELISION_STRATEGY: no strategy 'nope'; ", "there are: raw, masking"),
    "ELISION_MAX_TURNS=many": (
        "ELISION_MAX_TURNS: 'many' is not a valid max_turns; ",
        "give a whole number of turns, 1 or more, or none",
    ),
    "ELISION_STRATGY=raw": ("ELISION_STRATGY: no such setting; ", "did you mean ELISION_STRATEGY?"),
    "ELISION_STORE=agent.db": ("ELISION_STORE: 'agent.db' is not a valid store; ", f"give one of: {STORES}"),
    "ELISION_CONFIG=none.toml": (
        "ELISION_CONFIG: ",
        "none.toml: cannot be read: No such file or directory; name a TOML",
    ),
    "ELISION_MODEL=x AGENT_CONTEXT_MODEL=y": ("ELISION_MODEL says x, but AGENT_CONTEXT_MODEL says y; ", "keep one"),
    "ELISION_REDACT_PATTERNS=a=[": ("ELISION_REDACT_PATTERNS: ", "the expression of 'a' does not compile "),
    "strategy = masking": ("", "elision.toml: Invalid value (at line 1, column 12); a text needs quotes"),
    "max_turn = 3": ("elision.toml:1: no setting 'max_turn'; ", "did you mean max_turns?"),
    "[gateway]\nprot = 1": ("elision.toml:2: no setting 'prot'; ", "did you mean port?"),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run, a store with one session, and files that are neither."""
    folder = tmp_path_factory.mktemp("errors")
    stored.played(folder, "good", 3)
    (folder / RUN).symlink_to(Path(__file__).parents[2] / "examples" / "runs" / "swe-agent-sympy-20801.traj.gz")
    (folder / "notes.txt").write_text("hello, this is no run\n" * 100, encoding="utf-8")
    (folder / "cut.json").write_text('{"messages": [', encoding="utf-8")
    (folder / "empty.json").touch()
    (folder / "folder").mkdir()
    with sqlite3.connect(folder / "foreign.db") as connection:
        connection.execute("CREATE TABLE t (x)")
    connection.close()
    (folder / "damaged.db").write_bytes((folder / "agent.db").read_bytes()[:6_000])
    return folder


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that is in use."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening.getsockname()[1]


def count_sentences(text: str) -> int:
    """Sentences end with a mark and a blank; what stands in quotes or parentheses is somebody else's."""
    plain = re.sub(r"'[^']*'|\([^)]*\)|`[^`]*`", "x", text)
    return len(re.findall(r"[.?!](?=\s+[A-Z])", plain)) + 1


def check_error(done_stderr: str, begin: str, end: str) -> None:
    """Standard error has one line, which says what is wrong first and then what to do, in two sentences at most."""
    line = done_stderr.splitlines()[-1]
    assert line.startswith("elision: ")
    text = line.removeprefix("elision: ")
    assert text.startswith(begin), text
    assert end in text[len(begin) :], text
    assert count_sentences(text) <= 2, text
    assert "Traceback" not in done_stderr


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_a_command_says_what_where_and_what_to_do(
    arguments: tuple[str, ...], place: Path, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit code is 2, and nothing but the sentence and the store's address is printed."""
    monkeypatch.chdir(place)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    done = run_elision(*(each.format(taken=taken) for each in arguments))
    assert (done.returncode, done.stdout) == (2, ""), done
    assert all(line.startswith("store: ") for line in done.stderr.splitlines()[:-1])
    check_error(done.stderr, *(each.format(taken=taken) for each in COMMANDS[arguments]))


@pytest.mark.parametrize("given", SETTINGS)
def test_a_setting_says_what_where_and_what_to_do(given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By variable, or by file and line."""
    monkeypatch.chdir(tmp_path)
    if given.startswith("ELISION"):
        for each in given.split():
            name, _, value = each.partition("=")
            monkeypatch.setenv(name, value)
    else:
        Path("elision.toml").write_text(given, encoding="utf-8")
    done = run_elision("doctor", "--settings")
    assert (done.returncode, done.stdout) == (2, ""), done
    check_error(done.stderr, *SETTINGS[given])


@pytest.mark.parametrize(
    ("package", "arguments", "extra"),
    [
        ("mcp", ("mcp",), "mcp"),
        ("resvg_py", ("replay", RUN, "--png", "x.png"), "report"),
        ("optuna", ("tune", RUN, "--judge-share", "0", "--trials", "500"), "tune"),
        ("pyarrow", ("replay", RUN, "--out", "study"), "study"),
        ("psycopg", ("sessions", "--store", "postgresql://127.0.0.1:9/x"), "postgres"),
    ],
)
def test_a_missing_extra_is_named_with_its_command(
    package: str, arguments: tuple[str, ...], extra: str, place: Path
) -> None:
    """What needs it, and how it is installed; in a process of its own, where the package cannot be imported."""
    program = (
        f"import sys; sys.modules[{package!r}] = None; sys.argv[0] = 'elision'; from elision.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], cwd=place, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done
    check_error(done.stderr, "", " needs an extra: pip install ")
    assert f"[{extra}]" in done.stderr
