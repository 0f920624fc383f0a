# mypy: ignore-errors
# What this imports is in an environment of its own.
"""The adapter of LlamaIndex, as its host takes it."""

from __future__ import annotations

from typing import Any

from elision.adapters.llama_index import ElisionFunctionAgents
from elision.manager.advanced_options import gather_options
from tests.adapters.stage import AdapterSettings

_made: list[ElisionFunctionAgents] = []


def attach(settings: AdapterSettings, session: str, options: dict[str, Any]) -> Any:
    """Return an agent. session: is not needed, as the memory has it."""
    if not _made:
        _made.append(ElisionFunctionAgents(settings.strategy, **gather_options(settings.options)))
        settings.closing.append(_made[0].close)
    return _made[0].make_agent(**options)
