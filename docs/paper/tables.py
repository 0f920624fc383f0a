"""The tables of the paper's pages, as Markdown. Each has what was published beside what the runs give."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from docs.paper.facts import AgentRun, Difference, Experiment, PaperFacts
from docs.paper.statistics import (
    COST_SEED,
    SOLVED_SEED,
    Estimate,
    count_solved,
    estimate_difference,
    estimate_ratio,
    list_common,
    mean_turns,
    mean_usd,
    summary_share,
)
from docs.paper.turn_table import HYBRIDS, MODELS, STRATEGIES

#: What the paper's table 1 states: solved (%) and cost (USD) of raw, masking and summarization.
PUBLISHED = {
    "gemini": ((32.8, 0.41), (35.6, 0.18), (36.0, 0.24)),
    "gemini-thinking": ((40.4, 0.56), (36.4, 0.24), (31.4, 0.25)),
    "coder": ((53.4, 1.29), (54.8, 0.61), (53.8, 0.64)),
    "qwen32": ((17.0, 1.12), (15.0, 0.55), (16.0, 0.50)),
    "qwen32-thinking": ((23.0, 0.51), (24.6, 0.46), (24.8, 0.51)),
}
#: What it states of the calls for summaries: USD a run, and their share (%).
PUBLISHED_SHARES = {
    "gemini": (0.0161, 6.71),
    "gemini-thinking": (0.0131, 5.24),
    "coder": (0.0439, 7.20),
    "qwen32": (0.0143, 2.86),
    "qwen32-thinking": (0.0033, 0.65),
}
NAMES = {
    "raw": "raw",
    "masking-10": "masking",
    "summarization-21": "summarization",
    "hybrid-43": "hybrid, N=43",
    "hybrid-21": "hybrid, N=21",
}
#: What the descriptions state of Qwen3-Coder 480B: USD a run, solved (%).
DESCRIBED = {
    "raw": ("$1.29", "53.4 %"),
    "masking-10": ("$0.61", "54.8 %"),
    "summarization-21": ("$0.64", "53.8 %"),
    "hybrid-43": ("$0.57", "57.4 %"),
    "hybrid-21": ("higher", "similar"),
}
MINUS = "−"
#: Turns before the first summary: N + M.
WARM_UP = 31


def build_tables(facts: PaperFacts) -> dict[str, str]:
    """Return every table by its name."""
    return {
        "models": _compare_models(facts),
        "coder": _compare_coder(facts),
        "same50": _compare_same(facts),
        "scale": _scale_savings(facts),
        "shares": _compare_shares(facts),
        "turns": _compare_turns(facts),
        "mean-turns": _list_mean_turns(facts),
        "openhands": _compare_windows(facts),
        "openhands-all": _compare_openhands(facts),
        "pooled": _pool_models(facts),
        "dose": _list_doses(facts),
        "summary-calls": _count_summaries(facts),
        "warmup": _count_short_runs(facts),
        "differences": _compare_differences(facts),
        "missing": _list_missing(facts),
    }


def _compare_models(facts: PaperFacts) -> str:
    rows = []
    for model in MODELS:
        for name, (solved, usd) in zip(("raw", *STRATEGIES), PUBLISHED[model], strict=True):
            each = facts.experiments[f"{model}-{name}"]
            rows.append(
                (
                    each.model,
                    NAMES[name],
                    f"${usd:.2f}",
                    f"${mean_usd(each):.4f}",
                    f"{solved:.1f} %",
                    f"{100 * count_solved(each) / len(facts.instances):.1f} % ({count_solved(each)})",
                    str(len(each.runs)),
                )
            )
    heads = ("model", "strategy", "cost, published", "cost", "solved, published", "solved of 500", "runs in the data")
    return _write_table(heads, rows)


def _compare_coder(facts: PaperFacts) -> str:
    rows = []
    for name in ("raw", *STRATEGIES, *HYBRIDS):
        each = facts.experiments[f"coder-{name}"]
        usd, solved = DESCRIBED[name]
        share = f"{count_solved(each)} of {max(len(each.runs), 500 if len(each.runs) > 50 else 50)}"
        rows.append((NAMES[name], usd, f"${mean_usd(each):.4f}", solved, share, f"{mean_turns(each):.1f}"))
    return _write_table(("strategy", "cost, described", "cost", "solved, described", "solved", "turns"), rows)


def _compare_same(facts: PaperFacts) -> str:
    experiments = [facts.experiments[f"coder-{name}"] for name in ("raw", *STRATEGIES, *HYBRIDS)]
    instances = list_common(experiments)
    hybrid = facts.experiments["coder-hybrid-43"]
    rows = []
    for each in experiments:
        cost = estimate_ratio(hybrid, each, _pay, COST_SEED, instances)
        turns = estimate_ratio(each, experiments[0], _count_turns, SOLVED_SEED, instances)
        solved = estimate_difference(hybrid, each, _solve, SOLVED_SEED, instances)
        same = each is hybrid
        rows.append(
            (
                NAMES[each.key.removeprefix("coder-")],
                f"${mean_usd(each, instances):.3f}",
                f"{count_solved(each, instances)} of {len(instances)}",
                f"{mean_turns(each, instances):.1f}",
                "–" if each is experiments[0] else _write_change(turns),
                "–" if same else _write_change(cost),
                "–" if same else _write_points(solved),
            )
        )
    heads = (
        *("strategy", "cost", "solved", "turns", "turns against raw"),
        *("cost of hybrid N=43 against it", "hybrid N=43 solves more, points"),
    )
    return _write_table(heads, rows)


def _scale_savings(facts: PaperFacts) -> str:
    experiments = {name: facts.experiments[f"coder-{name}"] for name in (*STRATEGIES, "hybrid-43")}
    instances = list_common(experiments.values())
    usd = {name: mean_usd(each, instances) for name, each in experiments.items()}
    rows = []
    for runs, masking, summary in ((50, "$2.00", "$3.50"), (500, "$20.00", "$35.00"), (1000, "$40.00", "$70.00")):
        saved = [f"${runs * (usd[name] - usd['hybrid-43']):.2f}" for name in STRATEGIES]
        rows.append((f"{runs:,}", masking, saved[0], summary, saved[1]))
    heads = ("runs", "against masking, described", "paired", "against summarization, described", "paired")
    return _write_table(heads, rows)


def _compare_shares(facts: PaperFacts) -> str:
    rows = []
    for model, (usd, share) in PUBLISHED_SHARES.items():
        each = facts.experiments[f"{model}-summarization-21"]
        mean = sum(run.summary_cost for run in each.runs.values()) / len(each.runs)
        masked = mean / mean_usd(facts.experiments[f"{model}-masking-10"])
        rows.append(
            (
                each.model,
                f"${usd:.4f}",
                f"${mean:.4f}",
                f"{share:.2f} %",
                f"{100 * summary_share(each):.2f} %",
                f"{100 * masked:.2f} %",
            )
        )
    heads = (
        *("model", "summaries, published", "summaries"),
        *("share, published", "share of the cost with summaries", "as a share of masking's cost"),
    )
    return _write_table(heads, rows)


def _compare_turns(facts: PaperFacts) -> str:
    rows = []
    for raw, masking, summary, instances in _list_turns(facts):
        pairs = ((summary, masking), (masking, raw), (summary, raw))
        changes = [_write_change(estimate_ratio(*pair, _count_turns, SOLVED_SEED, instances)) for pair in pairs]
        rows.append((raw.model, *changes))
    heads = ("model", "summarization against masking", "masking against raw", "summarization against raw")
    return _write_table(heads, rows)


def _list_mean_turns(facts: PaperFacts) -> str:
    rows = []
    for *compared, instances in _list_turns(facts):
        means = (f"{mean_turns(each, instances):.1f}" for each in compared)
        rows.append((compared[0].model, str(len(instances)), *means))
    return _write_table(("model", "instances", "raw", "masking", "summarization"), rows)


def _list_turns(facts: PaperFacts) -> list[tuple[Experiment, Experiment, Experiment, list[str]]]:
    """Return each model's raw, masking and summarization with the instances that all ran: most lengthened first."""
    found = []
    for model in MODELS:
        raw, masking, summary = (facts.experiments[f"{model}-{name}"] for name in ("raw", *STRATEGIES))
        found.append((raw, masking, summary, list_common([raw, masking, summary])))
    return sorted(found, key=lambda each: mean_turns(each[1], each[3]) / mean_turns(each[2], each[3]))


