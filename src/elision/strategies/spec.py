"""Strategies as text: `hybrid(window=10, summarize_at=43, schedule=cache-aware, gist=50)`, and back.

Presets are strategies with a name of their own: for a kind of agent, or as a publication has them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, fields
from difflib import get_close_matches
from typing import Any, Final

from elision.errors import SpecError
from elision.strategies.decision_context import Budget
from elision.strategies.guards import Guards
from elision.strategies.schedules import CacheAwareSchedule, EveryTurnSchedule, HindsightSchedule, Schedule
from elision.strategies.selectors import Rule
from elision.strategies.strategy import Hybrid, Masking, Raw, Strategy, Summarization, TwoTier, limit_tail

#: At every turn, with no gist and no folding: as all publications have it.
_PUBLISHED: Final = "schedule=every-turn, gist=0, fold=false"
#: What SWE-agent's `last_n_observations` writes.
_SWE_AGENT_TEXT: Final = "Old environment output: ({lines} lines omitted)"

#: For a kind of agent. `chat` and `code` are the example configurations "fast chat agent" and "deep code agent" of the
#: specification.
_AGENTS: Final[dict[str, str]] = {
    "chat": "masking(window=6, budget=budget(reserved=1800))",
    "code": "hybrid(window=12, summarize_at=10, tail=5, summarize_tokens=9000)",
    "swe-agent": "hybrid(window=10, summarize_at=43, tail=10)",
    "openhands": "hybrid(window=58, summarize_at=80, tail=58)",
}

#: As their documents describe them. A summary of at most 250 tokens is asked for in "under 200 tokens".
_DOCUMENTS: Final[dict[str, str]] = {
    "paper-masking": f'masking(window=10, {_PUBLISHED}, placeholder="[Observation omitted for brevity]")',
    "paper-summarization": f"summarization(every=21, tail=10, {_PUBLISHED}, summary_max_tokens=250)",
    "paper-hybrid": f'hybrid(window=10, summarize_at=43, tail=10, {_PUBLISHED}, placeholder="[Observation omitted]")',
    "paper-two-tier": f'two-tier(keep_recent=10, {_PUBLISHED}, placeholder="[Masked: {{outcome}}]")',
}

#: As the code that ran the experiments of "The Complexity Trap" has them (arXiv 2508.21433): SWE-agent's history
#: processors `last_n_observations` and `summarize_every_n_turns`, and OpenHands' condensers. The first entry that
#: SWE-agent counts as an observation is the task, which is in the head here. A summary is due at N + M turns, which is
#: `summarize_at=53` for N=43. OpenHands counts events, two a turn: its attention window of 58 is 29 turns.
_EXPERIMENTS: Final[dict[str, str]] = {
    "swe-agent-raw": "raw",
    "swe-agent-masking": f'masking(window=10, {_PUBLISHED}, placeholder="{_SWE_AGENT_TEXT}")',
    "swe-agent-summarization": f"summarization(every=21, tail=10, {_PUBLISHED})",
    "swe-agent-hybrid": (f'hybrid(window=10, summarize_at=53, tail=10, {_PUBLISHED}, placeholder="{_SWE_AGENT_TEXT}")'),
    "openhands-masking": f'masking(window=29, {_PUBLISHED}, placeholder="<MASKED>")',
    "openhands-summarization": f"summarization(every=21, tail=10, {_PUBLISHED})",
}

PRESETS: Final[dict[str, str]] = _AGENTS | _DOCUMENTS | _EXPERIMENTS

#: Guards that belong to a preset.
PRESET_GUARDS: Final[dict[str, Guards]] = {"code": Guards(max_turns=120)}

#: Settings that belong to a preset, beyond what its strategy has a use for.
PRESET_SETTINGS: Final[dict[str, dict[str, Any]]] = {"chat": {"summary_turns": 18}}


STRATEGIES: dict[str, type[Strategy]] = {kind.name: kind for kind in (Raw, Masking, Summarization, Hybrid, TwoTier)}
SCHEDULES: dict[str, type[Any]] = {
    kind.name: kind for kind in (EveryTurnSchedule, CacheAwareSchedule, HindsightSchedule)
}

#: By strategy: an option, the one whose default gives way to it, and what that becomes.
DEPENDENT_OPTIONS: dict[type[Strategy], tuple[str, str, Callable[[int, int], int]]] = {
    Hybrid: ("summarize_at", "tail", limit_tail),
    TwoTier: ("hard", "soft", min),
}

#: Types of options as they are annotated -> the types that fit, and their name in an error.
_OPTION_TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    "int": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "bool": ((bool,), "true or false"),
    "str": ((str,), "a text"),
    "None": ((type(None),), "none"),
}

_TOKEN = re.compile(
    r"""\s*(?:(?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(?P<number>-?\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.]))"""
    r"""|(?P<name>[A-Za-z][\w-]*)|(?P<mark>[(),=\[\]]))"""
)
#: Characters of a text in an error.
_EXCERPT_CHARS = 200
#: Parentheses within parentheses: far more than any strategy needs, and fewer than Python's own stack allows.
_DEEPEST = 50


def parse_strategy(text: str) -> Strategy:
    """The strategy that `text` describes. Raises SpecError, which lists what exists."""
    if not isinstance(text, str):
        raise SpecError(f"a strategy is a text such as masking(window=10), not {type(text).__name__}")
    return _build_strategy(_parse_whole(text))


def parse_schedule(text: str) -> Schedule:
    """The schedule that `text` describes, such as `every-turn` or `cache-aware(max_turns=100)`. Raises SpecError."""
    found: Schedule = _build_schedule(_parse_whole(text))
    return found


def _parse_whole(text: str) -> Any:
    parser = SpecParser(text)
    value = parser.parse_value()
    parser.need_end()
    return value


def find_preset(text: str) -> str:
    """The preset that `text` names; "" if it names none."""
    value = SpecParser(text).parse_value()
    if isinstance(value, SpecCall) and value.kind in PRESETS:
        return value.kind
    return ""


def list_stated_options(text: str) -> frozenset[str]:
    """The options that `text` itself states, a budget's as `budget.tokens`."""
    value = SpecParser(text).parse_value()
    if isinstance(value, SpecCall):
        return frozenset(_list_call_options(value))
    return frozenset()


