# mypy: ignore-errors
# What this imports is in an environment of its own.
"""The adapter of LangChain, as its host takes it."""

from __future__ import annotations

from typing import Any

from elision.adapters.langchain import ElisionMiddleware
from elision.manager.advanced_options import gather_options
from tests.adapters.stage import AdapterSettings


def attach(settings: AdapterSettings) -> list[Any]:
    """Return the middleware of every agent of the process."""
    middleware = ElisionMiddleware(settings.strategy, **gather_options(settings.options))
    settings.closing.append(middleware.close)
    return [middleware]
