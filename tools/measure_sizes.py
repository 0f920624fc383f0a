"""Print lines, classes and functions by package, the longest functions and classes, and classes of many methods.

    python tools/measure_sizes.py [FOLDER]      default: src/elision

Lines are all lines of a file, comments and blanks included.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

#: How many of the longest are listed.
LISTED: Final = 10
#: More methods than a class should have.
MANY_METHODS: Final = 20
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass
class Sizes:
    """What a package has. functions: (lines, name). classes: (lines, methods, name)."""

    files: int = 0
    lines: int = 0
    functions: list[tuple[int, str]] = field(default_factory=list)
    classes: list[tuple[int, int, str]] = field(default_factory=list)

    def add_file(self, path: Path, name: str) -> None:
        """Count one file. Raises SyntaxError where it is no Python."""
        text = path.read_text(encoding="utf-8")
        self.files += 1
        self.lines += len(text.splitlines())
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                methods = sum(isinstance(each, _FUNCTIONS) for each in node.body)
                self.classes.append((_count_lines(node), methods, f"{name} {node.name}"))
            elif isinstance(node, _FUNCTIONS):
                self.functions.append((_count_lines(node), f"{name} {node.name}"))


def measure_packages(root: Path) -> dict[str, Sizes]:
    """Return the sizes of each folder directly under `root`, by its name; "." for files beside the folders."""
    found: dict[str, Sizes] = defaultdict(Sizes)
    for path in sorted(root.rglob("*.py")):
        inside = path.relative_to(root)
        package = inside.parts[0] if len(inside.parts) > 1 else "."
        found[package].add_file(path, inside.as_posix())
    return found


def describe_sizes(packages: dict[str, Sizes]) -> Iterator[str]:
    """Yield the lines that are printed."""
    yield f"{'package':<14}{'files':>7}{'lines':>8}{'classes':>9}{'functions':>11}"
    whole = Sizes()
    for name, sizes in sorted(packages.items(), key=lambda item: -item[1].lines):
        yield _format_row(name, sizes)
        whole.files += sizes.files
        whole.lines += sizes.lines
        whole.functions += sizes.functions
        whole.classes += sizes.classes
    yield _format_row("all", whole)
    yield "longest functions (lines)"
    for lines, name in sorted(whole.functions, reverse=True)[:LISTED]:
        yield f"{lines:>7}  {name}"
    yield "longest classes (lines, methods)"
    for lines, methods, name in sorted(whole.classes, reverse=True)[:LISTED]:
        yield f"{lines:>7}{methods:>5}  {name}"
    yield f"classes of more than {MANY_METHODS} methods"
    for _, methods, name in sorted(whole.classes, key=lambda item: -item[1]):
        if methods > MANY_METHODS:
            yield f"{methods:>7}  {name}"


def _format_row(name: str, sizes: Sizes) -> str:
    return f"{name:<14}{sizes.files:>7}{sizes.lines:>8}{len(sizes.classes):>9}{len(sizes.functions):>11}"


def _count_lines(node: ast.stmt) -> int:
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


if __name__ == "__main__":
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "src" / "elision"
    print("\n".join(describe_sizes(measure_packages(root))))
