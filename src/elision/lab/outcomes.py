"""Runs joined with what became of them: cost against solve rate, strategy by strategy.

A strategy that is cheaper a run is not cheaper a solution if it solves less. Replays cannot tell, as they keep the
agent's steps; live runs on a benchmark can. Runs meet their outcomes by instance id, and what has no partner is listed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Final, Literal, TypeAlias

import msgspec

from elision.errors import FormatError
from elision.lab.ratios import Interval, bootstrap_mean, divide_or_none, estimate_share, sum_or_none
from elision.lab.results import BILLED, RECORDED, SentSummary

#: Instances that an error names.
_NAMED: Final = 3

#: Where a run's cost is from: the recording states it, or token counts that the provider reported at list prices.
CostSource: TypeAlias = Literal["stated", "usage", "unknown"]


class InstanceRun(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename={
        "place": "file",
        "source": "cost_source",
        "silent_calls": "calls_without_usage",
        "recorded_usd": "usd_as_recorded",
    },
):
    """One run of an agent on one instance of a benchmark. Fields are in the order of the JSON.

    instance:    its id. name: what the recording or the store calls the run.
    place:       the file or store that it is from.
    usd:         what it cost as billed, summaries included; None if that is unknown. summary_usd: of that, summaries.
    recorded_usd: what was sent, by our count, priced as replays are; None of what is no recording. sent: how it was.
    turns:       calls of the agent's model. silent_calls: of those, calls without a reported usage, which cost nothing
                 here.
    played:      whether a playback made the responses, so that nobody was billed.
    solved:      as the run's own table says, or the outcome that it was joined with; None before that.
    """

    instance: str
    strategy: str
    name: str = ""
    place: str
    turns: int
    usd: float | None = None
    summary_usd: float = 0.0
    recorded_usd: float | None = None
    sent: SentSummary = SentSummary()
    source: CostSource = "unknown"
    silent_calls: int = 0
    played: bool = False
    solved: bool | None = None


class InstanceOutcome(msgspec.Struct, frozen=True, kw_only=True, rename={"place": "file"}):
    """What became of one instance. strategy: whose run it was; "" if the file belongs to no strategy by name."""

    instance: str
    strategy: str = ""
    solved: bool
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeSet:
    """Everything that files of outcomes hold.

    absent:  instances of the benchmark for which nothing was handed in: not solved where there is a run.
    endings: how runs ended, where a scaffold recorded it: (strategy, instance) -> its word.
    patches: instances for which something was handed in, and is not graded yet: (strategy, instance) -> the file.
    """

    outcomes: tuple[InstanceOutcome, ...] = ()
    absent: tuple[InstanceOutcome, ...] = ()
    endings: Mapping[tuple[str, str], str] = field(default_factory=dict)
    patches: Mapping[tuple[str, str], str] = field(default_factory=dict)

    @property
    def instances(self) -> set[str]:
        """Return the ids of all instances that are named."""
        named = {each.instance for each in (*self.outcomes, *self.absent)}
        return named | {instance for _, instance in (*self.endings, *self.patches)}


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyOutcome:
    """The joined runs of one strategy, each with its outcome. endings: how they ended, where that is recorded, and how
    many."""

    strategy: str
    joined: tuple[InstanceRun, ...]
    endings: Mapping[str, int] = field(default_factory=dict)

    @property
    def solved(self) -> int:
        """Return how many instances were solved."""
        return sum(each.solved is True for each in self.joined)

    @property
    def rate(self) -> float:
        """Return the share of instances that were solved."""
        return self.solved / len(self.joined)

    @property
    def rate_interval(self) -> Interval:
        """Return the 95 % interval of that share (Wilson)."""
        return estimate_share(self.solved, len(self.joined))

    @property
    def costs(self) -> tuple[float, ...]:
        """Return what the runs cost, in USD, as far as it is known."""
        return tuple(each.usd for each in self.joined if each.usd is not None)

    @property
    def mean_usd(self) -> float | None:
        """Return the mean cost of the runs whose cost is known, in USD; None if there are none."""
        return fmean(self.costs) if self.costs else None

    @property
    def mean_recorded_usd(self) -> float | None:
        """Return the mean cost as recorded, in USD; None unless all runs are recordings."""
        usd = sum_or_none(each.recorded_usd for each in self.joined)
        return None if usd is None else usd / len(self.joined)

    @property
    def sending(self) -> SentSummary:
        """Return how the runs were sent, as far as they are recordings."""
        return sum((each.sent for each in self.joined), SentSummary())

    @property
    def usd_per_solved(self) -> float | None:
        """Return the cost of all runs by the number of solved ones, in USD; None if a cost is unknown or none is
        solved."""
        if len(self.costs) < len(self.joined) or not self.solved:
            return None
        return sum(self.costs) / self.solved

    @property
    def summary_share(self) -> float | None:
        """Return what part of the cost the summaries are; None if no cost is known."""
        if not sum(self.costs):
            return None
        return sum(each.summary_usd for each in self.joined if each.usd is not None) / sum(self.costs)

    @property
    def mean_turns(self) -> float:
        """Return the mean number of turns."""
        return fmean(each.turns for each in self.joined)


class PairedDifference(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename={"rate": "solve_rate", "rate_interval": "solve_rate_interval"},
):
    """A strategy less the baseline, on the same instances; intervals are 95 %, of a seeded bootstrap over instances.

    usd:   mean difference of cost in USD; None where a cost is unknown. usd_share: the same by the baseline's cost.
    basis: which cost that is: as billed, or as recorded where not every bill is known; "" for none.
    rate:  difference of the solve rate, as a share.
    gained, lost: instances that only this strategy solves, and that only the baseline solves.
    """

    strategy: str
    baseline: str
    instances: int
    usd: float | None = None
    usd_interval: Interval | None = None
    usd_share: float | None = None
    basis: str = ""
    rate: float
    rate_interval: Interval
    gained: int
    lost: int
    turns: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeStudy:
    """What was joined, and what was not.

    strategies: in the order in which they were given. shared: the same on the instances that all of them have; empty
    where they share none. differences: on those, less the first strategy called raw, else the first.
    no_outcome: runs without an outcome. no_run: outcomes without a run. problems: what could not be read.
    priced_as: the prices that were asked for, instead of each model's own.
    """

    strategies: tuple[StrategyOutcome, ...]
    shared: tuple[StrategyOutcome, ...] = ()
    differences: tuple[PairedDifference, ...] = ()
    no_outcome: tuple[InstanceRun, ...] = ()
    no_run: tuple[InstanceOutcome, ...] = ()
    problems: tuple[str, ...] = ()
    priced_as: str = ""

    @property
    def is_same_set(self) -> bool:
        """Return whether all strategies have the same instances."""
        sets = [{each.instance for each in row.joined} for row in self.strategies]
        return all(each == sets[0] for each in sets)

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON."""
        return {
            "strategies": [_encode_strategy(row) for row in self.strategies],
            "shared": {
                "instances": sorted(each.instance for each in self.shared[0].joined) if self.shared else [],
                "strategies": [_encode_strategy(row) for row in self.shared],
                "differences": msgspec.to_builtins(self.differences),
            },
            "runs": [run for row in self.strategies for run in msgspec.to_builtins(row.joined)],
            "runs_without_outcome": [
                {name: value for name, value in run.items() if name != "solved"}
                for run in msgspec.to_builtins(self.no_outcome)
            ],
            "outcomes_without_run": msgspec.to_builtins(self.no_run),
            "problems": list(self.problems),
        }


