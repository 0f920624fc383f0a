"""Imports point one way (design 10), importing does nothing, and the core needs no extra."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Set
from functools import cache
from pathlib import Path

import pytest

import elision

SOURCE = Path(__file__).parents[1] / "src" / "elision"

#: Member -> the members it may import, itself, `errors` and `zstd` apart: a package or module right below elision.
_VALUES = {"trajectory"}
_POLICY = _VALUES | {"strategies", "providers", "stores", "telemetry"}
_READING = _POLICY | {"formats", "summarizers"}
_LIBRARY = _READING | {"engine", "manager"}
_DOORS = _LIBRARY | {"adapters", "agent", "integrations", "gateway", "lab", "mcp"}
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "zstd": set(),
    # The prompt of summaries is checked where it is set.
    "config": _POLICY | {"summarizers"},
    "trajectory": set(),
    "strategies": _VALUES,
    "providers": _VALUES,
    "stores": _VALUES,
    "telemetry": _VALUES,
    "formats": _POLICY,
    "summarizers": _POLICY,
    "engine": _READING,
    "manager": _READING | {"engine", "config"},
    "adapters": _LIBRARY | {"config"},
    "agent": _LIBRARY,
    "integrations": _LIBRARY,
    "gateway": _LIBRARY | {"config"},
    "lab": _LIBRARY,
    "audit": _LIBRARY | {"lab"},
    "study": _LIBRARY | {"lab", "audit"},
    "turns": _LIBRARY,
    # One call as it was sent is built as the lab builds it.
    "mcp": _LIBRARY | {"lab"},
    "testing": _DOORS,
    "wrap": {"config", "gateway", "providers", "stores"},
    "auto": {"config", "gateway", "lab", "stores", "telemetry", "wrap"},
    "cli": _DOORS | {"audit", "study", "testing", "config", "wrap"},
    "__main__": {"cli"},
}
#: The core: what an agent needs that never prints a report.
CORE = (
    "errors",
    "zstd",
    "config",
    "trajectory",
    "strategies",
    "providers",
    "stores",
    "telemetry",
    "formats",
    "summarizers",
    "engine",
    "manager",
    "agent",
    "turns",
)
EXTRAS = (
    "gigatoken",
    "click",
    "rich",
    "numpy",
    "genai_prices",
    "resvg_py",
    "prometheus_client",
    "opentelemetry",
    "urllib3",
    "litellm",
    "psycopg",
    "psycopg_pool",
    "starlette",
    "aiohttp",
    "httptools",
    "uvicorn",
    "openai",
    "anthropic",
    "mcp",
    "mcp_types",
    "pyarrow",
    "duckdb",
    "fsspec",
    "ray",
)
#: Source that makes every extra impossible to import.
BLOCKED = f"import sys\nfor name in {EXTRAS!r}: sys.modules[name] = None\n"

FILES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")


def member(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@cache
def import_nodes(path: Path) -> list[ast.AST]:
    return list_imports(path.read_text(encoding="utf-8"))


def list_imports(source: str) -> list[ast.AST]:
    """The import statements, anywhere in a file: under TYPE_CHECKING and in functions too."""
    return [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import | ast.ImportFrom)]


def imported(nodes: list[ast.AST]) -> set[str]:
    """The members of elision that a file imports."""
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "a relative import"
            names.update([node.module or ""] if node.module != "elision" else [f"elision.{a.name}" for a in node.names])
    return {name.split(".")[1] for name in names if name.startswith("elision.")}


def test_imports_point_one_way() -> None:
    """A file imports only what stands in front of its member."""
    for path in FILES:
        ours = member(path)
        assert ours in ALLOWED, f"{ours} has no place in design 10"
        found = imported(import_nodes(path)) - {ours, "errors", "zstd"}
        assert found <= ALLOWED[ours], path.relative_to(SOURCE)


def test_the_order_has_no_cycle() -> None:
    """Whatever a member may import may never import it back."""
    for ours, others in ALLOWED.items():
        assert all(ours not in ALLOWED[other] for other in others)


def module_name(path: Path) -> str:
    return ".".join(("elision", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")


def imported_modules(nodes: list[ast.AST], modules: Set[str]) -> set[str]:
    """Which of `modules` a file imports."""
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                names.add(name if name in modules else str(node.module))
    return names & modules


def find_import_cycle(imports: Mapping[str, Set[str]]) -> list[str]:
    """The modules of one import cycle, in order, the first one again at the end; [] if there is none."""
    done: set[str] = set()

    def follow(module: str, path: list[str]) -> list[str]:
        if module in path:
            return [*path[path.index(module) :], module]
        if module in done:
            return []
        for target in sorted(imports.get(module, ())):
            cycle = follow(target, [*path, module])
            if cycle:
                return cycle
        done.add(module)
        return []

    for module in sorted(imports):
        cycle = follow(module, [])
        if cycle:
            return cycle
    return []


def test_no_modules_import_each_other() -> None:
    """No module imports itself through others, not even for type checkers alone."""
    nodes = {module_name(path): import_nodes(path) for path in FILES}
    assert find_import_cycle({name: imported_modules(each, set(nodes)) for name, each in nodes.items()}) == []


def test_a_cycle_is_found() -> None:
    """A cycle under TYPE_CHECKING is found, and named in order."""
    sources = {
        "elision.a": "from elision import b",
        "elision.b": "if TYPE_CHECKING:\n    from elision.c import C",
        "elision.c": "def f():\n    import elision.b",
    }
    imports = {name: imported_modules(list_imports(text), set(sources)) for name, text in sources.items()}
    assert find_import_cycle(imports) == ["elision.b", "elision.c", "elision.b"]
    del imports["elision.c"]
    assert find_import_cycle(imports) == []


def test_a_wrong_import_is_seen() -> None:
    """The check sees plain, from and nested imports alike."""
    source = "import elision.lab.replay\ndef f():\n    from elision.cli import app\n    from elision import engine\n"
    assert imported(list_imports(source)) == {"lab", "cli", "engine"}


def python(program: str) -> str:
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_elision_does_nothing() -> None:
    """`import elision` loads nothing else of ours, and nothing outside the standard library."""
    program = (
        "import sys; before = set(sys.modules); import elision\n"
        "print(*{n.split('.')[0] for n in set(sys.modules) - before if n != 'elision'} - sys.stdlib_module_names)\n"
        "print(*[n for n in sys.modules if n.startswith('elision.')])"
    )
    assert python(program).split() == []


def test_the_core_needs_no_extra() -> None:
    """Every module of the core can be imported where no optional dependency is installed."""
    modules = [module_name(path) for path in FILES if member(path) in CORE]
    assert {"elision.engine", "elision.stores.postgres.connection", "elision.manager.context"} <= set(modules)
    python(BLOCKED + "\n".join(f"import {module}" for module in modules))


def test_the_library_door_loads_no_extra() -> None:
    """`from elision import ContextManager` leaves extras alone even where they are installed."""
    program = f"import sys\nfrom elision import ContextManager\nprint(*set({EXTRAS!r}) & set(sys.modules))"
    assert python(program).split() == []


SESSION = """
from elision import ContextManager, Guards
for store in ("memory:", "sqlite:///agent.db", "linear-hash:///pages"):
    options = {"store": store, "session": "s", "guards": Guards(max_turns=9), "model": "claude-sonnet-4-5"}
    strategy = "hybrid(window=2, summarize_at=6, tail=2, summary_max_tokens=120, schedule=every-turn)"
    with ContextManager(strategy, **options) as context:
        context.turns.begin("Count.")
        for number in range(12):
            context.turns.view()
            seen = "\\n".join(f"{number}: line {line}" for line in range(90))
            context.turns.add("Next.", {"name": "count", "arguments": {"to": number}}, seen)
        told = context.turns.view().diagnostics
        assert told.savings.masked and told.summaries and told.stop and not told.faults, told
        assert context.session.recall("t1.1", head=1) == "1: 0: line 0"
        assert context.session.search("line 89")
