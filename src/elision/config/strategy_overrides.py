"""The strategy in force: the one that is named, refined by the settings that stand for single options of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from elision.config.setting_keys import KEYS, Key
from elision.config.setting_sources import GivenSetting, Rank, check_agreement
from elision.errors import SettingError, SpecError
from elision.strategies.decision_context import Budget
from elision.strategies.spec import (
    DEPENDENT_OPTIONS,
    PRESET_SETTINGS,
    PRESETS,
    find_preset,
    list_stated_options,
    parse_strategy,
)
from elision.strategies.strategy import Strategy
from elision.trajectory.price_lookup import find_price_set
from elision.trajectory.redact import DEFAULT


@dataclass(frozen=True, slots=True, kw_only=True)
class RefinedStrategy:
    """strategy: in force. place: where it is named. preset: which it is, "" for none.

    values: for each setting that stands for an option, (its value,); where the strategy has no use for it what was
    given, or () for nothing. places: where those are from. notes: what to know about what was given: why it is not used
    now, or what it became.
    """

    strategy: Strategy
    place: str
    preset: str
    values: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _NamedStrategy:
    """The strategy as it was named. states: options that it says itself; None: all of them."""

    strategy: Strategy
    place: str
    rank: Rank
    preset: str = ""
    states: frozenset[str] | None = frozenset()

    def states_option(self, option: str) -> bool:
        return self.states is None or option in self.states


def refine_strategy(found: Mapping[str, GivenSetting]) -> RefinedStrategy:
    """The strategy in force. Raises SettingError for a setting that contradicts it, or another one.

    A setting that the strategy has no use for is kept, with a note that says when it is used.
    """
    named = _read_named_strategy(found)
    changes: dict[str, GivenSetting] = {}
    unused: dict[str, GivenSetting] = {}
    notes: dict[str, str] = {}
    for given in _list_given(found, named):
        option, why = _decide_whether_applied(named, given)
        if option:
            notes |= _add_change(changes, option, given)
            continue
        notes[given.key.name] = why
        if not _find_option(named.strategy, given.key):
            unused[given.key.name] = given
    changed = {option: given.value for option, given in changes.items()}
    fitted = _fit_dependent_options(named, changes)
    changed |= {each.option: each.value for each in fitted}
    strategy = _change_strategy(named.strategy, changed, [given.place for given in changes.values()])
    _check_room(strategy, named, changes)
    values = {key.name: _find_value(strategy, key) for key in _STRATEGY_KEYS}
    places = {key.name: _find_place(named, key, changes) for key in _STRATEGY_KEYS}
    for name, given in unused.items():
        values[name] = (given.value,)
        places[name] = given.place
    for each in fitted:
        places[each.setting] = each.place
        notes[each.setting] = each.note
    return RefinedStrategy(
        strategy=strategy, place=named.place, preset=named.preset, values=values, places=places, notes=notes
    )


def _list_given(found: Mapping[str, GivenSetting], named: _NamedStrategy) -> Iterator[GivenSetting]:
    """What somebody said about options of the strategy, and what comes with the preset beyond its strategy."""
    preset = PRESET_SETTINGS.get(named.preset, {})
    for key in _STRATEGY_KEYS:
        if key.name in found:
            yield found[key.name]
        elif key.name in preset:
            yield GivenSetting(key=key, value=preset[key.name], place=f"preset {named.preset}", rank=Rank.PRESET)


#: The settings that stand for options of a strategy.
_STRATEGY_KEYS: Final = tuple(key for key in KEYS.values() if key.options)


def _read_named_strategy(found: Mapping[str, GivenSetting]) -> _NamedStrategy:
    given = found.get("strategy")
    if given is None:
        return _NamedStrategy(strategy=parse_strategy(KEYS["strategy"].default), place="default", rank=Rank.DEFAULT)
    if isinstance(given.value, Strategy):
        return _NamedStrategy(strategy=given.value, place=given.place, rank=given.rank, states=None)
    if not isinstance(given.value, str):
        raise SettingError(f"{given.place}: give a strategy or its text, not {type(given.value).__name__}")
    try:
        return _NamedStrategy(
            strategy=parse_strategy(given.value),
            place=given.place,
            rank=given.rank,
            preset=find_preset(given.value),
            states=list_stated_options(given.value),
        )
    except SpecError as error:
        raise SettingError(f"{given.place}: {DEFAULT.redact_text(str(error))}") from None


# -- which option a setting means -------------------------------------------------------------------------------------


def _decide_whether_applied(named: _NamedStrategy, given: GivenSetting) -> tuple[str, str]:
    """The option that `given` sets, or "" and why it sets none: a lower source has no say about the strategy's own."""
    option = _find_option(named.strategy, given.key)
    if not option:
        return "", f"used if the strategy {given.key.used_if}"
    if given.value is None and option == "hard":
        return "", "two-tier always has a hard threshold"
    if not named.states_option(option) or given.rank > named.rank:
        return option, ""
    (own,) = _find_value(named.strategy, given.key)
    if given.rank == named.rank and own != given.value:
        raise SettingError(f"{given.place} says {given.value}, but {named.place} says {option}={own}; keep one of them")
    return "", f"{named.place} says {option} itself"


