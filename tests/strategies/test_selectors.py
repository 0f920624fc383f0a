"""Which observations may be hidden and from which call on, the rules that refine it, and when a summary is made."""

from __future__ import annotations

import itertools
from dataclasses import replace

import msgspec
import pytest

from elision.engine import Log, decide, make_plain_terms, run_pass
from elision.errors import SpecError, SummaryError
from elision.strategies.schedules import EveryTurnSchedule, FixedSchedule, Schedule
from elision.strategies.selectors import AllButNewestResults, OlderThan, Rule, RuleTable, Selector
from elision.strategies.spec import parse_strategy
from elision.strategies.strategy import Strategy
from elision.summarizers.summary_checks import SummaryResult
from elision.trajectory.events import PassDecided, SummaryFailed, UsageReported
from elision.trajectory.plan import Key, SummaryRequest
from elision.trajectory.turn import Action, Observation, Turn
from elision.trajectory.usage import Usage
from tests.properties.builders import (
    CACHED,
    PLAIN,
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
    write_brief_summary,
)


def eligible(selector: Selector, *turns: Turn) -> dict[Key, int]:
    return {key: since for item in turns for since, key in selector.find_due_keys(item)}


def parallel(index: int, count: int) -> Turn:
    return turn(index, *((call(id=str(number)), result("x", id=str(number))) for number in range(count)))


def test_older_than() -> None:
    """At call t the observations of turns i < t - W: turn 1 from call W + 2 on, all results of a turn at once."""
    assert eligible(OlderThan(3), step(1), parallel(2, 2)) == {(1, 1): 5, (2, 1): 6, (2, 2): 6}


def test_all_but_newest_results() -> None:
    """Results are counted, not turns; turns without any do not push others out."""
    found = eligible(AllButNewestResults(2), step(1), turn(2), step(3), turn(4), step(5))
    assert found == {(1, 1): 6}


def test_results_of_the_newest_turn_wait() -> None:
    """A turn with more results than may stay keeps them all until the next turn."""
    found = eligible(AllButNewestResults(2), step(1), parallel(2, 4))
    assert found == {(1, 1): 3, (2, 1): 4, (2, 2): 4}


def first(*rules: Rule, **options: object) -> tuple[RuleTable, Turn, Observation]:
    one = step(1, "some output", **options)  # type: ignore[arg-type]
    return RuleTable(rules), one, one.observations[0]


@pytest.mark.parametrize(
    ("rule", "matches"),
    [
        (Rule(tool="bash", keep=True), True),
        (Rule(tool="ba*", keep=True), True),
        (Rule(tool="BASH", keep=True), False),
        (Rule(tool="cat", keep=True), False),
        (Rule(args="make step-?", keep=True), True),
        (Rule(args="*step*", tool="bash", keep=True), True),
        (Rule(args="step", keep=True), False),
        (Rule(tag="mine", keep=True), True),
        (Rule(tag="mine", tool="cat", keep=True), False),
        (Rule(tag="yours", keep=True), False),
    ],
)
def test_patterns(rule: Rule, matches: bool) -> None:
    """A rule holds where every pattern given matches, arguments being compared as decoded."""
    rules, one, observation = first(rule, tags=frozenset({"mine"}))
    assert rules.apply_rules(one, observation).keep is matches


def test_arguments_of_a_text_protocol() -> None:
    """A bare command is compared as it stands."""
    action = Action(id="", name="bash", arguments="cat a.py", implicit=True)
    spoken = Turn(
        index=1, actions=(action,), observations=(Observation(action_id="", tool="bash", content=(), role="user"),)
    )
    assert Rule(args="cat *", keep=True).matches(spoken, spoken.observations[0])


def test_an_argument_pattern_needs_a_call() -> None:
    """Where the call is unknown, nothing is known of its arguments."""
    alone = Turn(index=1, observations=(Observation(action_id="", tool="bash", content=(), role="user"),))
    assert not Rule(args="*a*", keep=True).matches(alone, alone.observations[0])


def test_tags_speak_for_themselves() -> None:
    """SWE-agent's own tags mean something without any rule."""
    rules, one, observation = first(tags=frozenset({"keep_output"}))
    assert rules.apply_rules(one, observation).keep
    rules, one, observation = first(tags=frozenset({"remove_output"}))
    assert rules.apply_rules(one, observation).after == 1
    rules, one, observation = first(tags=frozenset({"tool_output"}))
    assert rules.apply_rules(one, observation).after is None


