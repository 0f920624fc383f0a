"""Where agents keep their logs, for an audit that was given no path."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def find_agent_logs(home: Path, environment: Mapping[str, str], here: Path) -> list[tuple[str, Path]]:
    """Return the agents that have logs on this machine, each with the folder or file.

    home, here: the user's folder and the working folder. environment: may move the folders, as it does for the agents.
    """
    data = _read_folder(environment, "XDG_DATA_HOME", home / ".local/share")
    settings = _read_folder(environment, "XDG_CONFIG_HOME", home / ".config")
    claude = _read_folder(environment, "CLAUDE_CONFIG_DIR", home / ".claude")
    codex = _read_folder(environment, "CODEX_HOME", home / ".codex")
    mini = _read_folder(environment, "MSWEA_GLOBAL_CONFIG_DIR", settings / "mini-swe-agent")
    places = [
        ("Claude Code", claude / "projects"),
        ("Claude Code", settings / "claude/projects"),
        ("Codex", codex / "sessions"),
        ("Codex", codex / "archived_sessions"),
        ("pi", _read_folder(environment, "PI_CODING_AGENT_DIR", home / ".pi/agent") / "sessions"),
        ("opencode", data / "opencode/storage"),
        ("opencode", data / "opencode/opencode.db"),
        ("Gemini CLI", home / ".gemini/tmp"),
        ("mini-swe-agent", mini / "last_mini_run.traj.json"),
        ("Inspect", _read_folder(environment, "INSPECT_LOG_DIR", here / "logs")),
    ]
    found: dict[Path, str] = {}
    for name, path in places:
        # A folder called `logs` is anybody's.
        if path.exists() and (name != "Inspect" or _has_inspect_logs(path)):
            found.setdefault(path, name)
    return [(name, path) for path, name in found.items()]


def _read_folder(environment: Mapping[str, str], name: str, usual: Path) -> Path:
    given = environment.get(name, "")
    return Path(given).expanduser() if given else usual


def _has_inspect_logs(folder: Path) -> bool:
    return folder.is_dir() and any(folder.rglob("*.eval"))
