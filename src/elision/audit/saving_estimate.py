"""What the recommended strategy would have saved on audited runs, by the lab's replay."""

from __future__ import annotations

from dataclasses import dataclass

from elision.lab.candidates import RECOMMENDED
from elision.lab.dialect import sizer
from elision.lab.head_estimate import add_recorded_head
from elision.lab.ratios import divide_or_none
from elision.lab.recorded_sizer import size_run
from elision.lab.replay import replay_run
from elision.strategies.spec import parse_strategy
from elision.trajectory.prices import Prices
from elision.trajectory.trajectory import Trajectory


@dataclass(frozen=True, slots=True)
class SavingEstimate:
    """raw_usd: of sending everything. masked_usd: of the recommended strategy. Both are simulated, in USD."""

    runs: int = 0
    raw_usd: float = 0.0
    masked_usd: float = 0.0

    def __add__(self, other: SavingEstimate) -> SavingEstimate:
        return SavingEstimate(self.runs + other.runs, self.raw_usd + other.raw_usd, self.masked_usd + other.masked_usd)

    @property
    def to_raw(self) -> float | None:
        """The strategy's bill as a multiple of that of sending everything; None where nothing was replayed."""
        return divide_or_none(self.masked_usd, self.raw_usd)


def estimate_saving(trajectory: Trajectory, prices: Prices, tokens: str) -> SavingEstimate:
    """Replay `trajectory` at `prices`. tokens: name of the counter. Raises SpecError for an unknown one."""
    dialect = "anthropic" if prices.cache.kind == "breakpoints" else "openai"
    counting = size_run(trajectory, prices, sizer(dialect, tokens))
    replay = replay_run(add_recorded_head(trajectory, counting), parse_strategy(RECOMMENDED), prices, counting)
    return SavingEstimate(1, replay.raw.usd, replay.usd)
