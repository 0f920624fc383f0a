"""A stored session, gone through as it grows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.errors import CorruptError, SummaryError
from elision.gateway.dashboard.totals import compute_totals
from elision.manager import ContextManager
from elision.manager.session_history import LogReader, RecordedDecisions, SessionLog, SessionReport
from elision.stores.sqlite import SqliteStore
from elision.stores.store import SessionInfo
from elision.strategies.guards import Guards
from elision.trajectory.events import Event, HeadSet, PassDecided, RequestSent, TurnAdded, TurnAmended, UsageReported
from elision.trajectory.plan import SummaryRequest
from elision.trajectory.tokens import Sizer, make_counter
from elision.trajectory.turn import Head
from elision.trajectory.usage import Usage
from tests.cli import stored
from tests.properties.builders import run_session, steps

SIZER = Sizer(make_counter())
GUARDS = Guards(plateau_window=2)


def told(at: Path, session: str) -> tuple[SessionInfo, list[Event]]:
    store = SqliteStore(at / "agent.db")
    found = store.info(session), list(store.events(session))
    store.close()
    return found


def _burning(request: SummaryRequest) -> str:
    raise SummaryError("the server is on fire", cause="server")


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[SessionInfo, list[Event]]]:
    """A session with recalls and a fork of it, one with digests, one whose summarizer fails."""
    at = tmp_path_factory.mktemp("logs")
    stored.played(at, "main", 7, each=_recalls)
    stored.played(at, "digested", 8, stored.HYBRID)
    stored.played(at, "burning", 7, stored.HYBRID, summarizer=_burning)
    return [told(at, session) for session in ("main", "digested", "burning")]


def _recalls(turn: int, context: ContextManager) -> None:
    if turn == 5:
        context.session.recall("t1.1", head=3)


def whole(info: SessionInfo, events: Sequence[Event]) -> SessionReport:
    return SessionLog(info=info, events=events, sizer=SIZER, guards=GUARDS).build_report()


def reading(info: SessionInfo) -> LogReader:
    return LogReader(info, SIZER, GUARDS)


@given(st.data())
def test_piece_by_piece_is_the_same_as_at_once(
    logs: list[tuple[SessionInfo, list[Event]]], data: st.DataObject
) -> None:
    """Wherever the log is cut, also amid a pass, the account is the one of the log read whole."""
    info, events = logs[data.draw(st.integers(0, len(logs) - 1))]
    # Before the first call nobody knows the model, hence no prices.
    first = next(place for place, event in enumerate(events, start=1) if isinstance(event, RequestSent))
    cuts = sorted(data.draw(st.lists(st.integers(first, len(events)), max_size=6)))
    read = reading(info)
    for start, end in zip([0, *cuts], [*cuts, len(events)], strict=True):
        assert read.can_continue_with(events[start:end])
        read.read_events(events[start:end])
        assert read.records == end
    assert read.build_report() == whole(info, events)


def test_nothing_is_billed_before_the_first_call(logs: list[tuple[SessionInfo, list[Event]]]) -> None:
    """A session that was only begun is read anew when its first call says which model's prices hold."""
    info, events = logs[0]
    read = reading(info)
    read.read_events(events[:2])
    assert read.build_report().final is None
    assert not read.can_continue_with(events[2:])


def test_usage_belongs_to_the_request_that_was_answered(tmp_path: Path) -> None:
    """A call that was made again after a failure was billed once: its report stands at the newer request."""
    with ContextManager(stored.EAGER, store=stored.url(tmp_path), session="s", model=stored.MODEL) as context:
        context.prepare(stored.opening())
        context.prepare(stored.opening())
        context.record({"prompt_tokens": 70, "completion_tokens": 3})
    passes = whole(*told(tmp_path, "s")).calls
    assert [each.usage is not None for each in passes] == [False, True]


def test_usage_that_comes_late(logs: list[tuple[SessionInfo, list[Event]]]) -> None:
    """What is said of an earlier call behind a later one is no usage of the later one."""
    info, events = logs[0]
    last = max(event.call for event in events if isinstance(event, RequestSent))
    late = UsageReported(call=last - 1, usage=Usage(input=7))
    assert whole(info, [*events, late]).calls[-1].usage == whole(info, events).calls[-1].usage
    going = reading(info)
    going.read_events(events)
    going.read_events([late])
    assert going.build_report().calls[-1].usage == whole(info, events).calls[-1].usage


def test_a_turn_that_came_again_is_read_anew(logs: list[tuple[SessionInfo, list[Event]]]) -> None:
    """What changes the figures of calls that were gone through is refused, and taken where it is read whole."""
    info, events = logs[0]
    read = reading(info)
    read.read_events(events)
    turn = [event.turn for event in events if isinstance(event, TurnAdded)][-1]
    again: list[Event] = [TurnAmended(turn)]
    assert not read.can_continue_with(again)
    with pytest.raises(ValueError, match="read it again"):
        read.read_events(again)
    fresh = reading(info)
    fresh.read_events([*events, *again])
    assert fresh.amendments == 1