def join_outcomes(
    runs: Sequence[InstanceRun],
    outcomes: OutcomeSet,
    *,
    baseline: str = "",
    seed: int = 0,
    problems: Iterable[str] = (),
    priced_as: str = "",
) -> OutcomeStudy:
    """Join runs with their outcomes by strategy and instance id.

    An outcome of no strategy belongs to the run of its instance. baseline: the strategy that the others are compared
    with; "" for the first called raw, else the first. Raises FormatError where an instance occurs twice in a strategy,
    where an outcome may belong to several strategies, and where no run has an outcome.
    """
    strategies = list(dict.fromkeys(run.strategy for run in runs))
    by_key = _index_runs(runs)
    found = _assign_outcomes(outcomes.outcomes, by_key, strategies)
    joined, no_outcome = _join_runs(by_key, found, outcomes)
    if not any(joined.values()):
        raise FormatError(_explain_no_join(no_outcome, outcomes))
    rows = [_sum_up_runs(runs, outcomes) for runs in joined.values() if runs]
    baseline = _choose_baseline([row.strategy for row in rows], baseline)
    shared = _select_shared(rows)
    pairs = ((row, base) for base in shared for row in shared if base.strategy == baseline and row is not base)
    return OutcomeStudy(
        strategies=tuple(rows),
        shared=shared,
        differences=tuple(_compare_pair(row, base, seed) for row, base in pairs),
        no_outcome=tuple(no_outcome),
        no_run=tuple(outcome for key, outcome in found.items() if key not in by_key),
        problems=tuple(problems),
        priced_as=priced_as,
    )


