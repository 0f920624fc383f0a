# mypy: ignore-errors
# What this imports is in an environment of its own.
"""The adapter of LangGraph, as its host takes it."""

from __future__ import annotations

from typing import Any

from elision.adapters.langgraph import ElisionGraph
from elision.manager.advanced_options import gather_options
from tests.adapters.stage import AdapterSettings


def attach(settings: AdapterSettings) -> tuple[Any, list[Any]]:
    """Return what wraps a model, and the recall tools."""
    elision = ElisionGraph(settings.strategy, **gather_options(settings.options))
    settings.closing.append(elision.close)
    return elision.wrap, elision.tools
