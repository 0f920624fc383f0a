"""`fold`: nothing is hidden, and what repeats earlier lines is folded as it arrives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from elision.strategies.folding import USUAL_LINES
from elision.strategies.raw import Raw


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldRepeats(Raw):
    """Sends everything, with repeated lines of new results folded."""

    name: ClassVar[str] = "fold"
    fold: int = USUAL_LINES