# -- joining ----------------------------------------------------------------------------------------------------------


def _index_runs(runs: Iterable[InstanceRun]) -> dict[tuple[str, str], InstanceRun]:
    found: dict[tuple[str, str], InstanceRun] = {}
    for run in runs:
        other = found.setdefault((run.strategy, run.instance), run)
        if other is not run:
            raise FormatError(
                f"{run.instance}: two runs of {run.strategy}, in {other.place} and in {run.place}; leave one out, or "
                "give them as two strategies, NAME=PATH each"
            )
    return found


def _assign_outcomes(
    outcomes: Iterable[InstanceOutcome], runs: Mapping[tuple[str, str], InstanceRun], strategies: Sequence[str]
) -> dict[tuple[str, str], InstanceOutcome]:
    """Return each outcome under the strategy and instance that it belongs to; under strategy "" if there is no run."""
    found: dict[tuple[str, str], InstanceOutcome] = {}
    for outcome in outcomes:
        if outcome.strategy:
            key = outcome.strategy, outcome.instance
        else:
            owners = [strategy for strategy in strategies if (strategy, outcome.instance) in runs]
            if len(owners) > 1:
                raise FormatError(
                    f"{outcome.place}: {outcome.instance} was run by {', '.join(owners)}, and the file "
                    f"names none; name it: --outcomes '{owners[0]}={outcome.place}'"
                )
            key = owners[0] if owners else "", outcome.instance
        other = found.setdefault(key, outcome)
        if other is not outcome:
            raise FormatError(
                f"{outcome.instance}: two outcomes, in {other.place} and in {outcome.place}; leave one out, "
                f"or name each: --outcomes NAME=PATH"
            )
    return found


def _join_runs(
    runs: Mapping[tuple[str, str], InstanceRun],
    found: Mapping[tuple[str, str], InstanceOutcome],
    outcomes: OutcomeSet,
) -> tuple[dict[str, list[InstanceRun]], list[InstanceRun]]:
    """Return the runs with their outcomes, by strategy, and those without one."""
    absent = {(each.strategy, each.instance) for each in outcomes.absent}
    joined: dict[str, list[InstanceRun]] = {run.strategy: [] for run in runs.values()}
    no_outcome = []
    for (strategy, instance), run in runs.items():
        outcome = found.get((strategy, instance))
        solved = run.solved if outcome is None else outcome.solved
        if solved is None and ((strategy, instance) in absent or ("", instance) in absent):
            solved = False
        if solved is None:
            no_outcome.append(run)
        else:
            joined[strategy].append(msgspec.structs.replace(run, solved=solved))
    return joined, no_outcome


def _sum_up_runs(runs: Sequence[InstanceRun], outcomes: OutcomeSet) -> StrategyOutcome:
    """Return the outcome of the strategy of `runs`, with how they ended, the most frequent first."""
    strategy = runs[0].strategy
    words: Counter[str] = Counter()
    for run in runs:
        word = outcomes.endings.get((strategy, run.instance)) or outcomes.endings.get(("", run.instance))
        if word:
            words[word] += 1
    return StrategyOutcome(strategy=strategy, joined=tuple(runs), endings=dict(words.most_common()))


