"""Hand-made tunings: an ordinary one, and one whose names want to do harm."""

from __future__ import annotations

from dataclasses import replace

from elision.lab.results import Row
from elision.lab.tuning.search_space import SearchSpace, ToolRule, ToolUse
from elision.lab.tuning.tuning_result import TunedPoint, Tuning
from elision.trajectory.price_lookup import find_price_set
from elision.trajectory.prices import Bill
from elision.trajectory.trajectory import Problem
from tests.lab.report.studies import HOSTILE


def make_row(usd: float, found: int, regret: int = 0, raw: float = 10.0) -> Row:
    """Return sums with these figures, of 100 facts."""
    return Row(bill=Bill(usd=usd), raw_usd=raw, calls=80, evidence_items=100, evidence_found=found, regret_turns=regret)


RULED = 'masking(rules=[rule(tool="read", after=20)])'
SUMMARIES = "summarization(tail=5)"


def tuning() -> Tuning:
    """Return a tuning that recommends summaries, confirmed on three runs."""
    judge = {"raw": make_row(4, 100, raw=4), "masking": make_row(3.5, 97, 2, 4), SUMMARIES: make_row(3.2, 98, 1, 4)}
    published = 'hybrid(schedule=every-turn, gist=0, placeholder="[Observation omitted for brevity]")'
    points = (
        TunedPoint(text="raw", fit=make_row(10, 100), judge=judge["raw"], names=("nothing hidden",), on_frontier=True),
        TunedPoint(text="masking", fit=make_row(8.7, 98, 4), judge=judge["masking"], names=("default",)),
        TunedPoint(
            text=published, fit=make_row(23, 97, 8), judge=make_row(9, 94, 3, 4), names=("published for SWE-agent",)
        ),
        TunedPoint(text="hybrid", fit=make_row(9, 99, 3), judge=make_row(3.7, 96, 3, 4), names=("preset swe-agent",)),
        TunedPoint(
            text="masking(window=3)", fit=make_row(6.5, 88, 12), judge=make_row(2.8, 90, 7, 4), on_frontier=True
        ),
        TunedPoint(text=SUMMARIES, fit=make_row(7.5, 98, 3), judge=judge[SUMMARIES], on_frontier=True),
        TunedPoint(text=RULED, fit=make_row(8.9, 96, 5)),
    )
    return Tuning(
        prices=find_price_set("anthropic"),
        counter="o200k",
        dialect="openai",
        objective="cost",
        min_evidence=0.98,
        seed=0,
        judge_share=0.3,
        method="optuna",
        space=SearchSpace(rule_sets=((), (ToolRule(tool="read", longer=True),))),
        tools=(ToolUse(tool="read", hidden_tokens=700, missed=3, runs=2), ToolUse(tool="list", hidden_tokens=300)),
        size=6_120,
        searched=64,
        unfit=0,
        points=points,
        recommended=SUMMARIES,
        default="masking",
        fit_runs=tuple((f"runs/{number}.json", "main") for number in range(8)),
        judge_runs=tuple((f"runs/{number}.json", "main") for number in range(8, 11)),
        rule_of_thumb="published for SWE-agent",
    )


def hostile() -> Tuning:
    """Return a tuning of runs, tools and problems whose names want to do harm."""
    found = tuning()
    tools = tuple(ToolUse(tool=name, hidden_tokens=100, missed=1) for name in HOSTILE)
    quoted = r'masking(rules=[rule(tool="\"><script>x</script>", after=3)])'
    return replace(
        found,
        tools=tools,
        points=(*found.points, TunedPoint(text=quoted, fit=make_row(7.4, 98), on_frontier=True)),
        recommended=quoted,
        fit_runs=tuple((name, name) for name in HOSTILE),
        problems=tuple(Problem(file=name, line=1, reason=name) for name in HOSTILE),
        study=HOSTILE[4],
        reused=3,
    )
