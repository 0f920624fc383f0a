"""The sentences of a tuning's report, the same in terminal, page, picture and settings file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from elision.lab import elongation
from elision.lab.elongation import KNEE, is_above_knee
from elision.lab.report.figures import (
    NOTHING,
    format_change,
    format_count,
    format_plural,
    format_share,
    format_turns,
    format_usd,
    neutralize_text,
)
from elision.lab.report.sent_wording import describe_sent as describe_sending
from elision.lab.report.wording import describe_turn_effects
from elision.lab.results import BILLED, LEAST_SAVING, RECORDED, Row
from elision.lab.tuning.search_space import FAMILIES, NUMBERS, OPENHANDS
from elision.lab.tuning.tuning_result import TINY, TunedPoint, Tuning
from elision.strategies.schedules import SPENDING_CAP, CacheAwareSchedule
from elision.strategies.spec import parse_strategy
from elision.strategies.strategy import Strategy

#: Points of the frontier that a table lists; JSON has all.
LISTED: Final = 12
#: Runs to judge of which a verdict says little.
FEW_RUNS: Final = 3


def write_headline(tuning: Tuning) -> str:
    """Return the recommended point in a sentence, beside today's default."""
    best, default = tuning.best, tuning.baseline
    name = describe_point(best.text)
    name = name[:1].upper() + name[1:]
    spent, before = format_usd(best.fit.usd), format_usd(default.fit.usd)
    if best.text == default.text:
        return f"The default is the best point found: {name}, {spent} ({_format_change(best.fit)} vs recorded)."
    change = format_change(best.fit.usd / default.fit.usd if default.fit.usd else None)
    return f"{name} costs {spent} instead of {before} by default ({change})."


def describe_scope(tuning: Tuning) -> str:
    """Return which runs were used, and which points were evaluated."""
    fit = format_plural(len(tuning.fit_runs), "run")
    judge = format_count(len(tuning.judge_runs))
    searched, size = format_count(tuning.searched), format_plural(tuning.size, "point")
    if tuning.method == "exhaustive":
        search = f"all {size} replayed" if tuning.searched == tuning.size else f"{searched} of {size} replayed"
    else:
        search = f"{searched} of {size} replayed, proposed by Optuna"
    return f"{fit} to fit, {judge} to judge (seed {tuning.seed}); {search}"


def describe_choice(tuning: Tuning) -> str:
    """Return why the recommended point is recommended."""
    best, default = tuning.best.fit, tuning.baseline.fit
    if not default.evidence_items:
        return (
            "Recommended: the default. No fact of an earlier result was used again in these runs, so nothing measures "
            "what hiding would lose."
        )
    if tuning.objective == "cost":
        share = format_share(tuning.min_evidence)
        kept = f"{share} of the default's visible facts" if tuning.min_evidence < 1 else "the default's visible facts"
        rule = f"within 1 % of the cheapest point that keeps {kept} and misses something in no more turns, the simplest"
    else:
        rule = "within 1 % of the most facts visible at no more than the default's cost, the simplest"
    facts = f"{_format_facts(best)} stay visible, {_format_found(default)} by default"
    return f"Recommended: {rule}. On the runs to fit {facts}."


def describe_sent(tuning: Tuning) -> str | None:
    """Return what the runs cost as they were sent, what their recordings lack, and whether any point beats that; None
    where it is not known."""
    recorded = tuning.cost_sent(RECORDED)
    if recorded is None:
        return None
    sentences = describe_sending(tuning.sending, tuning.cost_sent(BILLED), recorded, tuning.prices.name)
    text = " ".join((f"As recorded all runs cost {format_usd(recorded)}.", *sentences))
    best = tuning.best.fit.to_recorded
    if best is not None and best > LEAST_SAVING:
        why = (
            "these runs were condensed already"
            if tuning.sending.condensed_runs
            else "too little can be hidden in these runs"
        )
        text += f" Change nothing: no point found costs at least 1 % less than that, because {why}."
    return text


