"""The dynamic program against exhaustive search, on small random runs.

The search is written anew and plainly: it tries every act at every call; views are tuples of (name, tokens), a common
prefix is counted by hand.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elision.engine import Log, LogSetup, count_output_tokens, decide, make_plain_terms, run_pass
from elision.errors import SummaryError
from elision.formats.registry import read_runs
from elision.lab.hindsight import find_cheapest_plan, has_hindsight
from elision.lab.replay import UNKNOWN_SENT, SentRun, replay_run
from elision.strategies.mask_candidates import MaskCandidate
from elision.strategies.schedules import BLOCK_TOKENS, INSTRUCTION_TOKENS, FixedSchedule
from elision.strategies.spec import parse_strategy
from elision.strategies.strategy import Strategy
from elision.trajectory.cache import CacheFinding
from elision.trajectory.price_lookup import find_price_set, find_prices
from elision.trajectory.prices import CacheRules, Prices, Rates
from elision.trajectory.tokens import Sizer, make_counter
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.turn import Action, Head, Message, Observation, Turn, make_content
from elision.trajectory.usage import Usage

SIZER = Sizer(make_counter("estimate"))
_ONE_TIER = Prices(name="p", tiers=((0, Rates(input=1, output=5, cache_read=0.1)),))
RUNS = Path(__file__).parents[2] / "examples/runs"


def _turn(index: int, letters: list[int], at: float, said: bool) -> Turn:
    ids = [f"c{index}_{place}" for place in range(len(letters))]
    return Turn(
        index=index,
        content=make_content("step " * 3),
        actions=tuple(Action(id=id, name="bash", arguments='{"command": "ls"}') for id in ids),
        observations=tuple(
            Observation(action_id=id, tool="bash", content=make_content("x " * count))
            for id, count in zip(ids, letters, strict=True)
        ),
        interjections=(Message(role="user", content=make_content("go on")),) if said else (),
        at=at,
    )


@st.composite
def runs(draw: st.DrawFn, longest: int = 12) -> Trajectory:
    """Up to `longest` turns, of up to two results each, tiny and large, with pauses around the cache's lifetime."""
    count = draw(st.integers(1, longest))
    at, turns = 0.0, []
    for index in range(1, count + 1):
        at += draw(st.sampled_from([10.0, 10.0, 10.0, 400.0]))
        letters = draw(st.lists(st.sampled_from([1, 40, 200, 900, 4000]), min_size=0, max_size=2))
        turns.append(_turn(index, letters, at, draw(st.booleans())))
    task = Message(role="user", content=make_content("task " * draw(st.sampled_from([5, 300]))))
    # A recording without a head sends an empty prompt at its first call.
    messages = draw(st.sampled_from([(task,), (task,), ()]))
    warm = draw(st.sampled_from([0, 30]))
    return Trajectory(id="small", head=Head(messages=messages, warm_tokens=warm), turns=tuple(turns))


_TIERS = (
    ((0, Rates(input=3, output=15, cache_write=3.75, cache_read=0.3)),),
    ((0, Rates(input=3, output=15, cache_read=0.075)),),
    ((0, Rates(input=1, output=5, cache_read=0.4)), (1_500, Rates(input=2, output=9, cache_read=0.8))),
    ((0, Rates(input=1, output=5)),),
)
_CACHES = (
    CacheRules(kind="prefix", ttl=300, minimum=0),
    CacheRules(kind="prefix", ttl=300, minimum=600, step=128),
    CacheRules(kind="none"),
)
price_lists = st.builds(
    lambda tiers, cache: Prices(name="test", tiers=tiers, cache=cache),
    st.sampled_from(_TIERS),
    st.sampled_from(_CACHES),
)


#: What the model was sent, piece by piece: a name that changes where the piece does, and tokens.
View: TypeAlias = tuple[tuple[object, int], ...]


@dataclass(frozen=True)
class _State:
    """All that the cost of later calls depends on: what is masked, the last turn that a summary covers, the call that
    made it, what the call before sent, and when."""

    masked: frozenset[tuple[int, int]] = frozenset()
    covers: int = 0
    stamp: int = 0
    before: View = ()
    at: float | None = None


def _seen(run: Trajectory, strategy: Strategy, prices: Prices) -> dict[tuple[int, int], MaskCandidate]:
    """What may be hidden, from when on, and what it saves: asked of the strategy itself."""
    session = Log.fold((), LogSetup(replace(strategy, schedule=FixedSchedule()), prices, SIZER))
    session.set_head(run.head)
    for turn in run.turns:
        run_pass(decide(session, make_plain_terms(turn.at)), _none)
        session.add_turn(turn)
    return dict(session.policy.candidates.pending)


