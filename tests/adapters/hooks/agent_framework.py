# mypy: ignore-errors
# What this imports is in an environment of its own.
"""The adapter of Microsoft Agent Framework: a context provider of all agents of a process."""

from __future__ import annotations

from typing import Any

from elision.adapters.agent_framework import ElisionContextProvider
from elision.manager.advanced_options import gather_options
from tests.adapters.stage import AdapterSettings


def attach(settings: AdapterSettings) -> list[Any]:
    """Return the context providers of an agent."""
    provider = ElisionContextProvider(settings.strategy, **gather_options(settings.options))
    settings.closing.append(provider.close)
    return [provider]
