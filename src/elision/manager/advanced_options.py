"""The table of options: each row has a name, a type, a default, what it means and what it accepts.

`Options` has the rows that most programs set, `Advanced` and `Cache` have the others. Docstrings, signature, checks and
error messages are made of these rows. What is also a setting has the meaning of the setting.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from typing import Any, Final, Literal, TypeAlias, TypeVar, get_args

from elision.config.setting_keys import KEYS
from elision.errors import SettingError
from elision.providers.anthropic.bound_thinking import AUTO_POLICY, THINKING_POLICIES
from elision.providers.provider_table import DialectName
from elision.strategies.extractors.outcome import Extractor
from elision.trajectory.redact import DEFAULT, Redaction
from elision.trajectory.turn import ObservationRole

#: Whether a message, as JSON, must never be hidden.
Pin: TypeAlias = Callable[[Mapping[str, Any]], bool]
CacheControl: TypeAlias = Literal["auto", "gaps", "client"]
#: How long the cache entries live that are written at our breakpoints.
CacheTtl: TypeAlias = Literal["client", "1h"]
OverBudget: TypeAlias = Literal["raise", "send"]
OnFault: TypeAlias = Literal["send", "raise"]

_T = TypeVar("_T")
#: Whether a value is right, and what to give otherwise.
_Check: TypeAlias = tuple[Callable[[Any], bool], str]


def make_row(default: Any, meaning: str, check: _Check, *, make: Callable[[], Any] | None = None) -> Any:
    """Return a row: a field of a dataclass. make: returns the default, where one object cannot be shared."""
    row = {"meaning": meaning, "check": check}
    if make is not None:
        return field(default_factory=make, metadata=row)
    return field(default=default, metadata=row)


def check_rows(options: object) -> None:
    """Raise SettingError for a value that its row does not accept: it would only fail in every call otherwise."""
    for row in fields(options):  # type: ignore[arg-type]
        if "check" in row.metadata:
            accepts, wanted = row.metadata["check"]
            value = getattr(options, row.name)
            if not accepts(value):
                raise SettingError(f"{row.name}={_describe_value(value)}: give {wanted}")


def check_not_async(name: str, function: object) -> None:
    """Raise SettingError for an async function: nobody awaits it, and what it returns would count as true."""
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):
        raise SettingError(f"{name}: an async function, which is not awaited here; give a plain one")


def read_default(row: Any) -> Any:
    """Return the default of a row."""
    return row.default if row.default_factory is MISSING else row.default_factory()


def list_set_rows(options: Advanced | Cache) -> dict[str, Any]:
    """Return by name what `options` set to something else than the default."""
    own = ((row, getattr(options, row.name)) for row in fields(options))
    return {row.name: value for row, value in own if value != read_default(row)}


def describe_rows(table: type) -> str:
    """Return the rows of a table as the list of a docstring."""
    lines = []
    for row in fields(table):
        if "meaning" in row.metadata:
            lines.append(f"- `{row.name}` (default `{_show_default(read_default(row))}`): {row.metadata['meaning']}.")
    return "\n".join(lines)


def _describe_value(value: Any) -> str:
    """A value in an error: texts and numbers themselves, of others the type."""
    if isinstance(value, str | int | float):
        return repr(value)[:60]
    return type(value).__name__


def _show_default(value: Any) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    if value is time.time:
        return "time.time"
    # Of a value of our own only its name: what it has is documented there.
    return f"{type(value).__name__}()" if is_dataclass(value) else repr(value)


def document_rows(documented: type[_T], table: type | None = None) -> type[_T]:
    """Put the rows of `table`, by default the class's own, into the docstring of a class, in place of `{rows}`."""
    text = inspect.cleandoc(documented.__doc__ or "")
    documented.__doc__ = text.replace("{rows}", describe_rows(table or documented))
    return documented


def accept_choice(*names: str) -> _Check:
    return (lambda value: isinstance(value, str) and value in names), f"{', '.join(names[:-1])} or {names[-1]}"


def accept_type(wanted: str, *kinds: type) -> _Check:
    return (lambda value: isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))), wanted


def accept_callable(wanted: str, *kinds: type) -> _Check:
    """Accept what can be called, and values of these types."""
    return (lambda value: callable(value) or isinstance(value, kinds)), wanted


def is_name(value: Any) -> bool:
    return isinstance(value, str) and "\n" not in value and len(value) <= 400


