"""`supersede`: what a later observation makes stale or repeats becomes a placeholder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from elision.strategies.selectors import Selector, Superseded
from elision.strategies.strategy import Strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class Supersede(Strategy):
    """Masks a file read that is read again or edited later, and a call that is made again; the newest stays."""

    name: ClassVar[str] = "supersede"

    def make_selectors(self) -> tuple[Selector, ...]:
        return (Superseded(),)
