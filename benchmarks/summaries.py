"""What summaries keep of what the agent uses later: a curve over their size, and what the missing facts are.

`python -m benchmarks summaries`. Without the shared recordings: `examples/runs`.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial

from benchmarks.recordings import load_recordings
from elision.lab.evidence import Evidence, EvidenceTally, Use, collect_evidence
from elision.lab.replay import replay_run
from elision.lab.results import Row, total
from elision.lab.run_as_recorded import add_recorded_head, sizer
from elision.lab.sent_rows import build_row
from elision.lab.tuning.tuner import split_runs
from elision.strategies.spec import parse_strategy
from elision.strategies.strategy import Strategy
from elision.trajectory.items import find_items
from elision.trajectory.price_lookup import find_price_set
from elision.trajectory.state import State
from elision.trajectory.trajectory import Trajectory, join_assistant_text
from elision.trajectory.turn import Message, Observation, Turn

PRICE_SETS = ("anthropic", "openai")
STRATEGIES = ("summarization", "hybrid")
#: Limits of a summary in tokens.
SIZES = (1_000, 2_000, 4_000)
#: Shorter runs hide nothing by the default window.
FEWEST_TURNS = 10
SEED = 0
#: A part of an item: what can be looked for in the view by itself.
_PART = re.compile(r"[\w-]{3,}")
#: A number that stands so far from one that is used is as likely to be seen, and is used by chance alone.
_NEIGHBOURS = (-7, -3, 3, 7)
#: Items that were not used, for each call that misses a fact: what is found of them in the view is chance.
_CONTROLS = 20


@dataclass(slots=True)
class MissingFacts(EvidenceTally):
    """The facts that a replay misses, by what they are.

    causes: how many. controls: items of the same results that the agent never used, and how many of them could be put
    together from the view as well. neighbours: numbers beside the used ones, and how many results show those.
    """

    causes: Counter[str] = field(default_factory=Counter)
    controls: Counter[str] = field(default_factory=Counter)
    neighbours: Counter[str] = field(default_factory=Counter)

    def count_turn(self, known: Evidence, turn: int, state: State) -> None:
        lost = []
        for use in known.uses.get(turn, ()):
            found = self.found
            EvidenceTally.count_turn(self, replace(known, uses={turn: (use,)}, repeats={}), turn, state)
            if self.found == found:
                lost.append(use)
        if lost:
            self._explain(known, lost, state)

    def _explain(self, known: Evidence, lost: Sequence[Use], state: State) -> None:
        view = "\n".join(list_view_texts(state))
        shown = {item for key in _list_hidden_keys(state) for item in find_items(state.find_observation(key).text)}
        for use in lost:
            self.causes[find_cause(use.item, view)] += 1
            if use.item.isdigit():
                near = [str(int(use.item) + step) for step in _NEIGHBOURS]
                self.neighbours["all"] += len(near)
                self.neighbours["seen"] += sum(item in shown for item in near)
        used = {use.item for uses in known.uses.values() for use in uses}
        words = "\n".join(join_assistant_text(turn) for turn in state.turns)
        unused = [item for item in sorted(shown - used) if not item.isdigit() and item not in words]
        for item in unused[:: max(1, len(unused) // _CONTROLS)]:
            self.controls["all"] += 1
            self.controls["in parts"] += find_cause(item, view) != "nowhere in the view"


def main(*, small: bool = False) -> None:
    runs = [run for run in load_recordings() if len(run.turns) >= FEWEST_TURNS]
    halves = [[runs[place] for place in places] for places in split_runs(runs, 0.5, SEED)]
    print(f"{' + '.join(str(len(half)) for half in halves)} runs. Cost / raw, facts still visible, turns missing one:")
    print("of all runs, of the half that sets constants, and of the other.")
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for prices in PRICE_SETS[:1] if small else PRICE_SETS:
            for name in STRATEGIES:
                print(f"== {name}, {prices}")
                print_curve(pool, name, prices, halves, SIZES[:1] if small else SIZES)
        for name in () if small else STRATEGIES:
            print_missing(pool, name, [*halves[0], *halves[1]])


def print_curve(
    pool: Executor,
    name: str,
    prices: str,
    halves: Sequence[Sequence[Trajectory]],
    sizes: Sequence[int],
) -> None:
    """Print one row a size. The change of the cost is against the first size, which is the default."""
    default = None
    for size in sizes:
        strategy = parse_strategy(f"{name}(summary_max_tokens={size})")
        found = [total(pool.map(partial(replay, strategy, prices), half)) for half in halves]
        whole = total(found)
        default = default or whole
        cells = " ".join(map(_format_outcome, (whole, *found)))
        print(f"  {size:5} tokens {whole.usd / default.usd - 1:+6.1%} {cells}", flush=True)


def replay(strategy: Strategy, prices: str, run: Trajectory) -> Row:
    counting = sizer("openai", "o200k")
    whole = add_recorded_head(run, counting)
    known = collect_evidence(whole)
    found = replay_run(whole, strategy, find_price_set(prices), counting, known=known, tally=EvidenceTally())
    return build_row(run, strategy.name, found, None)


def print_missing(pool: Executor, name: str, runs: Sequence[Trajectory]) -> None:
    """Print what the facts are that the strategy misses by default, and how much of that is chance."""
    tallies = list(pool.map(partial(find_missing_facts, parse_strategy(name)), runs))
    causes = sum((tally.causes for tally in tallies), Counter[str]())
    controls = sum((tally.controls for tally in tallies), Counter[str]())
    near = sum((tally.neighbours for tally in tallies), Counter[str]())
    print(f"== {name}: {causes.total()} of {sum(tally.items for tally in tallies)} facts are missed")
    for cause, count in causes.most_common():
        print(f"  {cause:32} {count:4}")
    print(f"  of items never used, in the view: {controls['in parts'] / max(1, controls['all']):.0%}")
    print(f"  of numbers near the used ones, seen as well: {near['seen'] / max(1, near['all']):.0%}")


def find_missing_facts(strategy: Strategy, run: Trajectory) -> MissingFacts:
    counting = sizer("openai", "o200k")
    whole = add_recorded_head(run, counting)
    tally = MissingFacts()
    known = collect_evidence(whole)
    replay_run(whole, strategy, find_price_set(PRICE_SETS[0]), counting, known=known, tally=tally)
    return tally


def find_cause(item: str, view: str) -> str:
    """Return what a missing `item` is, by what of it the text of the view has."""
    if item.isdigit():
        return "a number"
    if item in view:
        return "in the view, within a longer word"
    if all(part in view for part in _PART.findall(item)):
        return "in the view, in parts"
    return "nowhere in the view"


def list_view_texts(state: State) -> Iterator[str]:
    """Yield the texts of the view."""
    for segment in state.track.segments:
        if segment.text:
            yield segment.text
        elif isinstance(segment.source, Turn):
            yield join_assistant_text(segment.source)
        elif isinstance(segment.source, Message | Observation):
            yield segment.source.text


def _list_hidden_keys(state: State) -> Iterator[tuple[int, int]]:
    """Yield the results that the view does not show."""
    for turn in state.turns:
        for position, _ in enumerate(turn.observations, start=1):
            key = (turn.index, position)
            if turn.index <= state.covered_turns or key in state.hidden:
                yield key


def _format_outcome(outcome: Row) -> str:
    return f"{outcome.usd / outcome.raw_usd:8.4f} {outcome.evidence_recall or 0:6.2%} {outcome.regret_turns:4}"