def _none(_: object) -> str:
    raise SummaryError("never")


class _Plain:
    """The bill of one plan, kept in the most literal way."""

    def __init__(self, run: Trajectory, strategy: Strategy, prices: Prices) -> None:
        self.run, self.strategy, self.prices = run, strategy, prices
        self.hide = _seen(run, strategy, prices)
        self.head = sum(SIZER.count_message(message) for message in run.head.messages)

    def _view(self, call: int, masked: frozenset[tuple[int, int]], covers: int, stamp: int) -> View:
        view: list[tuple[object, int]] = [("head", self.head)]
        if covers:
            view.append((("summary", stamp), BLOCK_TOKENS + self.strategy.summary_max_tokens))
        for turn in self.run.turns[: call - 1]:
            if turn.index > covers:
                view.append((("turn", turn.index), SIZER.count_assistant(turn)))
                for place, observation in enumerate(turn.observations, start=1):
                    key = (turn.index, place)
                    size = SIZER.count_observation(observation)
                    view.append((("mask", key), size - self.hide[key].saved_tokens) if key in masked else (key, size))
            for message in turn.interjections:
                # Behind a summary a kept message is a new segment: it stands elsewhere.
                view.append((("said", turn.index, stamp if turn.index <= covers else 0), SIZER.count_message(message)))
        return tuple(view)

    def act(self, state: _State, call: int, act: str) -> tuple[_State, float] | None:
        """The state after `call`, and its cost in USD; None if the act is not allowed there."""
        turn = self.run.turns[call - 1]
        cold = state.at is None or turn.at is None or turn.at - state.at > self.prices.cache.ttl
        cold = cold or self.prices.cache.kind == "none"
        masked, covers, stamp, cost = state.masked, state.covers, state.stamp, 0.0
        held = self._view(call, masked, covers, stamp)
        eligible = {key for key, item in self.hide.items() if item.since_call <= call and key[0] > covers}
        if act == "mask" and not eligible - masked:
            return None
        if act == "mask" or act == "summarize":
            masked = masked | eligible
        if act == "summarize":
            reach = self._due(call, covers)
            if not reach:
                return None
            slim = self._size(self._view(call, masked, covers, stamp))
            cost += self._written(held, state.before, state.masked, covers, reach, stamp, cold)
            covers, stamp = reach, call
            if self._size(self._view(call, masked, covers, stamp)) >= slim:
                return None
        masked = frozenset(key for key in masked if key[0] > covers)
        view = self._view(call, masked, covers, stamp)
        size = self._size(view)
        cost += self._prompt(view, state.before, cold)
        cost += count_output_tokens(turn, SIZER) * self.prices.find_rates(size).output / 1e6
        return _State(masked, covers, stamp, view, turn.at), cost

    def _due(self, call: int, covers: int) -> int:
        every, tail = self.strategy.summarize_at, self.strategy.tail  # type: ignore[attr-defined]
        return call - 1 - tail if call - 1 - covers >= every and call - 1 - tail > covers else 0

    @staticmethod
    def _size(view: View) -> int:
        return sum(size for _, size in view)

    def _read(self, view: View, before: View, cold: bool) -> int:
        warm = self.prices.cache.count_usable(min(self.run.head.warm_tokens, self._size(view)))
        if cold:
            return warm
        pairs = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(view, before, strict=False))
        return max(warm, self.prices.cache.count_usable(sum(ours[1] for ours, _ in pairs)))

    def _prompt(self, view: View, before: View, cold: bool) -> float:
        return self.prices.cost_prompt(self._size(view), self._read(view, before, cold))

    def _written(
        self,
        held: View,
        before: View,
        masked: frozenset[tuple[int, int]],
        covers: int,
        reach: int,
        stamp: int,
        cold: bool,
    ) -> float:
        limit = self.strategy.summary_max_tokens
        turns = self.run.turns[covers:reach]
        raw = sum(SIZER.count_assistant(turn) for turn in turns)
        raw += sum(SIZER.count_observation(observation) for turn in turns for observation in turn.observations)
        raw += sum(SIZER.count_message(message) for turn in turns for message in turn.interjections)
        fresh = INSTRUCTION_TOKENS + (limit if stamp else self.head) + raw
        again = sum(
            SIZER.count_observation(self.run.turns[key[0] - 1].observations[key[1] - 1])
            for key in masked
            if key[0] <= reach
        )
        extend = INSTRUCTION_TOKENS + self._size(held) + again
        cached = self._read(held, before, cold)
        return min(self.prices.bill_call(fresh, 0, limit).usd, self.prices.bill_call(extend, cached, limit).usd)

    def best(self, words: tuple[str, ...]) -> float:
        """The cost of the cheapest sequence of acts, in USD. Of several to the same state only the cheapest goes on."""
        reached = {_State(): 0.0}
        for call in range(1, len(self.run.turns) + 1):
            following: dict[_State, float] = {}
            for (state, cost), word in itertools.product(reached.items(), words):
                if (found := self.act(state, call, word)) is not None:
                    following[found[0]] = min(following.get(found[0], math.inf), cost + found[1])
            reached = following
        return min(reached.values())


