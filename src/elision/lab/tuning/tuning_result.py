"""What a tuning found: values that its reports are made from, and their JSON shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal, TypeAlias

from elision.lab.results import Row, SentSummary, encode_problems, prices_json
from elision.lab.tuning.search_space import SearchSpace, ToolUse
from elision.strategies.schedules import SPENDING_CAP
from elision.trajectory.prices import Prices
from elision.trajectory.trajectory import Problem

#: What is recommended: the cheapest point that keeps enough facts visible, or of those that cost no more than the
#: default the one with most.
Objective: TypeAlias = Literal["cost", "evidence"]
OBJECTIVES: Final[tuple[Objective, ...]] = ("cost", "evidence")
#: How every pair of runs and strategy was chosen: every point of the space, or a sample of it.
Method: TypeAlias = Literal["exhaustive", "optuna"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedPoint:
    """One strategy on the two parts of the runs.

    text: what `elision replay -s` takes. names: what it is known as ("default", "published for SWE-agent"); none for
    points that only the search found. fit, judge: the sums of the runs; judge is None where it was not replayed there.
    on_frontier: whether no other point of the fit part is as cheap, shows as many facts and misses as few.
    """

    text: str
    fit: Row
    judge: Row | None = None
    names: tuple[str, ...] = ()
    on_frontier: bool = False

    def json(self) -> dict[str, Any]:
        """The shape of one entry of "points"."""
        return {
            "strategy": self.text,
            "names": list(self.names),
            "on_frontier": self.on_frontier,
            "fit": _encode_sum(self.fit),
            "judge": _encode_sum(self.judge),
        }


#: Keys of a replay's totals that a tuning does not have: they belong to single runs, depend on the other runs read, or
#: are not asked for.
_LEFT_OUT: Final = frozenset(("file", "trajectory", "reader", "strategy", "usd_hindsight", "usd_with_assumed_turns"))


def _encode_sum(row: Row | None) -> dict[str, Any] | None:
    if row is None:
        return None
    return {name: value for name, value in row.json().items() if name not in _LEFT_OUT and "filtered" not in name}


@dataclass(frozen=True, slots=True)
class SentTotal:
    """What happened, or was paid, in the runs of both parts, as far as it is known. judge: None where it is of none."""

    name: str
    fit: Row
    judge: Row | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Everything a tuning found.

    points: the reference strategies first, then the others in the order of their cost on the fit part.
    recommended: the text of the recommended one. default: of today's default.
    fit_runs, judge_runs: (file, id) of the runs in each part. rule_of_thumb: the name of the reference that was
    published for the scaffold of these runs, "" if there is none.
    size: possible points. searched: of them evaluated. unfit: points left out, since a run does not fit their budget.
    reused, added, gone: see `Evaluations`. finished: False if it was interrupted. sent: the rows of what happened.
    sending: how the runs of both parts were sent; points work instead of what their agents condensed themselves.
    """

    prices: Prices
    counter: str
    dialect: str
    objective: Objective
    min_evidence: float
    seed: int
    judge_share: float
    method: Method
    space: SearchSpace
    tools: tuple[ToolUse, ...]
    size: int
    searched: int
    unfit: int
    points: tuple[TunedPoint, ...]
    recommended: str
    default: str
    fit_runs: tuple[tuple[str, str], ...]
    judge_runs: tuple[tuple[str, str], ...]
    rule_of_thumb: str = ""
    problems: tuple[Problem, ...] = ()
    study: str = ""
    reused: int = 0
    added: int = 0
    gone: int = 0
    finished: bool = True
    sent: tuple[SentTotal, ...] = ()
    sending: SentSummary = field(default_factory=SentSummary)

    def cost_sent(self, name: str) -> float | None:
        """Return what the runs of both parts cost by the row `name` of what happened, in USD; None without it."""
        rows = [row for each in self.sent if each.name == name for row in (each.fit, each.judge)]
        return sum(row.usd for row in rows if row is not None) if rows else None

    def find_point(self, text: str) -> TunedPoint:
        """Return the point of the strategy `text`."""
        return next(point for point in self.points if point.text == text)

    @property
    def best(self) -> TunedPoint:
        """The recommended point."""
        return self.find_point(self.recommended)

    @property
    def baseline(self) -> TunedPoint:
        """Today's default."""
        return self.find_point(self.default)

    @property
    def frontier(self) -> tuple[TunedPoint, ...]:
        """The points that no other one beats, the cheapest first."""
        found = [point for point in self.points if point.on_frontier]
        return tuple(sorted(found, key=lambda point: (point.fit.usd, point.text)))

    @property
    def references(self) -> tuple[TunedPoint, ...]:
        """The points that have a name."""
        return tuple(point for point in self.points if point.names)

    @property
    def excess_ratio(self) -> float | None:
        """The highest bill so far of the recommended point, as a multiple of sending everything, in any run; None where
        it stays within the cap of the default's schedule."""
        worst = max(row.worst_ratio for row in (self.best.fit, self.best.judge) if row is not None)
        return worst if worst > SPENDING_CAP + TINY else None

    def is_confirmed(self) -> bool | None:
        """Return whether the recommended point keeps on the judge part what it was chosen for; None if it was not
        judged."""
        best, default = self.best.judge, self.baseline.judge
        if best is None or default is None:
            return None
        share = self.min_evidence if self.objective == "cost" else 1.0
        return best.usd <= default.usd + TINY and keeps_evidence(best, default, share)

    def json(self) -> dict[str, Any]:
        """Plain JSON, without NaN."""
        return {
            "finished": self.finished,
            "counter": self.counter,
            "dialect": self.dialect,
            "prices": prices_json(self.prices),
            "objective": self.objective,
            "min_evidence": self.min_evidence,
            "seed": self.seed,
            "judge_share": self.judge_share,
            "method": self.method,
            "space": {name: list(values) for name, values in self.space.values.items()},
            "size": self.size,
            "searched": self.searched,
            "unfit": self.unfit,
            "recommended": self.recommended,
            "confirmed": self.is_confirmed(),
            "default": self.default,
            "rule_of_thumb": self.rule_of_thumb,
            "sending": asdict(self.sending),
            "sent": [
                {
                    "name": each.name,
                    "fit": _encode_sum(each.fit),
                    "judge": _encode_sum(each.judge),
                }
                for each in self.sent
            ],
            "points": [point.json() for point in self.points],
            "tools": [
                {"tool": use.tool, "args": use.args, "hidden_tokens": use.hidden_tokens, "missed": use.missed}
                for use in self.tools
            ],
            "runs": {"fit": _list_runs(self.fit_runs), "judge": _list_runs(self.judge_runs)},
            "problems": encode_problems(self.problems),
        }


