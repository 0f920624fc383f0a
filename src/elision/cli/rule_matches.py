"""`elision replay --rules`: what the rules of a strategy would match, before anything is hidden."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from elision.cli.console import open_console, open_notes
from elision.cli.outputs import print_json
from elision.cli.reader_bugs import exit_on_reader_bug
from elision.errors import SpecError
from elision.lab.report.figures import format_plural
from elision.lab.run_loading import load_runs
from elision.strategies.rules import TAG_RULES, Rule
from elision.strategies.spec import describe_strategy, parse_strategy
from elision.strategies.strategy import Strategy
from elision.trajectory.plan import make_handle
from elision.trajectory.tokens import Sizer, make_counter
from elision.trajectory.trajectory import Trajectory

#: Handles named per rule.
SHOWN = 4
#: Cells of a rule that has one line.
_LONGEST = 40


def show_rule_matches(
    strategies: Sequence[str], paths: Sequence[Path], tokens: str, *, as_json: bool, quiet: bool
) -> None:
    """Print what each rule of `strategies` matches in recorded runs. Raises SpecError without a strategy."""
    if not strategies:
        raise SpecError(
            "--rules: name a strategy with rules, such as -s 'masking(rules=rule(tool=\"read*\", keep=true))'"
        )
    sizer = Sizer(make_counter(tokens))
    loaded = load_runs(paths)
    runs = loaded.runs
    rows: dict[str, RuleMatches] = {}
    for strategy in map(parse_strategy, strategies):
        for rule in (*strategy.rules, *TAG_RULES):
            matches = count_matches(rule, runs, sizer)
            # The user did not write the rules of tags; without tags in the recordings they are no news.
            if matches.results or rule not in TAG_RULES:
                rows[_format_rule(strategy, rule)] = matches
    every = sum(len(turn.observations) for run in runs for turn in run.turns)
    if as_json:
        rules = [{"rule": text, **asdict(matches)} for text, matches in rows.items()]
        print_json("replay --rules", {"rules": rules, "runs": len(runs), "results": every})
    else:
        _print_matches(rows, len(runs), every, open_notes(quiet))
    exit_on_reader_bug(loaded.problems)


def _print_matches(rows: Mapping[str, RuleMatches], runs: int, every: int, notes: Console) -> None:
    names = ["results", "tokens"]
    cells = {text: [f"{each.results:,}", f"{each.tokens:,}"] for text, each in rows.items()}
    console = open_console()
    longest = min(_LONGEST, max(map(len, rows), default=0))
    numbers = sum(max(map(len, column)) + 2 for column in zip(names, *cells.values(), strict=True))
    room = console.width - longest - numbers - 2
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("rule", overflow="fold", min_width=longest)
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    if room >= len("for example"):
        table.add_column("for example", no_wrap=True)
    for text, numbers_of in cells.items():
        examples = _join_examples(rows[text].examples, room)
        table.add_row(*map(Text, [text, *numbers_of, examples][: len(table.columns)]))
    console.print(table)
    where = format_plural(runs, "run")
    console.print(f"{format_plural(every, 'tool result')} in {where}.")
    if len(rows) > 1:
        notes.print("Of rules that match a result, one with keep counts, else the first with after.")


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleMatches:
    """What a rule matches. tokens: of the results. examples: handles of the first few results."""

    results: int
    tokens: int
    examples: tuple[str, ...]


def count_matches(rule: Rule, runs: Sequence[Trajectory], sizer: Sizer) -> RuleMatches:
    """Return what `rule` matches in `runs`."""
    results = tokens = 0
    examples: list[str] = []
    for run in runs:
        for turn in run.turns:
            for place, observation in enumerate(turn.observations, start=1):
                if not rule.matches(turn, observation):
                    continue
                results += 1
                tokens += sizer.count_observation(observation)
                if len(examples) < SHOWN:
                    examples.append(f"{make_handle((turn.index, place))} {observation.tool}".strip())
    return RuleMatches(results=results, tokens=tokens, examples=tuple(examples))


def _join_examples(examples: Sequence[str], room: int) -> str:
    """Return as many of `examples` as fit into `room` cells."""
    joined = ""
    for example in examples:
        longer = f"{joined}, {example}" if joined else example
        if len(longer) > room:
            break
        joined = longer
    return joined


def _format_rule(strategy: Strategy, rule: Rule) -> str:
    """`rule` as text, as the strategy's own text would spell it."""
    text = describe_strategy(replace(strategy, rules=(rule,)))
    start = text.index("rule(")
    return text[start : text.index(")", start) + 1]