def find_least_usd(
    run: Trajectory, strategy: Strategy, prices: Prices, *, most: int = 2, sent: SentRun = UNKNOWN_SENT
) -> float:
    """Return what the cheapest replay costs that masks at any `most` calls or fewer."""
    calls = range(1, len(run.turns) + 1)
    chosen = itertools.chain.from_iterable(itertools.combinations(calls, count) for count in range(most + 1))
    schedules = (FixedSchedule(mask_calls=frozenset(some)) for some in chosen)
    return min(replay_run(run, replace(strategy, schedule=each), prices, SIZER, sent=sent).usd for each in schedules)


@given(run=runs(), prices=price_lists, window=st.integers(1, 3))
def test_masking_equals_exhaustive_search(run: Trajectory, prices: Prices, window: int) -> None:
    """The cheapest of all sets of calls at which to mask everything eligible is what the program finds."""
    strategy = parse_strategy(f"masking(window={window}, gist=0, fold=false)")
    best = find_cheapest_plan(run, strategy, prices, SIZER)
    assert best is not None
    assert best.usd == pytest.approx(_Plain(run, strategy, prices).best(("hold", "mask")), rel=1e-12)


@given(run=runs(longest=11), prices=price_lists, window=st.integers(1, 3))
def test_hybrid_equals_exhaustive_search(run: Trajectory, prices: Prices, window: int) -> None:
    """With summaries too: every call holds, masks, or masks and summarizes where the trigger allows it."""
    strategy = parse_strategy(
        f"hybrid(window={window}, summarize_at=3, tail=1, summary_max_tokens=60, gist=0, fold=false)"
    )
    best = find_cheapest_plan(run, strategy, prices, SIZER)
    assert best is not None
    expected = _Plain(run, strategy, prices).best(("hold", "mask", "summarize"))
    assert best.usd == pytest.approx(expected, rel=1e-12)


@given(run=runs(longest=7), prices=price_lists, window=st.integers(1, 3))
@settings(max_examples=60)
def test_the_engine_pays_what_the_program_says(run: Trajectory, prices: Prices, window: int) -> None:
    """Replaying the plan through the engine costs the program's figure, and no subset of calls costs less."""
    strategy = parse_strategy(f"masking(window={window}, gist=0, fold=false)")
    best = find_cheapest_plan(run, strategy, prices, SIZER)
    assert best is not None
    paid = replay_run(run, best.apply_to(strategy), prices, SIZER).usd
    assert paid == pytest.approx(best.usd, rel=1e-12)
    assert find_least_usd(run, strategy, prices) >= best.usd * (1 - 1e-12)


findings = st.one_of(
    st.builds(CacheFinding, most=st.integers(0, 3_000)),
    st.integers(0, 3_000).map(lambda read: CacheFinding(most=read, warm=read)),
    st.just(CacheFinding(outlived=True)),
)


@given(
    run=runs(longest=7),
    prices=price_lists,
    window=st.integers(1, 3),
    found=st.dictionaries(st.integers(1, 7), findings, max_size=4),
)
@settings(max_examples=60)
def test_what_the_cache_held_is_billed_alike(
    run: Trajectory, prices: Prices, window: int, found: dict[int, CacheFinding]
) -> None:
    """Where a recording says what the cache held, the yardstick pays for it as the replay does: no plan is cheaper."""
    strategy, sent = parse_strategy(f"masking(window={window}, gist=0, fold=false)"), SentRun(findings=found)
    best = find_cheapest_plan(run, strategy, prices, SIZER, sent=sent)
    assert best is not None
    assert replay_run(run, replace(strategy, schedule=best.schedule), prices, SIZER, sent=sent).usd == pytest.approx(
        best.usd, rel=1e-12
    )
    assert find_least_usd(run, strategy, prices, sent=sent) >= best.usd * (1 - 1e-12)


