"""Change the source in one place at a time, and see whether a test notices.

    python tools/mutate.py                    60 mutants of engine, strategies, manager, stores and gateway
    python tools/mutate.py --seed 7 --limit 5    others; and only the next five of those that have no result yet

Which mutants there are depends on the seed and the source alone. Each is made in a copy of the source, under
build/mutants. For each run the tests that mirror its file, then those that import it, then those of its folder and of
what uses that, until one fails or takes too long: the mutant is killed. Results are appended to results.jsonl beside
the copy, and what is in it already is not tried again, so an interrupted trial continues. It ends with 1 where a mutant
survives: that wants a test, or a reason why no test can tell it from the original.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from changed_tests import select_tests

ROOT: Final = Path(__file__).parents[1]
WORK: Final = ROOT / "build" / "mutants"
RESULTS: Final = WORK / "results.jsonl"
#: Folders of the source, from each of which as many mutants are taken, and the tests that are tried last.
FOLDERS: Final = {
    "engine": ("engine", "strategies", "properties", "manager", "lab"),
    "strategies": ("strategies", "engine", "properties", "manager", "lab"),
    "manager": ("manager", "properties", "gateway"),
    "stores": ("stores", "manager", "cli"),
    "gateway": ("gateway", "e2e"),
}
#: Seconds for the tests of one step; who takes longer hangs, and is killed.
TIMEOUT: Final = 900
_COMPARISONS: Final = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
_ARITHMETIC: Final = {ast.Add: "-", ast.Sub: "+", ast.Mult: "//", ast.Div: "*", ast.FloorDiv: "*", ast.Mod: "+"}


class Mutant(NamedTuple):
    """One change. path: relative to src. start, end: bytes of the file in place of which `new` stands."""

    path: str
    line: int
    start: int
    end: int
    old: str
    new: str

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.new.encode() + source[self.end :]


class MutantFinder(ast.NodeVisitor):
    """Finds the mutants of the functions of one file. Annotations, defaults and text stay as they are."""

    def __init__(self, path: str, source: bytes) -> None:
        self.found: list[Mutant] = []
        self._path, self._source, self._is_in_function = path, source, False
        self._lines = [0]
        for line in source.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self.visit(ast.parse(source))

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        before, self._is_in_function = self._is_in_function, True
        for statement in node.body:
            self.visit(statement)
        self._is_in_function = before

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Words for people: no test has to know each."""

    def visit_Compare(self, node: ast.Compare) -> None:
        if len(node.ops) == 1:
            self._replace_between(node.left, node.comparators[0], _COMPARISONS[type(node.ops[0])])
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if type(node.op) in _ARITHMETIC and not isinstance(node.left, ast.JoinedStr | ast.List | ast.Tuple):
            self._replace_between(node.left, node.right, _ARITHMETIC[type(node.op)])
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self._replace_between(node.values[0], node.values[1], "or" if isinstance(node.op, ast.And) else "and")
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        self._replace(node.test, f"not ({self._read(node.test)})")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._replace(node, str(not node.value))
        elif isinstance(node.value, int):
            self._replace(node, str(node.value + 1))

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and not isinstance(node.value, ast.Constant):
            self._replace(node.value, "None")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            self._replace(node, "pass")
        self.generic_visit(node)

    def _replace_between(self, left: ast.expr, right: ast.expr, new: str) -> None:
        start = self._lines[left.end_lineno - 1] + left.end_col_offset  # type: ignore[operator]
        end = self._lines[right.lineno - 1] + right.col_offset
        # Parentheses around an operand are part of neither.
        if not {*self._source[start:end]} & {*b"()#"}:
            self._add(left.lineno, start, end, f" {new} ")

    def _replace(self, node: ast.expr | ast.stmt, new: str) -> None:
        self._add(node.lineno, *self._find_place(node), new)

    def _find_place(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._lines[node.lineno - 1] + node.col_offset, self._lines[node.end_lineno - 1] + node.end_col_offset

    def _read(self, node: ast.expr) -> str:
        start, end = self._find_place(node)
        return self._source[start:end].decode()

    def _add(self, line: int, start: int, end: int, new: str) -> None:
        if self._is_in_function:
            self.found.append(Mutant(self._path, line, start, end, self._source[start:end].decode(), new))


@cache
def list_mutants(folder: Path, path: Path) -> list[Mutant]:
    """Return every mutant of the file `path`, which is below `folder`."""
    return MutantFinder(path.relative_to(folder).as_posix(), path.read_bytes()).found


def choose_mutants(seed: int, count: int) -> list[Mutant]:
    """Return `count` mutants, as many of each folder, in an order that takes the folders in turn."""
    chance, source = random.Random(seed), ROOT / "src"
    shares = []
    for name in FOLDERS:
        paths = sorted((source / "elision" / name).rglob("*.py"))
        found = [mutant for path in paths for mutant in list_mutants(source, path)]
        shares.append(chance.sample(found, count // len(FOLDERS)))
    return [mutant for mutants in zip(*shares, strict=True) for mutant in mutants]


def list_steps(path: str) -> Iterator[list[str]]:
    """Yield what is tried for the file `path` of src, one after the other: the tests nearest to it first."""
    parts = Path(path).with_suffix("").parts[1:]
    mirror = Path("tests", *parts[:-1], f"test_{parts[-1]}.py")
    if (ROOT / mirror).exists():
        yield [str(mirror)]
    if near := [str(test) for test in select_tests({Path("src", path)}) if test != mirror]:
        yield near
    for folder in FOLDERS[parts[0]]:
        yield [f"tests/{folder}"]


def try_mutant(mutant: Mutant) -> dict[str, Any]:
    """Run tests until one fails; return the mutant and what killed it, "" if it survives."""
    original, changed = ROOT / "src" / mutant.path, WORK / "src" / mutant.path
    shutil.copytree(ROOT / "src", WORK / "src", ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    changed.write_bytes(mutant.apply(original.read_bytes()))
    killers = map(find_failure, list_steps(mutant.path))
    return {**mutant._asdict(), "killer": next(filter(None, killers), "")}


def find_failure(tests: list[str]) -> str:
    """Run `tests` on the copy; return the first that fails, or that they take too long, or ""."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=no", "--no-header", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": str(WORK / "src"), "PYTHONDONTWRITEBYTECODE": ""}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        return f"timeout of {' '.join(tests)}"
    if done.returncode in (0, 5):
        return ""
    lines = done.stdout.splitlines()
    return next((line for line in lines if line.startswith(("FAILED", "ERROR"))), f"code {done.returncode}")


def read_results() -> dict[Mutant, str]:
    """Return what killed each mutant that was tried."""
    if not RESULTS.exists():
        return {}
    rows = map(json.loads, RESULTS.read_text(encoding="utf-8").splitlines())
    return {Mutant(*(row[name] for name in Mutant._fields)): row["killer"] for row in rows}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=20261128)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--limit", type=int, default=10_000)
    given = parser.parse_args()
    chosen, results = choose_mutants(given.seed, given.count), read_results()
    WORK.mkdir(parents=True, exist_ok=True)
    for mutant in [each for each in chosen if each not in results][: given.limit]:
        row = try_mutant(mutant)
        results[mutant] = row["killer"]
        with RESULTS.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print(
            f"{mutant.path}:{mutant.line} {mutant.old!r} -> {mutant.new!r}: {row['killer'] or 'SURVIVES'}", flush=True
        )
    tried = [mutant for mutant in chosen if mutant in results]
    survivors = [mutant for mutant in tried if not results[mutant]]
    print(f"{len(tried) - len(survivors)} of {len(tried)} mutants killed, {len(chosen) - len(tried)} left to try")
    for mutant in survivors:
        print(f"survives: src/{mutant.path}:{mutant.line} {mutant.old!r} -> {mutant.new!r}")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
