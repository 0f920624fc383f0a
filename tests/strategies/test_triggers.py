"""When a summary is made, and of what."""

from __future__ import annotations

import itertools

import pytest

from elision.engine import run_pass
from tests.properties.builders import (
    PLAIN,
    begin_session,
    list_summaries,
    run_session,
    steps,
    turn,
    write_brief_summary,
)

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
    """Not again before that many new turns, however large the view."""
    session = run_session(
        f"two-tier(keep_recent=3, soft=1, hard=1, summarize_min_turns=6, {AT_ONCE})",
        steps(40),
        PLAIN,
    )
    covers = [covers for _, covers in list_summaries(session)]
    assert len(covers) > 2
    assert all(later - earlier >= 6 for earlier, later in zip([0, *covers], covers, strict=False))


def test_a_chat_has_no_results() -> None:
    """Without any result two-tier has nothing to count, and hides nothing."""
    talk = [turn(index, text="word " * 200) for index in range(1, 20)]
    assert list_summaries(run_session("two-tier(soft=10, hard=10)", talk, PLAIN)) == []


def test_pipeline_asks_its_parts_in_order() -> None:
    """The first part whose summary is due has its way."""
    parts = "summarization(every=4, tail=2), summarization(every=2, tail=3)"
    session = run_session(f"pipeline({parts}, {AT_ONCE})", steps(6))
    assert list_summaries(session) == [(6, 2)]


def test_until() -> None:
    """A trigger says how many calls are left until a summary is due by turns, and that it is."""
    session = begin_session("hybrid(summarize_at=6, tail=2, summary_max_tokens=50, schedule=batched(99))")
    left = []
    for item in steps(8):
        run_pass(session.prepare_view(), write_brief_summary)
        assert session.policy.trigger is not None
        left.append(session.policy.trigger.count_calls_until(session.state, item.index))
        session.add_turn(item)
    assert left[:7] == [6, 5, 4, 3, 2, 1, 4]
