"""Settings: the environment and one TOML file, read once into a frozen value. Nothing else in Lacuna reads either."""

from __future__ import annotations

from lacuna.config.gateway_keys import GATEWAY_KEYS
from lacuna.config.in_force import Entry, Settings, settings
from lacuna.config.keys import KEYS
from lacuna.config.sources import OPTION, Typed

__all__ = ["GATEWAY_KEYS", "KEYS", "OPTION", "Entry", "Settings", "Typed", "settings"]