def test_pins_are_kept() -> None:
    """A pinned result, and every result of a pinned turn, is kept."""
    rules, one, observation = first(pinned=True)
    assert rules.apply_rules(one, observation).keep
    whole = turn(1, (call(), result("x")), pinned=True)
    assert RuleTable().apply_rules(whole, whole.observations[0]).keep


def test_the_strictest_counts() -> None:
    """Of several rules keep wins, the largest size counts, and the first `after`, a user's before a tag's."""
    rules, one, observation = first(
        Rule(below=10),
        Rule(after=5),
        Rule(below=30),
        Rule(after=2),
        tags=frozenset({"remove_output"}),
    )
    ruling = rules.apply_rules(one, observation)
    assert (ruling.keep, ruling.after, ruling.below) == (False, 5, 30)


@pytest.mark.parametrize("options", [{}, {"tool": "x"}, {"after": 0}, {"below": -1}, {"after": -3, "keep": True}])
def test_rules_without_meaning(options: dict[str, object]) -> None:
    """A rule that says nothing, or would touch the newest turn, is refused."""
    with pytest.raises(SpecError):
        Rule(**options)  # type: ignore[arg-type]


def test_keep() -> None:
    """Kept results are never masked."""
    assert find_mask_calls(
        run_session('masking(window=1, schedule=every-turn, rules=rule(args="*step-2", keep=true))', steps(5))
    ) == {
        (1, 1): 3,
        (3, 1): 5,
        (4, 1): 6,
    }


def test_after() -> None:
    """`after` replaces the window: sooner, or later."""
    session = run_session(
        'masking(window=3, schedule=every-turn, rules=[rule(args="*step-1", after=1), rule(args="*step-2", after=5)])',
        steps(8),
    )
    calls = find_mask_calls(session)
    assert (calls[1, 1], calls[2, 1], calls[3, 1]) == (3, 8, 7)


def test_after_with_two_tier() -> None:
    """`after` holds for strategies that count results, too."""
    session = run_session('two-tier(keep_recent=4, schedule=every-turn, rules=rule(args="*step-1", after=1))', steps(8))
    assert find_mask_calls(session)[1, 1] == 3


def test_after_with_a_strategy_that_has_no_window() -> None:
    """`after` refines every strategy that hides anything (design 3)."""
    strategy = 'summarization(every=30, tail=2, schedule=every-turn, rules=rule(args="*step-1", after=1))'
    session = run_session(strategy, steps(5))
    assert find_mask_calls(session) == {(1, 1): 3}


def test_below() -> None:
    """What is smaller than the size given is never touched; the rest is."""
    turns = [step(1, "short " * 40), step(2, long_text(2, 20)), step(3, "x"), step(4, "x")]
    assert find_mask_calls(
        run_session("masking(window=1, gist=0, schedule=every-turn, rules=rule(below=120))", turns)
    ) == {(2, 1): 4}


def test_remove_output() -> None:
    """A result tagged remove_output goes as soon as its turn is no longer the newest."""
    turns = [step(1, tags=frozenset({"remove_output"})), *(step(index) for index in (2, 3))]
    assert find_mask_calls(run_session("masking(window=9, schedule=every-turn)", turns, start=head())) == {(1, 1): 3}


#: Small summaries, made as soon as they are due.
AT_ONCE = "summary_max_tokens=50, schedule=every-turn"


@pytest.mark.parametrize(("every", "tail"), [(21, 10), (3, 2), (1, 1)])
def test_summarization(every: int, tail: int) -> None:
    """First when N + M turns stand behind the task, then every N: exactly N turns each, all but the newest M."""
    session = run_session(
        f"summarization(every={every}, tail={tail}, {AT_ONCE})",
        steps(3 * every + tail),
    )
    firsts = [every * number for number in (1, 2, 3)]
    assert list_summaries(session) == [(covers + tail + 1, covers) for covers in firsts]


def test_hybrid_as_published() -> None:
    """First at N turns, then every N - M."""
    session = run_session("hybrid(window=10, summarize_at=43, tail=10, schedule=every-turn)", steps(110))
    assert list_summaries(session) == [(44, 33), (77, 66), (110, 99)]


