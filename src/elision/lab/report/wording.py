"""What a study says in sentences, the same in every face."""

from __future__ import annotations

from collections import defaultdict

from elision.lab.report import figures
from elision.lab.report.names import is_hindsight, is_raw, plain, short_strategies
from elision.lab.results import Row, Study
from elision.trajectory.trajectory import Problem

#: Up to this multiple of the cheapest, evidence decides which strategy is named first.
_AS_GOOD = 1.05
#: Problems that are listed; the rest are counted.
LISTED = 10


def featured(study: Study) -> Row | None:
    """The strategy to name first: of the cheapest that can be run live, and those nearly as cheap, the one that keeps
    most evidence, in whole percents; of equals the cheapest. None is dearer than raw unless all are.
    """
    live = [row for row in study.totals if not is_raw(row.strategy) and not is_hindsight(row.strategy)]
    if not live:
        return None
    cheapest = min(map(_cost, live))
    near = [row for row in live if _cost(row) <= cheapest * _AS_GOOD]
    saving = [row for row in near if _saves(row)]
    return min(saving or near, key=lambda row: (-round(100 * (row.evidence_recall or 0.0)), _cost(row), row.strategy))


def _saves(row: Row) -> bool:
    return row.to_raw is not None and row.to_raw < 1


def _cost(row: Row) -> float:
    if row.to_raw is None:
        return row.usd
    return row.to_raw


def headline(study: Study) -> str:
    """The study in one sentence."""
    if not study.rows:
        return "No run was replayed."
    best = featured(study)
    if best is None:
        return f"Sending everything costs {figures.usd(study.totals[0].raw_usd)}."
    name = short_strategies(study.strategies)[best.strategy]
    if best.evidence_recall is not None:
        kept = f", evidence kept {figures.percent(best.evidence_recall)}"
    else:
        kept = ""
    paid = figures.usd(best.usd)
    raw = figures.usd(best.raw_usd)
    change = figures.change(best.to_raw)
    if best.to_raw is None:
        return f"{name}: {paid}{kept}."
    if _saves(best):
        return f"{name}: {paid} instead of {raw} ({change}){kept}."
    return f"Nothing here is cheaper than sending everything ({raw}); {name} costs {paid} ({change}){kept}."


def scope(study: Study) -> str:
    """What was replayed, and at what prices."""
    runs = {(row.file, row.trajectory) for row in study.rows}
    calls = max((row.calls for row in study.totals), default=0)
    prices = f"prices: {plain(study.prices.name)}"
    return f"{figures.plural(len(runs), 'run')}, {figures.plural(calls, 'call')}, {prices}, {tokens(study)}"


def tokens(study: Study) -> str:
    """How tokens were counted."""
    if study.counter == "estimate":
        return "tokens: an estimate from characters"
    return f"tokens: counted with {plain(study.counter)}"


def interruption(study: Study) -> str | None:
    """What is missing from a study that was broken off; None if it is whole."""
    if study.finished:
        return None
    runs = {(row.file, row.trajectory) for row in study.rows}
    if not runs:
        return "Interrupted before the first run was finished."
    done = f"Interrupted: {figures.plural(len(runs), 'run')} finished, the others are missing"
    sizes = {len(study.of(strategy)) for strategy in study.strategies}
    if len(sizes) > 1:
        return f"{done}; not every strategy saw the same runs, so compare the columns × raw."
    return f"{done}."


def allowance(row: Row) -> str | None:
    """The elongation allowance: `14 extra turns (+2 %)`; None where nothing is saved."""
    if row.allowance is None or is_raw(row.strategy):
        return None
    if row.turns:
        share = f" (+{figures.percent(row.allowance / row.turns)})"
    else:
        share = ""
    return f"{figures.turns(row.allowance)} extra turns{share}"