def _is_seconds(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


NAME: Final[_Check] = (is_name, "one line of at most 400 characters")
FLAG: Final[_Check] = accept_type("True or False", bool)


@document_rows
@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """How Elision uses the provider's prompt cache: `Advanced(cache=Cache(ttl="1h"))`.

    {rows}

    Raises SettingError for a value without a meaning.
    """

    control: CacheControl | None = make_row(
        None,
        f"{KEYS['cache_control'].meaning}; gaps sets them once something is hidden or folded (OpenAI from 5.6 on: "
        "both); None is auto, and client in adapters whose framework sets them",
        (lambda value: value is None or value in get_args(CacheControl), accept_choice(*get_args(CacheControl))[1]),
    )
    ttl: CacheTtl = make_row("client", KEYS["cache_ttl"].meaning, accept_choice(*get_args(CacheTtl)))

    def __post_init__(self) -> None:
        check_rows(self)


@document_rows
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Advanced:
    """What few programs have to set: `ContextManager(advanced=Advanced(dialect="openai"))`.

    {rows}

    Raises SettingError for a value without a meaning.
    """

    family: str = make_row(
        "", "name shared by sessions: the one that has the given history continues, whichever process wrote it", NAME
    )
    parent: str = make_row("", "name of the session that started this one, for a sub-agent", NAME)
    dialect: DialectName = make_row("auto", KEYS["dialect"].meaning, accept_choice(*get_args(DialectName)))
    observations: ObservationRole = make_row(
        "auto", KEYS["observations"].meaning, accept_choice(*get_args(ObservationRole))
    )
    pin: Pin | None = make_row(
        None,
        "function of a message; if it returns true, the message is never hidden",
        accept_callable("a function of a message", type(None)),
    )
    extractors: Mapping[str, Extractor] = make_row(
        None,
        "glob on the tool's name -> function that returns the outcome that placeholders show",
        accept_type("a mapping of globs on the tool's name to functions", Mapping),
        make=dict,
    )
    cache: Cache = make_row(
        Cache(), "how the provider's prompt cache is used", accept_type("elision.Cache(...)", Cache)
    )
    thinking: str = make_row(AUTO_POLICY, KEYS["thinking"].meaning, accept_choice(AUTO_POLICY, *THINKING_POLICIES))
    background: bool = make_row(False, KEYS["background"].meaning, FLAG)
    summary_seconds: float = make_row(120.0, KEYS["summary_seconds"].meaning, (_is_seconds, "seconds, above 0"))
    over_budget: OverBudget = make_row(
        "raise",
        "when no view fits: `raise` BudgetError, or `send` the smallest view",
        accept_choice(*get_args(OverBudget)),
    )
    on_fault: OnFault = make_row(
        "send",
        "when Elision fails: `send` the request unchanged, or `raise` the error",
        accept_choice(*get_args(OnFault)),
    )
    tokens: str = make_row("o200k", KEYS["tokens"].meaning, accept_type("the name of a counter", str))
    redaction: Redaction = make_row(
        DEFAULT,
        "which secrets are kept out of summaries, placeholders and logs",
        accept_type("a Redaction", Redaction),
    )
    clock: Callable[[], float] = make_row(
        time.time,
        "function that returns the time in seconds since the epoch",
        (callable, "a function that returns seconds since the epoch"),
    )

    def __post_init__(self) -> None:
        check_rows(self)
        for tools, extractor in self.extractors.items():
            if not isinstance(tools, str) or not callable(extractor):
                raise SettingError(f"extractors[{tools!r}]: give a function under a glob on the tool's name")
            check_not_async(f"extractors[{tools!r}]", extractor)
        check_not_async("clock", self.clock)
        check_not_async("pin", self.pin)

    def __repr__(self) -> str:
        return f"Advanced({', '.join(f'{name}={value!r}' for name, value in list_set_rows(self).items())})"

    def merge(self, over: Advanced) -> Advanced:
        """Return these options with those that `over` sets to something else than their default."""
        set_there = list_set_rows(over)
        if "cache" in set_there:
            set_there["cache"] = replace(self.cache, **list_set_rows(over.cache))
        return replace(self, **set_there)


#: The names under which settings and files of frameworks know the rows of `Cache`.
CACHE_NAMES: Final = {"cache_control": "control", "cache_ttl": "ttl"}
ADVANCED_NAMES: Final = frozenset(row.name for row in fields(Advanced))


def gather_options(named: Mapping[str, Any]) -> dict[str, Any]:
    """Return keyword options of `ContextManager` from flat names, as settings have them: `dialect`, `cache_ttl`.

    What a given `advanced` sets goes before them.
    """
    cache = {own: named[name] for name, own in CACHE_NAMES.items() if name in named}
    advanced = {name: value for name, value in named.items() if name in ADVANCED_NAMES}
    if cache:
        advanced["cache"] = Cache(**cache)
    rest = {name: value for name, value in named.items() if name not in advanced and name not in CACHE_NAMES}
    if advanced:
        rest["advanced"] = Advanced(**advanced).merge(named.get("advanced", Advanced()))
    return rest


def flatten_advanced(advanced: Advanced) -> dict[str, Any]:
    """Return what `advanced` sets, by the flat names that `gather_options` takes."""
    named = list_set_rows(advanced)
    cache = list_set_rows(named.pop("cache", Cache()))
    return named | {name: cache[row] for name, row in CACHE_NAMES.items() if row in cache}
