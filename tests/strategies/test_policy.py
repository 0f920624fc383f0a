"""One session's memory of a strategy: what may be hidden, what that would save, and what a summary may cover."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from elision.engine import Log, LogSetup, decide, make_plain_terms, run_pass
from elision.strategies.policy import QUOTE_TOKENS, ServerCalls
from elision.strategies.schedules import FixedSchedule
from elision.strategies.spec import parse_strategy
from elision.strategies.strategy import Hybrid, Masking, Strategy
from elision.trajectory.events import PassDecided
from elision.trajectory.plan import SummaryRequest
from elision.trajectory.prices import Prices
from elision.trajectory.tokens import Sizer, make_counter
from elision.trajectory.trajectory import Trajectory, join_assistant_text
from elision.trajectory.turn import Opaque, Text, Turn
from tests.properties.builders import (
    CACHED,
    PLAIN,
    SIZER,
    begin_session,
    call,
    find_mask_calls,
    head,
    list_summaries,
    long_text,
    result,
    run_session,
    step,
    steps,
    turn,
    user,
    write_brief_summary,
)
from tests.properties.cases import find_worst_ratio


def test_masking_begins_at_w_plus_two() -> None:
    """At call t the observations of turns i < t - W: with W = 3 turn 1 from call 5 on."""
    assert find_mask_calls(run_session("masking(window=3, schedule=every-turn)", steps(7))) == {
        (index, 1): index + 4 for index in range(1, 5)
    }


def test_nothing_saved_is_nothing_masked() -> None:
    """An observation not longer than its placeholder stays, also under a rule that would remove it."""
    turns = [step(1, "ok"), step(2, "ok", tags=frozenset({"remove_output"})), *(step(index) for index in (3, 4, 5))]
    assert set(find_mask_calls(run_session("masking(window=1, schedule=every-turn)", turns))) == {(3, 1), (4, 1)}


def test_a_template_longer_than_the_result_is_not_used() -> None:
    """Whatever a text of one's own comes to: a result that is no longer stays as it is."""
    turns = [step(1, "few words"), *map(step, (2, 3, 4))]

    def find_masked(template: str) -> set[tuple[int, int]]:
        strategy = f'masking(window=1, gist=0, schedule=every-turn, placeholder="{template}")'
        return set(find_mask_calls(run_session(strategy, turns)))

    assert find_masked("[{tool} {arguments}: {lines} lines]") == {(2, 1), (3, 1)}
    assert find_masked("-") == {(1, 1), (2, 1), (3, 1)}
    assert find_masked("x " * 200) == set()


def test_an_image_is_worth_masking() -> None:
    """Opaque parts count for what they are billed, not for their text."""
    picture = turn(1, (call("screenshot"), result((Opaque("image", tokens=1_200),), "screenshot")))
    assert (1, 1) in find_mask_calls(
        run_session("masking(window=1, schedule=every-turn)", [picture, *map(step, (2, 3))])
    )


def test_a_summary_ends_what_was_pending() -> None:
    """What a summary covers is no candidate any more, and what it saves is not counted twice."""
    session = run_session(
        "hybrid(window=2, summarize_at=6, tail=2, summary_max_tokens=50, schedule=every-turn)", steps(20)
    )
    assert len(list_summaries(session)) > 2
    assert session.policy.candidates.pending_tokens == sum(
        candidate.saved_tokens for candidate in session.policy.candidates.pending.values()
    )
    assert all(key[0] > session.state.covered_turns for key in session.policy.candidates.pending)


def test_masks_behind_a_summary_go_in_the_same_pass() -> None:
    """One pass does all its edits at once: a summary, and the masking of what stands behind it."""
    schedule = FixedSchedule(summary_calls=frozenset({9}))
    session = run_session(Hybrid(window=2, summarize_at=8, tail=6, summary_max_tokens=50, schedule=schedule), steps(8))
    assert session.newest_call is not None
    decided = session.newest_call.decided
    assert decided.summary is not None
    assert [mask.key for mask in decided.masks] == [(index, 1) for index in (3, 4, 5, 6)]


def test_what_is_saved_is_what_the_view_loses() -> None:
    """Masking makes the view smaller by exactly what was promised."""
    session = begin_session(Masking(window=2, schedule=FixedSchedule(mask_calls=frozenset({9}))))
    for item in steps(12):
        before, promised = session.state.track.tokens, session.policy.candidates.pending_tokens
        run_pass(decide(session, make_plain_terms()), write_brief_summary)
        decided = session.events[-2]
        assert isinstance(decided, PassDecided)
        if decided.masks:
            added = sum(
                session.policy.candidates.pending[mask.key].saved_tokens
                for mask in decided.masks
                if mask.key in session.policy.candidates.pending
            )
            assert session.policy.candidates.pending_tokens == added == 0
            assert before - session.state.track.tokens >= promised
        session.add_turn(item)


