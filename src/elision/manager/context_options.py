"""The options of a context manager, checked once."""

from __future__ import annotations

import inspect
import re
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from difflib import get_close_matches
from typing import Any, Final, Literal, TypeAlias, TypedDict, TypeVar, get_args

from elision.errors import PriceError, SettingError, SpecError
from elision.providers.anthropic.bound_thinking import AUTO_POLICY, THINKING_POLICIES
from elision.providers.provider import Api
from elision.stores.store import Store
from elision.stores.store_urls import DEFAULT_STORE
from elision.strategies.budget import Budget
from elision.strategies.extractors.outcome import Extractor
from elision.strategies.extractors.registry import BUILT_IN, Extractors
from elision.strategies.guards import Guards
from elision.strategies.presets import PRESET_GUARDS
from elision.strategies.rules import Rule
from elision.strategies.schedules import CacheAwareSchedule, Schedule
from elision.strategies.spec import describe_strategy, find_preset, parse_strategy
from elision.strategies.strategy import Strategy
from elision.summarizers.summary_result import SummaryResult
from elision.telemetry.diagnostics import Diagnostics
from elision.trajectory.plan import SummaryRequest
from elision.trajectory.price_lookup import (
    LONGEST_NAME,
    count_for_model,
    find_close_models,
    find_price_set,
    find_prices,
)
from elision.trajectory.prices import Prices
from elision.trajectory.recall_names import RECALL_TOOL, RECALL_TOOLS, SEARCH_TOOL
from elision.trajectory.redact import DEFAULT, Redaction
from elision.trajectory.text_protocol import ObservationRole

#: Writes a summary; sync or async. Raises SummaryError if it cannot.
SummaryWriter: TypeAlias = Callable[[SummaryRequest], "str | SummaryResult | Awaitable[str | SummaryResult]"]
#: Told of every pass.
Listener: TypeAlias = Callable[[Diagnostics], None]
#: Whether a message, as JSON, must never be hidden.
Pin: TypeAlias = Callable[[Mapping[str, Any]], bool]
DialectName: TypeAlias = Literal["auto", Api]
CacheControl: TypeAlias = Literal["auto", "gaps", "client"]
#: How long the cache entries live that are written at our breakpoints.
CacheTtl: TypeAlias = Literal["client", "1h"]
#: Who offers the recall tools: Elision in the request that it returns, the caller, or nobody.
RecallOffer: TypeAlias = Literal["auto", "caller", "never"]
OverBudget: TypeAlias = Literal["raise", "send"]
OnFault: TypeAlias = Literal["send", "raise"]

_Constructor = TypeVar("_Constructor", bound=Callable[..., None])
#: Whether a value is right, and what to give otherwise.
_Check: TypeAlias = tuple[Callable[[Any], bool], str]

#: Turns for which what the agent recalled stays, whatever the strategy's window.
RECALLED_WINDOW_TURNS = 10

#: Prices of a model that nobody named: Anthropic's usual rates, so that a cache counts.
_DEFAULT_PRICES = "anthropic"


class ContextOptions(TypedDict, total=False):
    """The keyword options of `ContextManager`, which documents each with its unit and its default."""

    model: str
    prices: str | Prices | None
    store: str | Store
    session: str
    family: str
    parent: str
    dialect: DialectName
    observations: ObservationRole
    summarizer: str | SummaryWriter | None
    background: bool
    summary_seconds: float
    guards: Guards | None
    token_budget: int | None
    reserved_for_response: int | None
    max_context_pct: float | None
    on_event: Listener | Sequence[Listener]
    extractors: Mapping[str, Extractor]
    rules: Sequence[Rule]
    pin: Pin | None
    recall: RecallOffer
    thinking: str
    cache_control: CacheControl
    cache_ttl: CacheTtl
    write_behind: bool
    shadow: bool
    over_budget: OverBudget
    on_fault: OnFault
    tokens: str
    redaction: Redaction
    clock: Callable[[], float]


def check_positions(own: str, misplaced: Sequence[object]) -> None:
    """Raise SettingError where a class was given more than a strategy by position. own: its name."""
    if not misplaced:
        return
    first = misplaced[0]
    is_url = isinstance(first, str) and (first.startswith("memory:") or "://" in first)
    option = f"store={first!r:.100}" if is_url else "store='sqlite:///agent.db'"
    raise SettingError(f"{own} takes nothing but the strategy without a name: write {own}('masking', {option})")


