"""Logs are audited run by run: what is broken is reported, and what was done stays."""

from __future__ import annotations

from pathlib import Path

from elision.audit.audit_report import audit_logs
from tests.cli.test_calibration import BILLS, session


def test_a_half_written_log_names_file_and_line(tmp_path: Path) -> None:
    """The calls before the break are audited, and so are the other files."""
    broken = session(tmp_path / "a.jsonl", *BILLS)
    broken.write_text(broken.read_text()[:-30])
    session(tmp_path / "b.jsonl", *((prompt + 1, read) for prompt, read in BILLS))
    (tmp_path / "c.jsonl").write_text('{"type": "session", "versi')
    report = audit_logs([tmp_path], tokens="estimate", replays=False)
    assert [run.calls for run in report.runs] == [3, 4]
    assert {(problem.file, problem.line) for problem in report.problems} >= {(str(broken), 9)}
    assert any(problem.file.endswith("c.jsonl") for problem in report.problems)


def test_a_path_without_a_run_does_not_end_the_audit(tmp_path: Path) -> None:
    empty = tmp_path / "empty.json"
    empty.write_text("")
    good = session(tmp_path / "s.jsonl", *BILLS)
    report = audit_logs([empty, good], tokens="estimate", replays=False)
    assert len(report.runs) == 1
    assert [problem.file for problem in report.problems] == [str(empty)]


def test_an_interruption_keeps_what_was_done(tmp_path: Path) -> None:
    for name in "abc":
        session(tmp_path / f"{name}.jsonl", *((prompt + ord(name), read) for prompt, read in BILLS))

    def interrupt(runs: int, file: str) -> None:
        if runs == 2:
            raise KeyboardInterrupt

    report = audit_logs([tmp_path], tokens="estimate", replays=False, progress=interrupt)
    assert not report.finished
    assert len(report.runs) == 2


def test_saving_and_next_step(tmp_path: Path) -> None:
    report = audit_logs([session(tmp_path / "s.jsonl", *BILLS)], tokens="estimate")
    assert report.saving is not None
    assert report.saving.sent.runs == 1
    # Four short turns: nothing is worth hiding.
    assert report.strategy == "raw"
