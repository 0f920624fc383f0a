"""Thresholds in tokens that a user sets hold at every price set (design 3, Promises go before prices)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elision.engine import Log, LogSetup, decide, make_plain_terms, run_pass
from elision.formats.registry import read_runs
from elision.lab.run_as_recorded import add_recorded_head, calls
from elision.strategies.spec import parse_strategy
from elision.strategies.strategy import TwoTier
from elision.summarizers.digest import write_digest
from elision.trajectory.plan import SummaryRequest
from elision.trajectory.price_table import load_price_table
from elision.trajectory.prices import Prices
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.turn import Turn
from tests.corpus import CORPUS, needs_corpus
from tests.properties.builders import call, head, long_text, result, turn, user
from tests.properties.cases import SIZER, SMALL
from tests.soak import sample_cases

SUMMARY_TOKENS = 50


def make_turn(index: int, shape: tuple[int, ...], words: int, said: int) -> Turn:
    """A turn with a result of each number of lines in `shape`."""
    pairs = [
        (
            call(id=str(place), command=f"make {index}-{place}"),
            result(long_text(index * 10 + place, lines), id=str(place)),
        )
        for place, lines in enumerate(shape)
    ]
    interjections = [user("and then " * said)] if said else []
    return turn(index, *pairs, text="so " * words, said=interjections)


def make_run(shapes: list[tuple[tuple[int, ...], int, int]]) -> Trajectory:
    turns = tuple(make_turn(index, *shape) for index, shape in enumerate(shapes, start=1))
    return Trajectory(id="generated", head=head(), turns=turns)


#: No result, or a few from nothing to far above any threshold; some words of the agent and of the user.
SHAPES = st.tuples(
    st.lists(st.sampled_from([0, 1, 3, 8, 8, 8, 20, 60]), max_size=3).map(tuple),
    st.sampled_from([0, 5, 20]),
    st.sampled_from([0, 0, 0, 0, 6]),
)


def write_model_free_summary(request: SummaryRequest) -> str:
    return write_digest(request, SIZER.count)


def count_bound(session: Log, strategy: TwoTier) -> int:
    """`hard` + head + newest `keep_recent` results, and the user's words, which a summary leaves as they are."""
    turns = session.state.turns
    results = [SIZER.count_observation(each) for turn in turns for each in turn.observations]
    # The results of a turn stay or go together, and the newest turn stays.
    kept, places = 0, 0
    for item in reversed(turns):
        if places >= strategy.keep_recent:
            break
        kept += sum(results[len(results) - len(item.observations) :])
        del results[len(results) - len(item.observations) :]
        places += len(item.observations)
    words = sum(SIZER.count_message(message) for item in turns for message in item.interjections)
    return strategy.hard + session.state.track.count_tokens_before(session.state.head_length) + kept + words


def check_every_call(strategy: TwoTier, prices: Prices, run: Trajectory) -> int:
    """Hold every view of `run` against the bound. Return the summaries made."""
    session = Log.fold((), LogSetup(strategy, prices, SIZER))
    session.set_head(run.head)
    made = 0
    for item, (now, model) in zip(run.turns, calls(run), strict=True):
        view = run_pass(decide(session, make_plain_terms(now, model)), write_model_free_summary)
        assert session.newest_call is not None
        made += session.newest_call.decided.summary is not None
        assert view.tokens <= count_bound(session, strategy), (view.call, session.newest_call.decided.reason)
        session.add_turn(item)
    return made


@pytest.mark.parametrize("schedule", ["cache-aware", "every-turn"])
@settings(max_examples=max(10, settings.default.max_examples // 2 if settings.default else 10))
@given(
    shapes=st.lists(SHAPES, min_size=5, max_size=45),
    prices=st.sampled_from(sorted(SMALL)),
    hard=st.integers(1_200, 6_000),
    keep=st.integers(1, 6),
    least=st.integers(1, 12),
)
def test_no_view_above_hard(
    schedule: str, shapes: list[tuple[tuple[int, ...], int, int]], prices: str, hard: int, keep: int, least: int
) -> None:
    """At every call, at every price set, under every schedule: `hard`, head and the newest results bound the view."""
    options = f"keep_recent={keep}, soft={hard}, hard={hard}, summarize_min_turns={least}"
    strategy = parse_strategy(f"two-tier({options}, summary_max_tokens={SUMMARY_TOKENS}, schedule={schedule})")
    assert isinstance(strategy, TwoTier)
    check_every_call(strategy, SMALL[prices], make_run(shapes))


@needs_corpus("the hard threshold over a recorded session")
@pytest.mark.parametrize("prices", sample_cases(["anthropic", "fable", "uncached", "openai"], 2))
def test_no_recorded_view_above_hard(prices: str) -> None:
    """The same over a recorded session of 214 turns, at 20,000 tokens, with the real cache minimum."""
    run = next(each for each in read_runs(CORPUS / "pi-session/pi-session.jsonl.gz") if isinstance(each, Trajectory))
    strategy = parse_strategy("two-tier(soft=20000, hard=20000)")
    assert isinstance(strategy, TwoTier)
    assert check_every_call(strategy, load_price_table().sets[prices], add_recorded_head(run, SIZER)) > 3