def check_option_names(names: Iterable[str]) -> None:
    """Raises SettingError where one of `names` is no option."""
    for name in names:
        if name not in ContextOptions.__annotations__:
            near = get_close_matches(name, ContextOptions.__annotations__, 1)
            if near:
                meant = f"{near[0]!r} is meant"
            else:
                meant = "what refines a strategy stands in its text: masking(window=10)"
            raise SettingError(f"there is no option {name!r}; perhaps {meant}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of one context manager, checked. `ContextManager` documents each with its unit and its default."""

    strategy: str | Strategy = "masking"
    model: str = ""
    prices: str | Prices | None = None
    store: str | Store = DEFAULT_STORE
    session: str = ""
    family: str = ""
    parent: str = ""
    dialect: DialectName = "auto"
    observations: ObservationRole = "auto"
    summarizer: str | SummaryWriter | None = None
    background: bool = False
    summary_seconds: float = 120.0
    guards: Guards | None = None
    token_budget: int | None = None
    reserved_for_response: int | None = None
    max_context_pct: float | None = None
    on_event: Listener | Sequence[Listener] = ()
    extractors: Mapping[str, Extractor] = field(default_factory=dict)
    rules: Sequence[Rule] = ()
    pin: Pin | None = None
    recall: RecallOffer = "auto"
    thinking: str = AUTO_POLICY
    cache_control: CacheControl = "auto"
    cache_ttl: CacheTtl = "client"
    write_behind: bool = False
    shadow: bool = False
    over_budget: OverBudget = "raise"
    on_fault: OnFault = "send"
    tokens: str = "o200k"
    redaction: Redaction = DEFAULT
    clock: Callable[[], float] = time.time
    #: The strategy with everything that refines it.
    effective_strategy: Strategy = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name, valid, wanted in _CHECKS:
            value = getattr(self, name)
            if not valid(value):
                raise SettingError(f"{name}={_describe_value(value)}: give {wanted}")
        for rule in self.rules:
            if not isinstance(rule, Rule):
                raise SettingError(f"rules: {type(rule).__name__} among them; give elision.Rule(...)")
        for listener in self.listeners:
            if not callable(listener):
                raise SettingError(f"on_event: {type(listener).__name__} among them; give functions")
        for tools, extractor in self.extractors.items():
            if not isinstance(tools, str) or not callable(extractor):
                raise SettingError(f"extractors[{tools!r}]: give a function under a glob on the tool's name")
        self._check_none_is_async()
        if not isinstance(self.strategy, str | Strategy):
            raise SpecError(
                f"a strategy is a text such as masking(window=10) or a Strategy, not {type(self.strategy).__name__}"
            )
        # Frozen, and slots: built once, also where many sessions have the same options.
        object.__setattr__(self, "effective_strategy", self._build_strategy())
        self._check_room()

    def for_session(self, session: str, family: str, summarizer: SummaryWriter) -> Options:
        """Return these options for another session. They are not checked again."""
        made = object.__new__(Options)
        own = {"session": session, "family": family, "summarizer": summarizer}
        for name in Options.__slots__:
            object.__setattr__(made, name, own[name] if name in own else getattr(self, name))
        return made

    def _check_none_is_async(self) -> None:
        """Raise SettingError for an async function: nobody awaits it, and what it returns would count as a yes."""
        given: list[tuple[str, Any]] = [("clock", self.clock), *(("on_event", each) for each in self.listeners)]
        given += [(f"extractors[{tools!r}]", each) for tools, each in self.extractors.items()]
        if self.pin is not None:
            given.append(("pin", self.pin))
        for name, function in given:
            if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):
                raise SettingError(f"{name}: an async function, which is not awaited here; give a plain one")

    def _check_room(self) -> None:
        """Raise SpecError for a budget in which no prompt has room: every pass would fail on it."""
        strategy = self.effective_strategy
        prices = self.find_prices()
        try:
            strategy.limit_view(prices)
        except SpecError as error:
            if self.token_budget is not None:
                whose = f"token_budget={self.token_budget}"
            elif strategy.budget is not None and strategy.budget.tokens is not None:
                whose = f"budget={strategy.budget.tokens}"
            else:
                whose = f"the window of {prices.name!r}"
            raise SpecError(f"{whose}: {error}; give a larger budget, or a smaller reserved_for_response") from None

    @property
    def is_shared(self) -> bool:
        """Whether other processes may write to the same sessions, which is no error then."""
        return bool(self.family) or self.write_behind

    @property
    def listeners(self) -> tuple[Listener, ...]:
        one = callable(self.on_event) or not isinstance(self.on_event, Iterable)
        return (self.on_event,) if one else tuple(self.on_event)  # type: ignore[arg-type, return-value]

    @property
    def effective_guards(self) -> Guards:
        """The guards: as given, else the preset's own, else none."""
        if self.guards is not None:
            return self.guards
        if isinstance(self.strategy, str):
            named = find_preset(self.strategy)
        else:
            named = ""
        return PRESET_GUARDS.get(named, Guards())

    @property
    def extractor_table(self) -> Extractors:
        """The user's extractors in front of the built-in ones."""
        table = BUILT_IN
        for tools, extractor in self.extractors.items():
            table = table.register(extractor, tools=(tools,))
        return table

    def find_prices(self, model: str = "") -> Prices:
        """What calls are billed at. Raises PriceError for an unknown set; an unknown model is billed as usual."""
        wanted = model or self.model
        return count_for_model(self._find_rates(wanted), wanted)

    def _find_rates(self, model: str) -> Prices:
        if isinstance(self.prices, Prices):
            return self.prices
        if self.prices:
            return _find_prices_named(self.prices)
        try:
            if model:
                return find_prices(model)
            return find_price_set(_DEFAULT_PRICES)
        except PriceError:
            return find_price_set(_DEFAULT_PRICES)

    def describe_missing_prices(self, model: str = "") -> str:
        """Return the note that the prices of `model`, by default that of the options, are unknown; "" where they are
        known."""
        model = model or self.model
        if not model or self.prices:
            return ""
        try:
            find_prices(model)
        except PriceError:
            close = find_close_models(model[:LONGEST_NAME])[:3]
            names = f" (close names: {', '.join(close)})" if close else ""
            usual = f"billed as {_DEFAULT_PRICES} models usually are; give prices="
            return f"no prices are known for {model[:80]}{names}: {usual}"
        return ""

    def _build_strategy(self) -> Strategy:
        """Return the effective strategy. Raises SpecError."""
        strategy = parse_strategy(self.strategy) if isinstance(self.strategy, str) else self.strategy
        # Who recalls a result wants to see it whole.
        own = tuple(
            Rule(tool=tool, after=RECALLED_WINDOW_TURNS, verbatim=True)
            for tool in (RECALL_TOOL, SEARCH_TOOL)
            if self.recall != "never"
        )
        rules = (*self.rules, *own, *strategy.rules)
        handles = strategy.handles and self.recall != "never"
        changed = replace(
            strategy,
            handles=handles,
            budget=self._refine_budget(strategy.budget),
            schedule=self._limit_schedule(strategy.schedule),
        )
        if changed.can_hide or changed.fold:
            return replace(changed, rules=rules)
        return changed

    def _limit_schedule(self, schedule: Schedule) -> Schedule:
        """Return `schedule`, with the turns after which a guard ends the run if it does not name its own."""
        limit = self.effective_guards.max_turns
        if limit is not None and schedule == CacheAwareSchedule():
            return CacheAwareSchedule(max_turns=limit)
        return schedule

    def _refine_budget(self, budget: Budget | None) -> Budget | None:
        options = {
            "tokens": self.token_budget,
            "reserved": self.reserved_for_response,
            "max_context_pct": self.max_context_pct,
        }
        given = {name: value for name, value in options.items() if value is not None}
        return replace(budget or Budget(), **given) if given else budget  # type: ignore[arg-type]