def write_verdict(tuning: Tuning) -> str:
    """Return whether the recommended point holds on the runs that were kept to judge."""
    best, default = tuning.best.judge, tuning.baseline.judge
    if best is None or default is None:
        if not tuning.finished:
            return "Not judged: the search was interrupted."
        return "Not judged: no run was kept to judge on (--judge-share 0)."
    runs = f"On the {format_plural(len(tuning.judge_runs), 'run')} kept to judge"
    costs = f"{format_usd(best.usd)} instead of {format_usd(default.usd)} by default"
    change = format_change(best.usd / default.usd if default.usd else None)
    facts = f"{_format_facts(best)} stay visible, {_format_found(default)} by default"
    if tuning.best.text == tuning.baseline.text:
        return f"{runs} the default costs {format_usd(best.usd)} ({_format_change(best)} vs recorded)."
    outcome = (
        "It holds." if tuning.is_confirmed() else "The choice is not confirmed: keep the default, or give more runs."
    )
    few = " So few runs prove little." if len(tuning.judge_runs) < FEW_RUNS else ""
    return f"{runs} it costs {costs} ({change}); {facts}. {outcome}{few}"


def describe_excess(tuning: Tuning) -> str | None:
    """Return by how much the recommended point may cost more than sending everything; None where it keeps the cap."""
    ratio = tuning.excess_ratio
    if ratio is None:
        return None
    return (
        f"Warning: at its worst call this point had cost {ratio:.2f} × sending everything, beyond the "
        f"{SPENDING_CAP:.2f} × that cache-aware never exceeds. A run that ends there pays that: "
        "--space schedule=cache-aware finds a point that keeps the cap."
    )


def describe_break_even(tuning: Tuning) -> str | None:
    """Return how many more turns a run would cost what the recommended point saves against the default; None where it
    saves nothing."""
    best, default = tuning.best.fit, tuning.baseline.fit
    saved = default.usd - best.usd
    if saved <= TINY or best.late_usd <= 0 or not best.runs:
        return None
    extra = saved / best.runs / best.late_usd
    share = f" (+{format_share(extra * best.runs / best.turns)})" if best.turns else ""
    text = f"{format_turns(extra)} extra turns a run{share} would cost what it saves against the default"
    if best.summaries and not default.summaries:
        return f"Break-even: {text}. {_describe_summary_effects(tuning)} --space family=masking tries none."
    return f"Break-even: {text}."


def _describe_summary_effects(tuning: Tuning) -> str:
    """Return how summaries changed the turns of real runs: of OpenHands, where most runs are its own."""
    return describe_turn_effects([elongation.OPENHANDS if tuning.rule_of_thumb == OPENHANDS else elongation.SWE_AGENT])


def describe_rule_of_thumb(tuning: Tuning) -> str | None:
    """Return what the published rule for these runs' scaffold costs on them; None where none was published."""
    point = next((each for each in tuning.points if tuning.rule_of_thumb in each.names), None)
    if not tuning.rule_of_thumb or point is None:
        return None
    judged = "" if point.judge is None else f", {_format_change(point.judge)} to judge"
    preset = tuning.rule_of_thumb.replace("published for ", "preset ").lower()
    with_schedule = next((each for each in tuning.points if preset in each.names), None)
    name = f"Rule of thumb {tuning.rule_of_thumb}, {describe_point(point.text)}"
    text = f"{name}: {_format_change(point.fit)} vs recorded{judged}"
    if with_schedule is None:
        return f"{text}."
    return f"{text}; the same numbers with Elision's schedule: {_format_change(with_schedule.fit)}."


def describe_interruption(tuning: Tuning) -> str | None:
    """Return what an interruption left; None if there was none."""
    if tuning.finished:
        return None
    if tuning.study:
        return f"Interrupted. {neutralize_text(tuning.study)} keeps what is finished: the same command continues."
    return "Interrupted. With --study FILE the same command would continue."


def describe_study(tuning: Tuning) -> str | None:
    """Return what a study file already held, and how the runs differ from its own; None without one."""
    if not tuning.study or not (tuning.reused or tuning.added or tuning.gone):
        return None
    text = f"{neutralize_text(tuning.study)}: {format_plural(tuning.reused, 'evaluation')} reused"
    changes = []
    if tuning.added:
        changes.append(f"{format_plural(tuning.added, 'run')} new or changed, replayed again")
    if tuning.gone:
        changes.append(f"{format_plural(tuning.gone, 'run')} no longer there")
    return "; ".join([text, *changes]) + "."


def describe_point(text: str) -> str:
    """Return a strategy in few words: `masking 5, no gist, grep after 10`."""
    strategy = parse_strategy(text)
    names = [name for name in FAMILIES.get(strategy.name, ()) if name in NUMBERS and name != "gist"]
    numbers = "/".join(str(getattr(strategy, name)) for name in names)
    return ", ".join([f"{strategy.name} {numbers}".strip(), *_describe_options(strategy)])


