"""Any text as PostgreSQL keeps text: no NUL, no lone surrogates.

Names (keys, families, nodes) must come back letter for letter and stay readable, so only what PostgreSQL cannot hold is
written as an escape; texts that people read in the tables have replacement characters instead.
"""

from __future__ import annotations

import re

_ODD = re.compile("[\\\\\x00\ud800-\udfff]")
_ESCAPE = re.compile(r"\\(\\|0|u[0-9a-f]{4})")


def escape_name(name: str) -> str:
    r"""Return `name` without NUL and lone surrogates: `\0`, `\ud800`; a backslash is doubled.

    `unescape_name` reverses it.
    """
    return _ODD.sub(_escape_character, name)


def unescape_name(name: str) -> str:
    """Return what `escape_name` was given."""
    return _ESCAPE.sub(_unescape_character, name)


def is_escaped_name(name: str) -> bool:
    """Return whether `escape_name` returns `name` for some name. It returns no other."""
    return escape_name(unescape_name(name)) == name


def _escape_character(match: re.Match[str]) -> str:
    letter = match[0]
    return {"\\": r"\\", "\0": r"\0"}.get(letter) or f"\\u{ord(letter):04x}"


def _unescape_character(match: re.Match[str]) -> str:
    mark = match[1]
    return {"\\": "\\", "0": "\0"}.get(mark) or chr(int(mark[1:], 16))
