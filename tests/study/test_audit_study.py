"""An audit as a study: its totals are those of the audit in memory, with every call counted once."""

from __future__ import annotations

import json
import tarfile
from dataclasses import asdict
from pathlib import Path

import fsspec
import pytest

from elision.audit.audit_report import AuditReport, audit_logs
from elision.audit.audit_wording import list_advice
from elision.study.audit_study import AuditWork, build_audit
from elision.study.run_sample import prepare_study
from elision.study.shard_runner import ShardTask
from elision.study.study_folder import StudyFolder
from elision.study.study_tables import open_study
from tests.cli.in_process import run_elision
from tests.cli.test_calibration import BILLS, session
from tests.study.made_runs import SETTINGS

EXAMPLES = Path(__file__).parents[2] / "examples" / "runs"


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Logs of which one goes on where another ended, one is a copy, and one is of another tag."""
    folder = tmp_path / "logs"
    (folder / "tag=search").mkdir(parents=True)
    session(folder / "a.jsonl", *BILLS[:2])
    session(folder / "b.jsonl", *BILLS)
    session(folder / "c.jsonl", *BILLS)
    session(folder / "tag=search" / "d.jsonl", *((prompt + 7, read) for prompt, read in BILLS))
    (folder / "broken.json").write_text("{")
    return folder


def add_examples(logs: Path) -> None:
    for example in EXAMPLES.iterdir():
        (logs / example.name).write_bytes(example.read_bytes())


def audit_study(paths: list[str], study: str) -> AuditReport:
    options = {"kind": "audit", "tokens": "estimate"}
    plan, shards = prepare_study(StudyFolder(study), paths, SETTINGS, options)
    task = ShardTask(study, plan.digest, AuditWork("estimate"))
    for shard in reversed(shards):
        task(shard)
    with open_study(study, "audit") as tables:
        return build_audit(tables)


def check_totals(found: AuditReport, expected: AuditReport) -> None:
    for name in ("silent", "unpriced", "finished", "main_reader"):
        assert getattr(found, name) == getattr(expected, name), name
    for name in ("usd", "avoidable_usd", "stated_usd", "stated_list_usd"):
        assert getattr(found.total, name) == pytest.approx(getattr(expected.total, name)), name
    for name in ("calls", "copied_calls", "stated_calls"):
        assert getattr(found.total, name) == getattr(expected.total, name), name
    causes = found.total.causes
    assert causes.keys() == expected.total.causes.keys()
    for cause, total in expected.total.causes.items():
        assert (causes[cause].tokens, causes[cause].calls) == (total.tokens, total.calls)
        assert causes[cause].usd == pytest.approx(total.usd)
        assert causes[cause].avoidable_usd == pytest.approx(total.avoidable_usd)
    assert found.habits.keys() == expected.habits.keys()
    for habit, total in expected.habits.items():
        assert (found.habits[habit].tokens, found.habits[habit].calls) == (total.tokens, total.calls)
        assert found.habits[habit].usd == pytest.approx(total.usd)
    tools = {tool.name: tool for tool in found.tools}
    assert tools.keys() == {tool.name for tool in expected.tools}
    for tool in expected.tools:
        assert asdict(tools[tool.name]) == pytest.approx(asdict(tool))
    assert {role: each["calls"] for role, each in found.to_json()["roles"].items()} == {
        role: each["calls"] for role, each in expected.to_json()["roles"].items()
    }
    # The texts hold amounts, calls and examples.
    assert [each.text for each in list_advice(found)] == [each.text for each in list_advice(expected)]
    assert sorted(finding.usd for finding in found.findings) == pytest.approx(
        sorted(finding.usd for finding in expected.findings[:50])
    )


def test_totals_are_those_in_memory(logs: Path, tmp_path: Path) -> None:
    """Calls that several logs have count once, whatever order the shards are done in; premiums have their fate."""
    add_examples(logs)
    expected = audit_logs([logs], tokens="estimate", replays=False)
    assert expected.total.copied_calls
    assert expected.total.usd
    found = audit_study([str(logs)], str(tmp_path / "study"))
    check_totals(found, expected)
    assert len(found.problems) == len(expected.problems)


def test_an_archive_and_an_object_store(logs: Path, tmp_path: Path) -> None:
    """Logs in a tar, and in what fsspec reads, have the totals that they have in a folder."""
    expected = audit_logs([logs], tokens="estimate", replays=False)
    (tmp_path / "packed").mkdir()
    with tarfile.open(tmp_path / "packed" / "logs.tar.gz", "w:gz") as archive:
        archive.add(logs, "logs")
    packed = audit_logs([tmp_path / "packed"], tokens="estimate", replays=False)
    assert packed.total.copied_calls == expected.total.copied_calls
    check_totals(audit_study([str(tmp_path / "packed")], str(tmp_path / "of-archive")), packed)
    store = fsspec.filesystem("memory")
    store.put(str(logs), "/audited-logs", recursive=True)
    try:
        check_totals(audit_study(["memory://audited-logs"], "memory://audited-study"), expected)
    finally:
        store.rm("/audited-logs", recursive=True)
        store.rm("/audited-study", recursive=True)


def test_sums_by_agent_tag_day_and_model(logs: Path, tmp_path: Path) -> None:
    """The command prints them, and each sums to the bill; a study of a replay is no audit."""
    add_examples(logs)
    study = tmp_path / "study"
    command = ("audit", logs, "--out", study, "--workers", "1", "--tokens", "estimate")
    result = run_elision(*command, "--html", tmp_path / "audit.html")
    assert result.returncode == 0, result.stderr
    found = json.loads(run_elision(*command, "--json").stdout)
    tables = {table["title"]: table for table in found["tables"]}
    assert tables.keys() == {"By agent", "By tag", "By day", "By model"}
    assert {row[0] for row in tables["By tag"]["rows"]} == {"–", "search"}
    for title, table in tables.items():
        assert sum(int(row[2].replace(",", "")) for row in table["rows"]) == found["calls"], title
        assert title in result.stdout
        assert f"<h2>{title}</h2>" in (tmp_path / "audit.html").read_text("utf-8")
    again = run_elision(*command)
    assert "0 to do" in again.stderr
    assert again.stdout == result.stdout
    refused = run_elision("replay", "--report", study)
    assert refused.returncode == 2
    assert "is a study of `elision audit`" in refused.stderr
    query = run_elision("replay", "--report", study, "--sql", "select count(*) as n from rows where call > 0")
    assert int(query.stdout.split()[1]) == found["calls"] + found["copied_calls"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["s3://bucket/logs"], "--out"), (["--out", "study"], "give the logs"), (["--workers", "2"], "--out FOLDER")],
)
def test_bad_options_are_one_sentence(arguments: list[str], words: str) -> None:
    result = run_elision("audit", *arguments)
    assert result.returncode == 2
    assert words in result.stderr
    assert "Traceback" not in result.stderr