def test_hybrid_as_the_paper_s_code_fires() -> None:
    """summarize_at = N + M: first at N + M turns, then every N."""
    session = run_session("hybrid(window=10, summarize_at=53, tail=10, schedule=every-turn)", steps(97))
    assert list_summaries(session) == [(54, 43), (97, 86)]


def test_summarize_tokens_counts_the_view() -> None:
    """The trigger counts what stands in the view behind the summary and outside the tail, so a summary lowers it."""
    session = run_session(
        f"hybrid(window=20, summarize_at=99, tail=2, summarize_tokens=400, gist=0, {AT_ONCE})",
        steps(30),
    )
    made = list_summaries(session)
    assert len(made) >= 3
    gaps = [later - earlier for (earlier, _), (later, _) in itertools.pairwise(made)]
    assert min(gaps) > 1


def test_summarize_tokens_of_summarization() -> None:
    """By tokens a summary is due earlier than by turns; without them at N + M turns."""
    by_turns = run_session(f"summarization(every=20, tail=2, {AT_ONCE})", steps(30))
    by_tokens = run_session(f"summarization(every=20, tail=2, summarize_tokens=900, {AT_ONCE})", steps(30))
    assert list_summaries(by_turns)[0] == (23, 20)
    call, covers = list_summaries(by_tokens)[0]
    assert call < 23
    assert covers == call - 3


def test_masking_counts_for_summarize_tokens() -> None:
    """Masked observations are small: where raw tokens would trigger at nearly every call, the view's do not."""
    tokens = f"summarize_at=99, tail=2, summarize_tokens=900, {AT_ONCE}"
    masked = list_summaries(run_session(f"hybrid(window=1, gist=0, {tokens})", steps(40)))
    unmasked = list_summaries(run_session(f"hybrid(window=40, gist=0, {tokens})", steps(40)))
    assert len(masked) < len(unmasked)


def test_two_tier() -> None:
    """Over `hard` at once; over `soft` only once enough calls were made; the newest results stay out."""
    hard = run_session(
        f"two-tier(keep_recent=3, soft=500, hard=800, after_steps=99, summarize_min_turns=1, {AT_ONCE})",
        steps(25),
        PLAIN,
    )
    sizes = dict(list_summaries(hard))
    assert sizes
    assert all(covers == call - 1 - 3 for call, covers in sizes.items())
    soft = run_session(
        f"two-tier(keep_recent=3, soft=500, hard=90000, after_steps=14, summarize_min_turns=1, {AT_ONCE})",
        steps(25),
        PLAIN,
    )
    assert list_summaries(soft)[0][0] == 16
    never = run_session(
        "two-tier(keep_recent=3, soft=500, hard=90000, after_steps=99, schedule=every-turn)", steps(25), PLAIN
    )
    assert list_summaries(never) == []


def test_two_tier_waits_for_new_turns() -> None:
    """Above `soft` not again before that many new turns, however large the view."""
    session = run_session(
        f"two-tier(keep_recent=3, soft=1, hard=90000, after_steps=0, summarize_min_turns=6, {AT_ONCE})",
        steps(40),
        PLAIN,
    )
    covers = [covers for _, covers in list_summaries(session)]
    assert len(covers) > 2
    assert all(later - earlier >= 6 for earlier, later in zip([0, *covers], covers, strict=False))


def test_a_chat_has_no_results() -> None:
    """Without any result `soft` has nothing to count; above `hard` the newest `keep_recent` turns stay."""
    talk = [turn(index, text="word " * 200) for index in range(1, 40)]
    assert list_summaries(run_session("two-tier(soft=10, hard=90000, after_steps=0)", talk, PLAIN)) == []
    session = run_session("two-tier(keep_recent=4, hard=3000, soft=3000, summary_max_tokens=50)", talk, CACHED)
    made = list_summaries(session)
    assert made
    assert all(covers == call - 1 - 4 for call, covers in made)


# -- thresholds that a user sets ------------------------------------------------------------------------------------

#: Never acts of itself: what happens happens because a threshold is exceeded.
NEVER = FixedSchedule()
HARD = "two-tier(keep_recent=3, soft=1500, hard=1500, after_steps=99, gist=0, summary_max_tokens=50{more})"


def never_acting(text: str) -> Strategy:
    return replace(parse_strategy(text), schedule=NEVER)


