# mypy: ignore-errors
# What this imports is in an environment of its own.
"""The adapter of Pydantic AI, as its host takes it."""

from __future__ import annotations

from typing import Any

from elision.adapters.pydantic_ai import ElisionCapability
from elision.manager.advanced_options import gather_options
from tests.adapters.stage import AdapterSettings


def attach(settings: AdapterSettings) -> list[Any]:
    """Return the capabilities of every agent of the process."""
    capability = ElisionCapability(settings.strategy, **gather_options(settings.options))
    settings.closing.append(capability.close)
    return [capability]
