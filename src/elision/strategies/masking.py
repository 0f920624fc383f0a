"""`masking`: old observations become placeholders."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from elision.strategies.reuse import check_which, select_old_results
from elision.strategies.selectors import Selector
from elision.strategies.strategy import Strategy, check_whole_numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Masking(Strategy):
    """At call t observations of turns i < t - window may be placeholders; the newest `window` turns are verbatim.

    which: "age" counts the turns since an observation was made, "reuse" those since something of it was used as well.
    """

    name: ClassVar[str] = "masking"
    window: int = 10
    which: str = "age"

    def check_options(self) -> None:
        Strategy.check_options(self)
        check_whole_numbers(self.name, 1, window=self.window)
        check_which(self.name, self.which)

    def make_selectors(self) -> tuple[Selector, ...]:
        return (select_old_results(self.which, self.window),)
