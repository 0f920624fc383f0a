"""The settings in force: what is given, put together with presets and defaults, checked, each with its place."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from elision.config.setting_keys import ALL_KEYS, GATEWAY_KEYS, KEYS, Key, strip_prefix
from elision.config.setting_readers import NONE, conceal_password
from elision.config.setting_sources import GivenSetting, read_settings
from elision.config.strategy_overrides import RefinedStrategy, refine_strategy
from elision.errors import SettingError
from elision.stores.store_urls import locate_store
from elision.strategies.guards import Guards
from elision.strategies.spec import PRESET_GUARDS, describe_strategy
from elision.strategies.strategy import Strategy
from elision.telemetry.diagnostics import Diagnostics
from elision.telemetry.logs import PassLog
from elision.telemetry.metric_table import PassCollector
from elision.trajectory.redact import DEFAULT, NO_REDACTION, Redaction

if TYPE_CHECKING:
    from elision.summarizers.prompt import SummaryPrompt

#: The place of what nobody set.
NOWHERE = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingEntry:
    """One setting as it is in force.

    value: as a text, without secrets; "" where nobody gave one and the strategy has no use for it. place: variable,
    file:line, argument, preset or "default". note: what to know about what was given: why it is not used now, or what
    it became.
    """

    key: Key
    value: str
    place: str
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that `ContextManager.from_env()` goes by; `docs/reference/settings.md` has the meanings.

    strategy: refined by the settings beside it, its budget included. preset: which it is, "" for none. store: an
    address, maybe with a password.
    summarizer: "digest" or provider:model. log: "none", "text" or "json".
    metrics: "none", "prometheus" or "opentelemetry". entries: each setting and its place.
    gateway: the gateway's own settings, by the names in their table.
    """

    strategy: Strategy
    preset: str
    guards: Guards
    summarizer: str
    summarizer_base_url: str | None
    summary_prompt: str | None
    summary_example: str
    summary_temperature: float | None
    summary_seconds: float
    background: bool
    store: str = field(repr=False)
    session: str | None
    model: str | None
    prices: str | None
    dialect: str
    observations: str
    thinking: str
    cache_control: str
    cache_ttl: str
    recall: str
    tools: str
    tokens: str
    redaction: Redaction
    log: str
    metrics: str
    gateway: Mapping[str, Any] = field(repr=False)
    entries: tuple[SettingEntry, ...] = field(repr=False)

    def is_given(self, name: str) -> bool:
        """Return whether anybody gave the setting `name`, so that it is no default."""
        return any(entry.key.name == name and entry.place != NOWHERE for entry in self.entries)

    @property
    def prompt(self) -> SummaryPrompt:
        """Return what a summarizer's model is asked. Raises SettingError where a file of it cannot be read any more."""
        from elision.summarizers.prompt import load_prompt  # with the digest, which most commands do without

        return load_prompt(self.summary_prompt, self.summary_example)

    def options(self) -> dict[str, Any]:
        """The options of a `ContextManager`, by name. Where its summarizer is served, and what is redacted in what that
        is sent, are not among them: they are the summarizer's. Raises MissingExtra for metrics without their extra."""
        found = {name: getattr(self, name) for name in _OPTIONS}
        found |= {"model": self.model or "", "session": self.session or ""}
        listeners: list[Callable[[Diagnostics], None]] = []
        if self.log != NONE:
            listeners.append(PassLog("json" if self.log == "json" else "text", redaction=self.redaction))
        if self.metrics != NONE:
            listeners.append(_share_collector(self.metrics))
        if listeners:
            found["on_event"] = tuple(listeners)
        return found

    def summarizer_options(self) -> dict[str, Any]:
        """The options of `make_summarizer` beside its spec and the environment of its key."""
        return {
            "base_url": self.summarizer_base_url or "",
            "redaction": self.redaction,
            "prompt": self.prompt,
            "temperature": self.summary_temperature,
        }

    def describe_summarizer(self) -> str:
        """Return who writes summaries, where and with what prompt, in one line without secrets."""
        if self.strategy.make_trigger() is None:
            return "off"
        if self.summarizer == KEYS["summarizer"].default:
            return "by the digest, without a model"
        parts = [f"by {self.summarizer}"]
        if self.summarizer_base_url:
            parts[0] += f" at {conceal_password(self.summarizer_base_url)}"
        if self.summary_prompt:
            parts.append(f"prompt {self.summary_prompt}")
        if self.summary_example != KEYS["summary_example"].default:
            parts.append(f"example {self.summary_example}")
        if self.summary_temperature != KEYS["summary_temperature"].default:
            parts.append(f"temperature {_format_value(self.summary_temperature)}")
        return DEFAULT.redact_text(", ".join(parts))


@cache
def _share_collector(metrics: str) -> PassCollector:
    """The collector of all sessions of this process: what it adds up is theirs together. Raises MissingExtra."""
    if metrics == "prometheus":
        from elision.telemetry.prometheus import Prometheus  # an extra

        return Prometheus()
    from elision.telemetry.opentelemetry import OpenTelemetry  # an extra

    return OpenTelemetry()


