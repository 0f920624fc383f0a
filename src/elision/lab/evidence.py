"""Evidence recall: of what an agent's steps use and can only know from observations, how much the view still shows.

Beside it, own words: of what a step repeats of the agent's own earlier ones, how much is left. Summaries cover those.

Line numbers that a tool put in front of lines are no evidence: they are where something stood, and move with each edit.
A run is read once; every strategy's replay is then asked, call by call, what of it was hidden (design 9).
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from elision.trajectory.items import find_items, strip_gutters
from elision.trajectory.plan import Key
from elision.trajectory.state import State
from elision.trajectory.trajectory import Trajectory, join_assistant_text
from elision.trajectory.turn import Message, Turn

#: Items in the observations of more than this share of the other runs of a format are common property.
COMMON = 0.2
#: Fewer runs than this say nothing about what is common.
FEWEST_RUNS = 5
#: With so many other runs each is compared at most: with every one, the time would grow with the square of the runs.
PARTNERS = 200


@dataclass(frozen=True, slots=True)
class Use:
    """Turn `turn` writes `item` for the first time, and the observations `seen` contained it before."""

    turn: int
    item: str
    seen: tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """Turn `turn` makes a call that was made before, with the result `seen`."""

    turn: int
    seen: Key


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a run's steps need.

    uses: by turn. echoes: by turn, items that the agent wrote before, whatever else contains them. written: by item,
    the turns that wrote it. seen: by item, the observations that contain it. fresh: items each turn writes first,
    whether or not an observation holds them (for the control).
    observed: all items of the run's observations.
    """

    uses: dict[int, tuple[Use, ...]]
    repeats: dict[int, tuple[Repeat, ...]]
    echoes: dict[int, tuple[str, ...]]
    written: Mapping[str, Sequence[int]]
    seen: Mapping[str, Sequence[Key]]
    fresh: frozenset[str]
    observed: frozenset[str]

    @property
    def count(self) -> int:
        return sum(map(len, self.uses.values()))


def collect_evidence(trajectory: Trajectory) -> Evidence:
    """Read `trajectory` once, front to back."""
    told = _find_message_items(trajectory.head.messages)
    written: dict[str, list[int]] = {}
    seen: dict[str, list[Key]] = defaultdict(list)
    made: dict[tuple[str, str], Key] = {}
    uses: dict[int, tuple[Use, ...]] = {}
    repeats: dict[int, tuple[Repeat, ...]] = {}
    echoes: dict[int, tuple[str, ...]] = {}
    fresh: set[str] = set()
    for turn in trajectory.turns:
        untold = [item for item in find_items(join_assistant_text(turn)) if item not in told]
        new = [item for item in untold if item not in written]
        fresh.update(new)
        uses[turn.index] = tuple(Use(turn.index, item, tuple(seen[item])) for item in new if item in seen)
        echoes[turn.index] = tuple(item for item in untold if item in written)
        for item in untold:
            written.setdefault(item, []).append(turn.index)
        repeats[turn.index] = tuple(_list_repeats(turn, made))
        for position, observation in enumerate(turn.observations, start=1):
            for item in find_items(strip_gutters(observation.text)):
                seen[item].append((turn.index, position))
        told |= _find_message_items(turn.interjections)
    return Evidence(
        uses=uses,
        repeats=repeats,
        echoes=echoes,
        written=written,
        seen=seen,
        fresh=frozenset(fresh),
        observed=frozenset(seen),
    )


def _find_message_items(messages: Iterable[Message]) -> set[str]:
    return {item for message in messages for item in find_items(message.text)}


def _list_repeats(turn: Turn, made: dict[tuple[str, str], Key]) -> Iterator[Repeat]:
    """Yield the calls of `turn` that were made before. made: call -> its newest result; those of `turn` are added."""
    for position, observation in enumerate(turn.observations, start=1):
        action = turn.find_action(observation)
        if action is None:
            continue
        arguments = action.arguments
        if action.decoded_arguments:
            arguments = json.dumps(action.decoded_arguments, sort_keys=True)
        call = (action.name, arguments)
        if call in made:
            yield Repeat(turn.index, made[call])
        made[call] = (turn.index, position)


