"""What a tuning may choose: families of strategies, their options, and the values that each option may take.

A point of the space is a choice of one value for each option of one family; its strategy is what `elision replay -s`
takes. The space is small on purpose: a few values an option, so that a figure can be told from its neighbours'.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Final

from elision.errors import SpecError
from elision.strategies.hybrid import Hybrid
from elision.strategies.masking import Masking
from elision.strategies.rules import Rule
from elision.strategies.schedules import HindsightSchedule
from elision.strategies.spec import parse_strategy
from elision.strategies.strategy import Strategy
from elision.strategies.summarization import Summarization

#: Family -> the options that are searched, in the order in which they are chosen.
FAMILIES: Final[Mapping[str, tuple[str, ...]]] = {
    "masking": ("window", "schedule", "gist", "rules"),
    "hybrid": ("window", "summarize_at", "tail", "schedule", "gist", "rules"),
    "summarization": ("every", "tail", "schedule"),
}
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleSet:
    """Rules that are tried together; none by default."""

    tools: tuple[ToolRule, ...] = ()

    def make_rules(self, window: int) -> tuple[Rule, ...]:
        """Return the rules beside a strategy of `window` turns."""
        return tuple(tool.make_rule(window) for tool in self.tools)


#: A choice: the place of the chosen value, by option.
Choice = Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSpace:
    """values: the texts of each option's values. rule_sets: what `rules` may be."""

    values: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: dict(VALUES))
    rule_sets: tuple[RuleSet, ...] = (RuleSet(),)

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
        number = {name: int(self.values[name][place]) for name, place in choice.items() if name in _NUMBERS}
        schedule = parse_strategy(f"masking(schedule={self.values['schedule'][choice['schedule']]})").schedule
        if family == Summarization.name:
            return Summarization(every=number["every"], tail=number["tail"], schedule=schedule)
        rules = self.rule_sets[choice["rules"]].make_rules(number["window"])
        if family == Masking.name:
            return Masking(
                window=number["window"],
                schedule=schedule,
                gist=number["gist"],
                rules=rules,
            )
        if max(number["tail"], number["window"]) >= number["summarize_at"]:
            return None
        return Hybrid(
            window=number["window"],
            summarize_at=number["summarize_at"],
            tail=number["tail"],
            schedule=schedule,
            gist=number["gist"],
            rules=rules,
        )

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


_NUMBERS: Final = frozenset(("window", "summarize_at", "tail", "every", "gist"))


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
    sets: list[RuleSet] = []
    if "none" in allowed:
        sets.append(RuleSet())
    if "tools" in allowed:
        sets += [RuleSet(tools=(tool,)) for tool in tools]
        if len(tools) > 1:
            sets.append(RuleSet(tools=tuple(tools)))
    return replace(space, rule_sets=tuple(sets) or (RuleSet(),))
