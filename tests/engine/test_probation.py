"""A summary on probation: held, billed once, completed by what the agent used meanwhile, and taken by any process."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from elision.engine import Log, LogSetup, NotReady, decide, expect_request, make_plain_terms, run_pass
from elision.errors import SummaryError
from elision.strategies.spec import parse_strategy
from elision.summarizers.summary_result import SummaryResult
from elision.trajectory.events import Event, PassDecided, SummaryFailed
from elision.trajectory.items import find_items
from elision.trajectory.plan import SummaryRequest
from elision.trajectory.turn import Turn
from elision.trajectory.view import View
from tests.properties.builders import CACHED, SIZER, begin_session, call, list_summaries, long_text, result, turn

STRATEGY = "summarization(every=4, tail=2, schedule=every-turn, summary_max_tokens=400, probation=3)"
PLAIN = STRATEGY.replace(", probation=3", "")
#: The call at which the first summary is due: `every` + `tail` turns are there.
DUE = 7
KEY = "gh" + "p_Zq7Wm2Xc9Vb4Nn8Kk1Jj6Hh3Gg5Ff0Ddabcd"


class Writer:
    """A summarizer that names nothing of what it read, and counts its calls."""

    def __init__(self) -> None:
        self.requests: list[SummaryRequest] = []

    def __call__(self, request: SummaryRequest) -> SummaryResult:
        self.requests.append(request)
        text = f"The agent read {len(request.turns)} files, up to turn {request.turns[-1].index}."
        return SummaryResult(text=text, input=1_000, output=50, usd=0.25)


def make_turn(index: int, said: str = "I read on.") -> Turn:
    """A turn that shows a name of its own, `part_N_limit`, with a line around it."""
    shown = f"def part_{index}_limit(self):  # line of file {index}\n{long_text(index, 40)}"
    return turn(index, (call(command="cat"), result(shown)), text=said)


def make_call(session: Log, writer: Writer, now: float | None = None) -> View:
    return run_pass(decide(session, make_plain_terms(now)), writer)


def play(strategy: str, calls: int, said: Callable[[int], str] = lambda index: "I read on.") -> tuple[Log, Writer]:
    """A session with `calls` calls, and a turn between each two."""
    session = begin_session(strategy)
    writer = Writer()
    for index in range(1, calls + 1):
        make_call(session, writer)
        if index < calls:
            session.add_turn(make_turn(index, said(index)))
    return session, writer


def show_block(session: Log) -> str:
    return session.state.summary.block if session.state.summary else ""


def find_draft_calls(session: Log) -> list[int]:
    return [event.call for event in session.events if isinstance(event, PassDecided) and event.draft is not None]


def test_a_summary_is_held_and_then_taken() -> None:
    """It is written where it was due, covers what was due then, and enters the view three calls later."""
    session, writer = play(STRATEGY, DUE + 2)
    assert find_draft_calls(session) == [DUE]
    assert session.state.covered_turns == 0
    assert session.newest_call is not None
    assert session.newest_call.decided.reason == "summary on probation"
    session, writer = play(STRATEGY, DUE + 3)
    assert list_summaries(session) == [(DUE + 3, 4)]
    assert session.newest_call is not None
    assert session.newest_call.decided.reason == "probation over"
    assert session.state.draft is None
    assert len(writer.requests) == 1


def test_without_probation_nothing_changes() -> None:
    """The option is off by default, and its default says so in no record."""
    session, _ = play(PLAIN, DUE + 3)
    assert list_summaries(session)[0] == (DUE, 4)
    assert find_draft_calls(session) == []


def test_the_writer_is_paid_once_and_where_it_wrote() -> None:
    """The bill has the call that wrote the draft, and not the one that took it."""
    session = begin_session(STRATEGY)
    writer = Writer()
    costs = []
    for index in range(1, DUE + 4):
        make_call(session, writer)
        assert session.newest_call is not None
        costs.append(session.newest_call.summarizer_bill.usd)
        session.add_turn(make_turn(index))
    assert [place for place, usd in enumerate(costs, start=1) if usd] == [DUE]
    assert session.bill.summaries.usd == pytest.approx(0.25)


def test_what_the_agent_used_meanwhile_is_appended_with_its_line() -> None:
    """Two names of covered results were used, one of them before the summary was written; the tail shows a third."""
    words = {DUE - 1: "part_1_limit matters.", DUE: "So part_2_limit calls it.", DUE + 1: "And part_6_limit."}
    session, _ = play(STRATEGY, DUE + 3, lambda index: words.get(index, "I read on."))
    block = show_block(session)
    assert "[Kept word for word: t2.1 bash, used since]\ndef part_2_limit(self): # line of file 2" in block
    assert "part_1_limit" not in block
    assert "part_6_limit" not in block
    assert "part_3_limit" not in block


def test_what_the_summary_has_is_not_appended() -> None:
    """A summary that proves itself stays as it is."""
    session = begin_session(STRATEGY)
    for index in range(1, DUE + 4):
        run_pass(decide(session, make_plain_terms()), lambda _: "It found part_2_limit in a file.")
        session.add_turn(make_turn(index, "Now part_2_limit." if index == DUE else "I read on."))
    assert "used since" not in show_block(session)
    assert "part_2_limit" in show_block(session)


def test_an_item_of_the_summary_before_is_carried_on() -> None:
    """What the agent takes from the old summary would be lost with it."""
    session = begin_session(STRATEGY)
    texts = iter(["It found old_secret_name in a log.", "It went on."])
    for index in range(1, 24):
        run_pass(decide(session, make_plain_terms()), lambda _: next(texts, "It went on."))
        second = find_draft_calls(session)[1:2]
        session.add_turn(make_turn(index, "Now old_secret_name." if second == [index] else "I read on."))
        if len(list_summaries(session)) == 2:
            break
    assert "[Kept word for word: summary of turns 1-4, used since]\nIt found old_secret_name" in show_block(session)


def test_a_kill_at_any_point_leaves_the_same_bytes() -> None:
    """The draft is in the log: another process takes it, asks nobody, and sends what the first would have sent."""
    words = {DUE: "part_2_limit", DUE + 1: "part_3_limit"}
    whole, _ = play(STRATEGY, DUE + 3, lambda index: words.get(index, "I read on."))
    expected = show_block(whole)
    assert "part_3_limit" in expected
    for calls in range(DUE, DUE + 3):
        first, _ = play(STRATEGY, calls, lambda index: words.get(index, "I read on."))
        other = Writer()
        session = Log.fold(list(first.events), LogSetup(parse_strategy(STRATEGY), CACHED, SIZER))
        for index in range(calls, DUE + 3):
            session.add_turn(make_turn(index, words.get(index, "I read on.")))
            make_call(session, other)
        assert show_block(session) == expected
        assert other.requests == []
        assert session.bill.summaries.usd == pytest.approx(whole.bill.summaries.usd)


def test_a_budget_takes_the_summary_at_once() -> None:
    """Where the view must become smaller now, what is written is used now: no second summary is asked for."""
    size = play("raw", DUE + 2)[0].state.track.tokens
    limit = f"probation=9, budget=budget(tokens={size - 1}, max_context_pct=1.0, reserved=0, low=0.95)"
    session, writer = play(STRATEGY.replace("probation=3", limit), DUE + 2)
    assert find_draft_calls(session) == [DUE]
    assert list_summaries(session) == [(DUE + 2, 4)]
    assert session.newest_call is not None
    assert session.newest_call.view.tokens < size
    assert len(writer.requests) == 1


def test_a_strict_threshold_takes_the_summary_at_once() -> None:
    """`hard` is a promise: above it no probation is waited for."""
    size = play("raw", DUE + 2)[0].state.track.tokens
    limits = f"soft={size * 2 // 3}, hard={size - 1}, after_steps=0, summarize_min_turns=2"
    rest = "keep_recent=2, probation=9, summary_max_tokens=400, rules=[rule(below=9000)], schedule=every-turn"
    session, writer = play(f"two-tier({rest}, {limits})", DUE + 2)
    (written,) = find_draft_calls(session)
    assert [at for at, _ in list_summaries(session)] == [DUE + 2]
    assert written < DUE + 2
    assert len(writer.requests) == 1


@pytest.mark.parametrize("field", ["hides_all", "summarizes_all"])
def test_a_forced_pass_takes_the_summary_at_once(field: str) -> None:
    """`compact()` waits for no probation; where a summary of more turns is forced, that one is made."""
    session, writer = play(STRATEGY, DUE)
    session.add_turn(make_turn(DUE))
    terms = make_plain_terms()
    terms = type(terms)(**{name: getattr(terms, name) for name in terms.__slots__} | {"hides_all": True, field: True})
    run_pass(decide(session, terms), writer)
    if field == "hides_all":
        assert list_summaries(session) == [(DUE + 1, 4)]
        assert len(writer.requests) == 1
    else:
        assert list_summaries(session) == [(DUE + 1, 5)]
        assert session.state.draft is None


def test_a_summary_that_came_late_is_held_from_its_request_on() -> None:
    """The time that a writer in the background takes is part of the probation."""
    session = begin_session(STRATEGY)
    for index in range(1, DUE + 4):
        steps = decide(session, make_plain_terms())
        try:
            request = next(steps)
            late = SummaryResult(text="The agent read four files.", covers=4, requested_at=DUE)
            assert request.can_wait
            assert request.call == index
            steps.send(NotReady() if index < DUE + 2 else late)
        except StopIteration:
            pass
        session.add_turn(make_turn(index))
    assert find_draft_calls(session) == [DUE + 2]
    assert list_summaries(session) == [(DUE + 3, 4)]


def test_a_failed_summary_begins_no_probation() -> None:
    """It is billed, nothing is held, and the breaker delays the next one."""
    session = begin_session(STRATEGY)
    asked = []

    def refuse(request: SummaryRequest) -> str:
        asked.append(request)
        raise SummaryError("no")

    for index in range(1, DUE + 3):
        run_pass(decide(session, make_plain_terms()), refuse)
        session.add_turn(make_turn(index))
    assert len(asked) == 1
    assert session.state.draft is None
    assert [event.call for event in session.events if isinstance(event, SummaryFailed)] == [DUE]


def test_a_strategy_without_probation_takes_a_draft_that_is_there() -> None:
    """A log that another setting left is continued: the paid summary is used at the next call."""
    first, _ = play(STRATEGY, DUE)
    session = Log.fold(list(first.events), LogSetup(parse_strategy(PLAIN), CACHED, SIZER))
    session.add_turn(make_turn(DUE))
    writer = Writer()
    make_call(session, writer)
    assert list_summaries(session) == [(DUE + 1, 4)]
    assert writer.requests == []


def test_what_is_appended_is_bounded_and_clean() -> None:
    """A quarter of the summary's limit, lines cut around what was used, and no key in them."""
    names = [f"wanted_{number}_name" for number in range(60)]
    text = "\n".join(f"{'left ' * 40}{name} = {KEY} {'right ' * 40}" for name in names) + long_text(1, 400)
    session = begin_session(STRATEGY)
    for index in range(1, DUE + 4):
        make_call(session, Writer())
        shown = turn(index, (call(command="cat"), result(text if index == 2 else long_text(index, 60))))
        said = turn(index, (call(command=" ".join(names)), result(long_text(index, 60))))
        session.add_turn(said if index == DUE else shown)
    appended = show_block(session).partition("used since]\n")[2]
    assert 0 < SIZER.count(appended) <= 0.3 * 400
    assert all(any(name in line for name in names) for line in appended.splitlines())
    assert KEY not in show_block(session)


