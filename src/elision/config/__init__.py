"""Settings: the environment and one TOML file, read once into a frozen value. Nothing else in Elision reads either."""

from __future__ import annotations

from elision.config.gateway_keys import GATEWAY_KEYS
from elision.config.in_force import Entry, Settings, settings
from elision.config.keys import KEYS
from elision.config.sources import OPTION, Typed

__all__ = ["GATEWAY_KEYS", "KEYS", "OPTION", "Entry", "Settings", "Typed", "settings"]