def test_the_frontier_is_the_first_that_may_change() -> None:
    """A breakpoint stands in front of the first observation that a later pass may rewrite; protected ones never are."""
    rules = 'rules=rule(args="*step-1", keep=true)'
    session = run_session(f"masking(window=3, schedule=every-turn, {rules})", steps(2))
    assert session.policy.find_stable_length(session.state) == session.state.observation_places[2, 1]
    session = run_session(f"masking(window=3, schedule=every-turn, {rules})", steps(6))
    assert session.policy.find_stable_length(session.state) == session.state.observation_places[4, 1]


def test_a_long_run_masks_on() -> None:
    """Late in a run an observation goes at each call, as early in it."""
    session = run_session("masking(window=5, schedule=every-turn)", steps(60))
    assert set(find_mask_calls(session).values()) == set(range(7, 62))


# -- expected failures: see the reasons ------------------------------------------------------------------------------


def test_turns_that_came_without_a_call() -> None:
    """A session that begins with turns of the past masks them like any other."""
    session = begin_session("masking(window=2, schedule=every-turn)")
    for item in steps(8):
        session.add_turn(item)
    run_pass(decide(session, make_plain_terms()), write_brief_summary)
    assert set(find_mask_calls(session)) == {(index, 1) for index in range(1, 7)}


def test_what_is_masked_does_not_depend_on_the_counter() -> None:
    """Whether an observation is longer than its placeholder is judged in o200k tokens, whatever counts the bill."""
    turns = [step(index, "观察结果" * (index + 3)) for index in range(1, 40)]

    def masked(name: str) -> set[tuple[int, int]]:
        session = Log.fold(
            (), LogSetup(parse_strategy("masking(window=1, schedule=every-turn)"), CACHED, Sizer(make_counter(name)))
        )
        session.set_head(head())
        for item in turns:
            run_pass(decide(session, make_plain_terms()), write_brief_summary)
            session.add_turn(item)
        return set(find_mask_calls(session))

    assert masked("o200k") == masked("cl100k") == masked("estimate")


def test_what_is_hidden_behind_a_summary_still_counts() -> None:
    """The raw size of all that placeholders stand for is known after a summary, too."""
    session = run_session(
        "hybrid(window=2, summarize_at=8, tail=6, summary_max_tokens=50, schedule=every-turn)", steps(8)
    )
    state = session.state
    assert state.covered_turns == 2
    assert state.hidden
    assert session.policy.candidates.hidden_tokens == sum(
        SIZER.count_observation(state.find_observation(key)) for key in state.hidden
    )


def ratio(
    strategy: Strategy | str, prices: Prices, turns: list[Turn], *, task: str = "Mend it.", failing: bool = False
) -> float:
    """The worst bill so far / raw bill so far."""

    def blank(request: SummaryRequest) -> str:
        return " "

    found = parse_strategy(strategy) if isinstance(strategy, str) else strategy
    return find_worst_ratio(
        found,
        prices,
        Trajectory(id="x", head=head(task), turns=tuple(turns)),
        blank if failing else write_brief_summary,
    )


def test_the_cap_holds_for_models_that_take_turns() -> None:
    """One call by another model does not throw away the first one's cache."""
    turns = [
        *(step(index, long_text(index, 12), model="m") for index in range(1, 21)),
        step(21, "x", model="other"),
        *(step(index, "x", model="m") for index in range(22, 25)),
    ]
    assert ratio("masking(window=18)", CACHED, turns) <= 1.10


def test_the_cap_holds_at_the_minimum_prefix() -> None:
    """A view is not made so small that it can no longer be cached."""
    late = [*range(3), *(100 + index for index in range(20))]
    turns = [
        msgspec.structs.replace(step(index, long_text(1) if index == 1 else "ok"), at=10.0 * late[index - 1])
        for index in range(1, 12)
    ]
    prices = replace(CACHED, cache=replace(CACHED.cache, minimum=1024))
    assert ratio("masking(window=2, gist=0)", prices, turns, task="word " * 860) <= 1.10


def test_the_cap_holds_where_summaries_fail() -> None:
    """A summarizer that never answers does not break the cap."""
    assert ratio("summarization(every=3, tail=2, summary_max_tokens=50)", PLAIN, list(steps(20)), failing=True) <= 1.10


def test_the_cap_holds_with_the_user_s_old_words() -> None:
    """Words of the user that a block quotes count when its cost is weighed."""
    turns = [turn(index, text=f"thought {index} " * 30, said=[user("word " * 150)]) for index in range(1, 20)]
    strategy = "summarization(every=3, tail=2, summary_max_tokens=50, keep_user_tokens=0)"
    assert ratio(strategy, CACHED, turns) <= 1.10


