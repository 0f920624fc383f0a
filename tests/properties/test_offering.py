"""The recall tools in generated runs: when they enter, that they stay, and what they may cost."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elision.engine import Log, LogSetup, decide, make_plain_terms, run_pass
from elision.lab.run_as_recorded import calls
from elision.trajectory.events import Event, PassDecided, SessionOpened
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.turn import Head, Message, make_content
from tests.properties import invariants
from tests.properties.builders import write_brief_summary
from tests.properties.cases import (
    CASES,
    SIZER,
    SMALL,
    PlayedRun,
    SentView,
    find_worst_ratio,
    list_contents,
    play_run,
    write_summary,
)
from tests.properties.trajectories import trajectories
from tests.soak import pair_cases, sample_cases

PATIENCE = max(2, settings.default.max_examples // 8 if settings.default else 2)

#: Small enough to pay for itself in a generated run, and about as large as the real ones.
SIZES = {"small": "Reads again.", "real": "Reads again what was hidden from this conversation. " * 20}


def opened(offer: str, size: str = "small") -> SessionOpened:
    tool = {"name": "elision_recall", "description": SIZES[size], "input_schema": {"type": "object"}}
    return SessionOpened(strategy="", offer=offer, tools=(tool,))


def _recall(seen: SentView) -> list[tuple[int, str]]:
    return [(place, segment.text) for place, segment in enumerate(seen.segments) if segment.kind == "recall"]


def _names(seen: SentView) -> bool:
    """Whether a view shows anything that can be recalled."""
    kinds = {segment.kind for segment in seen.segments}
    named = any(segment.kind == "placeholder" and segment.text.startswith("[t") for segment in seen.segments)
    return named or bool(kinds & {"summary", "clipped"})


def _stays(run: PlayedRun, expected: list[bool]) -> None:
    """The tools stand in the views that are expected to have them: behind the client's own, the same bytes."""
    front = bool(run.trajectory.head.hidden_tokens) + bool(run.trajectory.head.tools)
    text = json.dumps(list(run.session.state.recall_tools))
    assert [_recall(seen) for seen in run.views] == [[(front, text)] if stands else [] for stands in expected]


@pytest.mark.parametrize("case", CASES)
@settings(max_examples=PATIENCE)
@given(run=trajectories(), prices=st.sampled_from(sorted(SMALL)))
def test_with_the_first_placeholder_and_then_always(case: str, run: Trajectory, prices: str) -> None:
    """The tools enter with the first placeholder that names a handle, or summary, and stand in every later view."""
    played = play_run(run, CASES[case], SMALL[prices], opened=opened("first"))
    named = [_names(seen) for seen in played.views]
    _stays(played, [any(named[: place + 1]) for place in range(len(named))])
    assert sum(event.offers for event in played.session.events if isinstance(event, PassDecided)) == any(named)
    invariants.check_epochs_are_rewrites(played)
    invariants.check_events_give_the_views(played)
    invariants.check_raw_is_untouched(played, repr(run))


@pytest.mark.parametrize("case", sample_cases(CASES, 3))
@settings(max_examples=PATIENCE)
@given(run=trajectories(), prices=st.sampled_from(sorted(SMALL)))
def test_from_the_start(case: str, run: Trajectory, prices: str) -> None:
    """The tools stand in every view, and what is hidden in it is what would be hidden without them, at its time."""
    played = play_run(run, CASES[case], SMALL[prices], opened=opened("start"))
    _stays(played, [True] * len(played.views))
    invariants.check_epochs_are_rewrites(played)
    invariants.check_events_give_the_views(played)


@pytest.mark.parametrize("offer", ["caller", "never"])
@settings(max_examples=PATIENCE)
@given(run=trajectories(), case=st.sampled_from(sorted(CASES)), prices=st.sampled_from(sorted(SMALL)))
def test_left_to_others_nothing_changes(offer: str, case: str, run: Trajectory, prices: str) -> None:
    """Where the tools are none of ours, every view and every decision is the one without them."""
    one = play_run(run, CASES[case], SMALL[prices], opened=SessionOpened(strategy="", offer=offer))
    other = play_run(run, CASES[case], SMALL[prices])
    assert [list_contents(seen.segments) for seen in one.views] == [
        list_contents(seen.segments) for seen in other.views
    ]
    assert one.session.events[1:] == other.session.events


