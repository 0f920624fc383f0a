"""How many turns an agent takes under a strategy, as a multiple of what it takes when everything is sent.

A replay keeps the recorded steps. Live, an agent that sees less takes more turns, or fewer. `elongation.toml` has what
was measured: runs of SWE-agent and of OpenHands under several strategies on the same instances. What was measured with
OpenHands counts for its recordings only, and what was with SWE-agent for all others. `replay --elongation` prices it.

It may also solve less: from which share of turns that miss a fact on, is the knee of the published dose curve. Of nine
windows of OpenHands (docs/concepts/decisions.md), those below the knee solved 20 to 22 of 50 tasks, as with everything
sent, and those above it 14 to 19.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Final, Literal

from elision.errors import SpecError
from elision.lab.ratios import divide_or_zero
from elision.strategies.strategy import Masking, Raw, Strategy, Summarization

FILE: Final = "elongation.toml"
SWE_AGENT: Final = "SWE-agent"
OPENHANDS: Final = "OpenHands"
#: Format of a recording -> the scaffold that wrote it, where turns or rules were published for it.
SCAFFOLDS: Final = {
    "swe-agent": SWE_AGENT,
    "mini-swe-agent": SWE_AGENT,
    "openhands-events": OPENHANDS,
    "openhands-output": OPENHANDS,
    "openhands-session": OPENHANDS,
}
#: Turns at the end of a run whose mean cost is the price of one more.
LATE: Final = 10
#: A strategy takes the factor of a measured one whose numbers of turns are at most this many times larger or smaller.
NEAR: Final = 2.0
#: Factors that a user may give: fewer turns than half, or more than ten times as many, are a slip.
LEAST: Final = 0.5
MOST: Final = 10.0

Mode = Literal["band", "measured", "given", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnMeasurement:
    """Runs of one scaffold and model under one strategy, against raw on the same instances.

    window: turns that stay as they are (the paper's M, or half of it where that counts events). every: turns from one
    summary to the next (its N), 0 if none.
    instances: how many all compared strategies ran. shared: they are the 50 that every strategy ran, the hybrids too.
    turns, raw_turns: means per run.
    """

    scaffold: str
    model: str
    strategy: str
    window: int
    every: int
    instances: int
    turns: float
    raw_turns: float
    shared: bool

    @property
    def factor(self) -> float:
        """Turns as a multiple of raw's."""
        return self.turns / self.raw_turns


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFactor:
    """Turns as a multiple of raw's, from the lowest to the highest that is assumed; `basis` names where it is from."""

    low: float
    high: float
    basis: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnAssumption:
    """What a study assumes of the number of turns.

    mode: `band`, from the lowest to the highest measured; `measured`, one model's factors; `given`, the user's; `none`.
    factors: by label of a strategy; absent where nothing was measured or given. source: of what was measured.
    scaffolds: with which; of more than one, a factor is the range over all, and absent where one of them has none.
    """

    mode: Mode = "none"
    factors: Mapping[str, TurnFactor] = field(default_factory=dict)
    source: str = ""
    scaffolds: tuple[str, ...] = (SWE_AGENT,)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredTurns:
    """The table of what was measured. source: publication, data and licence, with a place for the `{scaffolds}`."""

    source: str
    measurements: tuple[TurnMeasurement, ...]

    def list_summary_effects(self) -> list[tuple[str, float]]:
        """Return, for each model that ran all instances with SWE-agent, its turns with summaries as a multiple of those
        with masking.

        The longest first.
        """
        turns = {(each.model, each.strategy): each.turns for each in self.list_whole(SWE_AGENT)}
        effects = [
            (model, count / turns[model, Masking.name])
            for (model, strategy), count in turns.items()
            if strategy == Summarization.name
        ]
        return sorted(effects, key=lambda effect: -effect[1])

    def list_whole(self, scaffold: str) -> list[TurnMeasurement]:
        """Return what was measured with `scaffold` on all instances."""
        return [each for each in self.measurements if each.scaffold == scaffold and not each.shared]


@cache
def load_measured_turns() -> MeasuredTurns:
    """Return the packaged table."""
    table = tomllib.loads(files(__package__).joinpath(FILE).read_text(encoding="utf-8"))
    return MeasuredTurns(
        source=table["source"], measurements=tuple(TurnMeasurement(**entry) for entry in table["measurement"])
    )


def find_scaffolds(formats: Iterable[str]) -> tuple[str, ...]:
    """Return with which scaffolds the turns of recordings in `formats` were measured, sorted.

    OpenHands for its own; SWE-agent, with which most were, for all others and for no recording.
    """
    found = {OPENHANDS if SCAFFOLDS.get(each) == OPENHANDS else SWE_AGENT for each in formats}
    return tuple(sorted(found)) or (SWE_AGENT,)


def assume_turns(
    text: str, strategies: Mapping[str, Strategy], scaffolds: tuple[str, ...] = (SWE_AGENT,)
) -> TurnAssumption:
    """Return what `text` assumes of `strategies`, by label: "" for the band, `measured`, `none`, or factors.

    scaffolds: those of the recordings. Factors are `NAME=FACTOR`, separated by commas; a name is a strategy's kind or
    its label. A label comes before a kind. Raises SpecError.
    """
    if text == "none":
        return TurnAssumption(scaffolds=scaffolds)
    if text in ("", "measured"):
        return _assume_measured("measured" if text else "band", strategies, scaffolds)
    given = _parse_factors(text)
    kinds = {label: strategy.name for label, strategy in strategies.items()}
    known = {*kinds, *kinds.values()} - {label for label, kind in kinds.items() if kind == Raw.name} - {Raw.name}
    for name in given:
        if name not in known:
            raise SpecError(
                f"--elongation {name}: no strategy of that name is compared with raw; there are: "
                f"{'; '.join(sorted(known)) or 'none'}"
            )
    factors = {}
    for label, kind in kinds.items():
        factor = given.get(label, given.get(kind))
        if factor is not None:
            factors[label] = TurnFactor(low=factor, high=factor, basis="given")
    return TurnAssumption(mode="given", factors=factors, scaffolds=scaffolds)


def _assume_measured(mode: Mode, strategies: Mapping[str, Strategy], scaffolds: tuple[str, ...]) -> TurnAssumption:
    factors = {}
    for label, strategy in strategies.items():
        each = [find_factor(strategy, scaffold=name, one_model=mode == "measured") for name in scaffolds]
        found = [factor for factor in each if factor is not None]
        if len(found) == len(scaffolds):
            factors[label] = TurnFactor(
                low=min(factor.low for factor in found),
                high=max(factor.high for factor in found),
                basis="; ".join(factor.basis for factor in found),
            )
    source = load_measured_turns().source.replace("{scaffolds}", " and ".join(scaffolds))
    return TurnAssumption(mode=mode, factors=factors, source=source, scaffolds=scaffolds)


def find_factor(strategy: Strategy, *, scaffold: str = SWE_AGENT, one_model: bool = False) -> TurnFactor | None:
    """Return the factor of the strategy measured with `scaffold` that is most like `strategy`; None if none is like it,
    or for raw.

    Alike are strategies of one kind whose window, and whose turns from one summary to the next, are at most twice as
    many or half as many. Of two the nearer counts. Folding is left aside: it hides only what is
    shown elsewhere.
    one_model: take the runs on the 50 instances that every strategy ran, with one model, so that factors compare.
    Otherwise the factor is a range over the models, where a strategy was measured with several.
    """
    same = _list_alike(strategy, scaffold)
    taken = [each for each in same if each.shared]
    if not one_model:
        taken = [each for each in same if not each.shared] or taken
    if not taken:
        return None
    factors = [each.factor for each in taken]
    first = taken[0]
    models = first.model if len(taken) == 1 else f"{len(taken)} models"
    size = f"window={first.window}" if first.strategy == Masking.name else f"N={first.every}"
    instances = min(each.instances for each in taken)
    basis = f"{first.strategy}, {size}: {first.scaffold}, {models}, {instances} instances"
    return TurnFactor(low=min(factors), high=max(factors), basis=basis)


def _list_alike(strategy: Strategy, scaffold: str) -> list[TurnMeasurement]:
    """Return the measurements of the strategy that is most like `strategy`; [] if none is like it."""
    rhythm = strategy.rhythm
    if rhythm is None:
        return []
    sizes = rhythm.window, rhythm.turns - rhythm.tail
    measured = load_measured_turns().measurements
    like = [each for each in measured if each.strategy == strategy.name and each.scaffold == scaffold]
    nearest = min(like, key=lambda each: _measure_distance(each, sizes), default=None)
    if nearest is None or _measure_distance(nearest, sizes) > math.log(NEAR):
        return []
    return [each for each in like if (each.window, each.every) == (nearest.window, nearest.every)]


def price_turns(costs: Sequence[float], factor: float) -> float:
    """Return what a run of calls that cost `costs` (USD) would cost if it had `factor` times as many turns.

    Turns beyond the last cost what the last ten did on average; turns that fall away are the last ones.
    """
    turns = len(costs) * factor
    whole = min(int(turns), len(costs))
    if turns <= len(costs):
        part = costs[whole] * (turns - whole) if whole < len(costs) else 0.0
        return sum(costs[:whole]) + part
    return sum(costs) + (turns - len(costs)) * price_late_turn(costs)


def price_late_turn(costs: Sequence[float]) -> float:
    """Return the mean cost of the last ten calls, USD: what one more turn would cost."""
    late = costs[-LATE:]
    return divide_or_zero(sum(late), len(late))


def _measure_distance(measured: TurnMeasurement, sizes: tuple[int, int]) -> float:
    """Return how many times the sizes are those of `measured`, as a logarithm: 10 is as far from 20 as from 5."""
    pairs = zip((measured.window, measured.every), sizes, strict=True)
    return max(abs(math.log(max(ours, 1) / max(theirs, 1))) for ours, theirs in pairs)


def _parse_factors(text: str) -> dict[str, float]:
    factors: dict[str, float] = {}
    for item in _split_items(text):
        name, equals, number = item.rpartition("=")
        name = name.strip()
        factor = _parse_number(number)
        if not equals or not name or not LEAST <= factor <= MOST:
            raise SpecError(
                f"--elongation {item.strip()}: give measured, none, or NAME=FACTOR with a factor from {LEAST:g} to "
                f"{MOST:g}, such as masking=1.0,summarization=1.15"
            )
        if name in factors:
            raise SpecError(f"--elongation {text}: {name} is given twice; give one factor")
        factors[name] = factor
    return factors


def _split_items(text: str) -> list[str]:
    """Split at commas, except in parentheses and in names that have commas: an item ends with `=` and a number."""
    items: list[str] = []
    begun = ""
    depth = 0
    for piece in text.split(","):
        begun = f"{begun},{piece}" if begun else piece
        depth += piece.count("(") - piece.count(")")
        if depth == 0 and not math.isnan(_parse_number(piece.rpartition("=")[2])):
            items.append(begun)
            begun = ""
    return [*items, begun] if begun else items


def _parse_number(text: str) -> float:
    """Return `text` as a number; nan where it is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


# -- the dose of hiding -----------------------------------------------------------------------------------------------


#: Turns missing a fact, as a share of all turns.
KNEE: Final = 0.035
#: The largest of OpenHands' windows above the knee, in turns. Agents hid at every turn there.
LARGEST_WINDOW_ABOVE: Final = 27
#: Fewer turns tell nothing about a share so small.
FEWEST_TURNS: Final = 100


def is_above_knee(missing_turns: int, turns: int) -> bool:
    """Return whether so many turns miss a fact that live agents solved less."""
    return turns >= FEWEST_TURNS and missing_turns > KNEE * turns


def warn_of_window(preset: str, window: int | None) -> str | None:
    """Return the warning of a window that the published runs of OpenHands place above the knee, for its presets.

    None for other presets and for none: where other agents' windows stand nobody has measured.
    """
    if not preset.startswith("openhands") or window is None or window > LARGEST_WINDOW_ABOVE:
        return None
    return (
        f"Warning: a window of {window} turns is small for OpenHands. Its published runs, which hid at every turn, "
        f"solved 14 to 19 of 50 tasks with windows of up to {LARGEST_WINDOW_ABOVE} turns, and 20 to 22 above."
    )
