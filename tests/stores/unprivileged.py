"""A user without rights, whom permissions stop."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def nobody() -> Iterator[None]:
    """As a user without rights, if we are root, whom no permission stops."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65_534)
    try:
        yield
    finally:
        os.seteuid(before)
