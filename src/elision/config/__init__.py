"""Settings: the environment and one TOML file, read once into a frozen value. Nothing else in Elision reads either."""

from __future__ import annotations

from elision.config.effective_settings import SettingEntry, Settings, load_settings
from elision.config.setting_keys import GATEWAY_KEYS, KEYS, resolve_name
from elision.config.setting_sources import OPTION, TypedOption

__all__ = ["GATEWAY_KEYS", "KEYS", "OPTION", "SettingEntry", "Settings", "TypedOption", "load_settings", "resolve_name"]