def test_folding_the_events_gives_the_same_state() -> None:
    """The record of a draft is enough: state, bill and view are functions of the events."""
    for calls in range(DUE, DUE + 5):
        session, _ = play(STRATEGY, calls)
        events: list[Event] = list(session.events)
        again = Log.fold(events, LogSetup(parse_strategy(STRATEGY), CACHED, SIZER))
        assert again.state.draft == session.state.draft
        assert again.state.summary == session.state.summary
        assert again.bill.spent_usd == session.bill.spent_usd


def test_the_share_of_facts_reaches_every_request() -> None:
    """The option is part of what is requested, and of what is written ahead."""
    session = begin_session("summarization(every=4, tail=2, schedule=every-turn, digest_facts=80)")
    for index in range(1, DUE):
        run_pass(decide(session, make_plain_terms()), Writer())
        expected = expect_request(session)
        session.add_turn(make_turn(index))
    assert expected is not None
    assert expected.facts_pct == next(decide(session, make_plain_terms())).facts_pct == 80


def test_a_request_names_what_the_view_shows() -> None:
    """Results and words of turns after the covered ones are named, and what is written ahead is what is requested."""
    session = begin_session("summarization(every=4, tail=2, schedule=every-turn)")
    for index in range(1, DUE):
        run_pass(decide(session, make_plain_terms()), Writer())
        expected = expect_request(session)
        session.add_turn(make_turn(index))
    asked = next(decide(session, make_plain_terms()))
    assert expected is not None
    assert asked.turns[-1].index == DUE - 3
    assert asked.shown == expected.shown == frozenset(find_items(session.state.turns[DUE - 3].observations[0].text))
    assert asked.shown
