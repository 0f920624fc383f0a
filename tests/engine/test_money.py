"""Which bills of a log a call and an answer are in, how long they are, and the prompts of an agent without recalls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from elision.engine import Log, decide, make_plain_terms, run_pass
from elision.engine.money import CountedCall, CountedPrompt, Money, PlainHistory, count_plain_answer
from elision.testing.builders import call, head, long_text, result, step, turn, user
from elision.trajectory.events import HeadSet, SessionOpened, TurnAdded, UsageReported
from elision.trajectory.price_lookup import find_price_set
from elision.trajectory.state import State
from elision.trajectory.tokens import Sizer, TokenScale, make_counter
from elision.trajectory.tool_definitions import RECALL_TOOL, SEARCH_TOOL
from elision.trajectory.turn import Turn
from elision.trajectory.usage import Usage
from tests.properties.builders import SIZER, begin_session, write_brief_summary

PRICES = find_price_set("anthropic")

RECALL = (call(RECALL_TOOL, id="r", handle="t1.1"), result(long_text(1), RECALL_TOOL, id="r"))


def send_again_after(answer: Turn, *, shadow: bool = False, output: int = 0) -> Log:
    """Return a log of two calls, the first answered with `answer`. output: tokens of it that were reported."""
    log = begin_session("masking")
    log.record_event(SessionOpened(strategy="masking", shadow=shadow))
    run_pass(decide(log, make_plain_terms()), write_brief_summary)
    if output:
        assert log.newest_call is not None
        usage = Usage(input=log.newest_call.view.tokens, output=output)
        log.record_event(UsageReported(call=1, usage=usage))
    log.add_turn(answer)
    run_pass(decide(log, make_plain_terms()), write_brief_summary)
    return log


@pytest.mark.parametrize(
    ("said", "shadow", "is_in_both"), [(False, False, False), (True, False, True), (False, True, True)]
)
def test_a_call_that_returns_a_recall_is_in_our_bill_only(said: bool, shadow: bool, is_in_both: bool) -> None:
    """Not where the user said something too, nor in shadow mode, where the client itself sends it."""
    log = send_again_after(turn(1, RECALL, said=[user("Go on.")] if said else []), shadow=shadow)
    assert log.money.newest.ours.usd > 0
    assert (log.money.newest.raw.usd > 0) == is_in_both
    assert (log.money.plain_answers_usd > 0) == shadow


def test_an_answer_is_as_long_as_it_was_reported() -> None:
    """Reasoning is billed, and is not in the message."""
    log = send_again_after(turn(1, text="Done."), output=500)
    assert log.money.answers.output == 500
    assert log.money.plain_answers_usd == pytest.approx(log.money.answers.usd)
    assert send_again_after(turn(1, text="Done.")).money.answers.output < 10


def test_a_call_that_returns_a_recall_does_not_keep_the_plain_agents_cache_warm() -> None:
    """Without us there would be 400 s between two requests, which is longer than the cache keeps an entry."""
    log = begin_session("masking")
    log.record_event(SessionOpened(strategy="masking"))
    answers = turn(1, RECALL), turn(2, text="Done.", said=[user("More.")]), None
    for seconds, answer in zip((0.0, 200.0, 400.0), answers, strict=True):
        run_pass(decide(log, make_plain_terms(seconds)), write_brief_summary)
        if answer is not None:
            log.add_turn(answer)
    assert log.money.newest.ours.cache_read > 0
    assert log.money.newest.raw.cache_read == 0


class Session:
    """Calls that add to each other, and what the provider reports of them."""

    def __init__(self) -> None:
        self.scale = TokenScale()
        self.money = Money(PRICES, self.scale, Sizer(make_counter()))
        self._calls = 0

    def add_call(self, ours: int, raw: int, billed: int, *, cached: int = 0, usage: Usage | None = None) -> None:
        """Book a call of `ours` and `raw` tokens by our count, for which the provider counts `billed`."""
        self._calls += 1
        self.money.add_counted_call(
            CountedCall(
                number=self._calls,
                ours=CountedPrompt(tokens=ours, cached_tokens=cached),
                raw=CountedPrompt(tokens=raw, cached_tokens=cached),
                has_client_marks=True,
                is_shadow=False,
                is_extra=False,
                extends=self._calls > 1,
            )
        )
        self.scale.add_report(ours, billed, extends=self._calls > 1)
        self.money.confirm_newest(usage)


def test_a_recall_s_share_of_what_is_new_is_ours_alone() -> None:
    """Of 3,000 billed tokens that are new, 400 of 1,000 by our count would be there without us."""
    session = Session()
    session.add_call(1_000, 1_000, 1_000)
    session.add_call(2_000, 2_000, 2_000)
    session.add_call(3_000, 2_400, 5_000)
    assert session.money.count_newest() == (5_000, 2_000 + 1_200)


def test_what_is_folded_as_it_arrives_is_longer_without_us() -> None:
    """The raw prompt grows by what was billed, and by what folding left out at the rate that is expected."""
    session = Session()
    session.add_call(1_000, 1_000, 1_000)
    session.add_call(1_400, 2_000, 1_800)
    assert session.money.count_newest() == (1_800, 1_000 + 800 + 600)


def test_a_prompt_is_found_in_the_cache_as_long_as_it_was_billed() -> None:
    """Not in proportion to the whole new prompt, of which the new part may be counted otherwise."""
    session = Session()
    session.add_call(10_000, 10_000, 15_000)
    session.add_call(11_000, 11_000, 20_000, cached=PRICES.cache.count_usable(10_000))
    found = PRICES.cache.count_usable(15_000)
    assert session.money.newest.ours.cache_read == found
    assert session.money.newest.raw.cache_read == found


@pytest.mark.parametrize("read", [0, 19_000])
def test_where_nothing_is_hidden_nothing_is_saved(read: int) -> None:
    """Both bills are the reported one, whatever the cache was expected to hold."""
    session = Session()
    session.add_call(10_000, 10_000, 15_000)
    usage = Usage(input=20_000 - read, cache_read=read, cache_write=0, output=10)
    session.add_call(11_000, 11_000, 20_000, cached=PRICES.cache.count_usable(10_000), usage=usage)
    assert session.money.newest.ours.cache_read == read
    assert session.money.newest.raw == session.money.newest.ours


BASH = {"type": "function", "function": {"name": "bash"}}

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
