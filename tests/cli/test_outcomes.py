"""`elision lab outcomes` at the terminal: the published figures as trajectories and reports, and what it refuses."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from elision.errors import ElisionError, FormatError
from elision.stores.store_urls import open_existing
from tests.cli.in_process import Command
from tests.cli.stored import played
from tests.cli.stored import url as store_url
from tests.lab.outcome_files import TABLE, mini_traj, write_published, write_report

COMMAND = Command("lab", "outcomes", width=120)
run, printed = COMMAND.run, COMMAND.print


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fifty runs of SWE-agent under two strategies, and the harness's reports."""
    folder = tmp_path_factory.mktemp("runs")
    for strategy in ("raw", "masking"):
        write_published(folder, strategy)
    return folder


def test_masking_against_raw(benchmark: Path) -> None:
    """Trajectories and reports give the figures of the published table."""
    reports = [f"--outcomes={name}={benchmark / f'{name}.report.json'}" for name in ("raw", "masking")]
    text = printed(benchmark / "raw", f"masking={benchmark / 'masking'}", *reports)
    lines = [line.split() for line in text.splitlines()]
    rows = [line for line in lines if line[1:3] == ["(no", "usage)"] and line[3:4] == ["50"]]
    assert rows[0][:7] == ["raw", "(no", "usage)", "50", "28", "56.0", "%"]
    assert "$0.637" in rows[1]
    assert "$1.14" in rows[1]
    assert "100 runs without usage: as billed is what they state as a whole" in " ".join(text.split())
    assert "masking costs $0.637 a run, the least, and none solves more: 28 of 50 (56 %)." in text
    assert "Differences from raw, on the same 50 instances" in text
    assert "−70.6 %" in text
    assert "█ $2.17, 56 % solved" in text


@pytest.mark.parametrize("width", [40, 60, 80, 100, 110, 140])
def test_fits_the_terminal(width: int) -> None:
    """Whole columns are left out where there is no room."""
    text = printed(TABLE, width=width)
    assert max(map(len, text.splitlines())) <= width
    assert "$0.571" in text
    assert "…" not in text
    assert "more column" in text  # Nine columns of figures: two or more wait however wide the terminal is.


def test_files(tmp_path: Path) -> None:
    """JSON, page and picture; the page asks nobody for anything."""
    asked = [f"--{kind}={tmp_path / f'o.{kind}'}" for kind in ("html", "png")]
    found = json.loads(printed(TABLE, *asked, "--json"))
    assert found["schema"] == "elision/1"
    assert [row["solved"] for row in found["strategies"]] == [28] * 4
    assert len(found["runs"]) == 200
    assert len(found["shared"]["instances"]) == 50
    page = (tmp_path / "o.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "<script" not in page
    assert "<svg" in page
    assert (tmp_path / "o.png").read_bytes().startswith(b"\x89PNG")
    # Its own reports may be written again; anything else is not.
    printed(TABLE, *asked)
    (tmp_path / "o.html").write_text("mine", encoding="utf-8")
    assert isinstance(run(TABLE, asked[0]).exception, ElisionError)


def test_json_on_standard_output() -> None:
    result = run(TABLE, "--json")
    assert json.loads(result.stdout)["schema"] == "elision/1"
    assert result.stderr == ""


def test_a_store_and_its_trajectories(tmp_path: Path) -> None:
    """Sessions that no client named find their instance by the task in the scaffold's trajectories."""
    played(tmp_path, "4f1c", 3)
    at = tmp_path / "runs" / "a__b-1" / "a__b-1.traj.json"
    at.parent.mkdir(parents=True)
    at.write_text(json.dumps(mini_traj("a__b-1", 1, 0.1, "Find the slow module.")), encoding="utf-8")
    report = write_report(tmp_path / "r.json", {"a__b-1": True})
    text = printed(f"masking={store_url(tmp_path)}", "--outcomes", report, "--tasks", tmp_path / "runs")
    assert [line.split()[:5] for line in text.splitlines() if line.startswith("masking  ")] == [
        ["masking", "1", "1", "100.0", "%"]
    ]
    # The agent's last call had no answer yet.
    assert "Calls without a reported usage, which count as free: 1." in text


def test_a_password_of_a_store_is_written_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither in the JSON's files, nor in the command line of the page, nor in an error."""
    played(tmp_path, "4f1c", 3)
    held = store_url(tmp_path)
    monkeypatch.setattr("elision.stores.store_urls.open_existing", lambda _: open_existing(held))
    given = ("masking=postgresql://me:pw@host/agents", "--outcomes", write_report(tmp_path / "r.json", {"4f1c": True}))
    monkeypatch.setattr(sys, "argv", ["elision", "lab", "outcomes", *map(str, given)])
    html_file = tmp_path / "o.html"
    text = printed(*given, "--html", html_file)
    written = [printed(*given, "--json"), html_file.read_text(encoding="utf-8")]
    assert all("postgresql://me:***@host/agents" in each for each in written)
    twice = run(*given, given[0])
    assert "me:***@host" in str(twice.exception)
    assert not any("me:pw" in each for each in (*written, text, twice.output, str(twice.exception)))


def test_what_was_left_out(tmp_path: Path, benchmark: Path) -> None:
    """Runs and outcomes without a partner, with counts, and how runs ended."""
    report = write_report(tmp_path / "r.json", {"django__django-10880": True, "never__run-1": False})
    endings = tmp_path / "exit_statuses.yaml"
    endings.write_text("instances_by_exit_status:\n    Submitted:\n    -   django__django-10880\n", encoding="utf-8")
    text = printed(benchmark / "raw", "--outcomes", report, "--outcomes", endings)
    assert "49 runs without an outcome, left out: raw: django__django-11095" in text
    assert "and 44 more" in text
    assert "1 outcome without a run, left out: never__run-1." in text
    assert "How runs of raw ended: Submitted 1." in text


def test_different_instances(tmp_path: Path) -> None:
    """Strategies that were run on different instances are not compared."""
    table = tmp_path / "t.csv"
    table.write_text("strategy,instance_id,cost,resolved\nraw,a,2,0\nmasking,b,1,1\n", encoding="utf-8")
    text = printed(table)
    assert "2 strategies without a common instance: their figures do not compare." in text
    assert "Differences from raw" not in text


def test_hostile_names(tmp_path: Path) -> None:
    """Text of a file is neither markup for the terminal nor for the page."""
    table = tmp_path / "t.csv"
    name = "<script>alert(1)</script>[bold]\x1b[31m"
    table.write_text(f"strategy,instance_id,cost,resolved\n{name},a,1,1\nraw,a,2,0\n", encoding="utf-8")
    text = printed(table, "--html", tmp_path / "o.html")
    assert "\x1b[31m" not in text
    page = (tmp_path / "o.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert "&lt;script" in page


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["nowhere"], "nowhere: there is no such file or folder"),
        (["raw=nowhere"], "nowhere: there is no such file or folder"),
        ([TABLE, "--outcomes", "raw=nowhere.json"], r"nowhere\.json: there is no such file or folder"),
        ([TABLE, "--baseline", "none"], "--baseline none: there is no such strategy"),
        ([TABLE, "--by", "model"], "no column 'model'"),
    ],
)
def test_refused(arguments: list[object], expected: str) -> None:
    error = run(*arguments).exception
    assert isinstance(error, FormatError)
    assert re.search(expected, str(error))