def test_no_hindsight_where_the_path_matters() -> None:
    """A budget that a run reaches, a trigger on tokens and models in turn have no yardstick."""
    run = Trajectory(id="r", head=Head(), turns=tuple(_turn(i, [900], float(i), False) for i in range(1, 30)))
    assert find_cheapest_plan(run, parse_strategy("masking(budget=4000)"), _ONE_TIER, SIZER) is None
    assert find_cheapest_plan(run, parse_strategy("masking(budget=400000)"), _ONE_TIER, SIZER) is not None
    assert find_cheapest_plan(run, parse_strategy("hybrid(summarize_tokens=500)"), _ONE_TIER, SIZER) is None
    assert not has_hindsight(parse_strategy("two-tier"))
    mixed = replace(run, turns=(*run.turns[:-1], msgspec.structs.replace(run.turns[-1], model="other")))
    assert find_cheapest_plan(mixed, parse_strategy("masking"), _ONE_TIER, SIZER) is None


def test_an_empty_prompt_pays_for_its_answer() -> None:
    """The output of a call whose prompt is empty is billed, as in the replay, at the lowest tier's price."""
    run = Trajectory(id="r", head=Head(), turns=(_turn(1, [900], 0.0, False),))
    best = find_cheapest_plan(run, parse_strategy("masking"), _ONE_TIER, SIZER)
    assert best is not None
    assert best.usd == pytest.approx(count_output_tokens(run.turns[0], SIZER) * 5 / 1e6, rel=1e-12)


def test_entries_of_an_hour_are_priced_alike() -> None:
    """A run whose recording wrote to the cache for an hour: replay and yardstick pay its price, and its pauses are no
    cold cache to either."""
    prices = find_price_set("anthropic")
    usage = Usage(input=1, cache_write=900, cache_write_1h=900, output=20)
    turns = tuple(
        msgspec.structs.replace(_turn(index, [4000], 600.0 * index, said=False), usage=usage) for index in range(1, 31)
    )
    task = Message(role="user", content=make_content("task " * 2_000))
    trajectory = Trajectory(id="hourly", head=Head(messages=(task,)), turns=turns)
    brief = replace(
        trajectory,
        turns=tuple(
            msgspec.structs.replace(turn, usage=msgspec.structs.replace(usage, cache_write_1h=0)) for turn in turns
        ),
    )
    found = {}
    for name, run in (("hour", trajectory), ("minutes", brief)):
        strategy = parse_strategy("masking(window=3, fold=false)")
        done = replay_run(run, strategy, prices, SIZER)
        least = find_cheapest_plan(run, strategy, prices, SIZER)
        assert least is not None
        found[name] = done.bill, done.usd / least.usd
    assert found["hour"][0].cache_read > 10 * found["minutes"][0].cache_read
    assert found["hour"][0].cache_write_1h > 0.7 * found["hour"][0].cache_write
    assert 0.95 < found["hour"][1] < 1.3


_HOURLY = Prices(
    name="hourly",
    tiers=((0, Rates(input=3, output=15, cache_write=3.75, cache_read=0.3, cache_write_1h=6)),),
    cache=CacheRules(kind="breakpoints", ttl=300, minimum=50),
)


@st.composite
def mixed_runs(draw: st.DrawFn, sizes: tuple[int, ...] = (1, 40, 200, 900, 4000)) -> Trajectory:
    """A run with pauses of any length whose calls wrote entries of five minutes, of an hour, of both, or none."""
    at, turns = 0.0, []
    for index in range(1, draw(st.integers(2, 9)) + 1):
        at += draw(st.sampled_from([10.0, 10.0, 299.0, 400.0, 2_000.0, 3_500.0, 5_000.0]))
        letters = draw(st.lists(st.sampled_from(sizes), max_size=2))
        written = draw(st.sampled_from([0, 900]))
        hour = draw(st.sampled_from([0, 300, 900])) if written else 0
        usage = Usage(input=1, cache_write=written, cache_write_1h=hour, output=20)
        turns.append(msgspec.structs.replace(_turn(index, letters, at, said=False), usage=usage))
    task = Message(role="user", content=make_content("task " * draw(st.sampled_from([5, 300]))))
    return Trajectory(id="mixed", head=Head(messages=(task,)), turns=tuple(turns))


