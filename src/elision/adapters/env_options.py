"""The options of an adapter that nobody writes code for: those of the environment and elision.toml."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elision.config import load_settings
from elision.manager.advanced_options import gather_options


def read_pool_options(environment: Mapping[str, str], **defaults: Any) -> dict[str, Any]:
    """Return strategy and options for an adapter. defaults: settings that count unless the environment has them.

    Raises SettingError, which names the place and the remedy.
    """
    found = load_settings(environment, None)
    options: dict[str, Any] = {**found.options(), "redaction": found.redaction}
    for name, value in defaults.items():
        if f"AGENT_CONTEXT_{name.upper()}" not in environment:
            options[name] = value
    del options["session"]
    return gather_options(options)
