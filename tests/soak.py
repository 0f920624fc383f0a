"""What only soaks try, where `make test` tries a sample."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import cycle, product
from typing import Any, Final, TypeVar

import pytest

SOAK: Final = os.environ.get("ELISION_SOAK") == "1"
_One = TypeVar("_One")
_Other = TypeVar("_Other")


def sample_cases(cases: Iterable[_One], every: int) -> list[_One]:
    """Return all cases in a soak, else each `every`-th, the first one among them.

    Of a product each value occurs if `every` shares no divisor with the lengths of its factors.
    """
    return list(cases)[:: 1 if SOAK else every]


def pair_cases(many: Iterable[_One], few: Iterable[_Other]) -> list[tuple[_One, _Other]]:
    """Return every pair in a soak, else each of `many` with those of `few` in turn."""
    return list(product(many, few)) if SOAK else list(zip(many, cycle(few), strict=False))


def leave_to_soak(names: Iterable[str], *left: str) -> list[Any]:
    """Return parameters for all `names`, those of `left` for soaks only."""
    return [pytest.param(name, marks=pytest.mark.soak) if name in left else name for name in names]