def test_another_model_sets_other_prices(logs: list[tuple[SessionInfo, list[Event]]]) -> None:
    """Where most calls were made of another model by now, everything is billed anew."""
    info, events = logs[0]
    read = reading(info)
    read.read_events(events)
    calls: list[Event] = []
    for _ in range(20):
        decided = PassDecided(call=8, reason="nothing eligible")
        calls += [decided, RequestSent(call=8, at=None, model="gpt-5", tokens=1)]
    assert not read.can_continue_with(calls)
    assert read.can_continue_with(calls[:4])


def test_what_is_reported_is_billed_at_the_models_own_prices(logs: list[tuple[SessionInfo, list[Event]]]) -> None:
    """A call of another model than the session's is billed at that one's, in the sums and by itself."""
    info, events = logs[0]
    last = max(event.call for event in events if isinstance(event, RequestSent))
    other: list[Event] = [
        PassDecided(call=last + 1, reason="nothing eligible"),
        RequestSent(call=last + 1, at=None, model="gpt-5-nano", tokens=1_000),
        UsageReported(call=last + 1, usage=Usage(input=1_000, output=20)),
    ]
    before, after = whole(info, events), whole(info, [*events, *other])
    assert before.final is not None
    assert after.final is not None
    # 0.05 and 0.40 USD a million.
    usd = (1_000 * 0.05 + 20 * 0.40) / 1e6
    assert (after.final.costs.billed or 0.0) - (before.final.costs.billed or 0.0) == pytest.approx(usd)
    assert (compute_totals(after).billed_usd or 0.0) - (compute_totals(before).billed_usd or 0.0) == pytest.approx(usd)
    assert (after.calls[-1].prices.name, after.prices) == ("gpt-5-nano", before.prices)


def test_a_summary_names_the_results_it_covers(logs: list[tuple[SessionInfo, list[Event]]]) -> None:
    """Each result of a newly covered turn once, and the bill of sending everything beside ours."""
    account = whole(*logs[1])
    made = [each for each in account.calls if each.summary]
    handles = [each.handle for one in made for each in one.covered]
    assert handles == [f"t{turn}.1" for turn in range(1, made[-1].summary.covers + 1 if made[-1].summary else 0)]
    assert all(each.raw_tokens >= each.sent_tokens for each in account.calls)
    assert any(each.raw_tokens > each.sent_tokens for each in account.calls)


def test_what_is_folded_as_it_arrives_is_no_rewrite(tmp_path: Path) -> None:
    """Results that folds shorten are billed as the session was: each stays as it was sent."""
    routine = "\n".join(f"Collecting package-{number}" for number in range(80))
    rows = "\n".join(f"warning {number * number}: unit {number} is not used by any other one" for number in range(40))
    with ContextManager("raw(fold=true)", store=stored.url(tmp_path), session="s", model=stored.MODEL) as context:
        context.turns.begin("Build it.")
        for number in range(6):
            context.turns.view()
            call = {"name": "bash", "arguments": {"command": f"make {number}"}}
            context.turns.add("", call, f"{routine}\n{rows}\n{number}")
        done = context.turns.view().diagnostics
    account = whole(*told(tmp_path, "s"))
    assert account.final is not None
    assert account.final.epoch == done.epoch == 1
    assert account.calls[-1].diagnostics.after == done.after < done.raw
    assert account.calls[-1].diagnostics.costs.ours == pytest.approx(done.costs.ours)


def test_a_log_that_is_none() -> None:
    """A call without a decision is no session's."""
    info = SessionInfo(key="s", family="s", parent="", relation="", begun=0, changed=0, records=2, turns=0)
    with pytest.raises(CorruptError, match="its log is not a session's"):
        reading(info).read_events([HeadSet(Head()), RequestSent(call=1, at=None, model="", tokens=1)])


def test_the_stable_beginning_ends_behind_what_was_hidden_last() -> None:
    """Gone through without its strategy, a log says where: at the first observation that none of its passes hid."""
    session = run_session("masking(window=3, schedule=every-turn, fold=false)", steps(6))
    policy = RecordedDecisions().start_policy()
    for turn in session.state.turns:
        policy.add_turn(session.state, turn)
    places = session.state.observation_places
    assert policy.find_stable_length(session.state) == places[1, 1]
    passes = [event for event in session.events if isinstance(event, PassDecided)]
    for decided in passes:
        policy.record_decision(session.state, decided)
        hidden = max((mask.key[0] for each in passes[: decided.call] for mask in each.masks), default=0)
        assert policy.find_stable_length(session.state) == places[hidden + 1, 1]
    assert hidden == 3