def _compare_windows(facts: PaperFacts) -> str:
    rows = []
    for each in list_openhands(facts):
        name = f"masking, M={each.window}" if each.strategy == "masking" else each.strategy
        rows.append(
            (name, f"${mean_usd(each):.3f}", f"{count_solved(each)} of {len(each.runs)}", f"{mean_turns(each):.1f}")
        )
    return _write_table(("OpenHands, Gemini 2.5 Flash", "cost", "solved", "turns"), rows)


def _compare_openhands(facts: PaperFacts) -> str:
    raw = facts.experiments["openhands-raw-all"]
    rows = []
    for name in ("raw", "masking-10", "masking-72", "summarization-21"):
        each = facts.experiments[f"openhands-{name}-all"]
        instances = list_common([raw, each])
        solved = estimate_difference(each, raw, _solve, SOLVED_SEED, instances)
        turns = estimate_ratio(each, raw, _count_turns, SOLVED_SEED, instances)
        cost = estimate_ratio(each, raw, _pay, COST_SEED, instances)
        same = each is raw
        rows.append(
            (
                f"masking, M={each.window}" if each.strategy == "masking" else each.strategy,
                f"{count_solved(each)} of {len(each.runs)}",
                "–" if same else _write_interval((solved.value, solved.low, solved.high), 100, 1),
                f"{mean_turns(each):.1f}",
                "–" if same else _write_change(turns),
                "–" if same else _write_change(cost),
            )
        )
    heads = (
        "OpenHands, 500 instances",
        "solved",
        "solved more, points",
        "turns",
        "turns against raw",
        "cost against raw",
    )
    return _write_table(heads, rows)