def _list_call_options(call: SpecCall) -> Iterator[str]:
    if call.kind in PRESETS:
        base = SpecParser(PRESETS[call.kind]).parse_value().kind
    else:
        base = call.kind
    own = _list_own_options(base)
    yield from own[: len(call.positional)]
    for name, value in call.keywords.items():
        if name != "budget":
            yield name
        elif isinstance(value, SpecCall):
            yield from (f"budget.{option}" for option in value.keywords)
        else:
            yield "budget.tokens"


def _build_options(kind: type[Any], call: SpecCall, what: str) -> Any:
    """Return an instance of the dataclass `kind` with the arguments of `call`."""
    own = [field for field in fields(kind) if not field.name.startswith("_")]
    given = _name_arguments(kind, [field.name for field in own], call, what)
    meant = {name: _convert_option(name, value) for name, value in given.items()}
    for field in own:
        if field.name in meant:
            _check_type(call.name, field.name, str(field.type), meant[field.name])
    return kind(**meant)


def _name_arguments(kind: type[Any], names: list[str], call: SpecCall, what: str) -> dict[str, Any]:
    """Return the arguments of `call` by name, positional ones in the order of the kind's own fields."""
    shared = {field.name for field in fields(Strategy)}
    order = [name for name in names if name not in shared]
    if len(call.positional) > len(order):
        raise SpecError(f"{call.name}: {len(call.positional)} values without a name, but only {order or 'none'} exist")
    given = dict(zip(order, call.positional, strict=False))
    for name, value in call.keywords.items():
        if name not in names:
            part = _find_part(name) if issubclass(kind, Strategy) else ""
            owner = f"{what} {call.name}".strip()
            listed = f"{_suggest_name(name, names)}: {', '.join(names)}"
            raise SpecError(f"{owner} has no option {name!r}; {part}{listed}")
        if name in given:
            raise SpecError(f"{what} {call.name}: option {name!r} is given twice")
        given[name] = value
    return given


def _find_part(name: str) -> str:
    """Return what an error says of an option that a rule, a budget or a schedule has; "" if none has it."""
    owners = (
        (Rule, "rules=rule({}=…)"),
        (Budget, "budget=budget({}=…)"),
        (CacheAwareSchedule, "schedule=cache-aware({}=…)"),
    )
    for kind, text in owners:
        if name in [field.name for field in fields(kind)]:
            return f"write {text.format(name)}; "
    return ""


def _check_type(owner: str, name: str, annotation: str, value: Any) -> None:
    """Raise SpecError if `value` is no `annotation`; those that have readers of their own are right by then."""
    kinds = annotation.split(" | ")
    if not all(kind in _OPTION_TYPES for kind in kinds):
        return
    if not any(type(value) in _OPTION_TYPES[kind][0] for kind in kinds):
        meant = " or ".join(_OPTION_TYPES[kind][1] for kind in kinds)
        shown = value if isinstance(value, str) else _format_value(value)
        raise SpecError(f"{owner}({name}={shown}): give {meant}")


