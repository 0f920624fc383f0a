"""What a tuning tries: reference strategies, and families of strategies with the values of their options.

A point of the space is a choice of one value for each option of one family; its strategy is what `elision replay -s`
takes. The space is small on purpose: a few values an option, so that a figure can be told from its neighbours'.

Tools whose results are most of what masking hides may have a rule of their own: where their hidden results are missed
more often, for their size, than those of all tools, they stay visible for longer; where less often, they go sooner.
Where one tool runs everything (a shell), its programs stand for tools.
"""

from __future__ import annotations

import glob
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Final, TypeAlias

from elision.engine import Log
from elision.errors import SpecError
from elision.lab import elongation
from elision.lab.evidence import collect_evidence
from elision.lab.replay import replay_run
from elision.lab.run_loading import RECOMMENDED, StudySettings
from elision.strategies.placeholder import PUBLISHED_TEXT
from elision.strategies.schedules import EveryTurnSchedule, HindsightSchedule
from elision.strategies.selectors import Rule
from elision.strategies.spec import describe_strategy, parse_strategy
from elision.strategies.strategy import Masking, Strategy
from elision.trajectory.plan import Key
from elision.trajectory.prices import Prices
from elision.trajectory.tokens import Sizer
from elision.trajectory.trajectory import Trajectory, join_argument_text
from elision.trajectory.turn import Observation, Turn