def _pool_models(facts: PaperFacts) -> str:
    """Paired outcomes of five models together; the interval is that of a paired difference (Wald)."""
    rows = []
    for name in STRATEGIES:
        pairs = [
            (ours.runs[instance].solved, raw.runs[instance].solved)
            for ours, raw in (
                (facts.experiments[f"{model}-{name}"], facts.experiments[f"{model}-raw"]) for model in MODELS
            )
            for instance in list_common([ours, raw])
        ]
        more = sum(ours > theirs for ours, theirs in pairs)
        fewer = sum(ours < theirs for ours, theirs in pairs)
        count = len(pairs)
        width = 1.96 * math.sqrt(more + fewer - (more - fewer) ** 2 / count) / count
        rows.append(
            (
                NAMES[name],
                f"{count:,}",
                f"{_write_number(100 * (more - fewer) / count, 2)} ± {100 * width:.2f}",
                f"{100 * (more + fewer) / count:.0f} %",
            )
        )
    return _write_table(("SWE-agent, five models", "pairs", "solved more than raw, points", "pairs that differ"), rows)


def _list_doses(facts: PaperFacts) -> str:
    rows = []
    for dose in facts.doses:
        each = facts.experiments[dose.experiment]
        rows.append(
            (
                f"{dose.window} turns (M={each.window})" if dose.window else "raw",
                f"{100 * dose.missing_turns / dose.turns:.1f} %",
                f"{count_solved(each)} of {len(each.runs)}",
                f"{mean_turns(each):.0f}",
            )
        )
    return _write_table(("window", "turns missing a fact", "solved", "turns taken"), rows)


def _count_summaries(facts: PaperFacts) -> str:
    experiments = [facts.experiments[f"coder-{name}"] for name in ("summarization-21", *HYBRIDS)]
    instances = list_common(experiments)
    first = sum(experiments[0].runs[name].summaries for name in instances)
    rows = []
    for each in experiments:
        count = sum(each.runs[name].summaries for name in instances)
        change = "–" if each is experiments[0] else f"{_write_number(100 * (count / first - 1), 0)} %"
        rows.append((NAMES[each.key.removeprefix("coder-")], f"{count / len(instances):.2f}", change))
    return _write_table(("Qwen3-Coder 480B, the same 50", "summaries a run", "against summarization"), rows)


