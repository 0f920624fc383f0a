"""The sentences of a report, the same in terminal, page and picture."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from elision.lab.elongation import KNEE, OPENHANDS, SWE_AGENT, is_above_knee, load_measured_turns
from elision.lab.replay_summarizer import SummarizerReport
from elision.lab.report.figures import (
    find_family,
    format_change,
    format_change_range,
    format_count,
    format_plural,
    format_rate,
    format_share,
    format_turns,
    format_usd,
    is_every_turn,
    is_hindsight,
    is_raw,
    is_sent,
    is_unchanged,
    neutralize_text,
    shorten_strategies,
)
from elision.lab.results import LEAST_SAVING, ON_TOP, RECORDED, Row, Study, is_on_top
from elision.lab.run_loading import SEVERAL
from elision.strategies.strategy import Masking
from elision.telemetry.context_report import format_signed_percent
from elision.trajectory.prices import Prices
from elision.trajectory.trajectory import Problem, TokenComposition

#: Up to this multiple of the cheapest, visible facts decide which strategy is named first.
_AS_GOOD = 1.05
#: Calls below which a run is short.
SHORT_RUN = 40
#: Problems that are listed; the rest are counted.
LISTED = 10


def find_featured(study: Study) -> Row | None:
    """Return the strategy to name first: the recommended one, if it is compared.

    Without it: of the cheapest that can be run live, and those nearly as cheap, the one with most facts still visible,
    in whole percents; of equals the cheapest. None is more expensive than what was sent unless all are. Where agents
    condensed their history, the recommended one may cost less on top of that.
    """
    live = _list_live_rows(study)
    if not live:
        return None
    named = [row for row in live if row.strategy.removesuffix(f", {ON_TOP}") == study.recommended]
    if named:
        return min(named, key=_compare_cost)
    cheapest = min(map(_compare_cost, live))
    near = [row for row in live if _compare_cost(row) <= cheapest * _AS_GOOD]
    saving = [row for row in near if _has_saving(row)]
    return min(
        saving or near, key=lambda row: (-round(100 * (row.evidence_recall or 0.0)), _compare_cost(row), row.strategy)
    )


def find_cheapest(study: Study) -> Row | None:
    """Return the strategy of the lowest cost among those that can be run live; None if there is none but raw."""
    return min(_list_live_rows(study), key=_compare_cost, default=None)


def select_lines(study: Study) -> set[str]:
    """Return the strategies that are shown call by call: what was sent, raw, the headline's, the cheapest; of 3 all."""
    if len(study.strategies) <= 3:
        return set(study.strategies)
    rows = (find_featured(study), find_cheapest(study))
    return {row.strategy for row in rows if row is not None} | {
        label for label in study.strategies if is_raw(label) or label == RECORDED
    }


def _list_live_rows(study: Study) -> list[Row]:
    return [
        row for row in study.totals if not (is_raw(row.strategy) or is_sent(row.strategy) or is_hindsight(row.strategy))
    ]


def find_every_turn_rival(study: Study, row: Row) -> Row | None:
    """Return the row of the same kind of strategy at every turn; None if `row` is that, or there is none."""
    if is_every_turn(row.strategy):
        return None
    kind = find_family(row.strategy)
    rivals = (each for each in study.totals if is_every_turn(each.strategy) and find_family(each.strategy) == kind)
    return next(rivals, None)


def _has_saving(row: Row) -> bool:
    return row.to_recorded is not None and row.to_recorded < 1


def _compare_cost(row: Row) -> float:
    return row.usd if row.to_recorded is None else row.to_recorded