def _find_option(strategy: Strategy, key: Key) -> str:
    """The option of `strategy` that the setting stands for; "" for none."""
    # Nothing has an effect on a strategy that hides nothing.
    if strategy.can_hide:
        for option in key.options.split():
            if option.startswith("budget.") or option in strategy.__dataclass_fields__:
                return option
    return ""


def _add_change(changes: dict[str, GivenSetting], option: str, given: GivenSetting) -> dict[str, str]:
    """Add `given` to the changes; of two settings for one option the higher source counts. Return a note on the other.

    Raises SettingError where one source says two different things.
    """
    other = changes.get(option)
    check_agreement(other, given)
    if other is None or given.rank >= other.rank:
        changes[option] = given
    if other is None:
        return {}
    kept, dropped = (given, other) if changes[option] is given else (other, given)
    return {dropped.key.name: f"{kept.place} says {option} too"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _FittedOption:
    """An option that gave way to another one. setting: which stands for it. place: where the other is from."""

    option: str
    value: int
    setting: str
    place: str
    note: str


def _fit_dependent_options(named: _NamedStrategy, changes: Mapping[str, GivenSetting]) -> list[_FittedOption]:
    """The options that give way to others."""
    fitted = []
    for kind, (leading, dependent, limit) in DEPENDENT_OPTIONS.items():
        if not isinstance(named.strategy, kind):
            continue
        lead = changes[leading].value if leading in changes else getattr(named.strategy, leading)
        wanted = changes[dependent].value if dependent in changes else _find_wanted(named, dependent)
        value = limit(lead, wanted)
        if value == wanted:
            continue
        setting = next(key.name for key in _STRATEGY_KEYS if dependent in key.options.split())
        reason = changes[leading].key.name if leading in changes else leading
        fitted.append(
            _FittedOption(
                option=dependent,
                value=value,
                setting=setting,
                place=changes[leading].place if leading in changes else named.place,
                note=f"{value} instead of {wanted}, since {reason} is {lead}",
            )
        )
    return fitted


def _find_wanted(named: _NamedStrategy, option: str) -> Any:
    """The value of `option` before it gave way within the strategy's own text."""
    if named.states_option(option):
        return getattr(named.strategy, option)
    if named.preset:
        return getattr(parse_strategy(PRESETS[named.preset]), option)
    return type(named.strategy).__dataclass_fields__[option].default


# -- changing it ------------------------------------------------------------------------------------------------------


def _change_strategy(strategy: Strategy, changes: Mapping[str, Any], places: Sequence[str]) -> Strategy:
    """`strategy` with all changes at once, so that no two of them contradict each other on the way.

    places: where the changes are from, for an error.
    """
    if not changes:
        return strategy
    own = {option: value for option, value in changes.items() if not option.startswith("budget.")}
    budget = {option.partition(".")[2]: value for option, value in changes.items() if option not in own}
    try:
        changed = replace(strategy, **own)
        if budget:
            return replace(changed, budget=replace(changed.budget or Budget(), **budget))
        return changed
    except SpecError as error:
        raise SettingError(f"{', '.join(places)}: {error}") from None


def _check_room(strategy: Strategy, named: _NamedStrategy, changes: Mapping[str, GivenSetting]) -> None:
    """Raise SettingError for a budget that its reserve eats: that is known before any model is."""
    if strategy.budget is None or strategy.budget.tokens is None:
        return
    try:
        strategy.budget.limit_view(find_price_set("anthropic"))
    except SpecError as error:
        places = [given.place for option, given in changes.items() if option.startswith("budget.")]
        raise SettingError(f"{', '.join(places) or named.place}: {error}") from None


# -- what is shown ----------------------------------------------------------------------------------------------------


def _find_value(strategy: Strategy, key: Key) -> tuple[Any, ...]:
    """(the value in force,) or ()."""
    option = _find_option(strategy, key)
    if option.startswith("budget."):
        return (getattr(strategy.budget or Budget(), option.partition(".")[2]),)
    if option:
        return (getattr(strategy, option),)
    return ()


def _find_place(named: _NamedStrategy, key: Key, changes: Mapping[str, GivenSetting]) -> str:
    option = _find_option(named.strategy, key)
    if option in changes:
        return changes[option].place
    if option and named.states_option(option):
        return named.place
    if named.preset:
        preset = list_stated_options(PRESETS[named.preset])
    else:
        preset = frozenset()
    if option in preset:
        return f"preset {named.preset}"
    if option:
        return "default"
    return ""