def describe_without_recall_rules(strategy: Strategy) -> str:
    """Return a strategy as text, without the rules that `Options` adds for the recall tools."""
    rules = tuple(rule for rule in strategy.rules if rule.tool not in RECALL_TOOLS)
    return describe_strategy(replace(strategy, rules=rules))


def show_option_signature(constructor: _Constructor) -> _Constructor:
    """Give `constructor`, which takes `**options`, a signature that lists every option, for `help` and editors."""
    positional = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter("self", positional)]
    for option in fields(Options):
        if not option.init:
            continue
        default = option.default
        if option.default_factory is not MISSING:
            default = option.default_factory()
        kind = positional if option.name == "strategy" else inspect.Parameter.KEYWORD_ONLY
        parameters.append(inspect.Parameter(option.name, kind, default=default, annotation=option.type))
    constructor.__signature__ = inspect.Signature(parameters, return_annotation="None")  # type: ignore[attr-defined]
    return constructor


def _accept_choice(*names: str) -> _Check:
    return (lambda value: isinstance(value, str) and value in names), f"{', '.join(names[:-1])} or {names[-1]}"


def _accept_type(wanted: str, *kinds: type) -> _Check:
    return (lambda value: isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))), wanted


def _is_callable_or(*kinds: type) -> Callable[[Any], bool]:
    return lambda value: callable(value) or isinstance(value, kinds)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and "\n" not in value and len(value) <= 400


