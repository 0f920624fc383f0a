"""`make release`: what is built from this checkout could be uploaded, and what could not is said."""

from __future__ import annotations

import runpy
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("packaging", reason="packaging is not installed: no release is checked")

ROOT = Path(__file__).parents[1]
TOOL = runpy.run_path(str(ROOT / "tools" / "check_release.py"))
UNRELEASED = "unreleased; write"


def test_this_checkout_could_be_released(built: Path) -> None:
    """Nothing is wrong with what is built, but that the changelog may call it unreleased."""
    pytest.importorskip("twine", reason="twine is not installed: the index's own check is not tried")
    assert [problem for problem in TOOL["list_problems"](built) if UNRELEASED not in problem] == []


def test_what_is_missing_is_seen(built: Path, tmp_path: Path) -> None:
    """A wheel without a file of the sources, and a folder with one file too few."""
    (wheel,) = built.glob("*.whl")
    (sdist,) = built.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(tmp_path / wheel.name, "w") as new:
        for name in old.namelist():
            if name != "elision/turns.py":
                text = old.read(name)
                if name.endswith("METADATA"):
                    text = text.replace(b"Requires-Python: >=3.11", b"Requires-Python: newest")
                new.writestr(name, text)
    problems = list(TOOL["list_problems"](tmp_path))
    assert any("1 wheels and 0 sdists" in problem for problem in problems)
    (tmp_path / sdist.name).write_bytes(sdist.read_bytes())
    problems = list(TOOL["list_problems"](tmp_path))
    assert any(problem.endswith("lacks elision/turns.py") for problem in problems)
    assert any("requires-python" in problem for problem in problems)


@pytest.mark.parametrize(
    ("changelog", "problem"),
    [
        ("## [1.2.3] - 2026-01-31\n", None),
        ("## [Unreleased]: 1.2.3\n", UNRELEASED),
        ("## [1.2.2] - 2026-01-31\n", "begins with 1.2.2, pyproject.toml says 1.2.3"),
        ("# Changelog\n", "no section of a version"),
    ],
)
def test_the_changelog_names_the_version(changelog: str, problem: str | None) -> None:
    """The newest section is the version's, with its date."""
    problems = list(TOOL["list_changelog_problems"]("1.2.3", changelog))
    assert len(problems) == (problem is not None)
    assert all(problem in each for each in problems if problem)