def write_headline(study: Study) -> str:
    """The study in one or two sentences: the strategy to name first against raw, and against every turn."""
    if not study.rows:
        return "No run was replayed."
    best = find_featured(study)
    if best is None:
        return f"As recorded these runs cost {format_usd(study.totals[-1].paid_usd)}."
    name = capitalize_word(shorten_strategies(study.strategies)[best.strategy].removesuffix(f", {ON_TOP}"))
    paid = format_usd(best.usd)
    sent = format_usd(best.paid_usd)
    change = format_change(best.to_recorded)
    if is_on_top(best.strategy):
        name += " on top of the agents' own condensing"
    elif study.sent.condensed_runs:
        name += " instead of the agents' own condensing"
    if best.to_recorded is None:
        return f"{name} costs {paid}."
    if is_unchanged(best.to_recorded):
        first = f"{name} saves nothing here: it costs what was paid, {sent}."
    elif _has_saving(best):
        first = f"{name} costs {paid} instead of {sent} as recorded ({change})."
    else:
        first = f"{name} saves nothing here: it costs {paid}, and as recorded the runs cost {sent} ({change})."
    sentences = [first]
    rival = find_every_turn_rival(study, best)
    if rival is not None:
        costs = f"{format_usd(rival.usd)} ({format_change(rival.to_recorded)})"
        sentences.append(f"{find_family(rival.strategy).capitalize()} at every turn costs {costs}.")
    cheapest = _find_cheapest_extended(study)
    if study.turns.mode in ("measured", "given") and cheapest is not None and cheapest[0] != best.strategy:
        basis = "as measured live" if study.turns.mode == "measured" else "as assumed"
        name = shorten_strategies(study.strategies)[cheapest[0]]
        sentences.append(f"With the turns {basis}, {name} costs least: {format_usd(cheapest[1])}.")
    return " ".join(sentences)


def capitalize_word(name: str) -> str:
    """Return `name` as a sentence begins with it: a word gets a capital, the text of a strategy stays."""
    return name.capitalize() if name.isalpha() else name


def write_recommendation(study: Study) -> str | None:
    """Why the recommended strategy is recommended, and which one is cheapest here; None if it is not compared."""
    best = find_featured(study)
    lowest = find_cheapest(study)
    if best is None or lowest is None:
        return None
    if study.recommended and lowest.to_recorded is not None and lowest.to_recorded > LEAST_SAVING:
        return _explain_no_saving(study, lowest)
    if best.strategy.removesuffix(f", {ON_TOP}") != study.recommended:
        return None
    why = "it needs no model, and recall gives back what it hid"
    if lowest.strategy == best.strategy or _compare_cost(lowest) >= _compare_cost(best):
        return f"Recommended: {best.strategy}; {why}."
    name = shorten_strategies(study.strategies)[lowest.strategy]
    price = f"Lowest cost here: {name} at {format_usd(lowest.usd)}"
    if lowest.summaries:
        written = format_plural(lowest.summaries, "summary", "summaries")
        price += f", including {format_usd(lowest.summarizer.usd)} for {written} by a model"
    return f"Recommended: {best.strategy}; {why}. {price}."


def _explain_no_saving(study: Study, lowest: Row) -> str:
    """Return that nothing is worth a change, and why. lowest: the cheapest of what can be run live."""
    name = shorten_strategies(study.strategies)[lowest.strategy]
    text = (
        "Recommended: change nothing. No strategy here costs at least 1 % less than what was sent; the cheapest,"
        f" {name}, costs {format_change(lowest.to_recorded)}."
    )
    known = [each for each in study.compositions if each.turn_tokens]
    reasons = []
    if study.sent.condensed_runs:
        reasons.append("the agents condense their own history already")
    if known:
        share = format_share(sum(known, TokenComposition()).observation_share)
        reasons.append(f"{share} of the turns' tokens are tool results, which is what can be hidden")
    if lowest.calls < SHORT_RUN * lowest.runs:
        reasons.append(f"a run has {format_count(round(lowest.calls / lowest.runs))} calls, and short runs gain least")
    return f"{text} Why: {'; '.join(reasons)}." if reasons else text


def describe_scope(study: Study) -> str:
    """What was replayed, and how tokens were counted."""
    calls = max((row.calls for row in study.totals), default=0)
    runs = format_plural(study.run_count, "run")
    return f"{runs}, {format_plural(calls, 'call')}, {_describe_tokens(study)}"


