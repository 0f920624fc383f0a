# mypy: ignore-errors
# What this imports is in an environment of its own.
"""The adapter of smolagents for its host."""

from __future__ import annotations

from typing import Any

from elision.adapters.smolagents import ElisionMemory
from elision.manager.advanced_options import gather_options
from tests.adapters.stage import AdapterSettings

_adapters: dict[int, ElisionMemory] = {}


def attach(settings: AdapterSettings, agent: Any) -> None:
    """Change an agent. The host names the managed agents first."""
    if id(settings) not in _adapters:
        _adapters[id(settings)] = ElisionMemory(settings.strategy, **gather_options(settings.options))
        settings.closing.append(_adapters[id(settings)].close)
    _adapters[id(settings)].attach(agent)
