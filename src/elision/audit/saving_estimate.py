"""What the recommended strategy would have saved on audited runs, by the lab's replay."""

from __future__ import annotations

from dataclasses import dataclass, field

from elision.lab.ratios import divide_or_none
from elision.lab.replay import replay_run
from elision.lab.results import BILLED, SentSummary
from elision.lab.run_as_recorded import add_recorded_head, size_run, sizer
from elision.lab.sent_rows import replay_as_sent
from elision.lab.study_settings import RECOMMENDED
from elision.strategies.spec import parse_strategy
from elision.trajectory.prices import Prices
from elision.trajectory.trajectory import Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class SavingEstimate:
    """What runs cost, in USD; all but `billed_usd` is simulated, with the same counts and cache.

    sent: how the runs were sent. billed_usd: by the recorded usage, of the runs that have a bill. recorded_usd: as the
    agents sent their requests. raw_usd: of sending everything, which is a hypothesis where agents condensed their own
    history. instead_usd, on_top_usd: of
    the recommended strategy instead of that condensing, and on top of it.
    """

    sent: SentSummary = field(default_factory=SentSummary)
    billed_usd: float = 0.0
    recorded_usd: float = 0.0
    raw_usd: float = 0.0
    instead_usd: float = 0.0
    on_top_usd: float = 0.0

    def __add__(self, other: SavingEstimate) -> SavingEstimate:
        return SavingEstimate(
            sent=self.sent + other.sent,
            billed_usd=self.billed_usd + other.billed_usd,
            recorded_usd=self.recorded_usd + other.recorded_usd,
            raw_usd=self.raw_usd + other.raw_usd,
            instead_usd=self.instead_usd + other.instead_usd,
            on_top_usd=self.on_top_usd + other.on_top_usd,
        )

    @property
    def strategy_usd(self) -> float:
        """The recommended strategy, instead of the agents' condensing or on top of it: whichever costs less."""
        return min(self.instead_usd, self.on_top_usd)

    @property
    def is_on_top(self) -> bool:
        """Whether it costs less on top of the agents' own condensing."""
        return self.on_top_usd < self.instead_usd

    @property
    def to_recorded(self) -> float | None:
        """The strategy's bill as a multiple of what was sent; None where nothing was replayed."""
        return divide_or_none(self.strategy_usd, self.recorded_usd)


def estimate_saving(trajectory: Trajectory, prices: Prices, tokens: str) -> SavingEstimate:
    """Replay `trajectory` at `prices`. tokens: name of the counter. Raises SpecError for an unknown one."""
    dialect = "anthropic" if prices.cache.kind == "breakpoints" else "openai"
    run = add_recorded_head(trajectory, size_run(trajectory, prices, sizer(dialect, tokens)))
    counting = size_run(run, prices, sizer(dialect, tokens))
    strategy = parse_strategy(RECOMMENDED)
    as_sent = replay_as_sent(run, prices, counting)
    instead = replay_run(run, strategy, prices, counting, sent=as_sent.sent)
    on_top_usd = instead.usd
    if as_sent.sent.cuts:
        on_top = replay_run(run, strategy, prices, counting, sent=as_sent.sent, is_cut=True)
        on_top_usd = on_top.usd + as_sent.condensing.usd
    billed = sum(row.usd for row, _ in as_sent.rows if row.strategy == BILLED)
    return SavingEstimate(
        sent=as_sent.summary,
        billed_usd=billed,
        recorded_usd=as_sent.usd,
        raw_usd=instead.raw.usd,
        instead_usd=instead.usd,
        on_top_usd=on_top_usd,
    )