def describe_prices(prices: Prices) -> str:
    """The prices in full: name, models, date, and rates in USD per million tokens."""
    rates = prices.tiers[0][1]
    named = [("input", rates.input), ("cache write", rates.cache_write), ("cache read", rates.cache_read)]
    amounts = [f"{format_rate(usd)} {what}" for what, usd in [*named, ("output", rates.output)] if usd is not None]
    models, colon, _ = prices.source.partition(": ")
    about = f" ({neutralize_text(models).removeprefix('multiples of ')})" if colon else ""
    date = f" of {neutralize_text(prices.dated)}" if prices.dated else ""
    text = f"Prices{date}: {neutralize_text(prices.name)}{about}, {', '.join(amounts)} per million tokens"
    if len(prices.tiers) > 1:
        text += f"; more above {format_count(prices.tiers[1][0])} tokens"
    return text


def _describe_tokens(study: Study) -> str:
    """How tokens were counted."""
    if study.counter == "estimate":
        return "tokens estimated from characters"
    counted = f"tokens counted with {neutralize_text(study.counter)}"
    rate = study.prices.tokenizer.tokens_per_counted
    if study.prices.name == SEVERAL:
        return f"{counted}, on the scale of each run's model"
    if rate != 1:
        return f"{counted}, times {rate:g}"
    return counted


def describe_interruption(study: Study) -> str | None:
    """What is missing from a study that was broken off; None if it is whole."""
    if study.finished:
        return None
    if study.sums is not None:
        return study.sums.missing
    runs = {(row.file, row.trajectory) for row in study.rows}
    if not runs:
        return "Interrupted before the first run was finished."
    done = f"Interrupted: {format_plural(len(runs), 'run')} finished, the others are missing"
    sizes = {len(study.of(strategy)) for strategy in study.strategies}
    if len(sizes) > 1:
        return f"{done}; not every strategy saw the same runs, so compare the columns × raw."
    return f"{done}."


def describe_turns(study: Study) -> str | None:
    """What is assumed of the number of turns, by kind of strategy, and what it changes; None if nothing is."""
    changes = {label: format_change_range(factor.low, factor.high) for label, factor in study.turns.factors.items()}
    if not changes:
        return None
    text = _list_turn_changes(study, changes)
    if study.turns.mode == "band":
        one_model = "; hybrid with one" if any(find_family(label) == "hybrid" for label in changes) else ""
        measured = {SWE_AGENT: f"SWE-agent with five models{one_model}", OPENHANDS: "OpenHands with one model"}
        scaffolds = "; ".join(measured[each] for each in study.turns.scaffolds)
        return (
            f"Turns as measured live, against raw: {text} ({scaffolds})."
            " --elongation measured prices those of one model."
        )
    what = "as measured live with one model on 50 instances" if study.turns.mode == "measured" else "as assumed"
    described = f"Turns {what}, against raw: {text}."
    cheapest = _find_cheapest_extended(study)
    if cheapest is None:
        return described
    name = shorten_strategies(study.strategies)[cheapest[0]]
    return f"{described} Lowest cost then: {name} at {format_usd(cheapest[1])}."


def _list_turn_changes(study: Study, changes: Mapping[str, str]) -> str:
    """Return `changes` of the turns, which are by label, by kind of strategy where all of a kind are alike."""
    names = shorten_strategies(study.strategies)
    listed: dict[str, str] = {}
    for label, change in changes.items():
        kind = find_family(label)
        alike = {other for name, other in changes.items() if find_family(name) == kind}
        listed[neutralize_text(kind) if len(alike) == 1 else names[label]] = change
    text = "; ".join(f"{name} {change}" for name, change in listed.items())
    live = (row.strategy for row in _list_live_rows(study) if not is_on_top(row.strategy))
    missing = [names[label] for label in live if label not in changes]
    if missing:
        text += f"; not known for {', '.join(missing)}"
    return text


def _find_cheapest_extended(study: Study) -> tuple[str, float] | None:
    """Return the strategy that costs least with the assumed turns, and its cost in USD; None where none are assumed."""
    extended = [(row.strategy, row.extended_usd[0]) for row in _list_live_rows(study) if row.extended_usd is not None]
    return min(extended, key=lambda pair: pair[1], default=None)


