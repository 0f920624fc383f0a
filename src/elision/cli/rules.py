"""`elision rules`: what the rules of a strategy would match, before anything is hidden."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from elision.cli.console import open_console
from elision.cli.options import Paths, Tokens
from elision.cli.reader_bugs import exit_on_reader_bug
from elision.lab.report.figures import format_plural
from elision.lab.study import load_runs
from elision.strategies.rules import TAG_RULES, Rule, RuleOutcome
from elision.strategies.spec import describe_strategy, parse_strategy
from elision.strategies.strategy import Strategy
from elision.strategies.trimming import trim_result
from elision.trajectory.plan import make_handle
from elision.trajectory.tokens import Sizer, make_counter
from elision.trajectory.trajectory import Trajectory

#: Handles named per rule.
SHOWN = 4


def rules(
    paths: Paths,
    strategy: Annotated[
        str,
        typer.Option(
            "--strategy", "-s", help="A strategy with rules, e.g. 'masking(rules=rule(tool=\"read*\", keep=true))'."
        ),
    ],
    tokens: Tokens = "o200k",
) -> None:
    """List what each rule of a strategy matches in recorded runs; hides nothing."""
    found = parse_strategy(strategy)
    sizer = Sizer(make_counter(tokens))
    table = Table(box=None, pad_edge=False, header_style="bold")
    trims = any(rule.can_trim for rule in found.rules)
    for name in ("rule", "observations", "tokens", *(["left out"] if trims else []), "for example"):
        table.add_column(name, justify="right" if name in ("observations", "tokens", "left out") else "left")
    loaded = load_runs(paths)
    runs = loaded.runs
    for rule in (*found.rules, *TAG_RULES):
        count, size, examples = count_matches(rule, runs, sizer)
        left_out = [f"{count_left_out(rule, runs, sizer):,}"] if trims else []
        table.add_row(Text(_format_rule(found, rule)), str(count), f"{size:,}", *left_out, Text(", ".join(examples)))
    every = sum(len(turn.observations) for run in runs for turn in run.turns)
    console = open_console()
    console.print(table)
    where = format_plural(len(runs), "run")
    console.print(f"{every:,} observations in {where}; keep wins over all, then the first after.")
    exit_on_reader_bug(loaded.problems)


def count_matches(rule: Rule, runs: Sequence[Trajectory], sizer: Sizer) -> tuple[int, int, list[str]]:
    """How many observations `rule` matches, their tokens, and the handles of the first few."""
    count = size = 0
    examples: list[str] = []
    for run in runs:
        for turn in run.turns:
            for place, observation in enumerate(turn.observations, start=1):
                if rule.matches(turn, observation):
                    count += 1
                    size += sizer.count_observation(observation)
                    if len(examples) < SHOWN:
                        examples.append(f"{make_handle((turn.index, place))} {observation.tool}".strip())
    return count, size, examples


def count_left_out(rule: Rule, runs: Sequence[Trajectory], sizer: Sizer) -> int:
    """How many tokens of the results that `rule` matches are left out as they arrive, if no other rule acts."""
    ruling = RuleOutcome(trims=(rule.trim,) if rule.trim else (), ends=rule.ends)
    tokens = 0
    for run in runs if rule.can_trim else ():
        for turn in run.turns:
            for place, observation in enumerate(turn.observations, start=1):
                if rule.matches(turn, observation):
                    text = trim_result(ruling, turn, observation, sizer.count, make_handle((turn.index, place)))
                    if text is not None:
                        tokens += sizer.count_observation(observation) - sizer.count_text(text)
    return tokens


def _format_rule(strategy: Strategy, rule: Rule) -> str:
    """`rule` as text, as the strategy's own text would spell it."""
    text = describe_strategy(replace(strategy, rules=(rule,)))
    start = text.index("rule(")
    return text[start : text.index(")", start) + 1]