@pytest.mark.parametrize("offer", ["first", "start"])
@settings(max_examples=PATIENCE * 2)
@given(run=trajectories(), case=st.sampled_from(sorted(CASES)), prices=st.sampled_from(sorted(SMALL)), data=st.data())
def test_in_any_process(offer: str, case: str, run: Trajectory, prices: str, data: st.DataObject) -> None:
    """A session taken up from its log, before or behind the pass in which the tools enter, goes on as it would have."""
    whole = play_run(run, CASES[case], SMALL[prices], opened=opened(offer))
    cut = data.draw(st.integers(0, len(run.turns) - 1))
    events = _until(whole.session.events, cut)
    session = Log.fold(events, LogSetup(CASES[case], SMALL[prices], SIZER))
    for item, (now, model) in list(zip(run.turns, calls(run), strict=True))[cut:]:
        run_pass(decide(session, make_plain_terms(now, model)), write_summary)
        session.add_turn(item)
    run_pass(decide(session, make_plain_terms(run.turns[-1].at, run.turns[-1].model)), write_summary)
    assert session.events == whole.session.events
    assert session.money.spent_usd == pytest.approx(whole.session.money.spent_usd)


def _until(events: list[Event], turns: int) -> list[Event]:
    """The log up to and with turn `turns`."""
    added = [place for place, event in enumerate(events) if type(event).__name__ == "TurnAdded"]
    return events[: added[turns - 1] + 1] if turns else events[:2]


# -- what it may cost -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("prices", "masks"), pair_cases(sorted(SMALL), [*product(["masking", "published"], SIZES)]))
@settings(max_examples=PATIENCE * 4)
@given(run=trajectories(most=40, one_model=True))
def test_never_over_the_cap(prices: str, masks: tuple[str, str], run: Trajectory) -> None:
    """With tools that enter, and whose every token is ours alone, masking stays within 1.10 x sending everything."""
    strategy, size = masks
    ratio = find_worst_ratio(
        CASES[f"{strategy} x cache-aware"], SMALL[prices], run, write_summary, opened("first", size)
    )
    assert ratio <= 1.10 + 1e-9


@pytest.mark.parametrize(("prices", "strategy"), pair_cases(sorted(SMALL), ["summarization", "hybrid"]))
@settings(max_examples=PATIENCE * 2)
@given(run=trajectories(most=40, one_model=True, quiet=True))
def test_summaries_never_over_the_cap(strategy: str, prices: str, run: Trajectory) -> None:
    """Nor does summarizing break it."""
    plain = replace(CASES[f"{strategy} x cache-aware"], rules=())
    assert find_worst_ratio(plain, SMALL[prices], run, write_brief_summary, opened("first")) <= 1.10 + 1e-9


@pytest.mark.parametrize(("prices", "strategy"), pair_cases(sorted(SMALL), ["masking", "published"]))
@settings(max_examples=PATIENCE * 2)
@given(run=trajectories(most=40, one_model=True))
def test_from_the_start_behind_a_head_of_usual_size(strategy: str, prices: str, run: Trajectory) -> None:
    """Tools that stand there anyway are no reason to exceed the cap: behind a head ten times their size it holds."""
    system = Message(role="system", content=make_content("Be careful with what you do. " * 60))
    # No head of other runs, which is told in tokens from the front: tools would push words out of it that raw reads.
    whole = replace(run, head=msgspec.structs.replace(run.head, messages=(system, *run.head.messages), warm_tokens=0))
    assert SIZER.count_tools(Head(tools=opened("start").tools)) * 10 < SIZER.count_message(system)
    assert (
        find_worst_ratio(CASES[f"{strategy} x cache-aware"], SMALL[prices], whole, write_summary, opened("start"))
        <= 1.10 + 1e-9
    )