@dataclass(slots=True)
class EvidenceTally:
    """What one replay hid of one run's evidence.

    common: items left out of the filtered columns. own_items, own_found: the agent's own earlier words that it used
    again, and those still visible, in its own turns or elsewhere. own_missing_turns: turns that used one that was
    not, and missed no fact.
    """

    common: Collection[str] = frozenset()
    items: int = 0
    found: int = 0
    found_without_summary: int = 0
    items_filtered: int = 0
    found_filtered: int = 0
    regret_turns: int = 0
    regret_turns_filtered: int = 0
    own_items: int = 0
    own_found: int = 0
    own_missing_turns: int = 0
    repeats: int = 0
    repeats_hidden: int = 0
    _shown: dict[str, frozenset[str]] = field(default_factory=dict)

    def count_turn(self, known: Evidence, turn: int, state: State) -> None:
        """Turn `turn` answers a call whose view is `state`'s; count what its evidence still finds there."""
        lost = lost_filtered = False
        summary = self._visible_items(state.summary.block) if state.summary else frozenset()
        for use in known.uses.get(turn, ()):
            plain = any(self._is_visible(key, use.item, state) for key in use.seen)
            found = plain or use.item in summary
            rare = use.item not in self.common
            self.items += 1
            self.found += found
            self.found_without_summary += plain
            self.items_filtered += rare
            self.found_filtered += rare and found
            lost |= not found
            lost_filtered |= rare and not found
        self.regret_turns += lost
        self.regret_turns_filtered += lost_filtered
        echoes = known.echoes.get(turn, ())
        own_found = sum(self._is_own_visible(known, item, turn, state, summary) for item in echoes)
        self.own_items += len(echoes)
        self.own_found += own_found
        self.own_missing_turns += own_found < len(echoes) and not lost
        for repeat in known.repeats.get(turn, ()):
            self.repeats += 1
            is_hidden = state.find_hiding_text(repeat.seen) is not None
            self.repeats_hidden += is_hidden or repeat.seen[0] <= state.covered_turns

    def _is_own_visible(self, known: Evidence, item: str, turn: int, state: State, summary: Collection[str]) -> bool:
        """Whether `item`, which the agent wrote before `turn`, is still in its turns, a result or the summary."""
        if item in summary or not state.covered_turns:
            return True
        for own in reversed(known.written[item]):
            if own < turn:
                # The newest before `turn` is the last to be covered.
                if own > state.covered_turns:
                    return True
                break
        return any(self._is_visible(key, item, state) for key in reversed(known.seen.get(item, ())) if key[0] < turn)

    def _is_visible(self, key: Key, item: str, state: State) -> bool:
        if key[0] <= state.covered_turns:
            return False
        text = state.find_hiding_text(key)
        return text is None or item in self._visible_items(text)

    def _visible_items(self, text: str) -> frozenset[str]:
        if text not in self._shown:
            self._shown[text] = frozenset(find_items(text))
        return self._shown[text]


def common_items(runs: Sequence[Evidence]) -> list[frozenset[str]]:
    """For each of `runs`, all of one format: the items in the observations of more than a fifth of the others."""
    if len(runs) < FEWEST_RUNS:
        return [frozenset() for _ in runs]
    counts: Counter[str] = Counter()
    for run in runs:
        counts.update(run.observed)
    limit = COMMON * (len(runs) - 1)
    return [frozenset(item for item in run.fresh if counts[item] - (item in run.observed) > limit) for run in runs]


def measure_noise(runs: Sequence[Evidence], common: Sequence[Collection[str]]) -> list[float | None]:
    """For each of `runs`: the mean count of its items that another run's observations hold, as a share of its own.

    Items of `common` are left out on both sides. None where the run has no item of its own or no other run exists.
    Each run is compared with `PARTNERS` others at most, picked at random with a fixed seed.
    """
    shares: list[float | None] = []
    for place, run in enumerate(runs):
        fresh = run.fresh.difference(common[place])
        own = sum(1 for uses in run.uses.values() for use in uses if use.item not in common[place])
        others = [len(fresh & runs[partner].observed) for partner in _pick_partners(place, len(runs))]
        shares.append(sum(others) / len(others) / own if own and others else None)
    return shares


def _pick_partners(place: int, runs: int) -> list[int]:
    """The places of the runs with which the one at `place` is compared."""
    if runs - 1 <= PARTNERS:
        return [other for other in range(runs) if other != place]
    # The place itself is left out by counting past it.
    picked = random.Random(place).sample(range(runs - 1), PARTNERS)
    return [other + (other >= place) for other in picked]