def _convert_option(name: str, value: Any) -> Any:
    if name == "schedule":
        return _build_schedule(value)
    if name == "budget":
        return _build_budget(value)
    if name == "rules":
        return tuple(map(_build_rule, value if isinstance(value, tuple) else (value,)))
    if not isinstance(value, SpecCall):
        return value
    if value.positional or value.keywords:
        raise SpecError(f"{name}={value.name}(...) has no meaning here")
    return value.name


def _list_own_options(kind: str) -> list[str]:
    """The options of the strategy `kind` that not all strategies share, in their order."""
    if kind not in STRATEGIES:
        return []
    shared = {field.name for field in fields(Strategy)}
    return [field.name for field in fields(STRATEGIES[kind]) if field.name not in shared]


def _fit_defaults(kind: type[Strategy], call: SpecCall, written: SpecCall) -> SpecCall:
    """`call` with a default that leaves room for what `written` states: a hybrid's tail is shorter than its number of
    turns, and two-tier's soft threshold is not above its hard one."""
    if kind not in DEPENDENT_OPTIONS:
        return call
    leading, dependent, limit = DEPENDENT_OPTIONS[kind]
    by_position = dict(zip(_list_own_options(kind.name), call.positional, strict=False))
    lead = by_position.get(leading, call.keywords.get(leading))
    if dependent in by_position or dependent in written.keywords or type(lead) is not int:
        return call
    own = call.keywords.get(dependent, kind.__dataclass_fields__[dependent].default)
    return SpecCall(call.name, call.positional, call.keywords | {dependent: limit(lead, own)})


def _build_strategy(value: Any) -> Strategy:
    if not isinstance(value, SpecCall):
        raise SpecError(
            f"{value!r} is not a strategy; there are: {', '.join(STRATEGIES)}; presets: {', '.join(PRESETS)}"
        )
    call = value
    if value.kind in PRESETS:
        # Options that are given come before the preset's own.
        base: SpecCall = SpecParser(PRESETS[value.kind]).parse_value()
        by_position = _list_own_options(base.kind)[: len(value.positional)]
        kept = {name: option for name, option in base.keywords.items() if name not in by_position}
        call = SpecCall(base.name, value.positional, kept | value.keywords)
    kind = STRATEGIES.get(call.kind)
    if kind is None:
        meant = _suggest_name(value.name, [*STRATEGIES, *PRESETS])
        raise SpecError(f"no strategy {value.name!r}; {meant}: {', '.join(STRATEGIES)}; presets: {', '.join(PRESETS)}")
    found: Strategy = _build_options(kind, _fit_defaults(kind, call, value), "strategy")
    return found


def _suggest_name(name: str, known: Iterable[str]) -> str:
    """What an error says in front of the names that are known."""
    near = get_close_matches(name.lower(), known, 1)
    if near:
        return f"did you mean {near[0]}? There are"
    return "there are"


def _build_schedule(value: Any) -> Any:
    if not isinstance(value, SpecCall) or value.kind not in SCHEDULES:
        name = value.name if isinstance(value, SpecCall) else value
        raise SpecError(f"no schedule {name!r}; {_suggest_name(str(name), SCHEDULES)}: {', '.join(SCHEDULES)}")
    return _build_options(SCHEDULES[value.kind], value, "schedule")


def _build_budget(value: Any) -> Budget | None:
    if value is None:
        return None
    if isinstance(value, int):
        return Budget(tokens=value)
    if isinstance(value, SpecCall) and value.kind == "budget":
        found: Budget = _build_options(Budget, value, "")
        return found
    raise SpecError(
        "budget: give tokens, or budget(tokens=..., max_context_pct=..., reserved=..., min_window=..., low=..., "
        "soft=...)"
    )


def _build_rule(value: Any) -> Rule:
    if isinstance(value, SpecCall) and value.kind == "rule":
        found: Rule = _build_options(Rule, value, "")
        return found
    raise SpecError("rules: give rule(tool=..., args=..., tag=..., keep=..., after=..., below=..., verbatim=...)")


def describe_strategy(strategy: Strategy) -> str:
    """Return the shortest text that `parse_strategy` reads as `strategy`."""
    stated = _list_changed_options(strategy)
    return f"{strategy.name}({', '.join(stated)})" if stated else strategy.name


