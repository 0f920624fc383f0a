"""Print the unit tests of what changed, for `make quick`: one path a line, as pytest takes them.

Changed are files that differ from the branch `main` (on `main` itself: from the last commit), new ones included. A
changed test file is printed itself; a changed module brings its mirror and the tests that import it directly. Tests
that start servers, browsers or other programs stay out (see APART): `make test` runs them.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: Folders of tests that are no unit tests.
APART = ("e2e", "clients", "docs", "field", "recorded", "golden", "bench", "properties")


def list_changed_files() -> set[Path]:
    """Return the changed files that exist, relative to the checkout."""
    base = _read_git("merge-base", "HEAD", "main") or ["HEAD"]
    tracked = _read_git("diff", "--name-only", "--diff-filter=d", base[0])
    new = _read_git("ls-files", "--others", "--exclude-standard")
    return {Path(name) for name in (*tracked, *new)}


def select_tests(changed: set[Path]) -> list[Path]:
    """Return the test files to run for `changed`, sorted."""
    modules = {_name_module(path) for path in changed if path.suffix == ".py" and path.parts[0] in ("src", "tests")}
    tests = [path.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py")]
    chosen = {path for path in tests if path in changed}
    for path in tests:
        if _mirror(path) in modules or modules.intersection(_list_imports(ROOT / path)):
            chosen.add(path)
    return sorted(path for path in chosen if path.parts[1] not in APART)


def _read_git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else []


def _name_module(path: Path) -> str:
    parts = path.with_suffix("").parts
    if parts[0] == "src":
        parts = parts[1:]
    return ".".join(parts).removesuffix(".__init__")


def _mirror(test: Path) -> str:
    """Return the module that a test file mirrors: tests/gateway/test_proxy.py is of elision.gateway.proxy."""
    return ".".join(("elision", *test.parts[1:-1], test.stem.removeprefix("test_")))


@cache
def _list_imports(path: Path) -> frozenset[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return frozenset(found)


if __name__ == "__main__":
    found = select_tests(list_changed_files())
    print(f"{len(found)} test files of what changed", file=sys.stderr)
    print("\n".join(map(str, found)))
