# mypy: ignore-errors
# What this imports is in an environment of its own.
"""The adapter of LiteLLM, as its host takes it."""

from __future__ import annotations

from typing import Any

from elision.adapters.litellm import ElisionCallback
from elision.manager.advanced_options import gather_options
from tests.adapters.stage import AdapterSettings


def attach(settings: AdapterSettings) -> Any:
    """Return the callbacks, and what answers the recall tools."""
    callback = ElisionCallback(settings.strategy, recall="auto", **gather_options(settings.options))
    settings.closing.append(callback.close)
    return [callback], callback.answer_tool_call
