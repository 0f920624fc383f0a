"""The strategy in force: the one that is named, refined by the settings that stand for single options of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from elision.config.setting_keys import KEYS, Key
from elision.config.setting_sources import GivenSetting, Rank
from elision.errors import SettingError, SpecError
from elision.strategies.budget import Budget
from elision.strategies.pipeline import Pipeline
from elision.strategies.spec import PRESETS, find_preset, list_stated_options, parse_strategy
from elision.strategies.strategy import Strategy
from elision.trajectory.price_lookup import find_price_set
from elision.trajectory.redact import DEFAULT


@dataclass(frozen=True, slots=True, kw_only=True)
class RefinedStrategy:
    """strategy: in force. place: where it is named. preset: which it is, "" for none.

    values: for each setting that stands for an option, (its value,), or () where the strategy has none. places: where
    those are from. notes: why what was given has no effect.
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
    """The strategy in force. Raises SettingError for a setting that has no effect on it, or contradicts it."""
    named = _read_named_strategy(found)
    changes: dict[str, tuple[Any, str]] = {}
    notes: dict[str, str] = {}
    for key in _list_strategy_keys():
        if key.name not in found:
            continue
        option, why = _decide_whether_applied(named, found[key.name])
        if option:
            changes[option] = (found[key.name].value, found[key.name].place)
        else:
            notes[key.name] = why
    strategy = _change_strategy(named.strategy, changes)
    _check_room(strategy, named, changes)
    return RefinedStrategy(
        strategy=strategy,
        place=named.place,
        preset=named.preset,
        values={key.name: _find_value(strategy, key) for key in _list_strategy_keys()},
        places={key.name: _find_place(named, key, changes) for key in _list_strategy_keys()},
        notes=notes,
    )


def _list_strategy_keys() -> Iterator[Key]:
    return (key for key in KEYS.values() if key.options)


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
    option = next((option for option in given.key.options if _has_option(named.strategy, option)), "")
    if not option:
        why = f"{named.strategy.name} has no such option"
        if given.rank >= named.rank:
            with_it = ", ".join(given.key.options)
            raise SettingError(
                f"{given.place}: no effect, since {named.strategy.name} ({named.place}) has no option {with_it}; "
                "take it away, or choose another strategy"
            )
        return "", why
    if not named.states_option(option) or given.rank > named.rank:
        return option, ""
    (own,) = _find_value(named.strategy, given.key)
    if given.rank == named.rank and own != given.value:
        raise SettingError(f"{given.place} says {given.value}, but {named.place} says {option}={own}; keep one of them")
    return "", f"{named.place} says {option} itself"


def _has_option(strategy: Strategy, option: str) -> bool:
    """Whether `option` has an effect on `strategy`; nothing has any on one that hides nothing."""
    if not strategy.can_hide:
        return False
    if option.startswith("budget."):
        return True
    return any(option in part.__dataclass_fields__ for part in _list_parts_with(strategy, option))


def _list_parts_with(strategy: Strategy, option: str) -> tuple[Strategy, ...]:
    """The strategies that `option` may stand in: a pipeline's parts, for what they do not share."""
    shared = option in Strategy.__dataclass_fields__
    if isinstance(strategy, Pipeline) and not shared:
        return strategy.parts
    return (strategy,)


# -- changing it ------------------------------------------------------------------------------------------------------


def _change_strategy(strategy: Strategy, changes: Mapping[str, tuple[Any, str]]) -> Strategy:
    """`strategy` with all changes at once, so that no two of them contradict each other on the way."""
    if not changes:
        return strategy
    own = {option: value for option, (value, _) in changes.items() if not option.startswith("budget.")}
    budget = {option.partition(".")[2]: value for option, (value, _) in changes.items() if option not in own}
    try:
        changed = _replace_options(strategy, own)
        if budget:
            return replace(changed, budget=replace(changed.budget or Budget(), **budget))
        return changed
    except SpecError as error:
        raise SettingError(f"{', '.join(place for _, place in changes.values())}: {error}") from None


def _replace_options(strategy: Strategy, options: Mapping[str, Any]) -> Strategy:
    if isinstance(strategy, Pipeline):
        inner = {name: value for name, value in options.items() if name not in Strategy.__dataclass_fields__}
        shared = {name: value for name, value in options.items() if name not in inner}
        return replace(strategy, parts=tuple(_replace_options(part, inner) for part in strategy.parts), **shared)
    return replace(
        strategy, **{name: value for name, value in options.items() if name in strategy.__dataclass_fields__}
    )


def _check_room(strategy: Strategy, named: _NamedStrategy, changes: Mapping[str, tuple[Any, str]]) -> None:
    """Raise SettingError for a budget that its reserve eats: that is known before any model is."""
    if strategy.budget is None or strategy.budget.tokens is None:
        return
    try:
        strategy.budget.limit_view(find_price_set("anthropic"))
    except SpecError as error:
        places = [place for option, (_, place) in changes.items() if option.startswith("budget.")]
        raise SettingError(f"{', '.join(places) or named.place}: {error}") from None


# -- what is shown ----------------------------------------------------------------------------------------------------


def _find_value(strategy: Strategy, key: Key) -> tuple[Any, ...]:
    """(the value in force,) or ()."""
    option = next((option for option in key.options if _has_option(strategy, option)), "")
    if option.startswith("budget."):
        return (getattr(strategy.budget or Budget(), option.partition(".")[2]),)
    if option:
        holders = [part for part in _list_parts_with(strategy, option) if option in part.__dataclass_fields__]
    else:
        holders = []
    if holders:
        return (getattr(holders[0], option),)
    return ()


def _find_place(named: _NamedStrategy, key: Key, changes: Mapping[str, tuple[Any, str]]) -> str:
    option = next((option for option in key.options if _has_option(named.strategy, option)), "")
    if option in changes:
        return changes[option][1]
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
