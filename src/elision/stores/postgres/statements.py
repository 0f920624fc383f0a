"""The store's SQL, by name, from SQL files, which editors highlight and reviewers recognize."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


def find_statement(name: str) -> bytes:
    """Return the statement of that name in `sql/postgres_queries.sql`."""
    return _parse_statements()[name]


def read_script(file: str) -> bytes:
    """Return a whole file of `sql/`."""
    return files("elision.stores").joinpath("sql", file).read_bytes()


@cache
def _parse_statements() -> dict[str, bytes]:
    _, *pieces = _NAME.split(read_script("postgres_queries.sql").decode())
    return {name: text.strip().encode() for name, text in zip(pieces[::2], pieces[1::2], strict=True)}
