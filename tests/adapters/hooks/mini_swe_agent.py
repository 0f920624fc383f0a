# mypy: ignore-errors
# What this imports is in an environment of its own.
"""The adapter of mini-swe-agent for its host."""

from __future__ import annotations

from typing import Any

from elision.adapters.mini_swe_agent import ElisionLitellmModel
from tests.adapters.stage import AdapterSettings

_settings: list[AdapterSettings] = []


class ScenarioModel(ElisionLitellmModel):
    """The adapter, closed when the scenario ends."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        _settings[-1].closing.append(self.close)


def attach(settings: AdapterSettings) -> dict[str, Any]:
    """Return what the configuration of the model has more."""
    _settings.append(settings)
    return {"model_class": f"{__name__}.ScenarioModel", "strategy": settings.strategy, "store": settings.store}