def _list_changed_options(value: Any) -> list[str]:
    """Return the fields of a dataclass that differ from their defaults, as text."""
    stated = []
    for field in fields(value):
        default = field.default if field.default_factory is MISSING else field.default_factory()
        option = getattr(value, field.name)
        if option != default:
            stated.append(f"{field.name}={_format_value(option)}")
    return stated


def _format_value(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    if isinstance(value, tuple):
        return f"[{', '.join(_format_value(item) for item in value)}]"
    if isinstance(value, Budget | Rule):
        return f"{type(value).__name__.lower()}({', '.join(_list_changed_options(value))})"
    return str(value)


class SpecCall:
    """A name with arguments, not yet given a meaning."""

    def __init__(self, name: str, positional: list[Any], named: dict[str, Any]) -> None:
        self.name = name
        self.positional = positional
        self.keywords = named

    @property
    def kind(self) -> str:
        """The name of a strategy, preset or schedule, which may be written in any letter case."""
        return self.name.lower()


class SpecParser:
    """Reads one text: `parse_value`, then `need_end`. Raises SpecError for what cannot be read."""

    def __init__(self, text: str) -> None:
        self.text = text
        #: The text, for an error.
        if len(text) <= _EXCERPT_CHARS:
            self.excerpt = repr(text)
        else:
            self.excerpt = f"{text[:_EXCERPT_CHARS]!r}…"
        self.tokens = list(self._scan_tokens())
        self.position = 0
        self.depth = 0

    def _scan_tokens(self) -> Iterator[tuple[str, str]]:
        place = 0
        end = len(self.text.rstrip())
        while place < end:
            match = _TOKEN.match(self.text, place)
            if match is None:
                rest = self.text[place:].strip()
                word = re.split(r"[\s,()\[\]=]", rest, maxsplit=1)[0] or rest
                wanted = "give a number, a word, or a text in quotes"
                raise SpecError(f"cannot read {word[:20]!r} in {self.excerpt}: {wanted}")
            place = match.end()
            yield match.lastgroup or "", match[match.lastgroup or 0]
        yield "end", ""

    def take_token(self, text: str) -> bool:
        if self.tokens[self.position] == ("mark", text):
            self.position += 1
            return True
        return False

    def need_token(self, text: str) -> None:
        if not self.take_token(text):
            raise SpecError(
                f"{text!r} is missing in {self.excerpt}, {self._strip_token(self.tokens[self.position][1])}"
            )

    def need_end(self) -> None:
        if self.tokens[self.position][0] != "end":
            rest = self.tokens[self.position][1]
            raise SpecError(
                f"{rest!r} comes after the end of {self.excerpt}; options have brackets: masking(window=10)"
            )

    def parse_value(self) -> Any:
        kind, text = self.tokens[self.position]
        if self.take_token("["):
            return tuple(self._parse_items("]")[0])
        self.position += 1
        if kind == "string":
            return re.sub(r"\\(.)", r"\1", text[1:-1])
        if kind == "number":
            return self._parse_number(text.replace("_", ""))
        if kind == "name":
            words = {"true": True, "false": False, "none": None}
            if text.lower() in words:
                return words[text.lower()]
            if self.take_token("("):
                positional, named = self._parse_items(")")
            else:
                positional, named = ([], {})
            return SpecCall(text, positional, named)
        raise SpecError(f"a value is missing in {self.excerpt}, {self._strip_token(text)}")

    @staticmethod
    def _strip_token(token: str) -> str:
        if token:
            return f"before {token!r}"
        return "at its end"

    def _parse_number(self, text: str) -> int | float:
        if any(mark in text for mark in ".eE"):
            return float(text)
        try:
            return int(text)
        except ValueError:  # Python reads at most 4,300 digits
            raise SpecError(f"{text[:20]}... is too long for a number") from None

    def _parse_items(self, close: str) -> tuple[list[Any], dict[str, Any]]:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise SpecError(f"more than {_DEEPEST} brackets are inside each other in {self.excerpt}")
        positional: list[Any] = []
        named: dict[str, Any] = {}
        while not self.take_token(close):
            if self.tokens[self.position][0] == "name" and self.tokens[self.position + 1] == ("mark", "="):
                name = self.tokens[self.position][1]
                if name in named:
                    raise SpecError(f"option {name!r} is given twice in {self.excerpt}")
                self.position += 2
                named[name] = self.parse_value()
            else:
                positional.append(self.parse_value())
            if not self.take_token(","):
                self.need_token(close)
                break
        self.depth -= 1
        return positional, named
