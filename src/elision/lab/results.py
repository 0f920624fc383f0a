"""What a study found: values that every report is made from, and their JSON shape."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import msgspec

from elision.lab.elongation import TurnAssumption
from elision.lab.ratios import divide_or_none, divide_or_zero, sum_or_none
from elision.telemetry.context_report import draw_value
from elision.trajectory.prices import Bill, Prices
from elision.trajectory.trajectory import Problem, TokenComposition

if TYPE_CHECKING:
    from elision.lab.replay_summarizer import SummarizerReport


#: The rows of what happened: the run as its agent sent it, billed as every other row is; and as its provider billed it.
RECORDED = "as recorded"
BILLED = "as billed"
#: What follows a strategy's name where it works on what the recording agent's own condensing has left.
ON_TOP = "on top"


def is_on_top(label: str) -> bool:
    """Return whether the row is of a strategy on top of the recording agent's own condensing."""
    return label.endswith(f", {ON_TOP}")


#: A difference of two bills, as a share, that is none.
NEAR_COST = 0.001
#: Cost as a multiple of what was sent from which on a change is not worth it.
LEAST_SAVING = 0.99

#: Turns at which the size of the context is listed, as far as runs are that long.
GROWTH_TURNS = (10, 50, 100, 200, 500, 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One run under one strategy, call by call.

    tokens: of each call's view. rewrites: calls (1-based) that began a new epoch. summaries: calls with a new summary.
    """

    tokens: tuple[int, ...]
    rewrites: tuple[int, ...] = ()
    summaries: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One run under one strategy, or the sum of all runs under it (then `file` and `trajectory` are "").

    runs: how many are in a sum. calls = turns of the runs counted.
    bill: prompts and answers; summarizer: the calls that wrote summaries.
    raw_usd: sending everything; recorded_usd: the run as it was sent, None where nothing is known of that.
    hindsight_usd: the cheapest schedule; None where there is none to compute.
    late_usd: what one more turn would cost, by the run's last ones; the mean over runs in a sum.
    extended_usd: the whole cost at the fewest and at the most turns that the study assumes; None where it assumes none.
    peak: tokens of the largest view. worst_ratio: highest bill so far / raw so far at any call.
    evidence_*: items used that only observations hold, and how many the view still showed; filtered leaves out what
    is common property of the format; plain leaves the summary's text out. regret_turns: turns that used what was
    hidden. own_*: the agent's own earlier words that it used again, those still visible, turns missing one and no fact.
    repeats, repeats_hidden: calls made before with the same arguments, and those whose earlier result was hidden.
    """

    file: str = ""
    trajectory: str = ""
    reader: str = ""
    strategy: str = ""
    runs: int = 1
    turns: int = 0
    tool_turns: int = 0
    calls: int = 0
    bill: Bill = field(default_factory=Bill)
    summarizer: Bill = field(default_factory=Bill)
    raw_usd: float = 0.0
    recorded_usd: float | None = None
    hindsight_usd: float | None = None
    late_usd: float = 0.0
    extended_usd: tuple[float, float] | None = None
    peak: int = 0
    worst_ratio: float = 0.0
    epochs: int = 0
    summaries: int = 0
    masked: int = 0
    folded: int = 0
    folded_tokens: int = 0
    evidence_items: int = 0
    evidence_found: int = 0
    evidence_found_plain: int = 0
    evidence_items_filtered: int = 0
    evidence_found_filtered: int = 0
    regret_turns: int = 0
    regret_turns_filtered: int = 0
    own_items: int = 0
    own_found: int = 0
    own_missing_turns: int = 0
    repeats: int = 0
    repeats_hidden: int = 0

    @property
    def usd(self) -> float:
        return self.bill.usd + self.summarizer.usd

    @property
    def cache_rewrites(self) -> int:
        """Calls that changed something earlier in the prompt: each run's first epoch is none."""
        return max(0, self.epochs - self.runs)

    @property
    def allowance(self) -> float | None:
        """Extra turns that would cost as much as is saved; None where nothing is saved."""
        saved = self.paid_usd - self.usd
        return saved / self.late_usd if saved > 0 and self.late_usd > 0 else None

    @property
    def paid_usd(self) -> float:
        """What the run cost as it was sent; that of sending everything where nothing else is known."""
        return self.raw_usd if self.recorded_usd is None else self.recorded_usd

    @property
    def to_recorded(self) -> float | None:
        """Cost as a multiple of the run's as it was sent."""
        return divide_or_none(self.usd, self.paid_usd)

    @property
    def is_as_sent(self) -> bool:
        """Whether sending everything is what happened, as far as the bill tells."""
        return abs(self.raw_usd - self.paid_usd) <= NEAR_COST * self.paid_usd

    @property
    def to_raw(self) -> float | None:
        """Cost as a multiple of sending everything."""
        return divide_or_none(self.usd, self.raw_usd)

    @property
    def to_hindsight(self) -> float | None:
        """Cost as a multiple of the best in hindsight."""
        return divide_or_none(self.usd, self.hindsight_usd)

    @property
    def evidence_recall(self) -> float | None:
        return divide_or_none(self.evidence_found, self.evidence_items)

    @property
    def evidence_recall_filtered(self) -> float | None:
        return divide_or_none(self.evidence_found_filtered, self.evidence_items_filtered)

    @property
    def evidence_recall_plain(self) -> float | None:
        """Without summary text."""
        return divide_or_none(self.evidence_found_plain, self.evidence_items)

    @property
    def missing_turns(self) -> int:
        """Turns missing a fact or one of the agent's own words."""
        return self.regret_turns + self.own_missing_turns

    @property
    def own_recall(self) -> float | None:
        return divide_or_none(self.own_found, self.own_items)

    def json(self) -> dict[str, Any]:
        """The shape of one entry of "runs" and "totals"."""
        return {
            "file": self.file,
            "trajectory": self.trajectory,
            "reader": self.reader,
            "turns": self.turns,
            "tool_turns": self.tool_turns,
            "strategy": self.strategy,
            "calls": self.calls,
            "tokens": {
                "sent": self.bill.prompt_tokens,
                "input": self.bill.input,
                "cache_write": self.bill.cache_write,
                "cache_read": self.bill.cache_read,
                "output": self.bill.output,
                "summarizer_input": self.summarizer.prompt_tokens,
                "summarizer_output": self.summarizer.output,
            },
            "usd": self.usd,
            "usd_summarizer": self.summarizer.usd,
            "usd_recorded": self.recorded_usd,
            "usd_raw": self.raw_usd,
            "usd_hindsight": self.hindsight_usd,
            "elongation_allowance": self.allowance,
            "usd_with_assumed_turns": list(self.extended_usd) if self.extended_usd else None,
            "peak_tokens": self.peak,
            "worst_ratio_to_raw": self.worst_ratio,
            "epochs": self.epochs,
            "summaries": self.summaries,
            "masked": self.masked,
            "folded": self.folded,
            "folded_tokens": self.folded_tokens,
            "evidence_items": self.evidence_items,
            "evidence_recall": self.evidence_recall,
            "evidence_recall_without_summary": self.evidence_recall_plain,
            "evidence_items_filtered": self.evidence_items_filtered,
            "evidence_recall_filtered": self.evidence_recall_filtered,
            "regret_turns": self.regret_turns,
            "regret_turns_filtered": self.regret_turns_filtered,
            "own_words_items": self.own_items,
            "own_words_recall": self.own_recall,
            "own_words_missing_turns": self.own_missing_turns,
            "repeats": self.repeats,
            "repeats_hidden": self.repeats_hidden,
        }


_SUMMED = (
    *("runs", "turns", "tool_turns", "calls", "raw_usd", "epochs", "summaries", "masked"),
    *("folded", "folded_tokens"),
    *("evidence_items", "evidence_found", "evidence_found_plain", "evidence_items_filtered", "evidence_found_filtered"),
    *("regret_turns", "regret_turns_filtered", "own_items", "own_found", "own_missing_turns"),
    *("repeats", "repeats_hidden"),
)


def total(rows: Iterable[Row]) -> Row:
    """The sum of `rows`, all of one strategy. hindsight_usd is None unless every row has one; peaks are the largest."""
    listed = list(rows)
    return replace(
        Row(**{name: sum(getattr(row, name) for row in listed) for name in _SUMMED}),
        strategy=listed[0].strategy if listed else "",
        bill=sum((row.bill for row in listed), Bill()),
        summarizer=sum((row.summarizer for row in listed), Bill()),
        recorded_usd=sum_or_none(row.recorded_usd for row in listed),
        hindsight_usd=sum_or_none(row.hindsight_usd for row in listed),
        late_usd=divide_or_zero(sum(row.late_usd for row in listed), len(listed)),
        extended_usd=_add_up_extended(listed),
        peak=max((row.peak for row in listed), default=0),
        worst_ratio=max((row.worst_ratio for row in listed), default=0.0),
    )


def _add_up_extended(rows: Sequence[Row]) -> tuple[float, float] | None:
    """Return the least and the most that `rows` cost with the assumed turns; None unless that is known of every row."""
    extended = [row.extended_usd for row in rows if row.extended_usd is not None]
    if not extended or len(extended) < len(rows):
        return None
    return sum(low for low, _ in extended), sum(high for _, high in extended)


@dataclass(frozen=True, slots=True, kw_only=True)
class Composition(TokenComposition):
    """Tokens of the runs of one format, each message counted once."""

    reader: str
    runs: int = 1


def sum_compositions(compositions: Iterable[Composition | None]) -> tuple[Composition, ...]:
    """Return one composition per format, by its name; None is left out."""
    found: dict[str, list[Composition]] = defaultdict(list)
    for each in compositions:
        if each is not None:
            found[each.reader].append(each)
    return tuple(
        Composition(reader=reader, runs=sum(each.runs for each in own), **asdict(sum(own, TokenComposition())))
        for reader, own in sorted(found.items())
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """How far the evidence measure of one format can be trusted.

    noise, noise_filtered: mean share of a run's items that *another* run's observations hold, as is and without common
    property; None with fewer than two runs. floor: evidence recall, plain masking, at the window under which the runs
    were recorded: what is called lost there the agent never saw, so 1 - floor is the false-positive rate; None if
    no run was recorded under masking.
    """

    reader: str
    runs: int
    noise: float | None
    noise_filtered: float | None
    floor: float | None = None
    floor_window: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextSize:
    """The context at one turn. turn: 1-based. runs: how many are that long. tokens: mean over them, by strategy."""

    turn: int
    runs: int
    tokens: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SentSummary:
    """How the runs of a study were sent, and what of that their recordings lack.

    runs: all of them. condensed_runs: those whose agent condensed its own history, `cuts` times, of which
    inferred_cuts follow from the bill and no record; unnamed_cuts are recorded without a word on what
    stayed. windowed_runs:
    those whose agent saw its newest results only. unclear: times of which nothing says what was left.
    billed_runs: those with a recorded bill. Those without: silent_runs hold no usage, partial_runs that of some calls,
    unpriced_runs that of a model without a known price. own_prices: whether all of the billed ones are priced as the
    model that they were billed as.
    mixed_runs: those with calls of another model than their own. other_calls: of these calls, those that stand in every
    row as they were billed; blended_calls: those that are priced as the run's model.
    """

    runs: int = 0
    condensed_runs: int = 0
    cuts: int = 0
    inferred_cuts: int = 0
    unnamed_cuts: int = 0
    windowed_runs: int = 0
    unclear: int = 0
    billed_runs: int = 0
    silent_runs: int = 0
    partial_runs: int = 0
    unpriced_runs: int = 0
    own_prices: bool = True
    mixed_runs: int = 0
    other_calls: int = 0
    blended_calls: int = 0

    def __add__(self, other: SentSummary) -> SentSummary:
        own_prices = self.own_prices and other.own_prices
        names = (each.name for each in fields(self) if each.name != "own_prices")
        counts = {name: getattr(self, name) + getattr(other, name) for name in names}
        return SentSummary(**counts, own_prices=own_prices)


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryTable:
    """What a study of many runs says in groups. headings: the first is of words. links: of the rows, to their runs."""

    title: str
    text: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    links: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySums:
    """What is known of all runs where a study lists only some.

    totals: by strategy. growth: the size of the context by turn. tables: medians, the best strategy by run, groups.
    missing: what is not finished yet; "" for nothing.
    """

    runs: int
    totals: tuple[Row, ...]
    growth: tuple[ContextSize, ...]
    tables: tuple[SummaryTable, ...] = ()
    missing: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """Everything a replay found.

    counter: how tokens were counted ("o200k", "cl100k", "estimate"). strategies: labels in the order asked for.
    series: (file, trajectory, strategy) -> call by call. finished: False if it was interrupted.
    hindsight: False if the cheapest schedules were not asked for. recommended: the label of the strategy that Elision
    recommends, "" if it is not compared. turns: what is assumed of the number of turns. compositions: of the runs that
    were read, by format. summarizer: the model that wrote the summaries; None for the digest. sent: what is known of
    how the runs were sent, and what they were billed. look_back: whether a cache finds entries only at some places.
    sums: of all runs, where `rows` and `series` have the worst only.
    """

    prices: Prices
    counter: str
    strategies: tuple[str, ...]
    rows: tuple[Row, ...]
    controls: tuple[Control, ...] = ()
    problems: tuple[Problem, ...] = ()
    series: Mapping[tuple[str, str, str], Series] = field(default_factory=dict)
    finished: bool = True
    hindsight: bool = True
    recommended: str = ""
    turns: TurnAssumption = field(default_factory=TurnAssumption)
    compositions: tuple[Composition, ...] = ()
    summarizer: SummarizerReport | None = None
    sent: SentSummary = field(default_factory=SentSummary)
    look_back: bool = False
    sums: StudySums | None = None

    def _repr_html_(self) -> str:
        return draw_value(self)

    def of(self, strategy: str) -> list[Row]:
        return [row for row in self.rows if row.strategy == strategy]

    @property
    def run_count(self) -> int:
        """Return how many runs were replayed."""
        return self.sums.runs if self.sums else len({(row.file, row.trajectory) for row in self.rows})

    @property
    def totals(self) -> tuple[Row, ...]:
        if self.sums is not None:
            return self.sums.totals
        return tuple(total(self.of(strategy)) for strategy in self.strategies if self.of(strategy))

    @property
    def growth(self) -> tuple[ContextSize, ...]:
        """The size of the context at the turns of `GROWTH_TURNS` that at least one run reaches under every strategy."""
        if self.sums is not None:
            return self.sums.growth
        sizes = []
        for turn in GROWTH_TURNS:
            reached: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
            for (file, run, strategy), series in self.series.items():
                if len(series.tokens) >= turn:
                    reached[file, run][strategy] = series.tokens[turn - 1]
            whole = [tokens for tokens in reached.values() if len(tokens) == len(self.strategies)]
            if whole:
                means = {name: round(sum(each[name] for each in whole) / len(whole)) for name in self.strategies}
                sizes.append(ContextSize(turn=turn, runs=len(whole), tokens=means))
        return tuple(sizes)

    def json(self) -> dict[str, Any]:
        return {
            "finished": self.finished,
            "hindsight": self.hindsight,
            "counter": self.counter,
            "summarizer": self.summarizer.json() if self.summarizer else None,
            "prices": prices_json(self.prices),
            "sent": asdict(self.sent),
            "runs": [row.json() for row in self.rows],
            "totals": [row.json() for row in self.totals],
            "controls": {control.reader: msgspec.to_builtins(control) for control in self.controls},
            "elongation": {
                "mode": self.turns.mode,
                "source": self.turns.source,
                "factors": msgspec.to_builtins(self.turns.factors),
            },
            "composition": msgspec.to_builtins(self.compositions),
            "growth": msgspec.to_builtins(self.growth),
            "tables": [asdict(table) for table in self.sums.tables] if self.sums else [],
            "run_count": self.run_count,
            "problems": encode_problems(self.problems),
        }


def prices_json(prices: Prices) -> dict[str, Any]:
    """A price list as JSON: USD per million tokens, tokens, seconds."""
    return {
        "name": prices.name,
        "source": prices.source,
        "dated": prices.dated,
        "window": prices.window,
        "tokens_per_counted": prices.tokenizer.tokens_per_counted,
        "tiers": [{"above": start, **msgspec.to_builtins(rates)} for start, rates in prices.tiers],
        "cache": msgspec.to_builtins(prices.cache),
    }


def encode_problems(problems: Iterable[Problem]) -> list[dict[str, Any]]:
    """Return what could not be read, as JSON."""
    return [{"file": problem.file, "line": problem.line, "reason": problem.reason} for problem in problems]
