"""Strategies as text: `hybrid(window=10, summarize_at=43, schedule=cache-aware, gist=50)`, and back."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, fields
from difflib import get_close_matches
from typing import Any

from elision.errors import SpecError
from elision.strategies.budget import Budget
from elision.strategies.guards import Guards
from elision.strategies.hybrid import Hybrid
from elision.strategies.masking import Masking
from elision.strategies.pipeline import Pipeline
from elision.strategies.raw import Raw
from elision.strategies.rules import Rule
from elision.strategies.schedules import BatchedSchedule, CacheAwareSchedule, EveryTurnSchedule, HindsightSchedule
from elision.strategies.strategy import Strategy
from elision.strategies.summarization import Summarization
from elision.strategies.supersede import Supersede
from elision.strategies.two_tier import TwoTier

STRATEGIES: dict[str, type[Strategy]] = {
    kind.name: kind for kind in (Raw, Masking, Summarization, Hybrid, TwoTier, Supersede, Pipeline)
}
SCHEDULES: dict[str, type[Any]] = {
    kind.name: kind for kind in (EveryTurnSchedule, BatchedSchedule, CacheAwareSchedule, HindsightSchedule)
}

#: Settings that go by a name of their own (design 3).
PRESETS: dict[str, str] = {
    "chat": "hybrid(window=6, tail=6, summarize_at=24, budget=budget(reserved=1800))",
    "code": "hybrid(window=12, tail=5, summarize_at=15, summarize_tokens=9000)",
    "swe-agent": "hybrid(window=10, summarize_at=43, tail=10)",
    "openhands": "hybrid(window=58, summarize_at=80, tail=58)",
}

#: Guards that belong to a preset.
PRESET_GUARDS: dict[str, Guards] = {"code": Guards(max_turns=120)}

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
    parser = _SpecParser(text)
    value = parser.parse_value()
    parser.need_end()
    return _build_strategy(value)


def find_preset(text: str) -> str:
    """The preset that `text` names; "" if it names none."""
    value = _SpecParser(text).parse_value()
    if isinstance(value, _SpecCall) and value.name in PRESETS:
        return value.name
    return ""


def list_stated_options(text: str) -> frozenset[str]:
    """The options that `text` itself states, those of a pipeline's parts too; a budget's as `budget.tokens`."""
    value = _SpecParser(text).parse_value()
    if isinstance(value, _SpecCall):
        return frozenset(_list_call_options(value))
    return frozenset()


def _list_call_options(call: _SpecCall) -> Iterator[str]:
    if call.name in PRESETS:
        base = _SpecParser(PRESETS[call.name]).parse_value().name
    else:
        base = call.name
    shared = {field.name for field in fields(Strategy)}
    if base in STRATEGIES:
        own = [field.name for field in fields(STRATEGIES[base]) if field.name not in shared]
    else:
        own = []
    if base == Pipeline.name:
        for part in call.positional:
            yield from _list_call_options(part) if isinstance(part, _SpecCall) else ()
    else:
        yield from own[: len(call.positional)]
    for name, value in call.keywords.items():
        if name != "budget":
            yield name
        elif isinstance(value, _SpecCall):
            yield from (f"budget.{option}" for option in value.keywords)
        else:
            yield "budget.tokens"


class _SpecCall:
    """A name with arguments, not yet given a meaning."""

    def __init__(self, name: str, positional: list[Any], named: dict[str, Any]) -> None:
        self.name = name
        self.positional = positional
        self.keywords = named


class _SpecParser:
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
                raise SpecError(f"cannot read {self.text[place:].strip()[:20]!r} in {self.excerpt}")
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
            raise SpecError(f"{self.tokens[self.position][1]!r} stands behind the end of {self.excerpt}")

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
            return _SpecCall(text, positional, named)
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
            raise SpecError(f"more than {_DEEPEST} brackets stand inside each other in {self.excerpt}")
        positional: list[Any] = []
        named: dict[str, Any] = {}
        while not self.take_token(close):
            if self.tokens[self.position][0] == "name" and self.tokens[self.position + 1] == ("mark", "="):
                name = self.tokens[self.position][1]
                if name in named:
                    raise SpecError(f"option {name!r} stands twice in {self.excerpt}")
                self.position += 2
                named[name] = self.parse_value()
            else:
                positional.append(self.parse_value())
            if not self.take_token(","):
                self.need_token(close)
                break
        self.depth -= 1
        return positional, named


def _build_options(kind: type[Any], call: _SpecCall, what: str) -> Any:
    """An instance of the dataclass `kind` from the call's arguments, positional ones in the order of its own fields."""
    own = [field for field in fields(kind) if not field.name.startswith("_")]
    names = [field.name for field in own]
    if call.positional and kind not in (BatchedSchedule,):
        shared = {field.name for field in fields(Strategy)}
        order = [name for name in names if name not in shared]
    else:
        order = names
    if len(call.positional) > len(order):
        raise SpecError(f"{call.name}: {len(call.positional)} values without a name, but only {order or 'none'} exist")
    given = dict(zip(order, call.positional, strict=False))
    for name, value in call.keywords.items():
        if name not in names:
            raise SpecError(
                f"{what} {call.name} has no option {name!r}; {_suggest_name(name, names)}: {', '.join(names)}"
            )
        if name in given:
            raise SpecError(f"{what} {call.name}: option {name!r} is given twice")
        given[name] = value
    meant = {name: _convert_option(name, value) for name, value in given.items()}
    for field in own:
        if field.name in meant:
            _check_type(call.name, field.name, str(field.type), meant[field.name])
    return kind(**meant)


