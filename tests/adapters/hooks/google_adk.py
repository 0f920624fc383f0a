# mypy: ignore-errors
# What this imports is in an environment of its own.
"""The adapter of Google's Agent Development Kit: a plugin of all apps of a process."""

from __future__ import annotations

from typing import Any

from elision.adapters.google_adk import ElisionAdkPlugin
from elision.manager.advanced_options import gather_options
from tests.adapters.stage import AdapterSettings


def attach(settings: AdapterSettings) -> list[Any]:
    """Return the plugins of an app."""
    plugin = ElisionAdkPlugin(settings.strategy, **gather_options(settings.options))
    settings.closing.append(plugin.calls.sessions.close)
    return [plugin]