def notes(study: Study) -> list[str]:
    """What a reader must know to trust the figures as far as they go, and no further."""
    said = ["A replay keeps the agent's steps as they were recorded."]
    if any(allowance(row) for row in study.totals):
        said[0] += " Extra turns: how many more, at what the last ones cost, would eat the saving."
    if any(row.summaries for row in study.rows):
        said[0] += " Summaries were seen to lengthen real runs by 13–18 %."
        said.append(
            "Summaries are written by the model-free digest, from the run's own text, and billed as the LLM call they"
            " stand for."
        )
    if study.counter == "estimate":
        said.append("Tokens are an estimate from characters, and so is every amount; --tokens o200k counts them.")
    else:
        said.append(f"Tokens are counted with the {plain(study.counter)} vocabulary, whatever the model.")
    source = "; ".join(plain(part) for part in (study.prices.source, study.prices.dated) if part)
    said.append(f"Prices: {plain(study.prices.name)}" + (f" ({source})." if source else "."))
    if len(study.prices.tiers) > 1:
        said.append(
            "These prices depend on a prompt's length, so who pays for what is split by the lowest tier's rates."
        )
    return said


def worst(study: Study) -> list[Row]:
    """Under each strategy the run that is dearest against hindsight, or against raw where there is none.

    Empty where that says nothing: without a strategy but raw, or with one run.
    """
    if len({(row.file, row.trajectory) for row in study.rows}) < 2:
        return []
    return [row for label in study.strategies if not is_raw(label) and (row := study.worst(label)) is not None]


def controlled(study: Study) -> bool:
    """Whether any format has a control with something in it."""
    return any(control.noise is not None or control.floor is not None for control in study.controls)


def no_hindsight(study: Study) -> str | None:
    """Why a strategy has a dash for its hindsight, or none has any; None where each has one."""
    if not study.hindsight:
        return "No hindsight was asked for: the cheapest schedule of each strategy is not worked out."
    if all(row.to_hindsight is not None or is_raw(row.strategy) or not row.usd for row in study.totals):
        return None
    return (
        "– under × hindsight: none is computed for a run where a budget or token trigger could matter, models take"
        " turns, or there are over 500 turns; so there is none for the sum."
    )


def glossary(study: Study) -> list[tuple[str, str]]:
    """The words of the tables, for the page and the terminal: those that something in them is called by."""
    absent = set()
    if not any(row.evidence_items for row in study.rows):
        absent |= {"evidence", "regret"}
    if not any(row.repeats for row in study.rows):
        absent.add("redone")
    known = any(row.hindsight_usd is not None or is_hindsight(row.strategy) for row in study.rows)
    if not known or not study.hindsight:
        absent.add("hindsight")
    return [(word, meaning) for word, meaning in GLOSSARY if word not in absent]


GLOSSARY: tuple[tuple[str, str], ...] = (
    (
        "epoch",
        "a stretch of calls that only add to the prompt; a new one begins when something earlier is rewritten, and what"
        " the prompt cache held behind that place is paid for again",
    ),
    (
        "evidence",
        "names, paths, numbers and quotes that the agent used and could only know from an earlier observation; kept is"
        " the share that its context still showed at that moment",
    ),
    ("regret", "turns that used something which was hidden by then"),
    ("redone", "calls made before with the same arguments whose earlier result was hidden by then, of all made twice"),
    ("hindsight", "the cheapest schedule for the same strategy, the whole run being known; a yardstick nobody can run"),
)

CONTROLS = (
    "Noise: the share of a run's evidence that other runs' observations hold as well, by chance or because it belongs"
    " to the format; filtered leaves such common property out. Floor: evidence kept by plain masking at the window"
    " under which the runs were recorded; what it lacks to 100 % are false alarms."
)


NO_CONTROLS = "None here: they take two runs of a format, or one recorded under masking."


def problems(study: Study) -> tuple[list[str], int]:
    """The first ten kinds of problem as lines, and how many problems are in none of them."""
    groups: dict[str, list[Problem]] = defaultdict(list)
    for problem in study.problems:
        groups[problem.reason].append(problem)
    listed = list(groups.values())[:LISTED]
    return [_problem(group) for group in listed], len(study.problems) - sum(map(len, listed))


def _problem(group: list[Problem]) -> str:
    first = plain(str(group[0]))
    if len(first) <= 300:
        first = first
    else:
        first = first[:299] + "…"
    if len(group) == 1:
        return first
    return f"{first} ({figures.count(len(group))} times)"