def _list_runs(runs: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"file": file, "trajectory": run} for file, run in runs]


#: Points within 1 % of the best are as good as it: the simplest of them is recommended.
NEAR: Final = 1.01
#: Less than this, USD or a share, is no difference.
TINY: Final = 1e-9


def keeps_evidence(row: Row, default: Row, share: float) -> bool:
    """Return whether `row` shows at least `share` of the facts that `default` shows, and misses something, a fact or
    one of the agent's own words, in no more turns than `default` and the rest of the share of all turns."""
    most_missing = default.missing_turns + (1 - share) * row.turns
    return row.evidence_found >= share * default.evidence_found - TINY and row.missing_turns <= most_missing + TINY


def find_frontier(rows: Sequence[Row]) -> list[bool]:
    """Return, for each of `rows`, whether none of the others is as good in cost, facts visible and turns missing
    something, and better in one."""
    return [not any(_is_dominated(row, other) for other in rows) for row in rows]


def _is_dominated(row: Row, other: Row) -> bool:
    differences = (
        row.usd - other.usd,
        other.evidence_found - row.evidence_found,
        row.missing_turns - other.missing_turns,
    )
    return min(differences) >= 0 and max(differences) > TINY


def choose_point(
    points: Sequence[TunedPoint], default: TunedPoint, objective: Objective, min_evidence: float
) -> TunedPoint:
    """Return the point to recommend, judged on the fit part alone; the default itself always qualifies.

    Where no fact was used again, nothing says what hiding loses: then it is the default.
    """
    if not default.fit.evidence_items:
        return default
    if objective == "cost":
        enough = [point for point in points if keeps_evidence(point.fit, default.fit, min_evidence)]
        cheapest = min(point.fit.usd for point in [*enough, default])
        near = [point for point in [*enough, default] if point.fit.usd <= NEAR * cheapest + TINY]
    else:
        most = default.fit
        affordable = [
            point
            for point in [*points, default]
            if point.fit.usd <= most.usd + TINY and point.fit.missing_turns <= most.missing_turns
        ]
        found = max(point.fit.evidence_found for point in affordable)
        near = [point for point in affordable if NEAR * point.fit.evidence_found >= found - TINY]
    return min(near, key=_rank_point)


def _rank_point(point: TunedPoint) -> tuple[float | str, ...]:
    """Order points: by options that differ from a strategy's defaults, since what is simpler fits by chance less
    easily, then by cost, facts visible, turns that miss one, and text."""
    row = point.fit
    return point.text.count("="), round(row.usd, 9), -row.evidence_found, row.missing_turns, point.text
