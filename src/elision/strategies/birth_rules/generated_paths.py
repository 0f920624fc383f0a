"""Paths of generated and installed files in listings: `ls`, `find`, `git status`, `grep -l`."""

from __future__ import annotations

import re
from typing import Final

from elision.strategies.birth_rules.left_out_lines import leave_out_lines

_FOLDERS: Final = (
    "__pycache__",
    "node_modules",
    ".git",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".tox",
    ".venv",
    "site-packages",
    ".egg-info",
    ".dist-info",
    ".pyc",
    ".gradle",
)
#: A line that is a path, after what `ls -l`, `du` or `git status` put before it.
_LISTED: Final = re.compile(
    r"(?:[-dlbcps][-rwxsStT]{9}[.+@]?\s.{1,120}\s|\s{0,8}\d[\d.]*[KMG]?\s+|[ MADRCU?!]{2} )?(?:\./|/)?(\S+)/?$"
)
_BINARY: Final = re.compile(r"(?:grep: |Binary file )(\S+?):? (?:binary file )?matches$")
#: `.github` and `.gitignore` are no part of `.git`, nor is `.venv-notes.md` of `.venv`.
_GENERATED: Final = re.compile(
    r"(?:^|/)(?:"
    + "|".join(re.escape(name) for name in _FOLDERS if name not in (".pyc", ".egg-info", ".dist-info"))
    + r")(?:/|$)|\.(?:egg|dist)-info(?:/|$)|\.pyc$"
)


def drop_generated_paths(text: str, handle: str = "", asked: str = "") -> str:
    """Return a listing without generated files, unless the call asked for them.

    asked: the arguments of the call. A line that holds more than a path is not looked at.
    """
    if any(name in asked for name in _FOLDERS):
        return text

    def is_generated(line: str) -> bool:
        found = _BINARY.match(line) or _LISTED.match(line)
        return found is not None and _GENERATED.search(found[1]) is not None

    return leave_out_lines(text, is_generated, "generated files", handle)