@given(run=mixed_runs(sizes=(1, 40)))
def test_mixed_lifetimes_without_hiding_cost_what_raw_costs(run: Trajectory) -> None:
    """Where nothing may be hidden, the yardstick is the bill of sending everything, to the cent."""
    best = find_cheapest_plan(run, parse_strategy("masking(window=9, gist=0)"), _HOURLY, SIZER)
    assert best is not None
    assert best.usd == pytest.approx(replay_run(run, parse_strategy("raw"), _HOURLY, SIZER).usd, rel=1e-12)


@settings(max_examples=40)
@given(run=mixed_runs(), window=st.integers(1, 3), prices=st.one_of(st.just(_HOURLY), price_lists))
def test_mixed_lifetimes_are_never_above_a_plan(run: Trajectory, window: int, prices: Prices) -> None:
    """Whatever lived an hour or five minutes: no subset of calls at which to mask costs less than the yardstick."""
    strategy = parse_strategy(f"masking(window={window}, gist=0, fold=false)")
    best = find_cheapest_plan(run, strategy, prices, SIZER)
    assert best is not None
    assert find_least_usd(run, strategy, prices, most=3) >= best.usd * (1 - 1e-12)


def test_a_pause_that_only_the_head_outlives() -> None:
    """The head lives an hour, the rest five minutes: pauses of ten minutes leave the head alone, to the yardstick too,
    which then costs what raw costs or a little less."""
    usage = Usage(input=1, cache_write=900, cache_write_1h=300, output=20)
    turns = tuple(
        msgspec.structs.replace(_turn(index, [900], 600.0 * index, said=False), usage=usage) for index in range(1, 31)
    )
    run = Trajectory(
        id="head", head=Head(messages=(Message(role="user", content=make_content("task " * 2_000)),)), turns=turns
    )
    done = replay_run(run, parse_strategy("masking(window=3, fold=false)"), _HOURLY, SIZER)
    least = find_cheapest_plan(run, parse_strategy("masking(window=3, fold=false)"), _HOURLY, SIZER)
    assert least is not None
    assert 1 - 1e-12 <= done.usd / least.usd < 1.02


def test_progress_rises_to_the_end() -> None:
    """The search says after each call how much of its work is done, with summaries and without."""
    run = Trajectory(id="r", head=Head(), turns=tuple(_turn(i, [900], float(i), False) for i in range(1, 61)))
    for spec in ("masking(window=3)", "hybrid(window=3, summarize_at=9, tail=3)"):
        shares: list[float] = []
        assert find_cheapest_plan(run, parse_strategy(spec), _ONE_TIER, SIZER, shares.append) is not None
        assert shares == sorted(shares)
        assert 0 < shares[0] < 0.1
        assert shares[-1] == 1
        assert len(shares) > 50


def test_long_runs_have_hindsight_for_masking_only() -> None:
    """Above 500 turns the cubic program is not run; the quadratic one is."""
    run = Trajectory(id="r", head=Head(), turns=tuple(_turn(i, [40], float(i), False) for i in range(1, 502)))
    assert find_cheapest_plan(run, parse_strategy("hybrid(gist=0)"), _ONE_TIER, SIZER) is None
    assert find_cheapest_plan(run, parse_strategy("masking(gist=0)"), _ONE_TIER, SIZER) is not None


def test_a_look_back_is_in_the_bill_of_the_plan() -> None:
    """What a plan costs is what its replay costs, where entries are found at some places only; never less than if any
    prefix were found, which is the cheapest that it could be."""
    run = next(each for each in read_runs(RUNS / "swe-agent-sympy-20801.traj.gz") if isinstance(each, Trajectory))
    prices = find_prices("gpt-5.6")
    assert prices.cache.look_back
    masking = parse_strategy("masking")
    best = find_cheapest_plan(run, masking, prices, SIZER)
    anywhere = find_cheapest_plan(run, masking, replace(prices, cache=replace(prices.cache, look_back=0)), SIZER)
    assert best is not None
    assert anywhere is not None
    replayed = replay_run(run, best.apply_to(masking), prices, SIZER)
    assert best.usd == pytest.approx(replayed.usd)
    assert anywhere.usd < best.usd < 1.01 * anywhere.usd
