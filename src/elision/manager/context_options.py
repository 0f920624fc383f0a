"""The options of a context manager, checked once."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from typing import Any, Final, Literal, TypeAlias, TypedDict, TypeVar, get_args

from elision.config.setting_keys import KEYS
from elision.errors import PriceError, SettingError, SpecError
from elision.manager.advanced_options import (
    ADVANCED_NAMES,
    CACHE_NAMES,
    FLAG,
    NAME,
    Advanced,
    CacheControl,
    accept_callable,
    accept_choice,
    accept_type,
    check_not_async,
    check_rows,
    is_name,
    make_row,
    read_default,
)
from elision.stores.store import Store
from elision.stores.store_urls import DEFAULT_STORE
from elision.strategies.decision_context import Budget
from elision.strategies.extractors.registry import BUILT_IN, Extractors
from elision.strategies.guards import Guards
from elision.strategies.schedules import CacheAwareSchedule, Schedule
from elision.strategies.selectors import Rule
from elision.strategies.spec import PRESET_GUARDS, describe_strategy, find_preset, parse_strategy
from elision.strategies.strategy import Masking, Strategy
from elision.summarizers.summary_checks import SummaryResult
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
from elision.trajectory.run_roles import SaidRole
from elision.trajectory.tool_definitions import FIND_TOOL, OWN_TOOLS, RECALL_TOOL, SEARCH_TOOL

#: Writes a summary; sync or async. Raises SummaryError if it cannot.
SummaryWriter: TypeAlias = Callable[[SummaryRequest], "str | SummaryResult | Awaitable[str | SummaryResult]"]
#: Told of every pass.
Listener: TypeAlias = Callable[[Diagnostics], None]
#: Who offers the recall tools: Elision in the request that it returns, the caller, or nobody.
RecallOffer: TypeAlias = Literal["auto", "caller", "never"]
#: What is sent of the definitions of tools: all, or those beyond a budget once the model asks for them.
ToolDeclarations: TypeAlias = Literal["send", "defer"]

_Constructor = TypeVar("_Constructor", bound=Callable[..., None])

#: Turns for which what the agent recalled stays, whatever the strategy's window.
RECALLED_WINDOW_TURNS = 10

#: Prices of a model that nobody named: Anthropic's usual rates, so that a cache counts.
_DEFAULT_PRICES = "anthropic"
#: How keys of branches end: a session of that name would meet one.
_BRANCH: Final = re.compile(r"~[0-9]{1,9}\Z")
#: What the documents call options of a strategy's budget, and their names there.
_BUDGET_NAMES: Final = {"reserved_for_response": "reserved", "max_context_pct": "max_context_pct"}


def is_session_name(value: Any) -> bool:
    return is_name(value) and _BRANCH.search(value) is None


def _is_store(value: Any) -> bool:
    # What it is must not be asked of a store: one that fails says so at every question.
    if isinstance(value, str):
        return True
    known = hasattr(type(value), "append") or hasattr(type(value), "__getattr__")
    return known and not isinstance(value, Sequence | bytearray)


def _is_token_count(value: Any) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 1)


class ContextOptions(TypedDict, total=False):
    """The keyword options of `ContextManager` for type checkers, which cannot read them from `Options`."""

    model: str
    store: str | Store
    session: str
    summarizer: str | SummaryWriter | None
    token_budget: int | None
    recall: RecallOffer
    tools: ToolDeclarations
    shadow: bool
    on_event: Listener | Sequence[Listener]
    prices: str | Prices | None
    guards: Guards | None
    advanced: Advanced


def check_positions(own: str, misplaced: Sequence[object]) -> None:
    """Raise SettingError where a class was given more than a strategy by position. own: its name."""
    if not misplaced:
        return
    first = misplaced[0]
    is_url = isinstance(first, str) and (first.startswith("memory:") or "://" in first)
    option = f"store={first!r:.100}" if is_url else "store='sqlite:///agent.db'"
    raise SettingError(f"{own} takes nothing but the strategy without a name: write {own}('masking', {option})")


def check_option_names(names: Iterable[str]) -> None:
    """Raise SettingError where one of `names` is not an option; the error says where it belongs."""
    for name in names:
        if name not in ContextOptions.__annotations__:
            raise SettingError(f"there is no option {name!r}; {_find_place(name)}")


def _find_place(name: str) -> str:
    """Return where to write what was given as the option `name`."""
    if name in ADVANCED_NAMES:
        return f"write advanced=Advanced({name}=...)"
    if name in CACHE_NAMES:
        return f"write advanced=Advanced(cache=Cache({CACHE_NAMES[name]}=...))"
    if name in _BUDGET_NAMES:
        return f'put it in the strategy: "masking(budget=budget({_BUDGET_NAMES[name]}=...))"'
    if any(name == row.name for row in fields(Masking)):
        return f'put it in the strategy: "masking({name}=...)"'
    known = [*ContextOptions.__annotations__, *ADVANCED_NAMES]
    near = get_close_matches(name, known, 1)
    if near:
        place = f" It is in advanced=Advanced({near[0]}=...)" if near[0] in ADVANCED_NAMES else ""
        return f"did you mean {near[0]}?{place}"
    return f"there are: {', '.join(ContextOptions.__annotations__)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of one context manager, checked: the rows of the table, and what only the gateway sets.

    write_behind: whether a view that hides nothing new is returned before it is stored. role: as the client says it.
    """

    strategy: str | Strategy = make_row(
        "masking",
        KEYS["strategy"].meaning,
        (lambda value: True, ""),
    )
    model: str = make_row("", KEYS["model"].meaning, accept_type("the model's name", str))
    store: str | Store = make_row(
        DEFAULT_STORE,
        KEYS["store"].meaning,
        (_is_store, "a URL such as sqlite:///agent.db (`memory:` keeps nothing), or a Store"),
    )
    session: str = make_row(
        "",
        KEYS["session"].meaning,
        (is_session_name, f"{NAME[1]}, not ending in ~ and a number as branches do"),
    )
    summarizer: str | SummaryWriter | None = make_row(
        None,
        KEYS["summarizer"].meaning,
        accept_callable("a text such as anthropic:MODEL, or a function of a request", str, type(None)),
    )
    token_budget: int | None = make_row(None, KEYS["token_budget"].meaning, (_is_token_count, "tokens, 1 or more"))
    recall: RecallOffer = make_row("auto", KEYS["recall"].meaning, accept_choice(*get_args(RecallOffer)))
    tools: ToolDeclarations = make_row("send", KEYS["tools"].meaning, accept_choice(*get_args(ToolDeclarations)))
    shadow: bool = make_row(
        False, "whether requests stay unchanged while everything is decided, priced and recorded", FLAG
    )
    on_event: Listener | Sequence[Listener] = make_row(
        (),
        "function, or several, called with the Diagnostics of each call; errors are logged",
        # They are gone through at every call, which an iterator survives once.
        (lambda value: callable(value) or isinstance(value, Collection), "a function, or several"),
    )
    prices: str | Prices | None = make_row(
        None,
        KEYS["prices"].meaning,
        accept_type(
            "the name of a set or of a model, or elision.trajectory.prices.Prices(...)", str, Prices, type(None)
        ),
    )
    guards: Guards | None = make_row(
        None,
        "Guards that say when the run should stop; None: those of the preset",
        accept_type("elision.Guards(...)", Guards, type(None)),
    )
    advanced: Advanced = make_row(Advanced(), "what few programs set", accept_type("elision.Advanced(...)", Advanced))
    write_behind: bool = False
    role: SaidRole = ""
    #: The strategy with everything that refines it.
    effective_strategy: Strategy = field(init=False, repr=False, compare=False)
    #: Whether other processes may write to the same sessions, which is no error then.
    is_shared: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_rows(self)
        for listener in self.listeners:
            if not callable(listener):
                raise SettingError(f"on_event: {type(listener).__name__} among them; give functions")
            check_not_async("on_event", listener)
        if not isinstance(self.strategy, str | Strategy):
            raise SpecError(
                f"a strategy is a text such as masking(window=10) or a Strategy, not {type(self.strategy).__name__}"
            )
        # Frozen, and slots: built once, also where many sessions have the same options.
        object.__setattr__(self, "effective_strategy", self._build_strategy())
        object.__setattr__(self, "is_shared", bool(self.advanced.family) or self.write_behind)
        self._check_room()

    def for_session(self, session: str, family: str, summarizer: SummaryWriter, parent: str, role: SaidRole) -> Options:
        """Return these options for another session. Their strategy is not built again."""
        made = object.__new__(Options)
        advanced = replace(self.advanced, family=family, parent=parent)
        own = {"session": session, "advanced": advanced, "summarizer": summarizer, "role": role}
        own["is_shared"] = bool(family) or self.write_behind
        for name in Options.__slots__:
            object.__setattr__(made, name, own[name] if name in own else getattr(self, name))
        return made

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
            smaller = 'reserve less: "masking(budget=budget(reserved=500))"'
            raise SpecError(f"{whose}: {error}; give a larger budget, or {smaller}") from None

    @property
    def cache_control(self) -> CacheControl:
        """Who sets cache breakpoints."""
        return self.advanced.cache.control or "auto"

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
        for tools, extractor in self.advanced.extractors.items():
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
            usual = f"priced like the set {_DEFAULT_PRICES}; set prices if that is wrong"
            return f"no prices are known for {model[:80]}{names}: {usual}"
        return ""

    def list_doubts(self) -> list[str]:
        """Return a note for each option that is set and has no effect."""
        doubts = []
        name, window = self.effective_strategy.name, self.find_prices().window
        if self.summarizer is not None and self.effective_strategy.make_trigger() is None:
            doubts.append(f"summarizer is set, and {name} makes no summaries: choose hybrid, or leave it out")
        if self.token_budget is not None and window is not None and self.token_budget > window:
            doubts.append(
                f"token_budget={self.token_budget} is more than the window of {self.model}, {window} tokens, which "
                "counts: give less, or leave it out"
            )
        return doubts

    def _build_strategy(self) -> Strategy:
        """Return the effective strategy. Raises SpecError."""
        strategy = parse_strategy(self.strategy) if isinstance(self.strategy, str) else self.strategy
        # Who recalls a result wants to see it whole.
        own = tuple(
            Rule(tool=tool, after=RECALLED_WINDOW_TURNS, verbatim=True)
            for tool in (RECALL_TOOL, SEARCH_TOOL)
            if self.recall != "never"
        )
        if self.tools == "defer":
            # What was found out about a tool counts for as long as the session lives.
            own = (Rule(tool=FIND_TOOL, keep=True), *own)
        rules = (*own, *strategy.rules)
        handles = strategy.handles and self.recall != "never"
        budget = strategy.budget
        if self.token_budget is not None:
            budget = replace(budget or Budget(), tokens=self.token_budget)
        changed = replace(
            strategy,
            handles=handles,
            budget=budget,
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


def describe_without_recall_rules(strategy: Strategy) -> str:
    """Return a strategy as text, without the rules that `Options` adds for the recall tools."""
    rules = tuple(rule for rule in strategy.rules if rule.tool not in OWN_TOOLS)
    return describe_strategy(replace(strategy, rules=rules))


def show_option_signature(constructor: _Constructor) -> _Constructor:
    """Give `constructor`, which takes `**options`, a signature that lists every option, for `help` and editors."""
    positional = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter("self", positional)]
    for row in fields(Options):
        if row.metadata:
            kind = positional if row.name == "strategy" else inspect.Parameter.KEYWORD_ONLY
            parameters.append(inspect.Parameter(row.name, kind, default=read_default(row), annotation=row.type))
    constructor.__signature__ = inspect.Signature(parameters, return_annotation="None")  # type: ignore[attr-defined]
    return constructor


def _find_prices_named(name: str) -> Prices:
    try:
        return find_price_set(name)
    except PriceError:
        return find_prices(name)
