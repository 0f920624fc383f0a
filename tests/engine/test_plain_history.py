"""The prompts without Elision: segment by segment those of an agent that never recalled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from elision.engine.money import PlainHistory, count_plain_answer
from elision.testing.builders import call, head, long_text, result, step, turn, user
from elision.trajectory.events import HeadSet, TurnAdded
from elision.trajectory.state import State
from elision.trajectory.tool_definitions import RECALL_TOOL, SEARCH_TOOL
from elision.trajectory.turn import Turn
from tests.properties.builders import SIZER

BASH = {"type": "function", "function": {"name": "bash"}}
RECALL = (call(RECALL_TOOL, id="r", handle="t1.1"), result(long_text(1), RECALL_TOOL, id="r"))
SEARCH = (call(SEARCH_TOOL, id="s", query="line"), result(long_text(2), SEARCH_TOOL, id="s"))
WORK = (call(id="w", command="make"), result(long_text(3), id="w"))


def build_state(turns: Sequence[Turn], *tools: Any) -> State:
    return State(SIZER).fold_events([HeadSet(head(tools=tools)), *map(TurnAdded, turns)])


def list_segments(state: State, history: PlainHistory | None = None) -> list[tuple[str, int]]:
    """Return kind and tokens of the segments of the raw prompt; history: cuts the recalls out of it."""
    raw = state.make_raw_view()
    view = history.follow(raw, state.head) if history is not None else raw
    assert view.tokens == sum(segment.tokens for segment in view.segments)
    return [(segment.kind, segment.tokens) for segment in view.segments]


def test_without_recalls_it_is_the_raw_prompt() -> None:
    state = build_state([step(1), step(2)], BASH)
    assert list_segments(state, PlainHistory(SIZER)) == list_segments(state)


def test_what_only_a_recall_caused_is_cut() -> None:
    """A turn of recalls goes as a whole but for the user's words; a recall beside work takes its call and result."""
    with_recalls = [step(1), turn(2, RECALL, SEARCH, said=[user("Go on.")]), turn(3, WORK, RECALL, text="On.")]
    without = [turn(1, *zip(step(1).actions, step(1).observations, strict=True), said=[user("Go on.")])]
    without.append(turn(2, WORK, text="On."))
    found = list_segments(build_state(with_recalls, BASH), PlainHistory(SIZER))
    assert found == list_segments(build_state(without, BASH))


@pytest.mark.parametrize(
    ("tools", "plain"),
    [
        ([BASH, {"type": "function", "function": {"name": RECALL_TOOL}}, {"name": SEARCH_TOOL}], [BASH]),
        (
            [{"functionDeclarations": [{"name": "bash"}, {"name": RECALL_TOOL}]}],
            [{"functionDeclarations": [{"name": "bash"}]}],
        ),
        ([BASH, {"type": "namespace", "name": "elision", "tools": [{"name": RECALL_TOOL}]}], [BASH]),
        ([{"name": RECALL_TOOL}], []),
    ],
)
def test_definitions_of_recall_tools_are_cut(tools: list[Any], plain: list[Any]) -> None:
    """At the top of the list, among Gemini's functions and in a namespace; a group of nothing else goes with them."""
    found = list_segments(build_state([step(1)], *tools), PlainHistory(SIZER))
    assert found == list_segments(build_state([step(1)], *plain))


def test_each_segment_is_cut_once() -> None:
    """The next prompt begins with the same segments, by which the cache knows them; also after a rewrite."""
    history, state = PlainHistory(SIZER), build_state([turn(1, WORK, RECALL)], BASH)
    first = history.follow(state.make_raw_view(), state.head).segments
    state.fold_event(TurnAdded(step(2)))
    raw = state.make_raw_view()
    longer = history.follow(raw, state.head).segments
    rewritten = history.follow(replace(raw, track=raw.track.fork(raw.length)), state.head).segments
    assert len(longer) == len(first) + 2
    for segments in (longer, rewritten):
        assert all(now is then for now, then in zip(segments, first, strict=False))


def test_breakpoints_move_with_what_is_cut() -> None:
    """A breakpoint is after the same segment, or where that was cut, after the one before it."""
    state = build_state([step(1), turn(2, RECALL), step(3)], BASH)
    raw = state.make_raw_view()
    start = raw.length - 6
    marked = replace(raw, marks=(start, start + 2, start + 4, raw.length), hour_length=start + 3)
    plain = PlainHistory(SIZER).follow(marked, state.head)
    assert plain.marks == (start, start + 2, start + 4)
    assert plain.hour_length == start + 2


def test_answers_are_as_long_as_without_recalls() -> None:
    """None for a turn of recalls, the share of the rest where one is beside work, else all of it."""
    both = turn(1, WORK, RECALL, text="I look.")
    share = SIZER.count_assistant(turn(1, WORK, text="I look.")) / SIZER.count_assistant(both)
    assert count_plain_answer(turn(1, RECALL), 1_000, SIZER) == 0
    assert count_plain_answer(step(1), 1_000, SIZER) == 1_000
    assert count_plain_answer(both, 1_000, SIZER) == round(1_000 * share) < 800
