# mypy: ignore-errors
# What this imports is in an environment of its own.
"""The adapter of Inspect AI: an agent in the model's place, and its tools."""

from __future__ import annotations

from typing import Any

from elision.adapters.inspect_ai import ElisionInspect
from elision.manager.advanced_options import gather_options
from tests.adapters.stage import AdapterSettings


def attach(settings: AdapterSettings) -> Any:
    """Return options of `react`, and tools."""
    elision = ElisionInspect(settings.strategy, **gather_options(settings.options))
    settings.closing.append(elision.close)
    return {"model": elision.make_model()}, elision.tools
