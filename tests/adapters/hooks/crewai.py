# mypy: ignore-errors
# What this imports is in an environment of its own.
"""The adapter of CrewAI for its host."""

from __future__ import annotations

from typing import Any

from elision.adapters.crewai import ElisionCrew
from elision.manager.advanced_options import gather_options
from tests.adapters.stage import AdapterSettings

_adapters: dict[int, ElisionCrew] = {}


def attach(settings: AdapterSettings, llm: Any) -> tuple[Any, list[Any]]:
    """Return the LLM to ask, and the tools of the adapter."""
    if id(settings) not in _adapters:
        _adapters[id(settings)] = ElisionCrew(settings.strategy, **gather_options(settings.options))
        settings.closing.append(_adapters[id(settings)].close)
    elision = _adapters[id(settings)]
    return elision.wrap_llm(llm), elision.tools
