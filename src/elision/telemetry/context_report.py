"""What a session is so far, as one value: phases, summaries, savings, and where its tokens are."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from importlib import import_module
from typing import Any, Final, Literal, TypeAlias

from elision.telemetry.diagnostics import ContextPhase, Costs
from elision.trajectory.trajectory import TokenComposition

#: The typographic minus, as wide as a plus.
MINUS: Final = "−"
#: How the tokens of a report were counted: by the provider at every call, by the tokenizer, or from characters.
CountBasis: TypeAlias = Literal["reported", "counted", "estimated"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseTurns:
    """Turns by the phase of the request that each of them answers.

    raw: nothing was hidden yet. masking: results were hidden, and there was no summary. summarizing: after that.
    """

    raw: int = 0
    masking: int = 0
    summarizing: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryFigures:
    """The summaries of a session.

    count:         written and used. failed: asked for and not used.
    covered_turns: leading turns that the live summary stands for. tokens: of that summary; 0 if there is none.
    usd:           what all of them cost, failed ones included.
    frequency:     turns per summary; None if there is none.
    """

    count: int = 0
    failed: int = 0
    covered_turns: int = 0
    tokens: int = 0
    usd: float = 0.0
    frequency: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldFigures:
    """Repeated lines that were folded.

    results: results of which lines were folded, each once. unfolded: how often one was shown whole again.
    tokens:  what folding leaves out of the newest prompt.
    """

    results: int = 0
    unfolded: int = 0
    tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrimFigures:
    """What the client's own trimming of its history cost: each cut makes what follows it new to the prompt cache.

    calls:  in which it dropped turns. turns: dropped so far.
    tokens: kept behind the cuts, and written to the cache again. usd: what that costs more than reading them.
    """

    calls: int = 0
    turns: int = 0
    tokens: int = 0
    usd: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SavingFigures:
    """What was saved over all calls of a session.

    sent_tokens, raw_tokens: of all prompts, as sent and had nothing been hidden.
    costs:        our bill and the bill of sending everything, in USD; `costs.billed` is what the provider reported.
    basis:        how tokens were counted: `reported` if the provider reported the usage of every call, else `counted`
                  by the tokenizer, or `estimated` from characters. What was not sent can only be counted.
    """

    sent_tokens: int = 0
    raw_tokens: int = 0
    costs: Costs = field(default_factory=Costs)
    basis: CountBasis = "counted"

    @property
    def tokens(self) -> int:
        """Return the prompt tokens that were not sent; negative if more was sent than without us."""
        return self.raw_tokens - self.sent_tokens

    @property
    def usd(self) -> float:
        """Return the net saving in USD, as billed: summarizer, recalls and cache writes are debited."""
        return self.costs.saved


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextReport:
    """A session so far.

    session:     its name. model: of its requests; "" if unknown. strategy: as text.
    phase:       `raw` before anything is hidden, `masking` after that, `summarizing` from the first summary on.
    calls:       requests so far. turns: so far. phase_turns: of them in each phase.
    folds:       what was folded. trims: what the client's own trimming cost.
    composition: where the tokens of the turns are, had nothing been hidden.
    shadow:      whether requests were sent unchanged. All this is then what would have been.
    notes:       what to know about the report, such as that there is no such session yet.
    """

    session: str
    model: str = ""
    strategy: str = ""
    phase: ContextPhase = "raw"
    calls: int = 0
    turns: int = 0
    phase_turns: PhaseTurns = field(default_factory=PhaseTurns)
    summaries: SummaryFigures = field(default_factory=SummaryFigures)
    savings: SavingFigures = field(default_factory=SavingFigures)
    folds: FoldFigures = field(default_factory=FoldFigures)
    trims: TrimFigures = field(default_factory=TrimFigures)
    composition: TokenComposition = field(default_factory=TokenComposition)
    shadow: bool = False
    notes: tuple[str, ...] = ()

    @property
    def efficiency(self) -> float:
        """Return our bill ÷ the bill of sending everything: 0.44 means 44 %. 1 if nothing was billed."""
        return self.savings.costs.ratio

    @property
    def efficiency_score(self) -> float:
        """Return the share of the raw bill that was saved, 1 - `efficiency`: higher is better, below 0 is a loss."""
        return 1.0 - self.efficiency

    def describe(self) -> str:
        """Return the session in one line: calls, tokens, and the bill against sending everything."""
        saved, costs = self.savings, self.savings.costs
        if not self.calls:
            return f"session {self.session!r}: no call yet"
        tokens = f"{saved.sent_tokens:,} of {saved.raw_tokens:,} prompt tokens sent"
        bill = f"${costs.ours:.4f} instead of ${costs.raw:.4f} ({format_signed_percent(self.efficiency - 1)})"
        shadow = "; shadow mode: nothing was changed" if self.shadow else ""
        calls = "1 call" if self.calls == 1 else f"{self.calls} calls"
        return f"session {self.session!r}: {calls}, {self.phase}; {tokens}; {bill}{shadow}"

    def _repr_html_(self) -> str:
        return draw_value(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON values, under the keys of the published efficiency report, and more.

        Published are `phases` (`masking`, `summarizing`), `summaries` (`count`, `frequency`), `savings` (`tokens`,
        `estimated_cost` in USD) and `efficiency_score`.
        """
        savings = self.savings
        return {
            "session": self.session,
            "model": self.model,
            "strategy": self.strategy,
            "shadow": self.shadow,
            "phase": self.phase,
            "calls": self.calls,
            "turns": self.turns,
            "phases": asdict(self.phase_turns),
            "summaries": asdict(self.summaries),
            "savings": {
                "tokens": savings.tokens,
                "estimated_cost": savings.usd,
                "sent_tokens": savings.sent_tokens,
                "raw_tokens": savings.raw_tokens,
                "our_usd": savings.costs.ours,
                "raw_usd": savings.costs.raw,
                "billed_usd": savings.costs.billed,
                "basis": savings.basis,
            },
            "folds": asdict(self.folds),
            "trims": asdict(self.trims),
            "efficiency": self.efficiency,
            "efficiency_score": self.efficiency_score,
            "notes": list(self.notes),
            "composition": {
                **asdict(self.composition),
                "observation_share": self.composition.observation_share,
            },
        }


def compute_frequency(turns: int, summaries: int) -> float | None:
    """Return the turns per summary; None without a summary."""
    if summaries:
        return turns / summaries
    return None


def format_signed_percent(share: float, digits: int = 1) -> str:
    """Return a share with its sign: `−74.6 %`, `+1.2 %`."""
    return f"{format_signed(100 * share, digits)} %"


def format_signed(value: float, digits: int = 1) -> str:
    """Return a number with its sign: `−74.6`, `+1.2`."""
    # What is nothing once it is rounded has no minus.
    return f"{round(value, digits) + 0.0:+.{digits}f}".replace("-", MINUS)


def draw_value(value: Any) -> str:
    """Return a value as HTML: a sentence, a chart and a table.

    The lab draws, which imports what is below it. So it is loaded here by name, and only when a notebook asks.
    """
    text: str = import_module("elision.lab.report.notebook").draw_value(value)
    return text
