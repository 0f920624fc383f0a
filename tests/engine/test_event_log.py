"""The loop: state + strategy -> plan -> view."""

from __future__ import annotations

import itertools
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.engine import Log, LogSetup, count_output_tokens, decide, hold_view, make_plain_terms, run_pass
from elision.engine.terms import ALL_TURNS
from elision.errors import BudgetError, SummaryError
from elision.strategies.decision_context import Budget
from elision.strategies.extractors import BUILT_IN, Outcome
from elision.strategies.placeholder import Placeholders
from elision.strategies.schedules import EveryTurnSchedule
from elision.strategies.spec import parse_strategy
from elision.strategies.strategy import Masking, Raw
from elision.trajectory.events import (
    HeadSet,
    PassDecided,
    RequestSent,
    SessionOpened,
    TurnAdded,
    TurnAmended,
    UsageReported,
    WindowLearned,
)
from elision.trajectory.plan import SummaryRequest
from elision.trajectory.prices import CacheRules, Prices, Rates
from elision.trajectory.turn import Action, Head, Observation
from elision.trajectory.usage import Usage
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

SUMMARIZING = "summarization(every=3, tail=2, summary_max_tokens=50, schedule=every-turn)"


def test_raw_first() -> None:
    """Every turn is in the log, before the decision that could hide it, and every call behind its decision."""
    kinds = [type(event) for event in run_session("masking(window=1, schedule=every-turn)", steps(2)).events]
    assert kinds == [
        HeadSet,
        PassDecided,
        RequestSent,
        TurnAdded,
        PassDecided,
        RequestSent,
        TurnAdded,
        PassDecided,
        RequestSent,
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk(Masking):
    """`masking`, with an extractor of its own."""

    name: ClassVar[str] = "desk"

    @property
    def placeholders(self) -> Placeholders:
        def read_ticket(action: Action | None, observation: Observation, text: str) -> Outcome:
            return Outcome(label="", result="a ticket")

        return Placeholders(gist=0, extractors=BUILT_IN.register(read_ticket, tools=["*"]))


def test_a_strategy_brings_its_extractors() -> None:
    """What a strategy's own extractors say is in the placeholders; those that the session is given go before them."""
    strategy = Desk(window=1, schedule=EveryTurnSchedule())

    def placeholder_of(**options: Any) -> str:
        session = Log.fold((), LogSetup(strategy, PLAIN, SIZER, **options))
        session.set_head(head())
        for each in steps(4):
            run_pass(decide(session, make_plain_terms()), write_brief_summary)
            session.add_turn(each)
        run_pass(decide(session, make_plain_terms()), write_brief_summary)
        return next(mask.text for event in session.events if isinstance(event, PassDecided) for mask in event.masks)

    def read_page(action: Action | None, observation: Observation, text: str) -> Outcome:
        return Outcome(label="", result="a page")

    assert "a ticket" in placeholder_of()
    assert "a page" in placeholder_of(extractors=BUILT_IN.register(read_page, tools=["*"]))


def test_raw_is_the_identity() -> None:
    """`raw` sends everything, at both ends of the bill."""
    session = run_session("raw", steps(12))
    assert session.newest_call is not None
    assert session.newest_call.view.segments == session.state.make_raw_view().segments
    assert session.money.spent_usd == session.money.raw_spent_usd
    assert session.state.epoch == 1


def test_bills_are_the_price_list_s() -> None:
    """A call is billed for what its view shares with the last one, and for what is new; answers as recorded."""
    session = begin_session("raw", CACHED)
    first = run_pass(decide(session, make_plain_terms()), write_brief_summary)
    session.add_turn(step(1, "ok", usage=Usage(output=70)))
    second = run_pass(decide(session, make_plain_terms()), write_brief_summary)
    assert session.newest_call is not None
    assert session.money.newest_prompt == CACHED.bill_call(second.tokens, first.tokens)
    assert session.money.answers.output == 70
    expected = CACHED.bill_call(first.tokens, 0, 70).usd + CACHED.bill_call(second.tokens, first.tokens).usd
    assert session.money.spent_usd == pytest.approx(expected)


def test_answers_without_usage_are_counted() -> None:
    """Where no output was recorded, the assistant message is counted."""
    one = step(1, text="hello world")
    assert count_output_tokens(one, SIZER) == SIZER.count_assistant(one)
    assert count_output_tokens(step(1, usage=Usage(output=7)), SIZER) == 7


def test_a_summary_request() -> None:
    """The summarizer gets the task, the previous summary, and the newly covered turns as they were: unmasked."""
    asked: list[SummaryRequest] = []

    def write(request: SummaryRequest) -> str:
        asked.append(request)
        return write_brief_summary(request)

    turns = steps(12)
    run_session(
        "hybrid(window=1, summarize_at=6, tail=2, summary_max_tokens=50, schedule=every-turn)", turns, summarizer=write
    )
    assert [request.turns for request in asked] == [turns[0:4], turns[4:8]]
    assert asked[0].previous == ""
    assert asked[1].previous == "Turns 1 to 4 were done."
    assert {request.task for request in asked} == {"Mend the parser."}
    assert {request.max_tokens for request in asked} == {50}


def test_a_request_is_yielded() -> None:
    """A pass that needs a summary yields its request and waits; nothing is decided before the answer."""
    session = begin_session(SUMMARIZING)
    for item in steps(5):
        run_pass(decide(session, make_plain_terms()), write_brief_summary)
        session.add_turn(item)
    events = len(session.events)
    steps_of_pass = decide(session, make_plain_terms())
    request = next(steps_of_pass)
    assert len(request.turns) == 3
    assert len(session.events) == events
    with pytest.raises(StopIteration) as done:
        steps_of_pass.send("They were done.")
    assert done.value.value.segments[2].text.endswith("They were done.")


@pytest.mark.parametrize(
    ("summarizer", "reason"),
    [
        (lambda request: "", "it is empty"),
        (lambda request: " \n\t", "it is empty"),
        (refuse_summary, "the model refused"),
        (write_endless_summary, "not shorter than what it replaces"),
    ],
)
def test_a_failed_candidate_changes_nothing(summarizer: object, reason: str) -> None:
    """A blank, refused or too long summary leaves the view as it was, is recorded with its reason, and is billed."""
    session = run_session(SUMMARIZING, steps(5), PLAIN, summarizer=summarizer)  # type: ignore[arg-type]
    assert session.newest_call is not None
    assert session.newest_call.view.segments == session.state.make_raw_view().segments
    assert session.newest_call.decided.summary is None
    assert reason in session.newest_call.decided.reason
    assert session.money.summaries.input > 0


def test_retries_back_off() -> None:
    """A failed summary is tried again some calls later, never at every call."""
    asked: list[int] = []

    def write(request: SummaryRequest) -> str:
        asked.append(request.turns[-1].index)
        raise SummaryError("no")

    run_session(SUMMARIZING, steps(40), summarizer=write)
    assert [later - earlier for earlier, later in itertools.pairwise(asked)] == [5, 10]


def test_errors_of_the_summarizer_s_own_come_through() -> None:
    """Only SummaryError says that a summary failed; a fault in a summarizer is not swallowed."""

    def broken(request: SummaryRequest) -> str:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_session(SUMMARIZING, steps(9), summarizer=broken)


def test_the_summary_block() -> None:
    """A summary stands behind the task with protected results word for word, then the user's words, then the tail."""
    kept = 'rules=rule(args="*step-2", keep=true)'
    turns = [step(1, said=[user("use tabs")]), *(step(index) for index in range(2, 6))]
    session = run_session(SUMMARIZING[:-1] + f", {kept})", turns)
    assert session.newest_call is not None
    segments = session.newest_call.view.segments
    assert [segment.kind for segment in segments][:5] == ["head", "head", "summary", "interjection", "assistant"]
    assert f"[Kept word for word: t2.1 bash]\n{long_text(2)}" in segments[2].text
    assert segments[3].source == user("use tabs")
    assert session.newest_call.decided.summary is not None
    assert session.newest_call.decided.summary.interjections == (1,)


def test_the_user_s_old_words() -> None:
    """Past keep_user_tokens the oldest words are quoted inside the block instead."""
    turns = [step(index, said=[user(f"rule {index}")]) for index in range(1, 6)]
    limited = SUMMARIZING[:-1] + f", keep_user_tokens={2 * SIZER.count_message(user('rule 1'))})"
    session = run_session(limited, turns)
    assert session.newest_call is not None
    assert session.newest_call.decided.summary is not None
    assert session.newest_call.decided.summary.interjections == (2, 3)
    assert "[User message of that time] rule 1" in session.newest_call.decided.summary.block


def test_the_summarizer_s_bill() -> None:
    """What a summary was billed is recorded with it, and is part of what was spent."""
    session = run_session(SUMMARIZING, steps(5), PLAIN)
    assert session.newest_call is not None
    summary = session.newest_call.decided.summary
    assert summary is not None
    assert session.newest_call.summarizer_bill.input == summary.input_tokens > 0
    assert summary.output_tokens == SIZER.count(summary.text)
    assert (
        session.money.spent_usd
        == session.money.prompts.usd + session.money.answers.usd + session.newest_call.summarizer_bill.usd
    )


def test_a_new_model_is_a_cold_cache() -> None:
    """The first call of another model reads nothing; back at the first model its cache is still there."""
    turns = [step(index, model=model) for index, model in enumerate("aaba", start=1)]
    reads: list[int] = []
    run_session(
        "raw",
        turns,
        watch=lambda session: reads.append(session.money.newest_prompt.cache_read if session.newest_call else 0),
    )
    assert reads[1] > 0
    assert reads[2] == 0
    assert reads[3] == reads[1] + SIZER.count_assistant(turns[0]) + SIZER.count_observation(turns[0].observations[0])


def test_a_cold_cache_makes_a_rewrite_free() -> None:
    """After a gap longer than the TTL what is pending is masked, though it would not have paid yet."""
    times = [10.0 * index for index in range(8)]
    warm = run_session("masking(window=2)", [step(index, at=at) for index, at in enumerate(times, start=1)])
    cold = run_session(
        "masking(window=2)", [step(index, at=at + 1_000 * (index > 5)) for index, at in enumerate(times, start=1)]
    )
    assert 6 in find_mask_calls(cold).values()
    assert 6 not in find_mask_calls(warm).values()


def test_usable_tokens() -> None:
    """A budget or a known window limits views; raw is never limited."""
    windowed = Prices(name="w", tiers=((0, Rates(input=1, output=1)),), cache=CacheRules(), window=100_000)
    assert Masking().limit_view(PLAIN) is None
    assert Masking().limit_view(windowed) == 84_000
    assert Masking(budget=Budget(tokens=10_000)).limit_view(windowed) == 7_500
    assert Raw(budget=Budget(tokens=10_000)).limit_view(windowed) is None


def test_a_call_may_be_prepared_again() -> None:
    """A request that is retried is the same request."""
    session = begin_session("masking(window=1, schedule=every-turn)")
    for item in steps(4):
        first = run_pass(decide(session, make_plain_terms()), write_brief_summary)
        again = run_pass(decide(session, make_plain_terms()), write_brief_summary)
        assert again.segments == first.segments
        assert again.epoch == first.epoch
        session.add_turn(item)
    assert find_mask_calls(session) == {(1, 1): 3, (2, 1): 4}


def test_sessions_are_apart() -> None:
    """Two sessions of one strategy share nothing."""
    strategy = parse_strategy(SUMMARIZING)
    one, other = run_session(strategy, steps(9)), begin_session(strategy)
    run_pass(decide(other, make_plain_terms()), write_brief_summary)
    assert list_summaries(one)
    assert list_summaries(other) == []
    assert other.state.turns == []


def test_an_empty_session() -> None:
    """A call before any turn, with no head at all, is an empty view."""
    session = Log.fold((), LogSetup(parse_strategy("hybrid"), CACHED, SIZER))
    assert run_pass(decide(session, make_plain_terms()), write_brief_summary).segments == []


@given(st.integers(1, 5), st.integers(1, 30))
def test_a_summary_shortens(every: int, lines: int) -> None:
    """However short the turns, a summary that stands made the view shorter."""
    turns = [turn(index, (call(command="x"), result(long_text(index, lines)))) for index in range(1, 20)]
    before: list[int] = []

    def watch(session: Log) -> None:
        assert session.newest_call is not None
        if session.newest_call.decided.summary is not None:
            assert session.newest_call.view.tokens < before[-1] + SIZER.count_assistant(
                turns[0]
            ) + SIZER.count_observation(turns[session.newest_call.view.call - 2].observations[0])
        before.append(session.newest_call.view.tokens)

    run_session(
        f"summarization(every={every}, tail=1, summary_max_tokens=50, schedule=every-turn)",
        turns,
        watch=watch,
        start=head(),
    )


RESUMED = [
    "masking(window=2)",
    "hybrid(window=2, summarize_at=8, tail=2, summary_max_tokens=60)",
    "summarization(every=4, tail=2, summary_max_tokens=60, schedule=every-turn)",
    "masking(window=3)",
    "masking(window=2, budget=4000)",
]


def flaky(request: SummaryRequest) -> str:
    """Fails every other time, by what it is asked for."""
    if len(request.turns) % 2:
        raise SummaryError("no", cause="server")
    return write_brief_summary(request)


@pytest.mark.parametrize("spec", RESUMED)
def test_a_resumed_session_goes_on_as_if_it_had_never_stopped(spec: str) -> None:
    """The same events later, and the same bills, wherever it was stopped; failed summaries included."""
    whole = begin_session(spec, CACHED)
    parted = begin_session(spec, CACHED)
    for number in range(1, 25):
        turn = step(number, long_text(number * 40), at=float(number * 20), usage=Usage(output=10))
        for session in (whole, parted):
            run_pass(decide(session, make_plain_terms(number * 20.0, "m")), flaky)
            assert session.newest_call is not None
            counted = session.newest_call.view.tokens
            session.record_event(UsageReported(call=number, usage=Usage(input=counted + 7)))
            session.add_turn(turn, str(number))
        if number % 5 == 0:
            parted = Log.fold(parted.events, LogSetup(parse_strategy(spec), CACHED, SIZER))
    assert parted.events == whole.events
    assert parted.money.spent_usd == pytest.approx(whole.money.spent_usd)
    assert parted.money.raw_spent_usd == pytest.approx(whole.money.raw_spent_usd)
    assert (parted.reports.scale.correction, parted.state.epoch) == (7, whole.state.epoch)


def test_an_amended_turn_is_the_newest_one_again() -> None:
    """The log keeps both versions, the view has the second alone."""
    session = run_session("masking(window=2)", steps(3))
    again = session.extend([TurnAmended(step(3, "another ending"), "n")])
    assert len(again.state.turns) == 3
    assert [segment.source.text for segment in again.state.track.segments][-1] == "another ending"  # type: ignore[union-attr]
    replayed = Log.fold(again.events, LogSetup(parse_strategy("raw"), PLAIN, SIZER))
    assert again.state.turns == replayed.state.turns


def test_a_head_that_changed_rewrites_everything() -> None:
    """A new system prompt or tool stands in front of the same turns, in a new epoch; both bills pay for it."""
    session = run_session("masking(window=1, schedule=every-turn)", steps(4))
    hidden, epoch = dict(session.state.hidden), session.state.epoch
    session.set_head(Head(messages=(user("another task"),)))
    run_pass(decide(session, make_plain_terms()), write_brief_summary)
    assert session.state.epoch == epoch + 1
    assert hidden.items() <= session.state.hidden.items()
    assert session.state.make_raw_view().segments[0].source.text == "another task"  # type: ignore[union-attr]
    assert session.newest_call is not None
    assert session.money.newest_prompt.cache_read == session.money.newest_raw_prompt.cache_read == 0


RECALL = {"name": "elision_recall", "description": "Reads again. " * 20, "input_schema": {"type": "object"}}


def offering(strategy: str, offer: str, prices: Prices = CACHED, *, start: Head | None = None) -> Log:
    """A session into whose requests the recall tools are put."""
    session = Log.fold((), LogSetup(parse_strategy(strategy), prices, SIZER))
    session.record_event(SessionOpened(strategy=strategy, offer=offer, tools=(RECALL,)))
    session.set_head(start or head())
    return session


def called(session: Log, turns: int) -> list[bool]:
    """For each of so many turns, and the call behind them, whether the tools stand in its view."""
    stands = []
    for number in range(1, turns + 2):
        view = run_pass(decide(session, make_plain_terms()), write_brief_summary)
        stands.append(any(segment.kind == "recall" for segment in view.segments))
        session.add_turn(step(number, long_text(number * 40, lines=60)))
    return stands


def test_the_call_in_which_the_tools_enter_reads_nothing_from_the_cache() -> None:
    """They stand in front of everything: the whole prompt is written again, and the next call reads it as ever."""
    session = offering("masking(window=1, schedule=every-turn)", "first", start=head(warm_tokens=5))
    assert called(session, 1) == [False, False]
    run_pass(decide(session, make_plain_terms()), write_brief_summary)
    entered = session.newest_call
    assert entered is not None
    assert entered.decided.offers
    assert session.money.newest_prompt == CACHED.bill_call(entered.view.tokens, 0)
    assert session.money.newest_raw_prompt.cache_read > 0
    session.add_turn(step(3, "ok"))
    run_pass(decide(session, make_plain_terms()), write_brief_summary)
    assert session.newest_call is not None
    assert not session.newest_call.decided.offers
    assert session.money.newest_prompt.cache_read > 0


def test_tools_are_no_part_of_the_other_bill() -> None:
    """Sending everything needs no recall: only our views grow by what the tools take up."""
    with_tools, without = offering("raw", "start"), offering("raw", "caller")
    assert called(with_tools, 3) == [True] * 4
    assert called(without, 3) == [False] * 4
    assert with_tools.newest_call is not None
    assert without.newest_call is not None
    assert with_tools.money.newest_raw_prompt == without.money.newest_raw_prompt
    assert with_tools.newest_call.view.tokens == without.newest_call.view.tokens + with_tools.state.recall_tokens
    assert with_tools.state.make_raw_view().marks == without.state.make_raw_view().marks


def test_a_first_rewrite_waits_until_the_whole_pays() -> None:
    """The schedule weighs the rewrite from the front and the tools themselves before it acts, so it acts later."""
    plain = find_mask_calls(
        run_session("masking(window=2)", (step(n, long_text(n * 40, lines=60)) for n in range(1, 40)))
    )
    session = offering("masking(window=2)", "first")
    stands = called(session, 39)
    first = min(find_mask_calls(session).values())
    assert stands.index(True) + 1 == first
    assert first > min(plain.values())


def test_tools_that_are_dearer_than_what_they_would_give_back_never_enter() -> None:
    """What all masking saves is less than the tools take up: without a cache as with one, nothing is hidden."""
    few = [step(number, long_text(40, lines=8) if number == 1 else "ok") for number in range(1, 40)]
    assert find_mask_calls(run_session("masking(window=2)", few, PLAIN))
    for prices in (PLAIN, CACHED):
        session = offering("masking(window=2)", "first", prices)
        for each in few:
            run_pass(decide(session, make_plain_terms()), write_brief_summary)
            session.add_turn(each)
        assert not find_mask_calls(session)
        assert not session.state.has_recall_tools


def test_placeholders_without_a_handle_bring_no_tools() -> None:
    """A fixed text names nothing that could be asked for; a summary does, and what was cut."""
    fixed = offering('masking(window=1, schedule=every-turn, placeholder="[left out]", gist=0)', "first")
    assert not any(called(fixed, 6))
    assert find_mask_calls(fixed)
    assert any(called(offering(SUMMARIZING, "first"), 6))


def test_tools_count_in_the_budget() -> None:
    """Under pressure the view fits with the tools that enter, or the error counts them."""
    for tokens in range(900, 4_000, 150):
        session = offering(f"masking(window=1, budget=budget(tokens={tokens}, max_context_pct=1, reserved=0))", "first")
        with suppress(BudgetError):
            for number in range(1, 8):
                assert run_pass(decide(session, make_plain_terms()), write_brief_summary).tokens <= tokens
                session.add_turn(step(number, long_text(number * 40, lines=40)))


def test_tools_withheld_enter_later() -> None:
    """As long as they must not enter, placeholders come without them; with the next thing hidden they do."""
    session = offering("masking(window=1, schedule=every-turn)", "first")
    for number in range(1, 5):
        session.add_turn(step(number, long_text(number * 40, lines=60)))
        run_pass(decide(session, msgspec.structs.replace(make_plain_terms(), recall_blocked=True)), write_brief_summary)
    assert not session.state.has_recall_tools
    assert session.state.hidden
    session.add_turn(step(5, "ok"))
    run_pass(decide(session, make_plain_terms()), write_brief_summary)
    assert session.state.has_recall_tools


def test_a_held_pass_has_the_tools_from_the_start() -> None:
    """Nothing is hidden in it, but tools must not come and go."""
    session = offering("masking(window=1)", "start")
    assert next(segment.kind for segment in hold_view(session, "no", make_plain_terms()).segments) == "recall"
    later = offering("masking(window=1)", "first")
    assert "recall" not in {segment.kind for segment in hold_view(later, "no", make_plain_terms()).segments}


def test_a_head_that_changed_keeps_the_tools() -> None:
    """New tools of the client stand in front of ours, and the raw view still knows nothing of them."""
    session = offering("masking(window=1, schedule=every-turn)", "first")
    called(session, 4)
    session.set_head(Head(messages=(user("another task"),), tools=({"name": "bash"},)))
    view = run_pass(decide(session, make_plain_terms()), write_brief_summary)
    assert [segment.kind for segment in view.segments[:3]] == ["tools", "recall", "head"]
    assert [segment.kind for segment in session.state.make_raw_view().segments[:3]] == ["tools", "head", "assistant"]
    assert view.tokens == sum(segment.tokens for segment in view.segments)


@pytest.mark.parametrize("handles", [True, False])
def test_what_is_cut_names_a_handle_where_recall_is_served(handles: bool) -> None:
    """And none where it is not: nobody is led to ask for what he cannot get."""
    strategy = replace(
        parse_strategy("masking(budget=budget(tokens=900, max_context_pct=1, reserved=0))"), handles=handles
    )
    session = begin_session(strategy)
    session.add_turn(step(1, long_text(3, lines=200)))
    text = run_pass(decide(session, make_plain_terms()), write_brief_summary).segments[-1].text
    assert "cut here to fit]" in text
    assert ("[t1.1: " in text) is handles


def test_a_pass_may_be_held() -> None:
    """Nothing is decided, the view is as it was and what is new, and the reason says so."""
    session = run_session("masking(window=1, schedule=every-turn)", steps(4))
    hidden = dict(session.state.hidden)
    session.add_turn(step(5, long_text(300)))
    view = hold_view(session, "the store is gone", make_plain_terms())
    assert session.state.hidden == hidden
    assert view.segments[-1].turn == 5
    assert session.newest_call is not None
    assert session.newest_call.decided.reason == "held: the store is gone"


def test_a_window_that_was_learned_limits_every_view() -> None:
    """Once the provider has said how much fits, no view is larger."""
    session = begin_session("masking(window=3)", CACHED)
    for number in range(1, 12):
        session.add_turn(step(number, long_text(400)))
        run_pass(decide(session, make_plain_terms()), write_brief_summary)
    session.record_event(WindowLearned(call=12, window=3_000))
    view = run_pass(decide(session, make_plain_terms()), write_brief_summary)
    assert view.tokens <= 3_000 * 0.85 - 1_000


def report_prompts(rate: int, *, model: str = "", prices: Prices = CACHED) -> Log:
    """A session of `raw` whose provider counts `rate` of its tokens for each of ours; its second half is of `model`."""
    session = begin_session("raw", prices)
    for item in steps(20):
        run_pass(decide(session, make_plain_terms(None, model if item.index > 10 else "")), write_brief_summary)
        assert session.newest_call is not None
        reported = Usage(input=rate * session.newest_call.view.tokens)
        session.record_event(UsageReported(call=session.state.calls, usage=reported))
        session.add_turn(item)
    return session


def test_the_growth_of_prompts_tells_the_provider_s_rate() -> None:
    """Two of its tokens for one of ours, where each prompt begins with the one before, and one model counted both."""
    assert report_prompts(2).reports.scale.rate == 2.0
    parted = report_prompts(2, model="another").reports.scale
    assert (parted.rate, parted._grown_billed) == (2.0, 2 * parted._grown_counted)
    whole = report_prompts(2).reports.scale
    assert 0 < parted._grown_counted < whole._grown_counted


def test_a_report_that_cannot_be_of_the_newest_request_teaches_nothing() -> None:
    """Of another call, of no prompt, or of more than the window; a prompt as long as the window is one."""
    session = begin_session("raw", replace(CACHED, window=5_000))
    run_pass(decide(session, make_plain_terms()), write_brief_summary)
    for called, tokens, learned in ((2, 90, 0), (1, 0, 0), (1, 5_001, 0), (1, 5_000, 5_000)):
        session.record_event(UsageReported(call=called, usage=Usage(input=tokens)))
        assert session.reports.scale.billed_tokens == learned


def test_a_report_tells_how_long_cache_entries_live() -> None:
    """All that was written lives an hour: so does what is written next."""
    session = begin_session("raw")
    run_pass(decide(session, make_plain_terms()), write_brief_summary)
    session.record_event(UsageReported(call=1, usage=Usage(cache_write=40, cache_write_1h=40)))
    assert session.reports.find_hour_turn(None) == ALL_TURNS


@pytest.mark.parametrize("bound", [1, 2, 3])
def test_nothing_before_bound_thinking_is_hidden(bound: int) -> None:
    """The first turn that may be edited is; the one before is not."""
    session = begin_session("masking(window=1, schedule=every-turn, fold=false)")
    for item in steps(6):
        session.add_turn(item)
    run_pass(decide(session, msgspec.structs.replace(make_plain_terms(), editable_from=bound)), write_brief_summary)
    assert session.newest_call is not None
    assert sorted(mask.key[0] for mask in session.newest_call.decided.masks) == list(range(bound, 6))
