"""Fields of the structs that stores and exports keep."""

from __future__ import annotations

from typing import TypeVar

import msgspec

_T = TypeVar("_T")


def write_always(default: _T) -> _T:
    """Return the default of a field that is written even where it has this value.

    Other fields with a default are left out. Readers of stores and exports rely on these.
    """
    value: _T = msgspec.field(default_factory=lambda: default)
    return value