def is_session_name(value: Any) -> bool:
    return _is_name(value) and _BRANCH.search(value) is None


def _is_store(value: Any) -> bool:
    # What it is must not be asked of a store: one that fails says so at every question.
    if isinstance(value, str):
        return True
    known = hasattr(type(value), "append") or hasattr(type(value), "__getattr__")
    return known and not isinstance(value, Sequence | bytearray)


def _is_listeners(value: Any) -> bool:
    # They are gone through at every pass, which an iterator survives once.
    return callable(value) or isinstance(value, Collection)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_token_count(least: int) -> Callable[[Any], bool]:
    return lambda value: value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= least)


_NAME: Final = (_is_name, "one line of at most 400 characters")
#: How keys of branches end: a session of that name would meet one.
_BRANCH: Final = re.compile(r"~[0-9]{1,9}\Z")
_FLAG: Final = _accept_type("True or False", bool)
#: What each option must be: it would fail in every pass otherwise, where it only means that requests go out as they
#: came.
_CHECKS: Final[tuple[tuple[str, Callable[[Any], bool], str], ...]] = (
    ("model", *_accept_type("the model's name", str)),
    ("prices", *_accept_type("the name of a set or of a model, or elision.Prices(...)", str, Prices, type(None))),
    ("store", _is_store, "a URL (`memory:` keeps nothing) or a Store"),
    ("session", is_session_name, f"{_NAME[1]}, not ending in ~ and a number as branches do"),
    ("family", *_NAME),
    ("parent", *_NAME),
    ("dialect", *_accept_choice(*get_args(DialectName))),
    ("observations", *_accept_choice(*get_args(ObservationRole))),
    ("summarizer", _is_callable_or(str, type(None)), "a text such as anthropic:MODEL, or a function of a request"),
    ("background", *_FLAG),
    ("summary_seconds", lambda value: _is_number(value) and value > 0, "seconds, above 0"),
    ("guards", *_accept_type("elision.Guards(...)", Guards, type(None))),
    ("token_budget", _is_token_count(1), "tokens, 1 or more"),
    ("reserved_for_response", _is_token_count(0), "tokens, 0 or more"),
    (
        "max_context_pct",
        lambda value: value is None or (_is_number(value) and 0 < value <= 1),
        "a share above 0, up to 1",
    ),
    ("on_event", _is_listeners, "a function, or several"),
    ("extractors", *_accept_type("a mapping of globs on the tool's name to functions", Mapping)),
    (
        "rules",
        lambda value: isinstance(value, Collection) and not isinstance(value, str),
        "a list of elision.Rule(...)",
    ),
    ("pin", _is_callable_or(type(None)), "a function of a message"),
    ("recall", *_accept_choice(*get_args(RecallOffer))),
    ("thinking", *_accept_choice(AUTO_POLICY, *THINKING_POLICIES)),
    ("cache_control", *_accept_choice(*get_args(CacheControl))),
    ("cache_ttl", *_accept_choice(*get_args(CacheTtl))),
    ("write_behind", *_FLAG),
    ("shadow", *_FLAG),
    ("over_budget", *_accept_choice(*get_args(OverBudget))),
    ("on_fault", *_accept_choice(*get_args(OnFault))),
    ("tokens", *_accept_type("the name of a counter", str)),
    ("redaction", *_accept_type("a Redaction", Redaction)),
    ("clock", callable, "a function that returns seconds since the epoch"),
)


def _describe_value(value: Any) -> str:
    """A value in an error: texts and numbers themselves, of others the type."""
    if isinstance(value, str | int | float):
        return repr(value)[:60]
    return type(value).__name__


def _find_prices_named(name: str) -> Prices:
    try:
        return find_price_set(name)
    except PriceError:
        return find_prices(name)
