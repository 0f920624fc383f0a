# mypy: ignore-errors
# What this imports is in an environment of its own.
"""The adapter of the OpenHands SDK for its host."""

from __future__ import annotations

from typing import Any

from elision.adapters.openhands import RECALL_TOOLS, ElisionCondenser
from elision.manager.advanced_options import gather_options
from tests.adapters.stage import AdapterSettings


def attach(settings: AdapterSettings) -> tuple[Any, list[str]]:
    """Return the condenser, and the names of the adapter's tools."""
    condenser = ElisionCondenser(settings.strategy, **gather_options(settings.options))
    settings.closing.append(condenser.close)
    return condenser, [tool.name for tool in RECALL_TOOLS]
