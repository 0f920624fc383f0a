"""Package managers: what goes well is left out, what was installed and what went wrong stays."""

from __future__ import annotations

import pytest

from elision.strategies.birth_rules.package_noise import drop_package_noise

ROUTINE = {
    "pip": (
        "Requirement already satisfied: numpy>=1.2 in /usr/lib/python3 (1.3)",
        "Collecting pytest",
        "  Downloading pytest-8.0-py3-none-any.whl (334 kB)",
        "     ━━━━━━━━━━━━━━━━ 334.0/334.0 kB 5.1 MB/s eta 0:00:00",
        "Using cached six-1.16-py2.py3-none-any.whl",
        "  Preparing metadata (setup.py): started",
        "Installing collected packages: six, pytest",
        "    Found existing installation: six 1.15",
    ),
    "npm": (
        "npm warn deprecated glob@7.2.3: old",
        "npm notice New version",
        "npm http fetch GET 200 https://registry.npmjs.org/a",
    ),
    "yarn": (
        "[1/4] Resolving packages...",
        "[2/4] Fetching packages...",
        "[3/4] Linking dependencies...",
    ),
    "apt": (
        "Get:1 http://deb.debian.org/debian stable InRelease",
        "Hit:2 http://deb.debian.org/debian stable-updates InRelease",
        "Selecting previously unselected package jq.",
        "Preparing to unpack .../archives/jq_1.6-2_amd64.deb ...",
        "Unpacking jq (1.6-2) ...",
        "Setting up jq (1.6-2) ...",
        "Processing triggers for libc-bin (2.36-9) ...",
    ),
    "cargo": ("   Compiling libc v0.2.1", "  Downloaded syn v2.0.1", "   Compiling serde v1.0.1"),
    "go": (
        "go: downloading example.org/a v1.0.0",
        "go: downloading example.org/b v1.0.0",
        "go: downloading example.org/c v1.0.0",
    ),
}
KEPT = (
    "Successfully installed pytest-8.0 six-1.16",
    "ERROR: Could not find a version that satisfies the requirement nope",
    "error: failed to compile",
    "warning: unused variable",
    "npm ERR! code E404",
    "npm error code ERESOLVE",
    "npm warn ERESOLVE overriding peer dependency",
    "added 19 packages in 450ms",
    "E: Unable to locate package nope",
    "    Finished dev [unoptimized] target(s) in 2.1s",
    "Collecting",
    "",
)


@pytest.mark.parametrize("name", ROUTINE)
def test_routine_is_left_out(name: str) -> None:
    """All of it is one note."""
    lines = ROUTINE[name]
    text = "\n".join(["$ install", *lines, "ready"])
    note = f"[{len(lines)} lines of package manager routine left out: t2.1]"
    assert drop_package_noise(text, "t2.1") == f"$ install\n{note}\nready"


def test_the_rest_stays() -> None:
    """Results, warnings and errors, also where they follow each other."""
    text = "\n".join(KEPT)
    assert drop_package_noise(text) == text
