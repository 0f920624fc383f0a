"""The frameworks that the adapters need: whether each is installed, and new enough."""

from __future__ import annotations

import re
from importlib import metadata

from elision.errors import ElisionError


class FrameworkError(ElisionError, ImportError):
    """A framework is not installed, or its version has not what the adapter needs."""


def check_framework(distribution: str, at_least: str, extra: str, adapter: str = "") -> None:
    """Raise FrameworkError, which says what to install, unless `distribution` is there from version `at_least` on.

    extra:   the name of the package's extra that brings it.
    adapter: the module that needs it; "" where it is named as the extra.
    """
    module = adapter or f"elision.adapters.{extra.replace('-', '_')}"
    install = f"pip install -U 'elision[{extra}]'"
    try:
        found = metadata.version(distribution)
    except metadata.PackageNotFoundError as error:
        raise FrameworkError(
            f"{module} needs {distribution} {at_least} or newer, which is not installed: {install}"
        ) from error
    if _list_numbers(found) < _list_numbers(at_least):
        raise FrameworkError(f"{module} needs {distribution} {at_least} or newer; {found} is installed: {install}")


def _list_numbers(version: str) -> list[int]:
    """Return the numbers of a release, such as [1, 71, 0]; what follows them (rc1, .dev3, +local) is left out."""
    numbers = []
    for part in version.split("."):
        digits = re.match(r"\d+", part)
        if digits is None:
            break
        numbers.append(int(digits[0]))
        if digits[0] != part:
            break
    return numbers
