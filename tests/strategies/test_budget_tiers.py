"""A view over its budget: cheap tiers first, the newest result clipped last, and never a silent drop."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.engine import Log, Summarizer, decide, make_plain_terms, run_pass
from elision.errors import BudgetError, SummaryError
from elision.strategies.budget_tiers import SHORT_SUMMARY_TOKENS, SHORTEST_SUMMARY_TOKENS, clip_text
from elision.strategies.decision_context import Budget
from elision.strategies.schedules import BLOCK_TOKENS, FixedSchedule
from elision.strategies.spec import parse_strategy
from elision.strategies.strategy import Hybrid, Masking, Raw
from elision.trajectory.events import PassDecided, SummaryFailed
from elision.trajectory.foreign_text import make_encodable
from elision.trajectory.plan import SummaryRequest
from elision.trajectory.tokens import Tokenizer
from elision.trajectory.turn import Turn
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
    refuse_summary,
    result,
    run_session,
    step,
    steps,
    turn,
    user,
    write_brief_summary,
    write_endless_summary,
)

#: Never acts of itself: what happens happens under pressure.
NEVER = FixedSchedule()


def budgeted(tokens: int, **options: float) -> Masking:
    budget = Budget(tokens=tokens, max_context_pct=1, reserved=0, **options)  # type: ignore[arg-type]
    return Masking(window=10, gist=0, schedule=NEVER, budget=budget, summary_max_tokens=50)


def summarizing(tokens: int, **options: float) -> Hybrid:
    """Like `budgeted`, with summaries of a model, which are never due by turns."""
    plain = budgeted(tokens, **options)
    return Hybrid(
        window=10, summarize_at=999, tail=4, gist=0, schedule=NEVER, budget=plain.budget, summary_max_tokens=1_000
    )


def decisions(session: Log) -> list[PassDecided]:
    return [event for event in session.events if isinstance(event, PassDecided)]


def fits(session: Log) -> None:
    assert session.newest_call is not None
    assert session.view_limit is not None
    assert session.newest_call.view.tokens <= session.view_limit


def test_pressure_overrides_the_schedule() -> None:
    """Over budget, what the schedule holds is masked, oldest first, and the pass says why."""
    session = run_session(budgeted(1_500), steps(16), watch=fits)
    masked = find_mask_calls(session)
    assert masked
    assert list(masked) == sorted(masked)
    assert {event.reason for event in decisions(session) if event.masks} == {"over budget"}


def test_down_to_a_low_watermark() -> None:
    """One pass makes room for several calls: the next one does not trigger again."""
    session = run_session(budgeted(2_000, low=0.7), steps(30), watch=fits)
    calls = [event.call for event in decisions(session) if event.masks or event.summary]
    assert len(calls) > 1
    assert min(later - earlier for earlier, later in itertools.pairwise(calls)) > 1


def test_masking_comes_first() -> None:
    """While masking down to min_window is enough, nothing is summarized."""
    session = run_session(budgeted(1_500), steps(12), watch=fits)
    assert find_mask_calls(session)
    assert list_summaries(session) == []


def worded(index: int, *, words: int, lines: int = 8) -> Turn:
    """A turn of so many words, with one result of so many lines."""
    pair = (call(command=f"make step-{index}"), result(long_text(index, lines)))
    return turn(index, pair, text="so " * words)


def list_tiers(session: Log, window: int) -> list[str]:
    """What the passes over budget did, in order: masks outside the window or inside, and summaries by their route."""
    tiers = []
    for event in decisions(session):
        inside = [mask.key for mask in event.masks if mask.key[0] >= event.call - window]
        if event.summary is not None:
            tiers.append(event.summary.route if event.summary.route == "model-free" else "summary")
        if len(event.masks) > len(inside):
            tiers.append("outside")
        if inside:
            tiers.append("inside")
        if event.clips:
            tiers.append("clip")
    return tiers


def test_the_order_of_the_tiers() -> None:
    """The less there is room for, the later the tier: masks outside the window, the summary, masks inside the window,
    the digest, clips."""
    run = [worded(index, words=60, lines=12) for index in range(1, 40)]
    run.append(worded(40, words=60, lines=60))
    strategy = replace(summarizing(1_000_000), tail=10)
    reached = []
    for usable in (13_000, 12_000, 9_000, 6_800, 5_200, 3_200, 2_000, 1_200):
        session = begin_session(strategy)
        for item in run:
            session.add_turn(item)
        session.view_limit = usable
        run_pass(decide(session, make_plain_terms()), write_brief_summary)
        fits(session)
        reached.append(list_tiers(session, 10))
    seen = [tiers for tiers, _ in itertools.groupby(reached)]
    assert seen == [
        [],
        ["outside"],
        ["summary"],
        ["summary", "inside"],
        ["model-free"],
        ["model-free", "clip"],
    ]


def test_hybrid_summarizes_under_a_budget() -> None:
    """Sixty calls under 14,000 tokens, each result of 1,100: ten of them alone do not fit, and old turns become
    summaries all the same."""
    run = [worded(index, words=60, lines=88) for index in range(1, 61)]
    strategy = parse_strategy("hybrid(budget=14000)")
    for prices in (CACHED, PLAIN):
        session = run_session(strategy, run, prices, watch=fits)
        made = list_summaries(session)
        assert made
        assert {event.summary.route for event in decisions(session) if event.summary} <= {"fresh", "extend"}
        # Each frees a fifth of what is usable: none of them every few calls.
        assert all(later - earlier > 5 for (earlier, _), (later, _) in itertools.pairwise(made))


def test_the_window_stays_where_a_summary_is_enough() -> None:
    """What the strategy keeps verbatim is touched only if its summary does not make room."""
    run = [worded(index, words=90) for index in range(1, 61)]
    session = run_session(replace(summarizing(4_500), tail=10), run, watch=fits)
    assert list_summaries(session)
    assert "inside" not in list_tiers(session, 10)


def test_masking_asks_no_model() -> None:
    """A strategy without summaries has the digest as its last resort before clipping, and pays no summarizer."""
    asked: list[SummaryRequest] = []

    def note(request: SummaryRequest) -> str:
        asked.append(request)
        return write_brief_summary(request)

    session = run_session(budgeted(1_500), talk(14), summarizer=note, watch=fits)
    assert asked == []
    assert {event.summary.route for event in decisions(session) if event.summary} == {"model-free"}


def test_the_window_gives_way_after_a_failed_summary() -> None:
    """A model that does not answer costs the window first, and what is left to say is said without it."""
    growing = [worded(index, words=60) for index in range(1, 60)]
    session = run_session(summarizing(2_500), growing, summarizer=refuse_summary, watch=fits)
    firsts = list(dict.fromkeys(list_tiers(session, 10)))
    assert firsts == ["outside", "inside", "model-free"]


def test_the_window_gives_way_down_to_min_window() -> None:
    """Under pressure turns inside the window are masked, but never the newest min_window."""
    session = run_session(budgeted(900, min_window=3), steps(9), watch=fits)
    assert find_mask_calls(session)
    assert all(call - 1 - key[0] >= 3 for key, call in find_mask_calls(session).items())


def test_then_a_summary() -> None:
    """What cannot be masked is summarized: talk without any observation."""
    talk = [turn(index, text=f"thought {index} " * 60) for index in range(1, 15)]
    session = run_session(budgeted(1_500), talk, watch=fits)
    assert list_summaries(session)


def test_then_the_newest_result_is_clipped() -> None:
    """A newest result that alone breaks the budget keeps head and tail, with its handle, as a recorded event."""
    huge = "FIRST " + long_text(3, 400) + " LAST"
    session = run_session(budgeted(1_500), [step(1), step(2), step(3, huge)], watch=fits)
    assert session.newest_call is not None
    clip = session.newest_call.decided.clips[0]
    assert clip.key == (3, 1)
    assert clip.text.startswith("FIRST")
    assert clip.text.endswith("LAST")
    assert "[t3.1: " in clip.text
    assert session.newest_call.view.tokens > 1_200
    assert session.state.find_observation((3, 1)).text == huge


def test_the_largest_results_are_clipped_first() -> None:
    """Of parallel results a small one stays whole."""
    pairs = ((call(id="a"), result("small", id="a")), (call(id="b"), result(long_text(1, 300), id="b")))
    session = run_session(budgeted(1_000), [turn(1, *pairs)], watch=fits)
    assert session.newest_call is not None
    assert [clip.key for clip in session.newest_call.decided.clips] == [(1, 2)]


def test_the_floor_is_an_error_with_numbers() -> None:
    """A head that does not fit is no view at all: BudgetError, with what is needed and what there is."""
    with pytest.raises(BudgetError, match="system prompt, tools, task and the newest turn need") as caught:
        run_session(budgeted(500), steps(1), start=head("task " * 2_000))
    assert caught.value.needed > caught.value.usable == 500


def test_a_newest_turn_that_cannot_be_cut() -> None:
    """What the assistant wrote is never cut; if it does not fit, that is said."""
    with pytest.raises(BudgetError):
        run_session(budgeted(500), [turn(1, text="word " * 2_000)])


def test_words_of_the_user_that_do_not_fit() -> None:
    """Nor is what the user just said dropped in silence."""
    with pytest.raises(BudgetError, match="the view still needs"):
        run_session(budgeted(500), [step(1, said=[user("word " * 2_000)])])


def floor_of(session: Log) -> int:
    """Tokens of head, newest turn as it came, and the shortest block there is."""
    state = session.state
    return (
        state.track.count_tokens_before(state.head_length)
        + SHORTEST_SUMMARY_TOKENS
        + BLOCK_TOKENS
        + state.raw_track.tokens
        - state.count_raw_tokens_before(40)
    )


@pytest.mark.parametrize("summarizer", [write_brief_summary, write_endless_summary, refuse_summary])
@pytest.mark.parametrize("room", [0, 20, 60, 150, 400, 1_000, 2_000])
def test_always_fits_where_head_and_newest_turn_do(room: int, summarizer: Summarizer) -> None:
    """A summary gets as few words as it must, down to a digest's title, before the floor is said not to fit."""
    task, turns = head("task " * 600), steps(40)
    needed = floor_of(run_session(Raw(), turns, start=task))
    strategy = replace(budgeted(needed + room), summary_max_tokens=1_000)
    session = run_session(strategy, turns, start=task, summarizer=summarizer, watch=fits)
    assert list_summaries(session)
    assert not any(event.clips for event in decisions(session))


