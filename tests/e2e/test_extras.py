"""The wheel, installed with each extra alone in a fresh environment: each command works or names the missing one.

The packages come from the index and cache that `make setup` used; without either these tests are skipped.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Callable
from configparser import ConfigParser
from functools import cache
from pathlib import Path

import pytest

from tests.processes import make_index_environment
from tests.soak import leave_to_soak

ROOT = Path(__file__).parents[2]
RUN = ROOT / "examples" / "runs" / "swe-agent-sympy-20801.traj.gz"
UV = Path(sys.executable).with_name("uv")

REPLAY = ("replay", str(RUN), "-s", "raw", "--no-hindsight")
LIST = ("lab", "playback", str(RUN), "--list")
PLAYBACK = ("lab", "playback", str(RUN), "--port", "0")
TUNE = ("tune", str(RUN.parent), "--trials", "1", "--tokens", "estimate")
MCP = ("mcp", "--store", "sqlite:///agent.db")
CHECK = ("serve", "--check", "--store", "memory:")


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    """The wheel of this checkout."""
    [found] = built.glob("elision-*.whl")
    return found


@pytest.fixture(scope="module")
def install(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Install the wheel with one extra, or with none, and return the folder of its commands."""

    @cache
    def install(extra: str) -> Path:
        folder = tmp_path_factory.mktemp(extra or "bare")
        wanted = f"{wheel}[{extra}]" if extra else str(wheel)
        python = folder / "bin" / "python"
        _run([UV, "venv", "--quiet", "--python", sys.executable, folder])
        done = _run([UV, "pip", "install", "--quiet", "--python", python, wanted])
        if done.returncode:
            pytest.skip(f"the packages of {extra or 'the core'} cannot be had here: {done.stderr.strip()[-200:]}")
        return python.parent

    return install


def _run(command: list[str | Path], **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {
        name: value
        for name, value in make_index_environment().items()
        if not name.startswith(("PYTHON", "AGENT_CONTEXT"))
    }
    return subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env={**clean, "UV_PYTHON_DOWNLOADS": "never", **environment},
    )


def test_the_wheel_holds_one_package_one_command_and_one_plugin(wheel: Path) -> None:
    """Nothing that another distribution may own: installing it destroys no other package. The plugin is that of llm."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        entry_points = next(name for name in names if name.endswith("entry_points.txt"))
        entries = ConfigParser()
        entries.read_string(archive.read(entry_points).decode())
    folders = {name.split("/")[0] for name in names}
    assert {folder for folder in folders if not folder.endswith(".dist-info")} == {"elision"}
    assert {name: dict(entries[name]) for name in entries.sections()} == {
        "console_scripts": {"elision": "elision.cli:main"},
        "llm": {"elision": "elision.adapters.llm_plugin"},
    }


@pytest.mark.parametrize(
    ("extra", "works", "missing"),
    [
        ("", [], {REPLAY: "cli", PLAYBACK: "cli", ("--version",): "cli"}),
        (
            "cli",
            [(*REPLAY, "--html", "report.html"), LIST],
            {
                (*REPLAY, "--png", "cost.png"): "report",
                (*REPLAY, "-s", "masking(schedule=hindsight)"): "report",
                PLAYBACK: "gateway",
                CHECK: "gateway",
                TUNE: "tune",
                MCP: "mcp",
            },
        ),
        pytest.param("tune", [TUNE], {PLAYBACK: "gateway"}, marks=pytest.mark.soak),
        pytest.param(
            "report",
            [("replay", str(RUN), "-s", "masking", "--png", "cost.png")],
            {PLAYBACK: "gateway"},
            marks=pytest.mark.soak,
        ),
        pytest.param(
            "gateway",
            [LIST, REPLAY],
            {("sessions", "--store", "postgresql://127.0.0.1:1/x"): "postgres"},
            marks=pytest.mark.soak,
        ),
    ],
    ids=["no extra", "cli", "tune", "report", "gateway"],
)
def test_a_command_works_or_names_its_extra(
    extra: str,
    works: list[tuple[str, ...]],
    missing: dict[tuple[str, ...], str],
    install: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And names it before it has worked: it writes nothing."""
    commands = install(extra)
    monkeypatch.chdir(tmp_path)
    for arguments, needed in missing.items():
        done = _run([commands / "elision", *arguments])
        assert done.returncode == 2, (arguments, done.stderr)
        assert f"elision[{needed}]" in done.stderr, arguments
        assert list(tmp_path.iterdir()) == [], arguments
    for arguments in works:
        done = _run([commands / "elision", *arguments])
        assert done.returncode == 0, (arguments, done.stderr)


#: Extra -> a program that needs nothing else.
PROGRAMS = {
    "": "from elision import ContextManager; ContextManager('masking', store='memory:').prepare([])",
    "llm": (
        "from elision import ContextManager\n"
        "ContextManager('hybrid', store='memory:', summarizer='anthropic:claude-haiku-4-5').close()"
    ),
    "postgres": (
        "from elision import StoreError, open_store\n"
        "try: open_store('postgresql://127.0.0.1:1/x')\n"
        "except StoreError: pass"
    ),
    "gateway": "import elision.gateway.server, elision.gateway.app, elision.testing.playback, urllib3",
    "prometheus": "from elision.telemetry.prometheus import Prometheus; Prometheus()",
    "otel": "import opentelemetry.sdk.metrics, opentelemetry.sdk.trace, elision.telemetry.opentelemetry",
}


@pytest.mark.parametrize("extra", leave_to_soak(PROGRAMS, "llm", "postgres", "prometheus", "otel"))
def test_a_program_works_with_its_extra(extra: str, install: Callable[[str], Path]) -> None:
    """The library, with the package that each extra is installed for."""
    done = _run([install(extra) / "python", "-W", "error", "-c", PROGRAMS[extra]], ANTHROPIC_API_KEY="k")
    assert done.returncode == 0, done.stderr
