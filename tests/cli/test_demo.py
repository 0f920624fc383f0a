"""`elision demo`: what it replays, from a clone and from an installed wheel."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from elision.cli.demo import FLAGSHIP
from tests.cli.in_process import run_elision

ROOT = Path(__file__).parents[2]
RUNS = ROOT / "examples" / "runs"


@pytest.mark.soak
def test_the_sample_runs_are_priced_twice() -> None:
    """As their own models, and all as the newest flagship. Without JSON, the README is held against it in every run."""
    result = run_elision("demo", "--json")
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert (found["schema"], found["command"]) == ("elision/1", "demo")
    assert found["flagship"]["prices"]["name"] == FLAGSHIP
    assert [part["run_count"] for part in (found["as_recorded"], found["flagship"])] == [4, 4]


def test_options_of_the_gateway_need_it() -> None:
    """They would be without effect."""
    result = run_elision("demo", "--stay")
    assert result.returncode == 2
    assert "belong to --gateway" in result.stderr


def test_json_and_a_page_exclude_each_other(tmp_path: Path) -> None:
    """No page would be written."""
    result = run_elision("demo", "--json", "--html", tmp_path / "a.html")
    assert result.returncode == 2
    assert "leave out --html" in result.stderr


def test_a_wheel_holds_the_runs(tmp_path: Path) -> None:
    """Byte for byte, where `elision demo` looks for them."""
    pytest.importorskip("hatchling", reason="hatchling is not installed")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as files:
        held = {name: files.read(name) for name in files.namelist() if name.startswith("elision/demo_runs/")}
    assert held == {f"elision/demo_runs/{path.name}": path.read_bytes() for path in RUNS.iterdir()}