with ContextManager.from_env({"AGENT_CONTEXT_STORE": "memory:", "AGENT_CONTEXT_LOG": "json"}) as context:
    assert not context.prepare([{"role": "user", "content": "Count."}]).diagnostics.faults
"""


def test_a_session_needs_no_extra(tmp_path: Path) -> None:
    """Masking, digests, guards, recall, search and settings work in each store of the core without any extra."""
    python(f"import os; os.chdir({str(tmp_path)!r})\n{BLOCKED}{SESSION}")


def brought(extra: str, extras: dict[str, list[str]]) -> set[str]:
    """The names of the packages that an extra installs, those of the extras that it names too."""
    found: set[str] = set()
    for wanted in extras[extra]:
        name, _, inner = re.split(r"[>=;]", wanted)[0].partition("[")
        found |= set().union(*(brought(each, extras) for each in inner.rstrip("]").split(","))) if inner else {name}
    return found


def test_the_gateway_brings_the_command_line() -> None:
    """`elision serve` and `elision lab playback` are commands: their extra is enough to call them."""
    project = tomllib.loads((SOURCE.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = brought("gateway", project["optional-dependencies"])
    assert {"click", "rich", "starlette", "uvicorn", "httptools", "aiohttp"} <= found
    assert not {"numpy", "resvg-py"} & found


def test_public_names_are_sorted_and_all_there() -> None:
    """`__all__`, the imports that type checkers read, and what can be asked for are the same sorted names."""
    tree = ast.parse((SOURCE / "__init__.py").read_text(encoding="utf-8"))
    checked = next(node for node in tree.body if isinstance(node, ast.If))
    typed = [name.name for node in checked.body if isinstance(node, ast.ImportFrom) for name in node.names]
    assert elision.__all__ == sorted(typed)
    assert dir(elision) == sorted([*elision.__all__, "__version__"])
    assert [getattr(elision, name).__name__ for name in elision.__all__] == elision.__all__


def test_the_version_is_read_when_it_is_asked_for() -> None:
    """`elision.__version__` is the distribution's; reading its metadata is slow, and an import does not do it."""
    project = tomllib.loads((SOURCE.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    program = (
        "import sys, elision\n"
        "print('importlib.metadata' in sys.modules, elision.__version__, 'importlib.metadata' in sys.modules)"
    )
    assert python(program).split() == ["False", project["version"], "True"]
    assert elision.__version__ == project["version"]


def test_a_wrong_public_name_is_told() -> None:
    """A name that is not public is an AttributeError as in any module."""
    with pytest.raises(AttributeError, match="module 'elision' has no attribute 'Contextmanager'"):
        elision.Contextmanager  # noqa: B018


def test_the_package_says_that_it_is_typed() -> None:
    """Type checkers read an installed package only where py.typed stands in it (`tests/typed` is what they find)."""
    assert (SOURCE / "py.typed").is_file()
