"""Logs are found where agents keep them, and where the environment moves them."""

from __future__ import annotations

from pathlib import Path

from elision.audit.audit_report import find_agent_logs


def touch(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def test_logs_in_the_usual_places(tmp_path: Path) -> None:
    for name in (
        ".claude/projects/p/s.jsonl",
        ".codex/sessions/2026/r.jsonl",
        ".pi/agent/sessions/p/s.jsonl",
        ".local/share/opencode/storage/message/m.json",
        ".local/share/opencode/opencode.db",
        ".config/mini-swe-agent/last_mini_run.traj.json",
        "work/logs/run.eval",
    ):
        touch(tmp_path / name)
    found = find_agent_logs(tmp_path, {}, tmp_path / "work")
    assert [name for name, _ in found] == [
        "Claude Code",
        "Codex",
        "pi",
        "opencode",
        "opencode",
        "mini-swe-agent",
        "Inspect",
    ]


def test_a_moved_folder(tmp_path: Path) -> None:
    touch(tmp_path / "moved/projects/p/s.jsonl")
    found = find_agent_logs(tmp_path, {"CLAUDE_CONFIG_DIR": str(tmp_path / "moved")}, tmp_path)
    assert found == [("Claude Code", tmp_path / "moved/projects")]


def test_a_folder_called_logs_is_not_inspects(tmp_path: Path) -> None:
    touch(tmp_path / "logs/server.log")
    assert find_agent_logs(tmp_path, {}, tmp_path) == []