#: Family -> the options that are searched, in the order in which they are chosen.
FAMILIES: Final[Mapping[str, tuple[str, ...]]] = {
    "masking": ("window", "schedule", "gist", "rules"),
    "hybrid": ("window", "summarize_at", "tail", "schedule", "gist", "rules"),
    "summarization": ("every", "tail", "schedule"),
}
#: Options whose values are numbers, in an order that means something.
NUMBERS: Final = frozenset(("window", "summarize_at", "tail", "every", "gist"))
#: Option -> the values that are tried unless the user gives others.
VALUES: Final[Mapping[str, tuple[str, ...]]] = {
    "family": tuple(FAMILIES),
    "window": ("3", "5", "7", "10", "15", "20", "30", "58"),
    "summarize_at": ("21", "30", "43", "60", "80"),
    "tail": ("5", "10", "20"),
    "every": ("11", "21", "43"),
    "schedule": ("cache-aware", "every-turn"),
    "gist": ("0", "50", "100"),
    "rules": ("none", "tools"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRule:
    """A tool whose results stay visible for twice the window, or for half of it.

    tool, args: glob patterns, as `Rule` has them. longer: twice; otherwise half.
    """

    tool: str
    args: str = "*"
    longer: bool

    def make_rule(self, window: int) -> Rule:
        """Return the rule beside a strategy of `window` turns."""
        return Rule(tool=self.tool, args=self.args, after=2 * window if self.longer else max(1, window // 2))


#: A choice: the place of the chosen value, by option.
Choice = Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSpace:
    """values: the texts of each option's values. rule_sets: what `rules` may be: the tools that are tried together."""

    values: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: dict(VALUES))
    rule_sets: tuple[tuple[ToolRule, ...], ...] = ((),)

    def list_options(self, family: str) -> list[tuple[str, int]]:
        """Return the options of `family`, each with the number of its values."""
        return [(name, len(self.rule_sets) if name == "rules" else len(self.values[name])) for name in FAMILIES[family]]

    def iterate_choices(self) -> Iterator[tuple[str, dict[str, int]]]:
        """Yield every point as its family and choice, impossible ones too: a tail as long as `summarize_at` covers
        nothing, and a window as long masks nothing before the summary does."""
        for family in self.values["family"]:
            options = self.list_options(family)
            for places in product(*(range(count) for _, count in options)):
                yield family, dict(zip((name for name, _ in options), places, strict=True))

    def make_strategy(self, family: str, choice: Choice) -> Strategy | None:
        """Return the strategy of a point; None if its values exclude each other."""
        options = [f"{name}={self.values[name][place]}" for name, place in choice.items() if name != "rules"]
        try:
            strategy = parse_strategy(f"{family}({', '.join(options)})")
        except SpecError:
            return None
        rhythm = strategy.rhythm
        assert rhythm is not None
        if rhythm.turns and max(rhythm.tail, rhythm.window) >= rhythm.turns:
            return None
        tools = self.rule_sets[choice["rules"]] if "rules" in choice else ()
        return replace(strategy, rules=tuple(tool.make_rule(rhythm.window) for tool in tools))

    def list_strategies(self) -> list[Strategy]:
        """Return the strategy of every possible point, each once."""
        made = (self.make_strategy(family, choice) for family, choice in self.iterate_choices())
        return list(dict.fromkeys(strategy for strategy in made if strategy is not None))

    @property
    def smallest_window(self) -> int:
        """The fewest turns that anything in this space leaves verbatim."""
        names = {option for family in self.values["family"] for option in FAMILIES[family]}
        windows = [int(text) for name in ("window", "tail") if name in names for text in self.values[name]]
        return min(windows)


def parse_space(texts: Sequence[str]) -> SearchSpace:
    """Return the space that `NAME=VALUE,VALUE` texts narrow or widen. Raises SpecError, which lists what exists.

    Options that no text names keep `VALUES`. Rule sets are found on the runs: `list_rule_sets`.
    """
    values = dict(VALUES)
    for text in texts:
        name, equals, rest = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or name not in VALUES:
            raise SpecError(f"--space {text}: give NAME=VALUE,VALUE; there are: {', '.join(VALUES)}")
        given = tuple(dict.fromkeys(part.strip() for part in rest.split(",") if part.strip()))
        if not given:
            raise SpecError(f"--space {text}: gives no value; for example {name}={','.join(VALUES[name])}")
        for value in given:
            _check_value(text, name, value)
        values[name] = given
    space = SearchSpace(values=values)
    if not any(space.make_strategy(*point) for point in space.iterate_choices()):
        raise SpecError(
            "--space: no point is possible, since no tail and window are shorter than summarize_at; change one of them"
        )
    return space


def _check_value(text: str, name: str, value: str) -> None:
    if name == "schedule":
        schedule = parse_strategy(f"masking(schedule={value})").schedule
        if isinstance(schedule, HindsightSchedule):
            raise SpecError(f"--space {text}: the hindsight schedule needs the whole run; it cannot be used live")
    elif name in ("family", "rules"):
        if value not in VALUES[name]:
            raise SpecError(f"--space {text}: no {name} {value!r}; there are: {', '.join(VALUES[name])}")
    else:
        least = 0 if name == "gist" else 1
        if not (value.isascii() and value.isdigit() and len(value) <= 9 and int(value) >= least):
            raise SpecError(f"--space {text}: {value!r} is no number of {least} or more")


def add_rule_sets(space: SearchSpace, tools: Sequence[ToolRule]) -> SearchSpace:
    """Return `space` with the rule sets that its `rules` allow: none, each of `tools`, and all of `tools` together."""
    allowed = space.values["rules"]
    sets: list[tuple[ToolRule, ...]] = [()] if "none" in allowed else []
    if "tools" in allowed:
        sets += [(tool,) for tool in tools]
        if len(tools) > 1:
            sets.append(tuple(tools))
    return replace(space, rule_sets=tuple(sets) or ((),))


# -- strategies that every tuning shows beside what it found ----------------------------------------------------------


_AS_PUBLISHED: Final = f'schedule=every-turn, gist=0, placeholder="{PUBLISHED_TEXT}"'
SWE_AGENT: Final = f"published for {elongation.SWE_AGENT}"
OPENHANDS: Final = f"published for {elongation.OPENHANDS}"

#: Name -> strategy. The published rule of thumb is a window and a summary interval by scaffold; it hides at every turn.
#: The presets have its numbers with Elision's schedule and placeholders.
REFERENCES: Final[tuple[tuple[str, str], ...]] = (
    ("nothing hidden", "raw"),
    ("default", RECOMMENDED),
    (SWE_AGENT, f"hybrid(window=10, summarize_at=43, tail=10, {_AS_PUBLISHED})"),
    ("preset swe-agent", "swe-agent"),
    (OPENHANDS, f"hybrid(window=58, summarize_at=80, tail=58, {_AS_PUBLISHED})"),
    ("preset openhands", "openhands"),
)


def list_references() -> dict[Strategy, tuple[str, ...]]:
    """Return the reference strategies with their names."""
    found: dict[Strategy, tuple[str, ...]] = {}
    for name, text in REFERENCES:
        strategy = parse_strategy(text)
        found[strategy] = (*found.get(strategy, ()), name)
    return found


def describe_default() -> str:
    """Return the text of today's default."""
    return describe_strategy(parse_strategy(RECOMMENDED))


def find_rule_of_thumb(runs: Iterable[Trajectory]) -> str:
    """Return the name of the reference that was published for the scaffold of most of `runs`; "" if there is none."""
    formats = Counter(run.format for run in runs)
    (most, _), *_ = formats.most_common(1)
    return f"published for {elongation.SCAFFOLDS[most]}" if most in elongation.SCAFFOLDS else ""


# -- which tools are worth a rule of their own ------------------------------------------------------------------------


#: Tools that get a rule at most: each doubles what can be tried.
MOST_RULES: Final = 3
#: A tool with less of the hidden tokens than this gets none.
LEAST_SHARE: Final = 0.08
#: A tool with more of them than this is divided by program.
DIVIDED_SHARE: Final = 0.8
#: Hidden as by age alone, so that what a schedule waits for does not decide which tools matter.
MEASURED_WITH: Final = Masking(window=10, schedule=EveryTurnSchedule())

#: A shell command's program, after a change of folder if there is one.
_PROGRAM: Final = re.compile(r"(?P<folder>cd [^\s&|;]+ && )?(?P<program>[A-Za-z][\w.+-]*)(?=\s|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUse:
    """What masking by age hides of one tool, or of one program of a shell.

    tool, args: glob patterns that match it. hidden_tokens: of its hidden results, each counted once.
    missed: facts that a turn used while the result that held them was hidden.
    runs: in which it occurs.
    """

    tool: str
    args: str = "*"
    hidden_tokens: int = 0
    missed: int = 0
    runs: int = 0


def measure_tools(runs: Sequence[Trajectory], settings: StudySettings) -> list[ToolUse]:
    """Return the tools of `runs`, those with the most hidden tokens first; programs where one tool runs everything."""
    tallies = [_tally_run(run, settings.find_prices(run), settings.size_run(run)) for run in runs]
    by_tool = _sum_tallies(tallies)
    whole = sum(use.hidden_tokens for use in by_tool)
    if by_tool and by_tool[0].hidden_tokens > DIVIDED_SHARE * whole:
        return _sum_tallies(tallies, divided=by_tool[0].tool)
    return by_tool


def choose_tool_rules(uses: Sequence[ToolUse], runs: int) -> tuple[ToolRule, ...]:
    """Return a rule for each tool that matters: longer visible if its results are missed more often than the average
    of all, for their size.

    runs: how many were measured. A program that occurs in one of several says nothing about the next run.
    """
    whole = sum(use.hidden_tokens for use in uses)
    missed = sum(use.missed for use in uses)
    divided = {use.tool for use in uses if use.args != "*"}
    usable = [use for use in uses if use.runs >= min(2, runs) if use.args != "*" or use.tool not in divided]
    # Names come from the recordings: what a settings file or a terminal could not show gets no rule.
    large = [use for use in usable if use.hidden_tokens > LEAST_SHARE * whole and f"{use.tool}{use.args}".isprintable()]
    if len(uses) < 2:
        return ()
    return tuple(
        ToolRule(tool=use.tool, args=use.args, longer=use.missed * whole > missed * use.hidden_tokens)
        for use in large[:MOST_RULES]
    )


#: Of one run, by the patterns of tool and arguments: hidden tokens, and missed facts.
_Tally: TypeAlias = dict[tuple[str, str], list[int]]


def _tally_run(run: Trajectory, prices: Prices, sizer: Sizer) -> _Tally:
    known = collect_evidence(run)
    tally: _Tally = defaultdict(lambda: [0, 0])
    counted: set[Key] = set()

    def watch(session: Log) -> None:
        state = session.state
        hidden = state.hidden
        for key in hidden.keys() - counted:
            counted.add(key)
            tally[_describe_source(run, key)][0] += state.sizer.count_observation(state.find_observation(key))
        for use in known.uses.get(len(state.turns) + 1, ()):
            if all(use.item not in hidden.get(key, use.item) for key in use.seen):
                # The newest result that held a fact is the one that should have stayed.
                tally[_describe_source(run, max(use.seen))][1] += 1

    # No window: which tools matter does not depend on what fits.
    replay_run(run, MEASURED_WITH, replace(prices, window=None), sizer, watch=watch)
    return tally


def _describe_source(run: Trajectory, key: Key) -> tuple[str, str]:
    turn = run.turns[key[0] - 1]
    observation = turn.observations[key[1] - 1]
    return glob.escape(observation.tool), _describe_program(turn, observation)


def _describe_program(turn: Turn, observation: Observation) -> str:
    """Return a pattern on the arguments for the program that a shell command runs; "*" if it runs none."""
    action = turn.find_action(observation)
    found = _PROGRAM.match(join_argument_text(action)) if action is not None else None
    if found is None:
        return "*"
    folder = "cd * && " if found["folder"] else ""
    return f"{folder}{found['program']} *"


def _sum_tallies(tallies: Iterable[_Tally], divided: str | None = None) -> list[ToolUse]:
    """Return the sums by tool, the largest first; of the tool `divided` by program."""
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    for tally in tallies:
        occurring = set()
        for (tool, args), (hidden, missed) in tally.items():
            key = tool, args if tool == divided else "*"
            sums[key][0] += hidden
            sums[key][1] += missed
            occurring.add(key)
        for key in occurring:
            sums[key][2] += 1
    uses = [
        ToolUse(tool=tool, args=args, hidden_tokens=hidden, missed=missed, runs=runs)
        for (tool, args), (hidden, missed, runs) in sums.items()
    ]
    return sorted(uses, key=lambda use: (-use.hidden_tokens, use.tool, use.args))
