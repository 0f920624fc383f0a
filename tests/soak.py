"""What only soaks try, where `make test` tries a sample."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final, TypeVar

SOAK: Final = os.environ.get("ELISION_SOAK") == "1"
_Case = TypeVar("_Case")


def sample_cases(cases: Iterable[_Case], every: int) -> list[_Case]:
    """Return all cases in a soak, else each `every`-th, the first one among them.

    Of a product each value occurs if `every` shares no divisor with the lengths of its factors.
    """
    return list(cases)[:: 1 if SOAK else every]