def _describe_options(strategy: Strategy) -> list[str]:
    options = []
    if strategy.schedule != CacheAwareSchedule():
        options.append(str(strategy.schedule))
    if strategy.gist != Strategy().gist:
        options.append(f"gist {strategy.gist}" if strategy.gist else "no gist")
    if len(strategy.rules) > 1:
        options.append(f"{len(strategy.rules)} rules")
    elif strategy.rules:
        (rule,) = strategy.rules
        options.append(f"{describe_tool(rule.tool, rule.args)} after {rule.after}")
    return options


def describe_tool(tool: str, args: str) -> str:
    """Return what a rule matches, in few words: the tool, or the program of a shell."""
    if args == "*":
        return neutralize_text(tool) or "unnamed tool"
    return neutralize_text(args.replace("cd * && ", "cd && ").removesuffix(" *"))


def choose_listed(tuning: Tuning) -> list[TunedPoint]:
    """Return the frontier, thinned evenly if it is long; both ends and the recommended point stay."""
    points = list(tuning.frontier)
    if tuning.best not in points:
        points = sorted([*points, tuning.best], key=lambda point: (point.fit.usd, point.text))
    if len(points) <= LISTED:
        return points
    steps = {round(number * (len(points) - 1) / (LISTED - 1)) for number in range(LISTED)}
    return [point for place, point in enumerate(points) if place in steps or point.text == tuning.recommended]


def list_tool_shares(tuning: Tuning) -> list[tuple[str, str, str, str]]:
    """Return the tools that matter: name, share of the hidden tokens, facts missed, and the rule that is tried."""
    whole = sum(use.hidden_tokens for use in tuning.tools)
    tried = {(tool.tool, tool.args): tool.longer for tools in tuning.space.rule_sets for tool in tools}
    divided = {use.tool for use in tuning.tools if use.args != "*"}
    rules = {None: NOTHING, True: "twice the window", False: "half the window"}
    listed = []
    for use in tuning.tools[:6] if whole else ():
        name = describe_tool(use.tool, use.args)
        if use.args == "*" and use.tool in divided:
            name = f"{name}: others"
        share = format_share(use.hidden_tokens / whole)
        listed.append((name, share, format_count(use.missed), rules[tried.get((use.tool, use.args))]))
    return listed


def list_notes(tuning: Tuning) -> list[str]:
    """Return what limits the figures."""
    notes = [
        "Facts: of the names, paths and numbers that the agent used from earlier results, the share that its context "
        "still showed. Missing: turns that used a hidden one.",
        "A replay keeps the agent's recorded steps; an agent that sees less may need more turns.",
    ]
    best = tuning.best.judge or tuning.best.fit
    if is_above_knee(best.regret_turns, best.turns):
        notes.append(
            f"Warning: {100 * best.regret_turns / best.turns:.1f} % of the turns miss a fact at the recommended point. "
            f"Above {100 * KNEE:.1f} % live agents solved fewer tasks (OpenHands, nine windows)."
        )
    if any(point.fit.summaries for point in tuning.points):
        notes.append(
            "No model writes the summaries; they are priced like a real summary call. "
            + _describe_summary_effects(tuning)
        )
    if tuning.unfit:
        notes.append(f"{format_plural(tuning.unfit, 'point')} left out: a run does not fit their budget.")
    if tuning.counter == "estimate":
        notes.append("Tokens are estimated from characters, and so is every amount; --tokens o200k counts them.")
    return notes


def format_cells(row: Row | None) -> tuple[str, str, str]:
    """Return cost vs recorded, facts visible, turns missing something of one part; dashes where it was not replayed."""
    if row is None:
        return NOTHING, NOTHING, NOTHING
    return (
        _format_change(row),
        format_share(row.evidence_recall),
        format_count(row.missing_turns),
    )


def _format_change(row: Row) -> str:
    return format_change(row.to_recorded)


def _format_facts(row: Row) -> str:
    found, every = format_count(row.evidence_found), format_count(row.evidence_items)
    return f"{found} of {every} facts ({format_share(row.evidence_recall)})"


def _format_found(row: Row) -> str:
    return f"{format_count(row.evidence_found)} ({format_share(row.evidence_recall)})"


def list_reference_names(points: Sequence[TunedPoint]) -> dict[str, str]:
    """Return, by strategy text, what each reference is called; the default with its numbers."""
    return {
        point.text: f"default: {describe_point(point.text)}" if "default" in point.names else ", ".join(point.names)
        for point in points
        if point.names
    }