#: Types of options as they are annotated -> the types that fit, and their name in an error.
_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "int": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "bool": ((bool,), "true or false"),
    "str": ((str,), "a text"),
    "None": ((type(None),), "none"),
}


def _check_type(owner: str, name: str, annotation: str, value: Any) -> None:
    """Raise SpecError if `value` is no `annotation`; those that have readers of their own are right by then."""
    kinds = annotation.split(" | ")
    if not all(kind in _KINDS for kind in kinds):
        return
    if not any(type(value) in _KINDS[kind][0] for kind in kinds):
        raise SpecError(f"{owner}({name}={value}): give {' or '.join(_KINDS[kind][1] for kind in kinds)}")


def _convert_option(name: str, value: Any) -> Any:
    readers: dict[str, Callable[[Any], Any]] = {
        "schedule": _build_schedule,
        "budget": _build_budget,
        "rules": lambda given: tuple(_build_rule(item) for item in (given if isinstance(given, tuple) else (given,))),
    }
    if name in readers:
        return readers[name](value)
    if isinstance(value, _SpecCall) and not value.positional and not value.keywords:
        return value.name
    return _require_plain(name, value)


def _require_plain(name: str, value: Any) -> Any:
    if isinstance(value, _SpecCall):
        raise SpecError(f"{name}={value.name}(...) has no meaning here")
    return value


def _build_strategy(value: Any) -> Strategy:
    if not isinstance(value, _SpecCall):
        raise SpecError(f"{value!r} is no strategy; there are: {', '.join(STRATEGIES)}; presets: {', '.join(PRESETS)}")
    if value.name in PRESETS:
        base = _SpecParser(PRESETS[value.name]).parse_value()
        return _build_strategy(_SpecCall(base.name, value.positional, base.keywords | value.keywords))
    kind = STRATEGIES.get(value.name)
    if kind is None:
        meant = _suggest_name(value.name, [*STRATEGIES, *PRESETS])
        raise SpecError(f"no strategy {value.name!r}; {meant}: {', '.join(STRATEGIES)}; presets: {', '.join(PRESETS)}")
    if kind is Pipeline:
        if "parts" in value.keywords:
            raise SpecError("pipeline: its parts have no name: pipeline(supersede, masking(window=10))")
        parts = tuple(_build_strategy(part) for part in value.positional)
        built: Strategy = _build_options(
            kind, _SpecCall(value.name, [], {**value.keywords, "parts": parts}), "strategy"
        )
        return built
    found: Strategy = _build_options(kind, value, "strategy")
    return found


def _suggest_name(name: str, known: Iterable[str]) -> str:
    """What an error says in front of the names that are known."""
    near = get_close_matches(name.lower(), known, 1)
    if near:
        return f"did you mean {near[0]}? There are"
    return "there are"


def _build_schedule(value: Any) -> Any:
    if not isinstance(value, _SpecCall) or value.name not in SCHEDULES:
        if isinstance(value, _SpecCall):
            name = value.name
        else:
            name = value
        raise SpecError(f"no schedule {name!r}; {_suggest_name(str(name), SCHEDULES)}: {', '.join(SCHEDULES)}")
    return _build_options(SCHEDULES[value.name], value, "schedule")


def _build_budget(value: Any) -> Budget | None:
    if value is None or isinstance(value, int):
        if value is None:
            return None
        return Budget(tokens=value)
    if isinstance(value, _SpecCall) and value.name == "budget":
        found: Budget = _build_options(Budget, value, "")
        return found
    raise SpecError(
        "budget: give tokens, or budget(tokens=..., max_context_pct=..., reserved=..., min_window=..., low=..., "
        "soft=...)"
    )


def _build_rule(value: Any) -> Rule:
    if isinstance(value, _SpecCall) and value.name == "rule":
        found: Rule = _build_options(Rule, value, "")
        return found
    raise SpecError("rules: give rule(tool=..., args=..., tag=..., keep=..., after=..., superseded=..., below=...)")


def describe_strategy(strategy: Strategy) -> str:
    """Return the shortest text that `parse_strategy` reads as `strategy`."""
    if isinstance(strategy, Pipeline):
        parts = [describe_strategy(part) for part in strategy.parts]
    else:
        parts = []
    for field in fields(strategy):
        value = getattr(strategy, field.name)
        if field.default is not MISSING:
            default = field.default
        else:
            default = None
        if field.default_factory is not MISSING:
            default = field.default_factory()
        if field.name != "parts" and value != default:
            parts.append(f"{field.name}={_format_value(value)}")
    if parts:
        return f"{strategy.name}({', '.join(parts)})"
    return strategy.name


def _format_value(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    if isinstance(value, tuple):
        return f"[{', '.join(_format_value(item) for item in value)}]"
    if isinstance(value, Budget | Rule):
        options = [
            f"{field.name}={_format_value(getattr(value, field.name))}"
            for field in fields(value)
            if getattr(value, field.name) != field.default
        ]
        return f"{type(value).__name__.lower()}({', '.join(options)})"
    return str(value)
