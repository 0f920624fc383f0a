"""`elision audit --calibrate` at the terminal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from elision.errors import FormatError, SpecError
from tests.cli.in_process import Command


def pi_line(index: int, prompt: int, read: int, text: str = "done") -> list[dict[str, Any]]:
    """A user message and a billed answer of a pi session."""
    usage = {"input": 0, "cacheRead": read, "cacheWrite": prompt - read, "output": 7, "cost": {"total": 0.01}}
    stamp = f"2026-01-01T10:00:{index:02}.000Z"
    asked = {"role": "user", "content": "x" * 40, "timestamp": 1767261600000 + 1000 * index}
    answer = {
        "role": "assistant",
        "content": [{"type": "text", "text": text}],
        "model": "claude-opus-4-5",
        "usage": usage,
        "timestamp": 1767261600000 + 1000 * index,
    }
    return [
        {"type": "message", "id": f"u{index}", "timestamp": stamp, "message": asked},
        {"type": "message", "id": f"a{index}", "timestamp": stamp, "message": answer},
    ]


def session(path: Path, *bills: tuple[int, int]) -> Path:
    header = {"type": "session", "version": 3, "id": "s", "timestamp": "2026-01-01T10:00:00.000Z", "cwd": "/"}
    lines = [header, *(line for index, bill in enumerate(bills) for line in pi_line(index, *bill))]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


COMMAND = Command("audit", "--calibrate", width=80)
run, printed = COMMAND.run, COMMAND.print


BILLS = ((5000, 0), (6000, 5000), (7000, 0), (8000, 7000))


@pytest.mark.parametrize("width", [80, 120])
def test_fits_the_terminal(tmp_path: Path, width: int) -> None:
    """No line is longer than the terminal is wide, and no number is cut."""
    long = session(tmp_path / f"{'a-very-long-name-' * 4}end.jsonl", *BILLS)
    text = printed(long, session(tmp_path / "short.jsonl", *BILLS), width=width)
    assert max(len(line) for line in text.splitlines()) <= width
    for number in ("0.462", "52,000", "24,000"):
        assert number in text
    first = next(line for line in text.splitlines() if line.startswith("…") or "end " in line)
    assert first.split()[0].endswith("-end")
    assert "0.462" in first


@pytest.mark.parametrize("width", [40, 60])
def test_narrow_terminals_drop_whole_columns(tmp_path: Path, width: int) -> None:
    """Numbers and headings that are shown are whole, the difference among them; nothing is wider than the terminal."""
    long = session(tmp_path / f"{'a-very-long-name-' * 4}end.jsonl", *BILLS)
    lines = printed(long, session(tmp_path / "short.jsonl", *BILLS), "--full", width=width).splitlines()
    assert max(map(len, lines)) <= width
    heads = [line for line in lines if line.startswith("run ") and "diff" in line]
    assert len(heads) == 1
    assert "length" not in heads[0]
    for name in ("-end", "short", "all"):
        below = lines[lines.index(heads[0]) :]
        row = next(line for line in below if line.split()[:1] and line.split()[0].endswith(name))
        assert "0.462" in row
        assert len(row.replace(" %", "%").split()) == len(heads[0].replace("$ ", "$").split())


def test_the_cause_is_told(tmp_path: Path) -> None:
    """The cause stands with the number of its calls, and with what it means."""
    text = printed(session(tmp_path / "a.jsonl", *BILLS))
    assert "changed-prefix 1" in text
    assert "all rewritten without a gap" in text


def test_names_are_no_markup(tmp_path: Path) -> None:
    """A file name with markup and control characters is shown, not obeyed."""
    text = printed(session(tmp_path / "[red]x[nosuch]\x1b[31m.jsonl", *BILLS))
    assert "[red]x[nosuch]·[31m" in text
    assert "\x1b" not in text


def test_json(tmp_path: Path) -> None:
    """--json writes the documented shape."""
    told = json.loads(printed(session(tmp_path / "a.jsonl", *BILLS), "--json"))["calibration"]
    assert told["totals"]["billed"]["prompt"] == 26_000
    assert told["totals"]["billed"]["usd"] == pytest.approx(0.04)
    assert told["runs"][0]["usd_recorded"] is True


def test_detail(tmp_path: Path) -> None:
    """--detail prints the token bill of each run beside that of all."""
    paths = [session(tmp_path / f"{name}.jsonl", *BILLS) for name in "ab"]
    text = printed(*paths, "--full")
    assert text.count("26,000") == 4  # billed, and from billed lengths, of both
    assert text.count("52,000") == 2


def test_without_usage(tmp_path: Path) -> None:
    """Recordings without usage are named in one line; those without a cache in another."""
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    (tmp_path / "mute.json").write_text(json.dumps(messages))
    text = run(tmp_path / "mute.json").stdout
    assert "\n  No usage recorded, 1 run: mute\n" in text
    assert text.endswith("  No bill to compare with: 1 run without usage.\n")


def test_no_trajectory(tmp_path: Path) -> None:
    """A file that is no recording is an error of ours."""
    (tmp_path / "a.json").write_text("{}")
    assert isinstance(run(tmp_path / "a.json").exception, FormatError)


def test_unknown_counter(tmp_path: Path) -> None:
    """A token counter that does not exist is an error that lists those that do."""
    error = run(session(tmp_path / "a.jsonl", *BILLS), "--tokens", "gpt2").exception
    assert isinstance(error, SpecError)
    assert "o200k" in str(error)