def test_less_than_that_is_an_error_with_numbers() -> None:
    """What is needed then is counted with the shortest summary."""
    task, turns = head("task " * 600), [turn(index, text=f"thought {index} " * 60) for index in range(1, 15)]
    whole = run_session(Raw(), turns, start=task).state
    needed = (
        whole.track.count_tokens_before(whole.head_length) + whole.raw_track.tokens - whole.count_raw_tokens_before(14)
    )
    with pytest.raises(BudgetError, match="the view still needs") as caught:
        run_session(replace(budgeted(needed + 10), summary_max_tokens=1_000), turns, start=task)
    assert caught.value.usable < caught.value.needed <= needed + SHORTEST_SUMMARY_TOKENS + BLOCK_TOKENS


def test_a_summary_is_asked_for_in_as_many_tokens_as_there_are() -> None:
    """A model is told the limit that the budget leaves, and none is asked for what says next to nothing."""
    asked: list[int] = []

    def counting(request: SummaryRequest) -> str:
        asked.append(request.max_tokens)
        return write_brief_summary(request)

    task = head("task " * 600)
    for budget in range(900, 3_600, 100):
        with contextlib.suppress(BudgetError):
            run_session(summarizing(budget), steps(30), start=task, summarizer=counting)
    assert min(asked) >= SHORT_SUMMARY_TOKENS
    assert max(asked) == 1_000
    assert len(set(asked)) > 3