def list_openhands(facts: PaperFacts) -> list[Experiment]:
    """Return the experiments of OpenHands on 50 instances: raw, summarization, then masking by its window."""
    found = [each for each in facts.experiments.values() if each.scaffold == "OpenHands" and len(each.runs) == 50]
    order = ("raw", "summarization", "masking")
    return sorted(found, key=lambda each: (order.index(each.strategy), each.window))


def _count_short_runs(facts: PaperFacts) -> str:
    rows = []
    for model in MODELS:
        raw = facts.experiments[f"{model}-raw"]
        masking = facts.experiments[f"{model}-masking-10"]
        summary = facts.experiments[f"{model}-summarization-21"]
        short = sum(run.turns < WARM_UP for run in summary.runs.values()) / len(summary.runs)
        summarized = sum(run.summaries > 0 for run in summary.runs.values()) / len(summary.runs)
        saved = [1 - mean_usd(each) / mean_usd(raw) for each in (masking, summary)]
        rows.append(
            (
                summary.model,
                f"{100 * short:.0f} %",
                f"{100 * summarized:.0f} %",
                *(f"{100 * each:.0f} %" for each in saved),
            )
        )
    heads = (
        *("model", f"runs of fewer than {WARM_UP} turns", "runs with a summary"),
        *("masking saves", "summarization saves"),
    )
    return _write_table(heads, rows)


def _compare_differences(facts: PaperFacts) -> str:
    rows = []
    for published in facts.differences:
        solved, cost = recompute_difference(facts, published)
        rows.append(
            (
                published.group,
                published.strategy,
                _write_interval(published.solve_rate, 100, 1),
                _write_interval((solved.value, solved.low, solved.high), 100, 1),
                _write_interval(published.cost, 1, 3),
                _write_interval((cost.value, cost.low, cost.high), 1, 3),
            )
        )
    heads = (
        *("model", "strategy", "solved more, points, published", "recomputed"),
        *("cost, USD, published", "recomputed"),
    )
    return _write_table(heads, rows)


def recompute_difference(facts: PaperFacts, published: Difference) -> tuple[Estimate, Estimate]:
    """Return the differences of solved and of cost that belong to a published row, over all 500 instances.

    A run that is not in the data counts as unsolved and as free.
    """
    ours = facts.experiments[published.experiment]
    raw = facts.experiments[published.raw]
    return (
        estimate_difference(ours, raw, _solve, SOLVED_SEED, facts.instances),
        estimate_difference(ours, raw, _pay, COST_SEED, facts.instances),
    )


def _list_missing(facts: PaperFacts) -> str:
    rows = []
    for published in facts.differences:
        ours = facts.experiments[published.experiment]
        raw = facts.experiments[published.raw]
        _, cost = recompute_difference(facts, published)
        rows.append(
            (
                published.group,
                published.strategy,
                str(len(facts.instances) - len(ours.runs)),
                str(len(facts.instances) - len(raw.runs)),
                f"{published.common}",
                _write_number(len(facts.instances) * (published.cost[0] - cost.value), 2, "$"),
            )
        )
    heads = ("model", "strategy", "runs missing", "missing in raw", "counted, published", "cost not in the data")
    return _write_table(heads, rows)


def _pay(run: AgentRun) -> float:
    return run.usd


def _solve(run: AgentRun) -> float:
    return run.solved


def _count_turns(run: AgentRun) -> float:
    return run.turns


def _write_change(ratio: Estimate) -> str:
    """`+17.9 % (+1.8 to +36.0)`: a multiple as a change, with its interval."""
    return (
        f"{_write_number(100 * (ratio.value - 1), 1)} % ({_write_number(100 * (ratio.low - 1), 1)} to "
        f"{_write_number(100 * (ratio.high - 1), 1)})"
    )


def _write_points(difference: Estimate) -> str:
    return _write_interval((difference.value, difference.low, difference.high), 100, 0)


def _write_interval(values: Sequence[float], scale: float, digits: int) -> str:
    value, low, high = (_write_number(scale * each, digits) for each in values)
    return f"{value} ({low} to {high})"


def _write_number(value: float, digits: int, unit: str = "") -> str:
    """A number with its sign; none for what rounds to 0."""
    text = f"{abs(value):.{digits}f}"
    sign = "" if float(text) == 0 else MINUS if value < 0 else "+"
    return f"{sign}{unit}{text}"


def _write_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
