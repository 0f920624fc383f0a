"""Check a release before it is uploaded: `python tools/check_release.py FOLDER`, after `make release` built it there.

The version is the changelog's, sdist and wheel hold what they should, and the metadata is what a package index takes.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from packaging.metadata import Metadata

ROOT = Path(__file__).resolve().parents[1]
#: The newest section of the changelog: `## [Unreleased]: 1.2.3`, or `## [1.2.3] - 2026-01-31`.
_SECTION = re.compile(r"^## \[(?:Unreleased\]: )?(\d+\.\d+\.\d+)(\] - \d{4}-\d\d-\d\d)?", re.MULTILINE)
#: What an index shows of a project.
_NEEDED = ("summary", "description", "license_expression", "license_files", "requires_python", "classifiers")


def list_problems(folder: Path) -> Iterator[str]:
    """Yield what keeps the files in `folder` from being released, a sentence each."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    yield from list_changelog_problems(version, (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    wheels = sorted(folder.glob("*.whl"))
    sdists = sorted(folder.glob("*.tar.gz"))
    if len(wheels) != 1 or len(sdists) != 1:
        yield f"{folder} has {len(wheels)} wheels and {len(sdists)} sdists; build one of each into an empty folder"
        return
    yield from _list_wheel_problems(wheels[0], version)
    yield from _list_sdist_problems(sdists[0], version)
    yield from _list_index_problems([*wheels, *sdists])


def list_changelog_problems(version: str, changelog: str) -> Iterator[str]:
    """Yield what is wrong with the newest section of `changelog` for a release of `version`."""
    newest = _SECTION.search(changelog)
    if newest is None:
        yield "CHANGELOG.md has no section of a version"
    elif newest[1] != version:
        yield f"CHANGELOG.md begins with {newest[1]}, pyproject.toml says {version}; raise one of them"
    elif newest[2] is None:
        yield f"CHANGELOG.md calls {version} unreleased; write `## [{version}] - YYYY-MM-DD`"


def _list_wheel_problems(wheel: Path, version: str) -> Iterator[str]:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        [place] = [name for name in names if name.endswith(".dist-info/METADATA")]
        text = archive.read(place)
    yield from _list_metadata_problems(wheel.name, text, version)
    sources = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*.py")}
    for name in sorted(sources - set(names)):
        yield f"{wheel.name} lacks {name}"
    if "elision/py.typed" not in names:
        yield f"{wheel.name} lacks elision/py.typed"
    if any("__pycache__" in name or name.startswith("tests/") for name in names):
        yield f"{wheel.name} holds caches or tests"


def _list_sdist_problems(sdist: Path, version: str) -> Iterator[str]:
    with tarfile.open(sdist) as archive:
        names = archive.getnames()
        top = f"elision-{version}"
        info = archive.extractfile(f"{top}/PKG-INFO")
        text = info.read() if info is not None else b""
    yield from _list_metadata_problems(sdist.name, text, version)
    for name in ("pyproject.toml", "LICENSE", "CHANGELOG.md", "README.md", "hatch_build.py", "deploy/Containerfile"):
        if f"{top}/{name}" not in names:
            yield f"{sdist.name} lacks {name}"


def _list_metadata_problems(name: str, text: bytes, version: str) -> Iterator[str]:
    try:
        metadata = Metadata.from_email(text, validate=True)
    except ExceptionGroup as group:
        yield from (f"{name}: {error}" for error in group.exceptions)
        return
    if str(metadata.version) != version or metadata.name != "elision":
        yield f"{name} is {metadata.name} {metadata.version}, not elision {version}"
    for field in _NEEDED:
        if not getattr(metadata, field):
            yield f"{name}: its metadata lack {field}"


def _list_index_problems(files: list[Path]) -> Iterator[str]:
    """Yield what the index's own checker finds."""
    if find_spec("twine") is None:
        yield "twine is not installed; `make setup` installs it"
        return
    command = [sys.executable, "-m", "twine", "--no-color", "check", "--strict", *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        yield f"twine: {(done.stdout + done.stderr).strip()}"


def main() -> int:
    """Print every problem; the exit code."""
    folder = Path(sys.argv[1])
    problems = list(list_problems(folder))
    for problem in problems:
        print(problem)
    if not problems:
        print(f"ready: python -m twine upload {folder}/*")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
