# mypy: ignore-errors
# What this imports is in an environment of its own.
"""The adapter of Strands Agents: a plugin of each agent."""

from __future__ import annotations

from typing import Any

from elision.adapters.strands import ElisionStrandsPlugin
from elision.manager.advanced_options import gather_options
from tests.adapters.stage import AdapterSettings

_plugins: dict[str, ElisionStrandsPlugin] = {}


def attach(settings: AdapterSettings, agent: str) -> list[Any]:
    """Return the plugins of an agent: one plugin serves all of a process."""
    if settings.store not in _plugins:
        _plugins[settings.store] = ElisionStrandsPlugin(settings.strategy, **gather_options(settings.options))
        settings.closing.append(_plugins[settings.store].close)
    return [_plugins[settings.store]]
