"""Any text as PostgreSQL keeps text: no NUL, no lone surrogates.

Names (keys, families, nodes) must come back letter for letter and stay readable, so only what PostgreSQL cannot hold is
written as an escape; what people read in the tables is shown with stand-ins instead.
"""

from __future__ import annotations

import re

_ODD = re.compile("[\\\\\x00\ud800-\udfff]")
_ESCAPE = re.compile(r"\\(\\|0|u[0-9a-f]{4})")
_SURROGATE = re.compile("[\ud800-\udfff]")


def kept(name: str) -> str:
    r"""`name` without NUL and lone surrogates: `\0`, `\ud800`; a backslash is doubled. `given` reverses it."""
    return _ODD.sub(_escaped, name)


def given(name: str) -> str:
    """What `kept` was given."""
    return _ESCAPE.sub(_meant, name)


def shown(text: str) -> str:
    """`text` for people: a NUL is ␀, a lone surrogate is \ufffd."""
    return _SURROGATE.sub("\ufffd", text.replace("\0", "␀"))


def _escaped(found: re.Match[str]) -> str:
    letter = found[0]
    return {"\\": r"\\", "\0": r"\0"}.get(letter) or f"\\u{ord(letter):04x}"


def _meant(found: re.Match[str]) -> str:
    mark = found[1]
    return {"\\": "\\", "0": "\0"}.get(mark) or chr(int(mark[1:], 16))