def test_a_summary_that_does_not_fit_is_not_taken() -> None:
    """What a model wrote beyond its limit is rejected where the view would not fit by it; the digest stands in."""

    def long_winded(request: SummaryRequest) -> str:
        return "Read: " + ", ".join(f"file{index}.py" for index in range(request.max_tokens // 3))

    strategy = replace(summarizing(1_500, low=0.95), tail=2)
    session = run_session(strategy, steps(40), start=head("task " * 600), summarizer=long_winded, watch=fits)
    reasons = [event.reason for event in session.events if isinstance(event, SummaryFailed)]
    assert any("449 are allowed" in reason for reason in reasons)
    assert {event.summary.route for event in decisions(session) if event.summary} >= {"model-free"}


def test_a_summary_within_its_limit_that_does_not_fit_is_not_taken() -> None:
    """A limit is counted as we count. On the scale of a model that counts more, the same words may be too long."""
    prices = replace(CACHED, tokenizer=Tokenizer(name="longer", tokens_per_counted=1.6))

    def exhaustive(request: SummaryRequest) -> str:
        return "Read: " + ", ".join(f"file{index}.py" for index in range(request.max_tokens // 5))

    strategy = replace(summarizing(1_900, low=0.95), tail=2)
    session = run_session(strategy, steps(40), prices, start=head("task " * 600), summarizer=exhaustive, watch=fits)
    reasons = [event.reason for event in session.events if isinstance(event, SummaryFailed)]
    assert any("where the budget leaves" in reason for reason in reasons)
    assert {event.summary.route for event in decisions(session) if event.summary} == {"model-free"}


def test_raw_has_no_budget() -> None:
    """The identity stays the identity."""
    session = run_session(Raw(budget=Budget(tokens=100, reserved=0)), steps(9))
    assert session.newest_call is not None
    assert session.newest_call.view.tokens == session.state.raw_track.tokens


def test_no_progress_is_no_loop() -> None:
    """Where everything eligible is gone already, later passes do not hide the same again."""
    session = run_session(budgeted(1_200), steps(25), watch=fits)
    masks = [mask.key for event in decisions(session) for mask in event.masks]
    assert len(masks) == len(set(masks))
    covers = [covered for _, covered in list_summaries(session)]
    assert covers == sorted(set(covers))


# -- the soft threshold ----------------------------------------------------------------------------------------------


def soft(tokens: int, **options: float) -> Masking:
    return replace(budgeted(tokens, soft=0.5, low=0.8, **options), window=3)


def test_the_soft_threshold_overrides_the_schedule() -> None:
    """Above it everything pending is masked though the schedule holds; inside the window nothing is."""
    session = run_session(soft(4_000), steps(25), watch=fits)
    masked = find_mask_calls(session)
    assert masked
    assert {event.reason for event in decisions(session) if event.masks} == {"soft threshold"}
    assert all(call - 1 - key[0] >= 3 for key, call in masked.items())
    assert not run_session(replace(soft(4_000), budget=None), steps(25)).state.hidden


def test_below_the_soft_threshold_nothing_changes() -> None:
    """A view that stays below it is left to the schedule."""
    assert not find_mask_calls(run_session(soft(20_000), steps(25)))


@given(st.integers(1_500, 6_000), st.floats(0.2, 1), st.floats(0.3, 0.95), st.integers(0, 3))
def test_each_soft_rewrite_frees_its_share(tokens: int, share: float, low: float, lines: int) -> None:
    """Never one more result at each call: every soft rewrite frees (1 - low) of the threshold, and all views fit."""
    strategy = replace(budgeted(tokens, soft=share, low=low), window=3)
    sizes: list[tuple[int, int]] = []

    def watch(session: Log) -> None:
        fits(session)
        assert session.newest_call is not None
        if session.newest_call.decided.reason == "soft threshold":
            keys = [mask.key for mask in session.newest_call.decided.masks]
            freed = sum(SIZER.count_observation(session.state.find_observation(key)) for key in keys)
            sizes.append(
                (freed - sum(session.state.find_segment(key).tokens for key in keys), session.newest_call.view.tokens)
            )

    run_session(
        strategy, [step(index, long_text(index, 4 + lines * (index % 3))) for index in range(1, 31)], watch=watch
    )
    assert all(freed >= (1 - low) * share * tokens for freed, _ in sizes)


# -- after an error --------------------------------------------------------------------------------------------------


def test_an_error_leaves_no_candidates() -> None:
    """A view that cannot be made to fit makes no candidates of turns inside the window: a later call with room is
    decided as if it had not been tried."""
    session = run_session(budgeted(1_400), steps(6))
    session.add_turn(step(7, said=[user("word " * 2_000)]))
    for _ in range(2):
        with pytest.raises(BudgetError, match="the view still needs"):
            run_pass(decide(session, make_plain_terms()), write_brief_summary)
        assert session.policy.candidates.pending == {}
        assert session.policy.candidates.pending_tokens == 0
    session.view_limit = 100_000
    run_pass(decide(session, make_plain_terms()), write_brief_summary)
    assert session.newest_call is not None
    assert session.newest_call.decided.masks == ()


@given(st.text(st.characters(exclude_categories=()), max_size=400), st.integers(30, 300))
def test_clipped(text: str, tokens: int) -> None:
    """A clip is within its size, or nothing but its handle; its ends are the text's, and it can be encoded."""
    result = clip_text(text, tokens, "t3.2", SIZER)
    before, _, behind = result.partition("\n[t3.2: ")
    behind = behind.partition(" chars cut here to fit]\n")[2]
    assert SIZER.count_text(result) <= tokens or (before, behind) == ("", "")
    assert make_encodable(text).startswith(before)
    assert make_encodable(text).endswith(behind)
    result.encode("utf-8")


# -- expected failures: see the reasons ------------------------------------------------------------------------------


def talk(count: int, *, said: int = 0) -> list[Turn]:
    words = (user("word " * said),) if said else ()
    return [turn(index, text=f"thought {index} " * 60, said=words) for index in range(1, count + 1)]


def test_a_failed_summary_under_pressure() -> None:
    """Under pressure a failed summary is not the end: the view fits, or says that it does not."""
    run_session(replace(summarizing(1_500), tail=2), talk(14), summarizer=refuse_summary, watch=fits)


def test_a_failed_summary_is_not_retried_every_turn() -> None:
    """Retries back off, under pressure too."""
    asked = []

    def counting(request: SummaryRequest) -> str:
        asked.append(request)
        raise SummaryError("no")

    run_session(replace(summarizing(1_500), tail=2), talk(20), summarizer=counting)
    assert 0 < len(asked) <= 3


def test_a_summary_with_the_user_s_old_words() -> None:
    """Words of the user that a block quotes count when it is weighed."""
    strategy = replace(budgeted(2_500), keep_user_tokens=0)
    run_session(strategy, talk(20, said=150), watch=fits)


# -- thinking that is bound to what precedes it --------------------------------------------------------------------


def edited_turns(session: Log) -> set[int]:
    """The turns of which anything was masked or cut."""
    keys = [mask.key for event in decisions(session) for mask in event.masks]
    keys += [clip.key for event in decisions(session) for clip in event.clips]
    return {turn for turn, _ in keys}


def prepare_bound(
    strategy: Masking | Hybrid,
    editable_from: int,
    number: int = 8,
    *,
    strict: bool = True,
    newest: Turn | None = None,
    summaries: bool = True,
) -> Log:
    """A session of `number` turns whose newest call must not edit turns before `editable_from`."""
    session = begin_session(strategy, PLAIN)
    for item in [*steps(number), *([newest] if newest else [])]:
        session.add_turn(item)
    terms = msgspec.structs.replace(
        make_plain_terms(), editable_from=editable_from, may_summarize=summaries, is_strict=strict
    )
    run_pass(decide(session, terms), write_brief_summary)
    return session


@pytest.mark.parametrize("make", [budgeted, summarizing])
def test_under_pressure_bound_turns_stay_and_the_newest_result_is_cut(
    make: Callable[[int], Masking | Hybrid],
) -> None:
    """Every turn thinks: only the results of the newest one stand behind all thinking."""
    newest = turn(9, (call(command="cat"), result(long_text(9, 60))))
    session = prepare_bound(make(1_500), 9, newest=newest)
    fits(session)
    assert edited_turns(session) == {9}
    assert not list_summaries(session)
    assert decisions(session)[-1].reason == "over budget"


def test_under_pressure_what_follows_bound_thinking_is_masked() -> None:
    """The agent thought in turn 5 for the last time: later results are masked down to the window."""
    session = prepare_bound(budgeted(1_300), 5, 9, summaries=False)
    fits(session)
    assert edited_turns(session)
    assert min(edited_turns(session)) == 5


def test_under_pressure_a_summary_covers_the_turn_that_thinks() -> None:
    """The thinking goes with its turn, so nothing that stays is bound to what the summary replaces."""
    for make in (budgeted, summarizing):
        session = prepare_bound(make(700), 4, 12)
        fits(session)
        assert list_summaries(session)
        assert all(covers >= 4 for _, covers in list_summaries(session))
        assert min(edited_turns(session), default=4) >= 4


@pytest.mark.parametrize("make", [budgeted, summarizing])
def test_a_budget_that_bound_thinking_breaks_is_named(make: Callable[[int], Masking | Hybrid]) -> None:
    """The caller reads why nothing more is hidden, and what helps; else the smallest allowed view is sent."""
    with pytest.raises(BudgetError, match="thinking in turn 8 is bound to the results before it") as caught:
        prepare_bound(make(700), 8)
    assert "drop_block" in str(caught.value)
    session = prepare_bound(make(700), 8, strict=False)
    assert session.newest_call is not None
    assert str(session.newest_call.budget_error) == str(caught.value)
    assert edited_turns(session) <= {8}
    assert not list_summaries(session)


def test_a_soft_threshold_masks_nothing_that_is_bound() -> None:
    """Relief before the limit is reached keeps to the same turns."""
    soft = replace(budgeted(1_900, soft=0.5), window=2)
    free, bound = prepare_bound(soft, 1, 10), prepare_bound(soft, 4, 10)
    assert decisions(free)[-1].reason == decisions(bound)[-1].reason == "soft threshold"
    assert (min(edited_turns(free)), min(edited_turns(bound))) == (1, 4)
    assert not edited_turns(prepare_bound(soft, 10, 10))


@given(
    number=st.integers(1, 12),
    first=st.integers(1, 12),
    tokens=st.integers(300, 2_500),
    summaries=st.booleans(),
    refused=st.booleans(),
    may_summarize=st.booleans(),
)
def test_no_budget_makes_an_edit_before_bound_thinking(
    *, number: int, first: int, tokens: int, summaries: bool, refused: bool, may_summarize: bool
) -> None:
    """Whatever the budget, and whether or not a summary is written, a call edits only what may be edited."""
    session = begin_session((summarizing if summaries else budgeted)(tokens), PLAIN)
    for item in steps(number):
        session.add_turn(item)
    first = min(first, number)
    terms = msgspec.structs.replace(
        make_plain_terms(), editable_from=first, may_summarize=may_summarize, is_strict=False
    )
    with contextlib.suppress(BudgetError):
        run_pass(decide(session, terms), refuse_summary if refused else write_brief_summary)
    assert min(edited_turns(session), default=first) >= first
    assert all(covers >= first for _, covers in list_summaries(session))


def test_a_result_that_is_too_large_by_its_pictures_keeps_its_words() -> None:
    """Where more tokens are left than the text has, all of it is shown around the note of what is not."""
    assert clip_text("abcdef", 500, "t1.1", SIZER) == "abc\n[t1.1: images and other parts cut here to fit]\ndef"