def _explain_no_join(runs: Sequence[InstanceRun], outcomes: OutcomeSet) -> str:
    if not runs:
        return "no run was read, so nothing can be joined"
    named = ", ".join(run.name or run.instance for run in runs[:_NAMED])
    if outcomes.patches and not outcomes.outcomes:
        place = next(iter(outcomes.patches.values()))
        return (
            f"{place}: predictions are not graded; evaluate them first "
            f"(python -m swebench.harness.run_evaluation --predictions_path {place} ...) and give the report"
        )
    if not outcomes.outcomes:
        return f"no outcome for any run ({named}); give the harness's report: --outcomes REPORT.json"
    asked = ", ".join(sorted(each.instance for each in outcomes.outcomes)[:_NAMED])
    return (
        f"no run has an outcome: the runs are called {named}, the outcomes {asked}; if the names of the runs do not "
        "have the instance ids, give the tasks: --tasks with the trajectories or the benchmark's instances"
    )


# -- comparing --------------------------------------------------------------------------------------------------------


def _select_shared(rows: Sequence[StrategyOutcome]) -> tuple[StrategyOutcome, ...]:
    """Return the strategies on the instances that all of them have, in one order; () if there are none."""
    if len(rows) < 2:
        return ()
    held = [{each.instance: each for each in row.joined} for row in rows]
    common = sorted(set.intersection(*(set(each) for each in held)))
    if not common:
        return ()
    return tuple(
        StrategyOutcome(strategy=row.strategy, joined=tuple(members[instance] for instance in common))
        for row, members in zip(rows, held, strict=True)
    )


def _choose_baseline(names: Sequence[str], asked: str) -> str:
    if asked and asked not in names:
        raise FormatError(f"--baseline {asked}: there is no such strategy; there are {', '.join(names)}")
    raw = next((name for name in names if name == "raw" or name.startswith("raw(") or name.endswith("-raw")), names[0])
    return asked or raw


def _compare_pair(row: StrategyOutcome, base: StrategyOutcome, seed: int) -> PairedDifference:
    """Compare two strategies whose runs are in the order of the same instances."""
    pairs = list(zip(row.joined, base.joined, strict=True))
    solved = [float(one.solved is True) - float(other.solved is True) for one, other in pairs]
    usd = usd_share = interval = None
    basis = ""
    as_billed = [(one.usd, other.usd) for one, other in pairs]
    as_recorded = [(one.recorded_usd, other.recorded_usd) for one, other in pairs]
    for name, found in ((BILLED, as_billed), (RECORDED, as_recorded)):
        known = [(ours, theirs) for ours, theirs in found if ours is not None and theirs is not None]
        if len(known) == len(pairs):
            costs = [ours - theirs for ours, theirs in known]
            usd, basis = fmean(costs), name
            interval = bootstrap_mean(costs, seed=seed)
            usd_share = divide_or_none(usd, fmean(theirs for _, theirs in known))
            break
    return PairedDifference(
        strategy=row.strategy,
        baseline=base.strategy,
        instances=len(pairs),
        rate=fmean(solved),
        rate_interval=bootstrap_mean(solved, seed=seed),
        gained=sum(each > 0 for each in solved),
        lost=sum(each < 0 for each in solved),
        turns=row.mean_turns - base.mean_turns,
        usd=usd,
        usd_interval=interval,
        usd_share=usd_share,
        basis=basis,
    )


# -- JSON -------------------------------------------------------------------------------------------------------------


def _encode_strategy(row: StrategyOutcome) -> dict[str, Any]:
    return {
        "strategy": row.strategy,
        "instances": len(row.joined),
        "solved": row.solved,
        "solve_rate": row.rate,
        "solve_rate_interval": msgspec.to_builtins(row.rate_interval),
        "mean_usd": row.mean_usd,
        "usd_known": len(row.costs),
        "mean_usd_as_recorded": row.mean_recorded_usd,
        "usd_per_solved": row.usd_per_solved,
        "summary_share": row.summary_share,
        "mean_turns": row.mean_turns,
        "cost_sources": dict(Counter(each.source for each in row.joined)),
        "endings": dict(row.endings),
    }