def load_settings(
    environ: Mapping[str, str] | None = None, folder: Path | None = None, **arguments: object
) -> Settings:
    """The settings in force, from `arguments`, `environ` (the process's own) and the file in `folder` (the working
    one), in that order. Raises SettingError, which names place and fix."""
    found = read_settings(os.environ if environ is None else environ, folder or Path.cwd(), arguments)
    found = {name: replace(found[of], key=ALL_KEYS[name]) for name, of in FOLLOWS.items() if of in found} | found
    strategy = refine_strategy(found)
    guards, places = _build_guards(found, strategy.preset)
    places |= {name: places[of] for name, of in FOLLOWS.items() if of in places}
    limits = {name: getattr(guards, of) for name, of in FOLLOWS.items() if name not in found}
    plain = {name: _find_value(found, name) for name in ALL_KEYS} | _find_summarizer_address(found)
    plain |= asdict(guards) | limits | {"store": locate_store(plain["store"])}
    redaction = _build_redaction(found, plain)
    _check_prompt(found, plain)
    places |= {name: each.place for name, each in found.items()}
    return Settings(
        strategy=strategy.strategy,
        preset=strategy.preset,
        guards=guards,
        redaction=redaction,
        gateway={strip_prefix(name): plain[name] for name in GATEWAY_KEYS},
        entries=tuple(_build_entry(key, strategy, plain, places) for key in ALL_KEYS.values()),
        **{name: plain[name] for name in _PLAIN},
    )


#: The gateway's own limits of a session are its guards unless somebody says otherwise: who limits a session by
#: max_cost_usd, or chooses a preset with a limit, does not expect that the gateway passes over it.
FOLLOWS: Final = {"gateway_session_max_cost_usd": "max_cost_usd", "gateway_session_max_turns": "max_turns"}

#: Settings that are what they are, whatever the others say.
_PLAIN: Final = [each.name for each in fields(Settings) if each.name in KEYS and each.name != "strategy"]
#: What only a model that writes summaries is given.
_OF_MODEL_SUMMARIES: Final = ("summary_prompt", "summary_example", "summary_temperature")
#: Settings that a context manager takes under the same name.
_OPTIONS: Final = [
    "strategy",
    "guards",
    *(name for name in _PLAIN if name not in (*_OF_MODEL_SUMMARIES, "summarizer_base_url", "log", "metrics")),
]


def _find_value(found: Mapping[str, GivenSetting], name: str) -> Any:
    if name in found:
        return found[name].value
    return ALL_KEYS[name].default


def _build_guards(found: Mapping[str, GivenSetting], preset: str) -> tuple[Guards, dict[str, str]]:
    """The guards in force, and those of them that come with the preset, by name with their place."""
    own = PRESET_GUARDS.get(preset, Guards())
    names = [each.name for each in fields(Guards)]
    places = {name: f"preset {preset}" for name in names if getattr(own, name) is not None}
    return replace(own, **{name: found[name].value for name in names if name in found}), places


def _find_summarizer_address(found: Mapping[str, GivenSetting]) -> dict[str, str | None]:
    """Where the summarizer's model is served. The digest asks none: then an address is an error, unless it is from a
    lower source than the choice of the digest."""
    address = found.get("summarizer_base_url")
    if address is None or _find_value(found, "summarizer") != KEYS["summarizer"].default or address.value is None:
        return {"summarizer_base_url": address.value if address else None}
    if "summarizer" in found and found["summarizer"].rank > address.rank:
        return {"summarizer_base_url": None}
    raise SettingError(f"{address.place}: the digest uses no model; give a summarizer too, such as openai:MODEL")


def _build_redaction(found: Mapping[str, GivenSetting], plain: Mapping[str, Any]) -> Redaction:
    """Raises SettingError for a kind that does not exist, and for an expression that does not compile."""
    if not plain["redact"]:
        return NO_REDACTION
    try:
        return Redaction(without=frozenset(plain["redact_without"]), extra=plain["redact_patterns"])
    except SettingError as error:
        places = [found[name].place for name in ("redact_without", "redact_patterns") if name in found]
        raise SettingError(f"{', '.join(places)}: {error}") from None


def _check_prompt(found: Mapping[str, GivenSetting], plain: Mapping[str, Any]) -> None:
    """Read the files of prompt and example. Raises SettingError, which names setting, file, line and remedy."""
    places = [found[name].place for name in ("summary_prompt", "summary_example") if name in found]
    if not places:
        return
    from elision.summarizers.prompt import load_prompt  # with the digest, which most commands do without

    try:
        load_prompt(plain["summary_prompt"], plain["summary_example"])
    except SettingError as error:
        raise SettingError(f"{', '.join(places)}: {error}") from None


# -- what is shown -----------------------------------------------------------------------------------------------------


def _build_entry(
    key: Key, strategy: RefinedStrategy, plain: Mapping[str, Any], places: Mapping[str, str]
) -> SettingEntry:
    name = key.name
    if name == "strategy":
        return SettingEntry(key=key, value=describe_strategy(strategy.strategy), place=strategy.place)
    if key.options:
        value = _format_value(*strategy.values[name])
        note = strategy.notes.get(name, "")
        return SettingEntry(key=key, value=value, place=strategy.places[name], note=note)
    if key.counts or plain[name] is None:
        shown = plain[name]
    else:
        shown = str(plain[name])
    if key.secret and shown is not None:
        value = "***"
    else:
        value = _format_value(shown)
    note = ""
    if name in _OF_MODEL_SUMMARIES and name in places and plain["summarizer"] == KEYS["summarizer"].default:
        note = "used if a model writes summaries; the digest asks none"
    return SettingEntry(key=key, value=value, place=places.get(name, NOWHERE), note=note)


def _format_value(*value: Any) -> str:
    """A value as it could be given; "" for no value at all. Passwords and secrets are left out."""
    if not value:
        return ""
    match value[0]:
        case None:
            return NONE
        case bool():
            return str(value[0]).lower()
        case str():
            return DEFAULT.redact_text(conceal_password(value[0]))
        case tuple():
            return ", ".join(item if isinstance(item, str) else item[0] for item in value[0]) or NONE
        case int():
            return f"{value[0]:_}"
        case float():
            return f"{value[0]:g}"
    return str(value[0])
