"""`raw`: the identity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from elision.strategies.strategy import Strategy
from elision.trajectory.prices import Prices


@dataclass(frozen=True, slots=True, kw_only=True)
class Raw(Strategy):
    """Sends everything, always; rules may shorten what arrives."""

    name: ClassVar[str] = "raw"
    can_hide: ClassVar[bool] = False

    def limit_view(self, prices: Prices) -> int | None:
        """Return None: the unchanged history may have any size."""
        return None