def list_reasons(session: Log) -> list[str]:
    """The reasons of the passes that hid something, in order, without repetition."""
    passes = [event for event in session.events if isinstance(event, PassDecided) and (event.masks or event.summary)]
    return [reason for reason, _ in itertools.groupby(event.reason for event in passes)]


def test_above_hard_the_schedule_is_not_asked() -> None:
    """Masking comes first, and a summary when that is not enough; no view exceeds `hard` where head, summary and the
    newest results leave room."""
    sizes: list[int] = []

    def watch(session: Log) -> None:
        assert session.newest_call is not None
        sizes.append(session.newest_call.view.tokens)

    session = run_session(never_acting(HARD.format(more="")), steps(60), watch=watch)
    assert max(sizes) <= 1_500
    assert min(find_mask_calls(session).values()) < list_summaries(session)[0][0]
    assert list_reasons(session) == ["above hard"]


def test_above_hard_fewer_turns_are_enough() -> None:
    """`summarize_min_turns` gives way where the summary brings the view below `hard`."""
    session = run_session(never_acting(HARD.format(more=", summarize_min_turns=50")), steps(60))
    covers = [covers for _, covers in list_summaries(session)]
    assert len(covers) > 1
    assert covers[0] < 50


def test_where_nothing_helps_nothing_is_rewritten() -> None:
    """A head above `hard` is no reason to rewrite the cache at every call: each act frees a fifth of `hard`, or
    summarizes `summarize_min_turns` new turns."""
    strategy = never_acting(HARD.format(more=", summarize_min_turns=12"))
    session = run_session(strategy, steps(60), start=head("word " * 2_000))
    acts = [event.call for event in session.events if isinstance(event, PassDecided) and (event.masks or event.summary)]
    assert 60 / len(acts) > 2.5
    assert list_summaries(session)


def test_above_soft_after_the_steps() -> None:
    """Before `after_steps` calls the schedule decides; after them the summary is made."""
    strategy = never_acting(
        "two-tier(keep_recent=3, soft=900, hard=90000, after_steps=20, summarize_min_turns=4, summary_max_tokens=50)"
    )
    session = run_session(strategy, steps(40))
    acts = [event.call for event in session.events if isinstance(event, PassDecided) and (event.masks or event.summary)]
    assert acts[0] == 22
    assert list_summaries(session)
    assert list_reasons(session) == ["above soft"]


def test_summarize_tokens_is_kept() -> None:
    """The turns outside the tail never take more, masked, than the user said, whatever the schedule finds."""
    strategy = never_acting(
        "hybrid(window=4, summarize_at=99, tail=4, summarize_tokens=600, gist=0, summary_max_tokens=50)"
    )
    session = run_session(strategy, steps(60))
    assert list_reasons(session) == ["above summarize_tokens"]
    assert len(list_summaries(session)) > 2


def test_a_failed_summary_above_hard() -> None:
    """The view stays as it is, masking continues, and the summarizer is asked again after its wait."""
    asked: list[int] = []

    def refuse(request: SummaryRequest) -> str:
        asked.append(request.turns[-1].index)
        raise SummaryError("no")

    strategy = never_acting(HARD.format(more=", summarize_min_turns=1"))
    session = run_session(strategy, steps(60), summarizer=refuse)
    assert len(asked) == 3
    assert len(find_mask_calls(session)) > 40
    assert find_mask_calls(session)[asked[0], 1] == asked[0] + 1 + 3


def test_no_summary_can_be_sent() -> None:
    """Where the provider keeps messages whole, only masking is left."""
    session = begin_session(never_acting(HARD.format(more="")))
    terms = msgspec.structs.replace(make_plain_terms(), may_summarize=False)
    for item in steps(40):
        run_pass(decide(session, terms), write_brief_summary)
        session.add_turn(item)
    assert not list_summaries(session)
    assert len(find_mask_calls(session)) > 30


@pytest.mark.parametrize("editable_from", [1, 9, 15])
def test_a_refused_summary_edits_nothing_before_bound_thinking(editable_from: int) -> None:
    """A summary may cover thinking that is bound; masking in its place may not edit what precedes it."""
    asked: list[int] = []

    def refuse(request: SummaryRequest) -> str:
        asked.append(request.turns[-1].index)
        raise SummaryError("no")

    session = begin_session(never_acting(HARD.format(more=", summarize_min_turns=1")))
    terms = msgspec.structs.replace(make_plain_terms(), editable_from=editable_from)
    for item in steps(30):
        run_pass(decide(session, terms), refuse)
        session.add_turn(item)
    assert asked[-1] >= editable_from
    masked = {turn for turn, _ in find_mask_calls(session)}
    assert min(masked) == editable_from
    assert len(masked) > 10


