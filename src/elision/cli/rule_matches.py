"""`elision replay --rules`: what the rules of a strategy would match, before anything is hidden."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from elision.cli.console import open_console
from elision.cli.outputs import print_json
from elision.cli.reader_bugs import exit_on_reader_bug
from elision.errors import SpecError
from elision.lab.report.figures import format_count, format_plural
from elision.lab.report.report import Block, Column, Sentence, Table, TableRow
from elision.lab.report.terminal import print_blocks
from elision.lab.run_loading import load_runs
from elision.strategies.rules import TAG_RULES, Rule
from elision.strategies.spec import describe_strategy, parse_strategy
from elision.strategies.strategy import Strategy
from elision.trajectory.plan import make_handle
from elision.trajectory.tokens import Sizer, make_counter
from elision.trajectory.trajectory import Trajectory

#: Handles named per rule.
SHOWN = 4
#: Cells that a rule keeps.
_NAME = 40


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
        print_blocks(_show_matches(rows, len(runs), every, has_notes=not quiet), open_console())
    exit_on_reader_bug(loaded.problems)


def _show_matches(rows: Mapping[str, RuleMatches], runs: int, every: int, *, has_notes: bool) -> list[Block]:
    columns = [Column("rule"), Column("results", 3), Column("tokens", 2), Column("for example", 1, "wrap")]
    table = Table(
        columns,
        [
            TableRow([text, format_count(each.results), format_count(each.tokens), ", ".join(each.examples)])
            for text, each in rows.items()
        ],
        least=_NAME,
    )
    counted = Sentence(f"{format_plural(every, 'tool result')} in {format_plural(runs, 'run')}.")
    note = Sentence("Of rules that match a result, one with keep counts, else the first with after.", "quiet")
    return [table, counted, *([note] if has_notes and len(rows) > 1 else [])]


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


def _format_rule(strategy: Strategy, rule: Rule) -> str:
    """`rule` as text, as the strategy's own text would spell it."""
    text = describe_strategy(replace(strategy, rules=(rule,)))
    start = text.index("rule(")
    return text[start : text.index(")", start) + 1]