def describe_turn_effects(scaffolds: Iterable[str]) -> str:
    """How masking and summaries changed the turns of real runs: with SWE-agent, of summaries by model."""
    sentences = []
    for scaffold in scaffolds:
        if scaffold == OPENHANDS:
            measured = load_measured_turns().list_whole(OPENHANDS)
            listed = ", ".join(
                f"{format_change(each.factor)} "
                + (f"masking with window={each.window}" if each.strategy == Masking.name else each.strategy)
                for each in measured
            )
            source = f"({measured[0].model}, {measured[0].instances} tasks)"
            sentences.append(f"Turns of real runs of OpenHands, against everything sent: {listed} {source}.")
        else:
            effects = load_measured_turns().list_summary_effects()
            listed = ", ".join(f"{format_signed_percent(factor - 1)} {model}" for model, factor in effects)
            sentences.append(f"Turns of real runs with summaries, against masking: {listed}.")
    return " ".join(sentences)


def describe_composition(study: Study) -> str | None:
    """What the tokens of the turns are; by format if there are several, and None without any."""
    known = [each for each in study.compositions if each.turn_tokens]
    if not known:
        return None
    whole = sum(known, TokenComposition())
    shares = ", ".join(
        f"{format_share(tokens / whole.turn_tokens)} {what}"
        for what, tokens in (
            ("tool results", whole.observations),
            ("reasoning and text", whole.reasoning),
            ("tool calls", whole.actions),
            ("user messages", whole.user),
        )
        if tokens
    )
    if len(known) == 1:
        return f"Of the turns' tokens: {shares}."
    results = ", ".join(f"{neutralize_text(each.reader)} {format_share(each.observation_share)}" for each in known)
    return f"Of the turns' tokens: {shares}. Tool results by format: {results}."


def describe_break_even(row: Row) -> str | None:
    """The break-even: `14 extra turns (+2 %)`; None where nothing is saved."""
    if row.allowance is None or is_raw(row.strategy):
        return None
    share = f" (+{format_share(row.allowance / row.turns)})" if row.turns else ""
    return f"{format_turns(row.allowance)} extra turns{share}"


def warn_of_misses(study: Study) -> str | None:
    """Which strategies make more turns miss a fact than live agents bore; None if none does."""
    above = [row for row in _list_live_rows(study) if is_above_knee(row.regret_turns, row.turns)]
    if not above:
        return None
    names = shorten_strategies(study.strategies)
    listed = ", ".join(f"{names[row.strategy]} {100 * row.regret_turns / row.turns:.1f} %" for row in above)
    return (
        f"Warning: many turns miss a fact: {listed}. Above {100 * KNEE:.1f} % live agents solved fewer tasks "
        "(OpenHands, nine windows); a larger window or gist lowers it."
    )


def list_notes(study: Study) -> list[str]:
    """What limits the figures."""
    listed = ["A replay keeps the agent's recorded steps; an agent that sees less may need more turns."]
    if (warning := warn_of_misses(study)) is not None:
        listed.append(warning)
    if study.summarizer is not None:
        listed.append(describe_turn_effects(study.turns.scaffolds))
    elif any(row.summaries for row in study.totals):
        listed.append(
            "No model writes the summaries; they are priced like a real summary call."
            f" {describe_turn_effects(study.turns.scaffolds)}"
        )
    if study.look_back and any(row.hindsight_usd is not None for row in study.rows):
        listed.append(
            "Hindsight: the cache looks for entries at the ends of few messages only. The cheapest plan is found as if"
            " it read any prefix, and billed by that rule; a plan that is a little cheaper may exist."
        )
    if study.counter == "estimate":
        listed.append("Tokens are estimated from characters, and so is every amount; --tokens o200k counts them.")
    if len(study.prices.tiers) > 1:
        listed.append("Prices depend on a prompt's length: what is paid for is split by the lowest tier's rates.")
    return listed


