# mypy: ignore-errors
# What this imports is in an environment of its own.
"""The adapter of `llm`, one for a process."""

from __future__ import annotations

from typing import Any

from elision.adapters.llm import ElisionLLM
from elision.manager.advanced_options import gather_options
from tests.adapters.stage import AdapterSettings

_made: list[ElisionLLM] = []


def attach(settings: AdapterSettings, model: Any) -> Any:
    """Return a model around `model`, and the recall tools."""
    if not _made:
        _made.append(ElisionLLM(settings.strategy, **gather_options(settings.options)))
        settings.closing.append(_made[0].close)
    return _made[0].wrap_model(model), _made[0].tools
