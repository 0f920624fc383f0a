"""Writes docs/internals/files.md out of what the modules say of themselves: `python docs/update_files.py`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "elision"
PAGE = Path(__file__).parent / "internals" / "files.md"

_INTRODUCTION = """\
# Files

`docs/update_files.py` writes this page from the first sentence of each module. `tests` has the same folders.
"""


def build_page() -> str:
    """Return the whole page: a table for each folder that holds modules."""
    folders = sorted({path.parent for path in SOURCE.rglob("*.py")})
    return "\n".join([_INTRODUCTION, *(line for folder in folders for line in _describe_folder(folder))])


def _describe_folder(folder: Path) -> Iterator[str]:
    rows = [(path.name, _read_first_sentence(path)) for path in sorted(folder.glob("*.py"))]
    yield f"## {folder.relative_to(SOURCE.parent)}"
    yield ""
    yield "| file | what it is |"
    yield "|---|---|"
    yield from (f"| `{name}` | {sentence} |" for name, sentence in rows if sentence)
    yield ""


def _read_first_sentence(path: Path) -> str:
    """The first sentence of the module's docstring, on one line; "" where it has none."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    paragraph = " ".join(docstring.partition("\n\n")[0].split())
    return paragraph.partition(". ")[0].removesuffix(".").replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(build_page(), encoding="utf-8")