def describe_summarizer(report: SummarizerReport) -> str:
    """Who wrote the summaries, what was asked and what was known already, at which prices, and what failed."""
    use = report.use
    where = f" at {neutralize_text(report.base_url)}" if report.base_url else ""
    priced = f"the prices of {neutralize_text(report.prices)}" if report.prices else "the prices of the runs"
    text = (
        f"Summaries are written by {neutralize_text(report.spec)}{where}, billed as reported, at {priced}:"
        f" {format_plural(use.asked, 'request')} asked, {format_count(use.cached)} from the cache in"
        f" {neutralize_text(report.cache)}."
    )
    if use.failed:
        causes = ", ".join(f"{count} × {cause}" for cause, count in sorted(use.failed.items()))
        text += f" {format_plural(sum(use.failed.values()), 'summary', 'summaries')} not taken: {causes}."
    if use.unsaved:
        text += f" {format_plural(use.unsaved, 'answer')} could not be kept."
    return text


def explain_missing_hindsight(study: Study) -> str | None:
    """Why a strategy has no hindsight, or none has any; None where each has one."""
    if not study.hindsight:
        return "No hindsight here: the cheapest schedule of each strategy is not computed."
    if all(row.to_hindsight is not None or is_raw(row.strategy) or not row.usd for row in study.totals):
        return None
    if study.summarizer is not None:
        return (
            "– under × hindsight: it is not computed if a model writes summaries, because their length is unknown "
            f"before; nor for {_WITHOUT_HINDSIGHT}."
        )
    return f"– under × hindsight: none is computed for {_WITHOUT_HINDSIGHT}; then the sum has none."


_WITHOUT_HINDSIGHT = (
    "strategies that fold or shorten results or count tokens, for a run with a budget, with models that take turns, or"
    " with over 500 turns"
)


def _has_facts(study: Study) -> bool:
    return any(row.evidence_items for row in study.totals)


BREAK_EVEN = "break-even: extra turns"

#: Word, meaning, the heading of the column that it explains, and whether a study has any of it.
GLOSSARY: tuple[tuple[str, str, str, Callable[[Study], bool]], ...] = (
    (
        BREAK_EVEN,
        "this many more turns, at the cost of the last ones, would cost what was saved",
        BREAK_EVEN,
        lambda study: any(describe_break_even(row) for row in study.totals),
    ),
    (
        "cache rewrite",
        "a call that changes an earlier part of the prompt; the cache after that part is paid for again",
        "cache rewrites",
        lambda study: True,
    ),
    (
        "facts still visible",
        "of the names, paths and numbers that the agent used from earlier tool results, the share that its context"
        " still showed",
        "facts still visible",
        _has_facts,
    ),
    ("turn missing a fact", "a turn that used a fact which was hidden by then", "turns missing a fact", _has_facts),
    (
        "hindsight",
        "the cheapest schedule of the same strategy, computed from the whole run; it cannot be run live",
        "× hindsight",
        lambda study: (
            study.hindsight and any(row.hindsight_usd is not None or is_hindsight(row.strategy) for row in study.rows)
        ),
    ),
    (
        "repeated call",
        "a call made before with the same arguments; counted if its earlier result was hidden by then",
        "repeated calls",
        lambda study: any(row.repeats for row in study.totals),
    ),
)

CONTROLS = (
    "Noise: the share of a run's facts that tool results of other runs contain as well, by chance or "
    "because they belong"
    " to the format; filtered leaves those out. Floor: facts still visible under plain masking at the window of the"
    " recording; what it lacks to 100 % are false alarms."
)


def summarize_problems(problems: Sequence[Problem]) -> tuple[list[str], int]:
    """The first ten kinds of problem as lines, and how many problems are in none of them."""
    groups: dict[str, list[Problem]] = defaultdict(list)
    for problem in problems:
        groups[problem.reason].append(problem)
    lines = []
    for group in list(groups.values())[:LISTED]:
        line = neutralize_text(str(group[0]))
        if len(line) > 300:
            line = line[:299] + "…"
        if len(group) > 1:
            line += f" ({format_count(len(group))} times)"
        lines.append(line)
    return lines, len(problems) - sum(map(len, list(groups.values())[:LISTED]))
