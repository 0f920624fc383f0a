"""Defects of published systems (shared/field.md), each held against Elision."""

from __future__ import annotations

import copy
from itertools import pairwise

import pytest

from elision.engine import Log, decide, make_plain_terms, run_pass
from elision.errors import SummaryError
from elision.strategies.decision_context import Budget
from elision.strategies.schedules import FixedSchedule
from elision.strategies.spec import parse_strategy
from elision.strategies.strategy import Masking
from elision.summarizers.digest import write_digest
from elision.trajectory.events import PassDecided
from elision.trajectory.plan import SummaryRequest
from elision.trajectory.price_lookup import find_price_set
from elision.trajectory.tokens import EstimatingCounter, make_counter
from elision.trajectory.turn import Opaque, Turn
from elision.trajectory.view import Segment
from tests.properties.builders import (
    CACHED,
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

HYBRID = "hybrid(window=3, summarize_at=9, tail=5, summary_max_tokens=50, schedule=every-turn)"


def views(strategy: str, turns: list[Turn]) -> list[list[Segment]]:
    found: list[list[Segment]] = []

    def watch(session: Log) -> None:
        assert session.newest_call is not None
        found.append(session.newest_call.view.segments)

    run_session(strategy, turns, watch=watch)
    return found


def test_per_turn_masking_kills_the_cache() -> None:
    """Every "keep the last N" rewrites one message a call; cache-aware rewrites rarely, and costs less than either."""
    turns = [step(index, long_text(index, 30)) for index in range(1, 61)]
    anthropic = find_price_set("anthropic")
    every_turn = run_session("masking(window=10, schedule=every-turn)", turns, anthropic)
    aware = run_session("masking(window=10, schedule=cache-aware)", turns, anthropic)
    assert every_turn.state.epoch == 1 + 61 - 11
    assert aware.state.epoch <= 10
    assert every_turn.money.spent_usd > 1.2 * every_turn.money.raw_spent_usd
    assert aware.money.spent_usd < aware.money.raw_spent_usd
    read = aware.money.prompts.cache_read / aware.money.prompts.prompt_tokens
    assert read > 0.8 > every_turn.money.prompts.cache_read / every_turn.money.prompts.prompt_tokens


def test_summaries_do_not_pile_up() -> None:
    """complexity-trap's static checkpoints stay behind the newest: here one block stands, whatever came before."""
    found = views(HYBRID, list(steps(40)))
    counts = [sum(segment.kind == "summary" for segment in view) for view in found]
    assert max(counts) == 1
    assert counts[-1] == 1
    texts = {segment.text for view in found for segment in view if segment.kind == "summary"}
    assert len(texts) > 3


def test_raw_is_not_overwritten() -> None:
    """complexity-trap's LastNObservations writes the placeholder into the history itself, by a shallow copy."""
    turns = list(steps(12))
    before = copy.deepcopy(turns)
    session = run_session("masking(window=1, schedule=every-turn)", turns)
    assert find_mask_calls(session)
    assert turns == before
    assert session.state.turns == before


def test_the_newest_turns_are_not_dropped_over_budget() -> None:
    """Summit's agent-context drops the newest turns over budget: here the newest stands, and old ones make room."""
    budget = Budget(tokens=1_500, max_context_pct=1, reserved=0)
    session = run_session(Masking(window=10, schedule=FixedSchedule(), budget=budget, summary_max_tokens=50), steps(30))
    assert session.newest_call is not None
    newest = [segment for segment in session.newest_call.view.segments if segment.turn == 30]
    assert [segment.kind for segment in newest] == ["assistant", "observation"]
    assert session.newest_call.view.tokens <= 1_500


def test_a_hybrid_does_not_summarize_at_every_turn() -> None:
    """Summit's hybrid triggers on raw tokens, which no compaction lowers: 50 summaries in 60 turns."""
    strategy = (
        "hybrid(window=4, summarize_at=99, tail=4, summarize_tokens=600, summary_max_tokens=50, schedule=every-turn)"
    )
    made = list_summaries(run_session(strategy, steps(60)))
    assert 1 < len(made) <= 12
    assert min(later - earlier for (earlier, _), (later, _) in pairwise(made)) > 2


@pytest.mark.parametrize("window", [1, 3, 8])
def test_no_turn_is_in_neither_summary_nor_window(window: int) -> None:
    """Summit loses up to 10 turns between the summary and the window: here every turn behind the summary stands."""
    strategy = f"hybrid(window={window}, summarize_at=9, tail=5, summary_max_tokens=50, schedule=every-turn)"
    session = begin_session(strategy)
    for item in steps(40):
        view = run_pass(decide(session, make_plain_terms()), write_brief_summary)
        standing = [segment.turn for segment in view.segments if segment.kind == "assistant"]
        assert standing == list(range(session.state.covered_turns + 1, item.index))
        session.add_turn(item)
    assert session.state.covered_turns


def test_tool_calls_stay_tool_calls() -> None:
    """Summit flattens calls to text: here a masked turn keeps its call and its result's place."""
    view = views("masking(window=1, schedule=every-turn)", list(steps(6)))[-1]
    assert [segment.kind for segment in view if segment.turn == 2] == ["assistant", "placeholder"]
    assert view[2].source == step(1)


def test_a_tool_only_history_keeps_the_user_s_constraints() -> None:
    """LangChain turned a tool-only history, the user's constraints included, into one canned sentence."""
    task = "Mend the parser. Never touch vendor/. Use tabs."
    asked: list[SummaryRequest] = []

    def write(request: SummaryRequest) -> str:
        asked.append(request)
        return write_digest(request, SIZER.count)

    turns = [step(index, said=[user("And keep API v2.")] if index == 2 else ()) for index in range(1, 12)]
    strategy = "summarization(every=5, tail=2, summary_max_tokens=200, schedule=every-turn)"
    session = run_session(strategy, turns, start=head(task), summarizer=write)
    assert asked
    assert asked[0].task == task
    assert session.newest_call is not None
    said = [segment.source for segment in session.newest_call.view.segments if segment.kind in ("head", "interjection")]
    assert user(task) in said
    assert user("And keep API v2.") in said


@pytest.mark.parametrize("answer", ["", " \n ", None])
def test_a_blank_summary_does_not_empty_the_history(answer: str | None) -> None:
    """LangChain empties the history with a blank summary, OpenHands forgets events: here nothing changes."""

    def write(request: SummaryRequest) -> str:
        if answer is None:
            raise SummaryError("no text")
        return answer

    session = run_session(
        "summarization(every=5, tail=2, schedule=every-turn, summary_max_tokens=50)", steps(9), summarizer=write
    )
    assert session.newest_call is not None
    assert session.newest_call.view.segments == session.state.make_raw_view().segments


def test_a_budget_that_is_broken_makes_progress() -> None:
    """LangChain's clear_at_least clears the same 11 results for ever, and sends 221k against 100k."""
    budget = Budget(tokens=2_000, max_context_pct=1, reserved=0)
    session = run_session(Masking(window=2, schedule=FixedSchedule(), budget=budget, summary_max_tokens=50), steps(60))
    masks = [mask.key for event in session.events if isinstance(event, PassDecided) for mask in event.masks]
    assert len(masks) == len(set(masks))
    assert session.newest_call is not None
    assert session.newest_call.view.tokens <= 2_000


def test_pressure_does_not_clear_one_more_each_turn() -> None:
    """LangChain's ClearToolUsesEdit rewrites at every turn once it began: here a pass makes room for several."""
    budget = Budget(tokens=4_000, max_context_pct=1, reserved=0, low=0.6)
    session = run_session(Masking(window=2, schedule=FixedSchedule(), budget=budget, summary_max_tokens=50), steps(80))
    calls = [
        event.call for event in session.events if isinstance(event, PassDecided) and (event.masks or event.summary)
    ]
    assert len(calls) > 1
    assert min(later - earlier for earlier, later in pairwise(calls)) > 3


def test_summaries_are_not_written_from_masked_text() -> None:
    """What a summary is written from holds every observation as it was, masked or not."""
    asked: list[SummaryRequest] = []

    def write(request: SummaryRequest) -> str:
        asked.append(request)
        return write_brief_summary(request)

    session = run_session(HYBRID, steps(20), summarizer=write)
    assert find_mask_calls(session)
    for request in asked:
        for item in request.turns:
            assert item.observations[0].text == long_text(item.index)


def test_counts_inside_one_long_task() -> None:
    """OpenAI's ToolOutputTrimmer counts user turns and does nothing in one long task: assistant turns count here."""
    assert len(find_mask_calls(run_session("masking(window=3, schedule=every-turn)", steps(20)))) == 17


def test_a_message_with_numbered_lines_does_not_vanish() -> None:
    """SWE-agent's ClosedWindow loses a message with numbered lines and no file header (3 in, 2 out)."""
    numbered = "\n".join(f"{line}: value_{line}" for line in range(1, 40))
    view = views("masking(window=1, schedule=every-turn)", [step(1, numbered), step(2), step(3)])[-1]
    assert [segment.index for segment in view if segment.turn == 1] == [0, 1]


def test_an_estimate_is_called_one() -> None:
    """Four characters a token is off by 3-4 times for CJK; here counts are exact, and an estimate says what it is."""
    text = "观察结果很长但是没有空格" * 40
    assert make_counter().is_exact
    assert not EstimatingCounter().is_exact
    assert make_counter().count(text) > 2 * (len(text) // 4)
    assert 0.5 < EstimatingCounter().count(text) / make_counter().count(text) < 2


def test_tools_system_and_images_count() -> None:
    """Gateways count neither tools nor system prompts, and images for nothing: all are in the view's size."""
    tools = ({"name": "bash", "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}}},)
    picture = turn(1, (call("look"), result((Opaque("image", tokens=1_200),), "look")))
    plain = run_session("raw", [turn(1, (call("look"), result((), "look")))], start=head())
    whole = run_session("raw", [picture], start=head(tools=tools, hidden_tokens=300))
    assert plain.newest_call is not None
    assert whole.newest_call is not None
    assert whole.newest_call.view.tokens == plain.newest_call.view.tokens + 1_200 + 300 + SIZER.count_tools(
        head(tools=tools)
    )


def test_savings_are_billed_savings() -> None:
    """Own counters instead of bills hide the cache and the summarizer: what is reported is what is billed."""
    session = run_session(HYBRID, steps(40), CACHED)
    assert session.money.summaries.usd > 0
    books = session.money
    assert books.spent_usd == pytest.approx(books.prompts.usd + books.answers.usd + books.summaries.usd)
    masked_only = sum(SIZER.count_observation(session.state.find_observation(key)) for key in session.state.hidden)
    assert masked_only > 0
    assert books.spent_usd > books.raw_spent_usd - masked_only * CACHED.find_rates(0).input / 1e6


def test_finished_tasks_are_not_revived() -> None:
    """A summary read as a new order revives finished tasks: the block says that it is a record."""
    view = views(HYBRID, list(steps(12)))[-1]
    block = next(segment for segment in view if segment.kind == "summary")
    assert "not a message from the user and not a new request" in block.text


def test_nothing_is_removed_in_silence() -> None:
    """Every placeholder and summary in a view is in the log, word for word."""
    session = run_session(HYBRID, steps(30))
    passes = [event for event in session.events if isinstance(event, PassDecided)]
    texts = {mask.text for event in passes for mask in event.masks} | {e.summary.block for e in passes if e.summary}
    assert session.newest_call is not None
    shown = {segment.text for segment in session.newest_call.view.segments if segment.text}
    assert shown
    assert shown <= texts


def test_sessions_do_not_share_state() -> None:
    """Two runs of one task under one strategy do not mix."""
    strategy = parse_strategy(HYBRID)
    one, other = begin_session(strategy), begin_session(strategy)
    for item in steps(15):
        for session in (one, other):
            run_pass(decide(session, make_plain_terms()), write_brief_summary)
        one.add_turn(item)
        other.add_turn(step(item.index, f"other {item.index}"))
    assert one.state.summary != other.state.summary or one.state.hidden != other.state.hidden
    assert not any("other" in text for text in one.state.hidden.values())
