"""What masking old tool arguments would save: an upper bound, because each stands in the replay as a maskable result.

A long value of a tool call's arguments becomes a result of its own in the same turn. One replay keeps all of them
whole, the other masks them as old as results are, with the schedule of `masking`; the difference is what an option
could save. A file's newest write stays until that file is touched again. In text protocols a call is part of the
agent's words, so it stays.

Without the shared recordings: `examples/runs`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Final

from msgspec import structs

from benchmarks.recordings import load_recordings
from elision.lab.evidence import EvidenceTally, collect_evidence
from elision.lab.replay import replay_run
from elision.lab.run_as_recorded import add_recorded_head, sizer
from elision.lab.run_loading import find_named_prices
from elision.strategies.gist import KnownIdentifiers
from elision.strategies.placeholder import Placeholders
from elision.strategies.selectors import Rule
from elision.strategies.strategy import Masking
from elision.summarizers.touched_files import FileTouch, list_touches
from elision.trajectory.plan import Key, make_handle
from elision.trajectory.tokens import Sizer
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.turn import Action, Observation, Opaque, Text, Turn

PRICES: Final = ("claude-fable-5-2", "claude-opus-5-5", "anthropic", "openai", "uncached")
#: Tokens of a value from which on it may be masked, and calls of the groups of runs.
LEAST_TOKENS: Final = 150
MANY: Final = 10_000
GROUPS: Final = ((1, 39), (40, MANY))
MOVED, KEPT = "argument", "newest-write"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One run. usd: of `masking`, as recorded. saved_usd: what masking arguments takes off. missing: turns that miss
    something while arguments stay, and while they are masked."""

    calls: int
    usd: float
    saved_usd: float
    missing: tuple[int, int]

    @property
    def share(self) -> float:
        return self.saved_usd / self.usd if self.usd else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Markers(Placeholders):
    """The default placeholders; a masked argument has its handle and its size alone."""

    def write_placeholder(self, key: Key, turn: Turn, observation: Observation, known: KnownIdentifiers) -> str:
        if observation.tool == MOVED:
            return f"[{make_handle(key)}: {len(observation.text)} characters hidden]"
        return Placeholders.write_placeholder(self, key, turn, observation, known)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgumentMasking(Masking):
    """`masking` with such markers."""

    @property
    def placeholders(self) -> Placeholders:
        return Markers()


def main(*, small: bool = False) -> None:
    runs = load_recordings(small=small)
    names = PRICES[1:2] if small else PRICES
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        outcomes = list(pool.map(partial(replay_all, price_lists=names), runs))
    print(f"{'prices':18} {'calls':>6} {'runs':>4} {'saved':>7} {'median':>7} {'most':>7} {'least':>7} {'missing':>10}")
    for name in names:
        for first, last in GROUPS:
            chosen = [each[name] for each in outcomes if first <= each[name].calls <= last]
            if not chosen:
                continue
            shares = [each.share for each in chosen]
            cells = [sum(each.saved_usd for each in chosen) / sum(each.usd for each in chosen)]
            cells += [median(shares), max(shares), min(shares)]
            calls = f"{first} +" if last == MANY else f"{first}-{last}"
            shown = " ".join(f"{cell:7.2%}" for cell in cells)
            kept, masked = (sum(each.missing[place] for each in chosen) for place in (0, 1))
            print(f"{name:18} {calls:>6} {len(chosen):4} {shown} {f'{kept} -> {masked}':>10}")


def replay_all(run: Trajectory, price_lists: tuple[str, ...]) -> dict[str, Outcome]:
    """Replay `run` at each of `price_lists`: as recorded, with its arguments kept whole, and with them masked."""
    counting = sizer("openai", "o200k")
    whole = add_recorded_head(run, counting)
    moved = move_arguments(whole, counting, Masking().window)
    known = collect_evidence(moved)
    rules = [Rule(tag=KEPT, keep=True)]
    ages = {tag for turn in moved.turns for seen in turn.observations for tag in seen.tags if tag.startswith("after-")}
    rules += [Rule(tag=tag, after=int(tag.removeprefix("after-"))) for tag in sorted(ages)]
    outcomes = {}
    for name in price_lists:
        prices = find_named_prices(name)
        kept, masked = (
            replay_run(moved, ArgumentMasking(rules=each), prices, counting, known=known, tally=EvidenceTally())
            for each in ((Rule(tag=MOVED, keep=True),), tuple(rules))
        )
        usd = replay_run(whole, Masking(), prices, counting).usd
        missing = (kept.evidence.regret_turns, masked.evidence.regret_turns)
        outcomes[name] = Outcome(calls=len(run.turns), usd=usd, saved_usd=kept.usd - masked.usd, missing=missing)
    return outcomes


def move_arguments(run: Trajectory, counting: Sizer, window: int) -> Trajectory:
    """Return `run` with long values as results, each with a tag that says when it may be masked."""
    touches = list_touches(run.turns)
    turns = []
    for turn in run.turns:
        actions, results = [], []
        for action in turn.actions:
            values = {} if action.implicit else dict(_list_long_values(action, counting))
            if values:
                results.append(_make_result(action, values, _find_age_tag(turn.index, touches, window)))
                emptied = {name: "" if name in values else value for name, value in action.decoded_arguments.items()}
                action = structs.replace(action, arguments=json.dumps(emptied))
            actions.append(action)
        turns.append(structs.replace(turn, actions=tuple(actions), observations=(*results, *turn.observations)))
    return replace(run, turns=tuple(turns))


def _list_long_values(action: Action, counting: Sizer) -> Iterator[tuple[str, str]]:
    for name, value in action.decoded_arguments.items():
        # A token is at least one character.
        if isinstance(value, str) and len(value) >= LEAST_TOKENS and counting.count(value) >= LEAST_TOKENS:
            yield name, value


def _make_result(action: Action, values: Mapping[str, str], tag: str) -> Observation:
    # The part that is no text keeps folding away: a result must not refer to an argument.
    content = (Text("\n".join(values.values())), Opaque(kind="argument"))
    return Observation(action_id=action.id, tool=MOVED, content=content, tags=frozenset((MOVED, tag)))


def _find_age_tag(turn: int, touches: Sequence[FileTouch], window: int) -> str:
    """Return after how many turns a value may be masked: once every file that the call wrote was touched again."""
    written = {touch.path for touch in touches if touch.turn == turn and touch.verb != "read"}
    last = turn + window
    for path in written:
        later = next((touch.turn for touch in touches if touch.path == path and touch.turn > turn), None)
        if later is None:
            return KEPT
        last = max(last, later)
    return f"after-{last - turn}"
