"""The container is built where a builder is; its steps are run in a fresh folder where the locked wheels are."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILE = ROOT / "deploy" / "Containerfile"
WHEELS = ROOT / "deploy" / "wheels"
#: Seconds that a build may take.
PATIENCE = 600.0
#: Folders of the first stage, which are a test's own here.
FOLDERS = ("/src", "/wheels", "/opt", "/dist")
INSTRUCTIONS = {
    "ARG",
    "COPY",
    "ENTRYPOINT",
    "ENV",
    "EXPOSE",
    "FROM",
    "HEALTHCHECK",
    "RUN",
    "STOPSIGNAL",
    "USER",
    "VOLUME",
    "WORKDIR",
}


def list_instructions() -> list[tuple[str, str]]:
    """(instruction, its arguments), in order, lines that go on joined."""
    lines = FILE.read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines if line and line[0] != "#")]


def find_builder() -> list[str] | None:
    """The command of a builder that works here; None if there is none."""
    for name in ("podman", "buildah", "docker"):
        if shutil.which(name) is not None:
            asked = subprocess.run([name, "info"], capture_output=True, timeout=60, check=False)
            if asked.returncode == 0:
                return [name, "build"]
    return None


def test_lint() -> None:
    """Instructions that exist, images with a version, no root at the end, and programs as lists, which get signals."""
    found = list_instructions()
    assert {word for word, _ in found} <= INSTRUCTIONS
    for word, rest in found:
        if word == "FROM":
            assert re.fullmatch(r"[\w./-]+:[\w.-]+( AS \w+)?", rest), rest
            assert not rest.split()[0].endswith(":latest")
        if word == "ENTRYPOINT":
            assert rest.startswith("[")
        if word == "RUN":
            assert "sudo" not in rest
            assert rest.count("(") == rest.count(")")
            shlex.split(rest)
    users = [rest for word, rest in found if word == "USER"]
    assert users
    assert users[-1].split(":")[0] not in ("root", "0")


def test_it_builds() -> None:
    """With the locked wheels it needs no network but for the base image."""
    builder = find_builder()
    if builder is None:
        pytest.skip("no podman, buildah or docker answers here: the container is NOT built")
    if not WHEELS.exists():
        pytest.skip("make wheels was not run: the container is NOT built")
    options = ["--network", "none", "--build-arg", "PIP_NO_INDEX=1", "-f", str(FILE), str(ROOT)]
    done = subprocess.run([*builder, *options], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr[-4_000:]


def test_its_steps_in_a_fresh_folder(tmp_path: Path) -> None:
    """Each step of the first stage ends well without a network, and what it installs serves."""
    if not WHEELS.exists():
        pytest.skip("make wheels was not run: the container's steps are NOT run")
    python = find_image_python()
    if python is None:
        pytest.skip("the Python of the container's image is not installed: its steps are NOT run")
    run_steps(WHEELS, tmp_path, python)


def find_image_python() -> Path | None:
    """The interpreter of the version that the base image has; None where there is none."""
    (version,) = {found for _, rest in list_instructions() for found in re.findall(r"python:([\d.]+)-slim", rest)}
    program = shutil.which(f"python{version}")
    if program is None:
        return None
    # Where versions are switched, the name may be there without the program.
    asked = subprocess.run(
        [program, "-c", "import sys; print(sys.executable)"], capture_output=True, text=True, check=False
    )
    return Path(asked.stdout.strip()) if asked.returncode == 0 else None


def run_steps(wheels: Path, folder: Path, python: Path) -> None:
    """Run the steps of the first stage below `folder` with the wheels of a folder, which are for `python`."""
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(python)
    for name in FOLDERS:
        (folder / name[1:]).mkdir()
    shutil.copytree(wheels, folder / "wheels", dirs_exist_ok=True)
    environment = {
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "HOME": str(folder),
        "PIP_NO_INDEX": "1",
        "LANG": "C.UTF-8",
    }
    for word, rest in list_instructions()[1:]:
        if word == "FROM":
            break
        if word == "COPY":
            copy_files(rest.split(), folder)
        if word == "RUN":
            step = re.sub(r"(?<![\w.-])(/(?:src|wheels|opt|dist)\b)", rf"{folder}\1", rest)
            done = subprocess.run(
                ["sh", "-c", step],
                cwd=folder / "src",
                env=environment,
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=False,
            )
            assert done.returncode == 0, f"{rest}: {done.stderr[-4_000:]}"
    program = folder / "opt/elision/bin/elision"
    done = subprocess.run(
        [program, "serve", "--help"], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def copy_files(places: list[str], folder: Path) -> None:
    """Copy what a COPY line names to where it says, below `folder`."""
    *sources, target = places
    for source in sources:
        if "*" in source:
            continue
        place = folder / (
            "src" if target == "./" else target.lstrip("/") if target.startswith("/") else f"src/{target}"
        )
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, place, dirs_exist_ok=True)
        else:
            shutil.copy(ROOT / source, place)
