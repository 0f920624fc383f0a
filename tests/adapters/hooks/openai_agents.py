# mypy: ignore-errors
# What this imports is in an environment of its own.
"""The adapter of the OpenAI Agents SDK, one for a process."""

from __future__ import annotations

from typing import Any

from elision.adapters.openai_agents import ElisionAgents
from elision.manager.advanced_options import gather_options
from tests.adapters.stage import AdapterSettings

_made: list[ElisionAgents] = []


def attach(settings: AdapterSettings, session: str, config: Any) -> Any:
    """Return `config` for a run of `session`, and the recall tools."""
    if not _made:
        _made.append(ElisionAgents(settings.strategy, **gather_options(settings.options)))
        settings.closing.append(_made[0].close)
    return _made[0].run_config(session, config), _made[0].tools