def test_a_background_summary_that_leaves_newer_thinking_is_refused() -> None:
    """It was asked for before the agent thought again: that thinking is bound to what it would replace."""
    session = begin_session(never_acting(HARD.format(more=", summarize_min_turns=1")))
    for item in steps(20):
        session.add_turn(item)
    terms = msgspec.structs.replace(make_plain_terms(), editable_from=9)
    run_pass(decide(session, terms), lambda _: SummaryResult(text="Turns were done.", covers=8))
    assert not list_summaries(session)
    (failed,) = (event for event in session.events if isinstance(event, SummaryFailed))
    assert "thinking in turn 9 is bound" in failed.reason


def test_thresholds_are_the_provider_s_tokens() -> None:
    """Where the provider counts twice our tokens, `hard` is reached at half of them: figures are all on its scale."""
    sizes: list[int] = []

    def watch(session: Log) -> None:
        assert session.newest_call is not None
        tokens = session.newest_call.view.tokens
        session.record_event(UsageReported(call=session.state.calls, usage=Usage(input=2 * tokens)))
        sizes.append(tokens)

    strategy = never_acting(HARD.replace("1500", "3000").format(more=""))
    run_session(strategy, steps(60), watch=watch)
    assert 1_200 < max(sizes) <= 1_600


def test_a_summary_above_hard_is_urgent() -> None:
    """It is not left to a later call; a summary that is only allowed is."""
    urgent: list[bool] = []

    def note(request: SummaryRequest) -> str:
        urgent.append(request.is_urgent)
        return write_brief_summary(request)

    run_session(never_acting(HARD.format(more="")), steps(40), summarizer=note)
    assert set(urgent) == {True}
    urgent.clear()
    run_session(f"hybrid(window=4, summarize_at=9, tail=4, {AT_ONCE})", steps(40), summarizer=note)
    assert set(urgent) == {False}


def make_large_steps(count: int) -> list[Turn]:
    """Turns whose newest two results exceed 4,000 tokens from turn 5 on, and with one of which 24 do not."""
    pairs = [(call(command=f"make part-{index}"), result("word " * 1_800)) for index in range(1, count + 1)]
    return [turn(index, pair, text="so " * 30) for index, pair in enumerate(pairs, start=1)]


#: Every result but the newest is masked: what brings each view below `hard`.
SOFT = "two-tier(keep_recent=1, soft=2000, hard=4000, after_steps=20, gist=0, summary_max_tokens=50)"


@pytest.mark.parametrize("schedule", [EveryTurnSchedule(), FixedSchedule(summary_calls=frozenset({22}))])
def test_a_due_soft_summary_is_made_where_masking_is_enough_for_hard(schedule: Schedule) -> None:
    """The first call after the steps summarizes: the document's loop masks, and then compares with both thresholds."""
    session = run_session(replace(parse_strategy(SOFT), schedule=schedule), make_large_steps(24), PLAIN)
    assert list_summaries(session) == [(22, 20)]


def test_a_failed_soft_summary_leaves_no_view_above_hard() -> None:
    """The view exceeded `hard` as well: what the summary would have covered is masked."""
    sizes: list[int] = []

    def watch(session: Log) -> None:
        assert session.newest_call is not None
        sizes.append(session.newest_call.view.tokens)

    def refuse(request: SummaryRequest) -> str:
        raise SummaryError("no")

    run_session(never_acting(SOFT), make_large_steps(40), PLAIN, summarizer=refuse, watch=watch)
    assert max(sizes[:24]) <= 4_000


def test_until() -> None:
    """A trigger says how many calls are left until a summary is due by turns, and that it is."""
    session = begin_session("hybrid(summarize_at=6, tail=2, summary_max_tokens=50, schedule=every-turn)")
    left = []
    for item in steps(8):
        run_pass(decide(session, make_plain_terms()), write_brief_summary)
        assert session.policy.trigger is not None
        left.append(session.policy.trigger.count_calls_until(session.state, item.index))
        session.add_turn(item)
    assert left[:7] == [6, 5, 4, 3, 2, 1, 4]
