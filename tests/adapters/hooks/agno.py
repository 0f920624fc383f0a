# mypy: ignore-errors
# What this imports is in an environment of its own.
"""The adapter of Agno, as its host takes it."""

from __future__ import annotations

from typing import Any

from elision.adapters.agno import ElisionAgnoModels
from elision.manager.advanced_options import gather_options
from tests.adapters.stage import AdapterSettings

_made: list[ElisionAgnoModels] = []


def attach(settings: AdapterSettings, model: Any) -> tuple[Any, list[Any]]:
    """Return the model to ask, and the recall tools."""
    if not _made:
        _made.append(ElisionAgnoModels(settings.strategy, **gather_options(settings.options)))
        settings.closing.append(_made[0].close)
    return _made[0].wrap_model(model), _made[0].tools
