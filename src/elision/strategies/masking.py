"""`masking`: old observations become placeholders."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from elision.strategies.selectors import OlderThan, Selector
from elision.strategies.strategy import Strategy, check_whole_numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Masking(Strategy):
    """At call t observations of turns i < t - window may be placeholders; the newest `window` turns are verbatim."""

    name: ClassVar[str] = "masking"
    fold: bool = True
    window: int = 10

    def check_options(self) -> None:
        Strategy.check_options(self)
        check_whole_numbers(self.name, 1, window=self.window)

    def make_selector(self) -> Selector:
        return OlderThan(self.window)
