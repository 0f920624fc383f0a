"""`elision replay --rules` and `--forecast`: what a strategy would do, without a replay."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from elision.cli.options import Output
from elision.config import load_settings
from elision.errors import BudgetError, SpecError
from elision.lab.forecast import CALLS, MEDIAN_CALLS, forecast_session, is_due_by_turns
from elision.lab.report.figures import format_count, format_plural
from elision.lab.report.report import Column, Sentence, Table, TableRow
from elision.lab.run_loading import load_runs
from elision.manager.context_options import Options
from elision.strategies.selectors import TAG_RULES, Rule
from elision.strategies.spec import describe_strategy, parse_strategy
from elision.strategies.strategy import Strategy
from elision.trajectory.plan import make_handle
from elision.trajectory.prices import Prices
from elision.trajectory.tokens import Sizer, make_counter
from elision.trajectory.trajectory import Trajectory

#: Handles named per rule.
SHOWN = 4
#: Cells that a rule keeps.
_NAME = 40


def show_forecasts(strategies: Sequence[str], prices: Prices | None, output: Output) -> None:
    """Print what to expect of each of `strategies`, or of the one in force; without `prices`, at those in force."""
    settings = load_settings()
    chosen = [parse_strategy(text) for text in strategies] or [settings.strategy]
    rates = prices or Options(model=settings.model or "", prices=settings.prices).find_prices()
    data, sentences = [], []
    for strategy in chosen:
        figures: dict[str, object] = {"strategy": strategy.name, "prices": rates.name, "calls": MEDIAN_CALLS}
        # Without its figures where it does not fit the budget.
        with suppress(BudgetError):
            figures |= asdict(forecast_session(strategy, rates))
        data.append(figures)
        sentences.append(Sentence(describe_forecast(strategy, rates)))
    output.answer("replay --forecast", {"forecasts": data}, *sentences)


def describe_forecast(strategy: Strategy, prices: Prices) -> str:
    """Return the sentence that says when `strategy` is expected to act, and how large requests get."""
    session = f"In a typical coding run of {MEDIAN_CALLS} calls at the prices of {prices.name}"
    if not strategy.can_hide:
        return f"{session}: {strategy.name} hides nothing, in any run."
    try:
        forecast = forecast_session(strategy, prices)
    except BudgetError as error:
        return f"{session}: {error}"
    when = "at" if is_due_by_turns(strategy) else "about"
    acts = {"placeholder": forecast.first_placeholder, "summary": forecast.first_summary}
    within = [f"first {act} {when} call {call}" for act, call in acts.items() if call and call <= MEDIAN_CALLS]
    later = [f"first {act} {when} call {call}" for act, call in acts.items() if call and call > MEDIAN_CALLS]
    largest = f"largest request about {round(forecast.largest_tokens, -2):,} tokens"
    words = ", ".join([*(within or ["nothing is hidden"]), largest])
    text = f"{session}: {words} (raw {round(forecast.raw_tokens, -2):,})."
    if later:
        text += f" In a longer one: {', '.join(later)}."
    elif not within:
        text += f" Nor in one of {CALLS} calls."
    return text


def show_rule_matches(strategies: Sequence[str], paths: Sequence[Path], tokens: str, output: Output) -> None:
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
                # As the strategy's own text would spell it.
                text = describe_strategy(replace(strategy, rules=(rule,)))
                start = text.index("rule(")
                rows[text[start : text.index(")", start) + 1]] = matches
    every = sum(len(turn.observations) for run in runs for turn in run.turns)
    columns = [Column("rule"), Column("results", 3), Column("tokens", 2), Column("for example", 1, "wrap")]
    table = Table(
        columns,
        [
            TableRow([text, format_count(each.results), format_count(each.tokens), ", ".join(each.examples)])
            for text, each in rows.items()
        ],
        least=_NAME,
    )
    counted = Sentence(f"{format_plural(every, 'tool result')} in {format_plural(len(runs), 'run')}.")
    note = Sentence("Of rules that match a result, one with keep counts, else the first with after.", "quiet")
    notes = [] if output.quiet or len(rows) < 2 else [note]
    rules = [{"rule": text, **asdict(matches)} for text, matches in rows.items()]
    data = {"rules": rules, "runs": len(runs), "results": every}
    output.answer("replay --rules", data, table, counted, *notes, problems=loaded.problems)


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