def test_a_history_taken_up_late_has_the_same_placeholders() -> None:
    """The gist knows the log up to the first eligible call, also where that call was never made here (design 5)."""
    turns = [step(index, f"see handle_{index} and value_{index}\n" + long_text(index)) for index in range(1, 6)]
    turns += [turn(6, text="handle_1 and value_2 it is"), *(step(index) for index in range(7, 10))]
    live = run_session("masking(window=2, schedule=every-turn)", turns)
    late = begin_session("masking(window=2, schedule=every-turn)")
    for item in turns:
        late.add_turn(item)
    run_pass(decide(late, make_plain_terms()), write_brief_summary)
    run_pass(decide(live, make_plain_terms()), write_brief_summary)
    assert late.state.hidden == live.state.hidden


def test_what_a_summary_may_quote_is_counted() -> None:
    """Whole, with its marks: the words of pinned turns, and results that no rule lets go."""
    session = begin_session('masking(window=1, rules=[rule(tool="notes", keep=true)])')
    pinned = turn(2, (call(), result(long_text(2))), text="Keep the old parser.", pinned=True)
    for item in (step(1), pinned, step(3, tool="notes"), step(4)):
        session.add_turn(item)
    words = QUOTE_TOKENS + SIZER.count_text(join_assistant_text(pinned))
    shown, noted = (QUOTE_TOKENS + SIZER.count_observation(turn.observations[0]) for turn in session.state.turns[1:3])
    quoted = [session.policy.count_quoted_tokens(covers) for covers in range(5)]
    assert quoted == [0, 0, words + shown, words + shown + noted, words + shown + noted]


def test_masks_above_a_limit_are_not_urgent() -> None:
    """Only a summary is: somebody has to write it."""
    session = begin_session("two-tier(keep_recent=1, soft=400, hard=600, after_steps=99, fold=false)")
    for item in steps(5):
        session.add_turn(item)
    plan = session.policy.plan_pass(session.state, session.make_context(make_plain_terms()))
    assert (len(plan.masks), plan.summarize_to, plan.is_urgent, plan.reason) == (4, 0, False, "above hard")


def server_call(id: str) -> Opaque:
    return Opaque("server_tool_use", 5, {"type": "server_tool_use", "id": id, "name": "web_search", "input": {}})


def server_result(id: str) -> Opaque:
    kind = "web_search_tool_result"
    return Opaque(kind, 5, {"type": kind, "tool_use_id": id, "content": []})


def turns(**parts: Any) -> list[Turn]:
    """Eight turns with long results; parts: what turn `t3` says besides, and so on."""
    made = [step(index, text=long_text(index, 300)) for index in range(1, 9)]
    return [msgspec.structs.replace(each, content=(Text("So."), *parts.get(f"t{each.index}", ()))) for each in made]


#: The result comes with the next answer, behind the results of the client's own calls.
ADJACENT = {"t4": (server_call("a"),), "t5": (server_result("a"),)}


def limit(covers: int, **parts: Any) -> int:
    calls = ServerCalls()
    for each in turns(**parts):
        calls.add_turn(each)
    return calls.limit_summary(covers)


def test_calls_that_are_answered_in_their_turn_limit_nothing() -> None:
    """As nearly all are; a call without a result limits nothing either."""
    assert [
        limit(covers, t3=(server_call("a"), server_result("a")), t5=(server_call("b"),)) for covers in range(9)
    ] == list(range(9))


def test_a_summary_ends_before_the_call_or_behind_the_result() -> None:
    """Whatever turns stand between them."""
    assert [limit(covers, t3=(server_call("a"),), t6=(server_result("a"),)) for covers in range(9)] == [
        0,
        1,
        2,
        2,
        2,
        2,
        6,
        7,
        8,
    ]


def test_calls_that_overlap_are_kept_together() -> None:
    """What limits the one may reach into the other."""
    parts = {"t2": (server_call("a"),), "t4": (server_result("a"), server_call("b")), "t6": (server_result("b"),)}
    assert [limit(covers, **parts) for covers in range(1, 8)] == [1, 1, 1, 1, 1, 6, 7]


@pytest.mark.parametrize(
    ("strategy", "lines"),
    [
        ("summarization(every=4, tail=4, schedule=every-turn)", 0),
        ("hybrid(window=2, summarize_at=40, tail=30, budget=budget(6000, reserved=0), schedule=every-turn)", 100),
    ],
)
def test_no_strategy_parts_them(strategy: str, lines: int) -> None:
    """By count of turns, or where the budget asks for it; the newest turn is never covered."""
    said = [(Text(long_text(number, lines)),) if lines else () for number in range(9)]
    calls = [msgspec.structs.replace(each, content=(*each.content, *said[each.index])) for each in turns(**ADJACENT)]
    covered: list[int] = []
    run_session(strategy, calls, watch=lambda session: covered.append(session.state.covered_turns))
    assert max(covered) > 0
    assert 4 not in covered
