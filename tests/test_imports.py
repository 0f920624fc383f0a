"""Imports point one way (design 10), importing does nothing, and the core needs no extra."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "lacuna"

#: Member -> the members it may import, itself and `errors` apart. A member is a package or module right below lacuna.
_VALUES = {"trajectory"}
_POLICY = _VALUES | {"strategies", "dialects", "stores", "telemetry"}
_READING = _POLICY | {"formats", "summarizers"}
_LIBRARY = _READING | {"engine", "manager"}
_DOORS = _LIBRARY | {"agent", "integrations", "gateway", "lab", "mcp"}
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "config": _POLICY,
    "trajectory": set(),
    "strategies": _VALUES,
    "dialects": _VALUES,
    "stores": _VALUES,
    "telemetry": _VALUES,
    "formats": _POLICY,
    "summarizers": _POLICY,
    "engine": _READING,
    "manager": _READING | {"engine", "config"},
    "agent": _LIBRARY,
    "integrations": _LIBRARY,
    "gateway": _LIBRARY | {"config"},
    "lab": _LIBRARY,
    "mcp": _LIBRARY,
    "testing": _DOORS,
    "cli": _DOORS | {"testing", "config"},
}
#: The core: what an agent needs that never prints a report.
CORE = ("errors", "config", "trajectory", "strategies", "dialects", "telemetry", "formats", "summarizers", "engine")
EXTRAS = (
    "typer",
    "rich",
    "numpy",
    "genai_prices",
    "altair",
    "vl_convert",
    "prometheus_client",
    "opentelemetry",
    "urllib3",
    "litellm",
)

FILES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")


def member(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(tree: ast.AST) -> set[str]:
    """The members of lacuna that a file imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "a relative import"
            names.update([node.module or ""] if node.module != "lacuna" else [f"lacuna.{a.name}" for a in node.names])
    return {name.split(".")[1] for name in names if name.startswith("lacuna.")}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_one_way(path: Path) -> None:
    """A file imports only what stands in front of its member."""
    ours = member(path)
    found = imported(ast.parse(path.read_text(encoding="utf-8"))) - {ours, "errors"}
    assert ours in ALLOWED, f"{ours} has no place in design 10"
    assert found <= ALLOWED[ours]


def test_the_order_has_no_cycle() -> None:
    """Whatever a member may import may never import it back."""
    for ours, others in ALLOWED.items():
        assert all(ours not in ALLOWED[other] for other in others)


def test_a_wrong_import_is_seen() -> None:
    """The check sees plain, from and nested imports alike."""
    source = "import lacuna.lab.replay\ndef f():\n    from lacuna.cli import app\n    from lacuna import engine\n"
    assert imported(ast.parse(source)) == {"lab", "cli", "engine"}


def python(program: str) -> str:
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_lacuna_does_nothing() -> None:
    """`import lacuna` loads nothing else of ours, and nothing outside the standard library."""
    program = (
        "import sys; before = set(sys.modules); import lacuna\n"
        "print(*{n.split('.')[0] for n in set(sys.modules) - before if n != 'lacuna'} - sys.stdlib_module_names)\n"
        "print(*[n for n in sys.modules if n.startswith('lacuna.')])"
    )
    assert python(program).split() == []


def test_the_core_needs_no_extra() -> None:
    """Every module of the core can be imported where no optional dependency is installed."""
    modules = [
        ".".join(("lacuna", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
        for path in FILES
        if member(path) in CORE
    ]
    assert "lacuna.engine" in modules
    blocked = f"import sys\nfor name in {EXTRAS!r}: sys.modules[name] = None\n"
    python(blocked + "\n".join(f"import {module}" for module in modules))
