"""`report()`: phases, summaries, savings, composition: of a session live, resumed, with turns by hand, and stored."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision import Advanced, Cache, ElisionError, Guards, Sessions
from elision.errors import SummaryError
from elision.manager import ContextManager
from elision.manager.advanced_options import gather_options
from elision.manager.session_history import SessionLog
from elision.stores.memory import MemoryStore
from elision.strategies.spec import describe_strategy, parse_strategy
from elision.telemetry.context_report import ContextReport, PhaseTurns
from elision.telemetry.diagnostics import Diagnostics
from elision.trajectory.plan import SummaryRequest
from elision.trajectory.tokens import Sizer, make_counter
from tests.manager.agents import LONG, SHAPES, make_history, make_task

#: Hides from the fourth call on, and summarizes at the sixth.
HYBRID = "hybrid(window=2, summarize_at=5, tail=2, summary_max_tokens=120, schedule=every-turn)"
MASKING = "masking(window=2, schedule=every-turn)"


def run_turns(context: ContextManager, turns: int, first: int = 1) -> list[Diagnostics]:
    """Have an agent with turns by hand make a call before each turn."""
    seen = []
    for number in range(first, first + turns):
        seen.append(context.turns.view().diagnostics)
        context.turns.add(f"thought {number}", f"cat f{number}.py", f"{number}\n{LONG}")
    return seen


def read_stored_report(store: MemoryStore, session: str) -> ContextReport:
    """Return the report that `elision sessions show` and the dashboard have."""
    log = SessionLog(
        info=store.info(session), events=list(store.events(session)), sizer=Sizer(make_counter()), guards=Guards()
    )
    found = log.build_report().context
    assert found is not None
    return found


def test_before_anything_there_is_nothing() -> None:
    """A session without turns is raw, has saved nothing, and costs what everything costs."""
    with ContextManager(store="memory:", session="new") as context:
        report = context.session.report()
    assert report == ContextReport(session="new", notes=report.notes)
    assert (report.phase, report.efficiency, report.efficiency_score) == ("raw", 1.0, 0.0)
    assert report.to_dict()["summaries"]["frequency"] is None


def test_a_session_that_is_not_there_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """In a note, and in the log: zeros alone look like a session that saved nothing."""
    store = MemoryStore()
    with Sessions(store=store) as sessions:
        sessions.open("thread-1").prepare(make_history("openai", 1))
        assert sessions.open("thread-1").session.report().notes == ()
        assert caplog.messages == []
        (note,) = sessions.open("thread-l").session.report().notes
        assert note.startswith("session 'thread-l' has no turns yet; `list_sessions()`")
        assert caplog.messages == [f"an empty report: {note}"]
        assert [info.key for info in sessions.list_sessions()] == ["thread-1"]
    with pytest.raises(ElisionError, match="these sessions are closed"):
        sessions.list_sessions()


def test_a_session_without_a_name_needs_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Its caller has mistaken no name."""
    with ContextManager(store="memory:") as context:
        assert "has no turns yet" in context.session.report().notes[0]
    assert caplog.messages == []


def test_phases_follow_one_another() -> None:
    """Raw until something is hidden, masking until there is a summary, summarizing from then on."""
    seen = []
    with ContextManager(HYBRID, store="memory:", session="s") as context:
        for number in range(1, 10):
            seen.append(context.turns.view().diagnostics.phase)
            context.turns.add(f"thought {number}", "cat f.py", f"{number}\n{LONG}")
        report = context.session.report()
    assert seen == ["raw"] * 3 + ["masking"] * 2 + ["summarizing"] * 4
    assert report.phase == "summarizing"
    assert report.phase_turns == PhaseTurns(raw=3, masking=2, summarizing=4)
    assert (report.calls, report.turns) == (9, 9)
    assert report.summaries.count == 2
    assert report.summaries.frequency == 4.5
    assert report.summaries.covered_turns == 6
    assert report.summaries.tokens > 0


def test_the_report_counts_the_summaries_that_there_are() -> None:
    """`summaries()` has the texts of those that `report()` counts, and what they cost."""
    with ContextManager(
        HYBRID, store="memory:", session="s", recall="caller", summarizer=lambda request: "All is well."
    ) as context:
        for number in range(1, 13):
            context.turns.view()
            context.turns.add(f"thought {number}", "look", "only words, and many of them\n" * 30)
        report, texts = context.session.report(), context.session.summaries()
    assert report.summaries.count == len(texts) == 3
    assert report.summaries.covered_turns == texts[-1].covers_turns[1]
    assert report.summaries.usd == pytest.approx(sum(each.usd or 0.0 for each in texts))


def test_tokens_and_dollars_are_those_of_the_calls() -> None:
    """What was not sent is what each call's diagnostics say, added up; the costs are those after the newest turn."""
    with ContextManager(HYBRID, store="memory:", session="s") as context:
        calls = run_turns(context, 12)
        report = context.session.report()
    assert report.savings.sent_tokens == sum(each.after for each in calls)
    assert report.savings.raw_tokens == sum(each.raw for each in calls)
    assert report.savings.tokens == report.savings.raw_tokens - report.savings.sent_tokens > 0
    assert report.savings.usd == report.savings.costs.raw - report.savings.costs.ours
    assert report.efficiency == report.savings.costs.ours / report.savings.costs.raw
    assert report.efficiency_score == 1 - report.efficiency
    # The answer to the newest call is billed since.
    assert report.savings.costs.ours > calls[-1].costs.ours
    assert report.savings.basis == "counted"


def test_the_basis_says_who_counted() -> None:
    """The provider, where it reported every call; the tokenizer; or an estimate by characters."""
    usage = {"prompt_tokens": 900, "completion_tokens": 20}
    for tokens, reported, basis in (("o200k", 2, "reported"), ("o200k", 1, "counted"), ("estimate", 0, "estimated")):
        with ContextManager(MASKING, store="memory:", advanced=Advanced(tokens=tokens)) as context:  # type: ignore[arg-type]
            for number in range(2):
                context.prepare(make_history("openai", number))
                if number < reported:
                    context.record(usage)
            assert context.session.report().savings.basis == basis


def test_failed_summaries_are_counted_and_paid() -> None:
    """A summarizer that fails is asked again; what it cost is part of the bill."""

    def fail(request: SummaryRequest) -> str:
        raise SummaryError("the server is on fire", cause="server")

    with ContextManager(HYBRID, store="memory:", summarizer=fail) as context:
        run_turns(context, 8)
        report = context.session.report()
    assert (report.phase, report.summaries.count) == ("masking", 0)
    assert report.summaries.failed > 0
    assert report.summaries.usd == report.savings.costs.summarizer > 0


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("strategy", [MASKING, HYBRID])
def test_every_dialect_has_a_report_that_the_store_has_too(shape: str, strategy: str) -> None:
    """Live, in a process that resumes the session, and read from its log, it is the same value."""
    store = MemoryStore()
    options = {"store": store, "session": "s", "model": "claude-sonnet-4-5", "clock": lambda: 0.0}
    live = ContextManager(strategy, **gather_options(options))  # type: ignore[arg-type]
    for number in range(9):
        live.prepare(make_history(shape, number))
    live.settle()
    report = live.session.report()
    assert report.phase == ("masking" if strategy == MASKING else "summarizing")
    assert report.turns == 8
    resumed = ContextManager(strategy, **gather_options(options))  # type: ignore[arg-type]
    assert resumed.session.report() == report
    assert asyncio.run(resumed.session.report_async()) == report
    stored = read_stored_report(store, "s")
    assert stored.savings.sent_tokens == report.savings.sent_tokens
    assert stored.savings.costs.ours == pytest.approx(report.savings.costs.ours, rel=0.02)
    assert (stored.phase_turns, stored.summaries.count) == (report.phase_turns, report.summaries.count)
    assert stored.composition == report.composition


@given(st.lists(st.sampled_from(["turn", "view", "restart"]), max_size=20))
def test_a_restart_changes_no_figure(steps: list[str]) -> None:
    """The report is a function of the log: opened anew at any point, the session reports the same."""
    store = MemoryStore()
    context = ContextManager(
        HYBRID,
        store=store,
        session="s",
        advanced=Advanced(clock=lambda: 0.0, tokens="estimate"),
    )
    context.turns.begin("Find it.")
    turns = calls = 0
    for what in steps:
        if what == "turn":
            turns += 1
            context.turns.add(f"thought {turns}", f"cat f{turns}.py", f"{turns}\n{LONG}")
        elif what == "view":
            calls += 1
            context.turns.view()
        else:
            context.settle()
            before = context.session.report()
            context = ContextManager(
                HYBRID,
                store=store,
                session="s",
                advanced=Advanced(clock=lambda: 0.0, tokens="estimate"),
            )
            if turns or calls:
                assert context.session.report() == before
    report = context.session.report()
    assert (report.turns, report.calls) == (turns, calls)
    assert sum(asdict(report.phase_turns).values()) == turns


def test_shadow_reports_what_would_have_been() -> None:
    """Requests go out unchanged, and the report says so."""
    with ContextManager(MASKING, store="memory:", shadow=True) as context:
        for number in range(6):
            context.prepare(make_history("openai", number))
        report = context.session.report()
    assert (report.shadow, report.phase) == (True, "masking")
    assert report.to_dict()["shadow"] is True


def test_the_dictionary_has_the_published_keys() -> None:
    """`get_efficiency_report` of the published hybrid manager: phases, summaries, savings, efficiency_score."""
    with ContextManager(HYBRID, store="memory:", session="s", model="claude-sonnet-4-5") as context:
        run_turns(context, 12)
        report = context.session.report()
    found = report.to_dict()
    assert found["phases"] == {"raw": 3, "masking": 2, "summarizing": 7}
    assert found["summaries"]["count"] == report.summaries.count
    assert found["summaries"]["frequency"] == 12 / report.summaries.count
    assert found["savings"]["tokens"] == report.savings.tokens
    assert found["savings"]["estimated_cost"] == report.savings.usd
    assert found["efficiency_score"] == report.efficiency_score
    assert found["composition"]["observation_share"] > 0.8
    assert found["strategy"] == describe_strategy(parse_strategy(HYBRID))
    assert json.loads(json.dumps(found)) == found


def test_a_history_that_begins_late_has_raw_turns(tmp_path: Path) -> None:
    """Turns that an agent brings along were taken before us; one request was made, however long the history is."""
    with ContextManager(MASKING, store=f"sqlite:///{tmp_path / 'agent.db'}") as context:
        context.prepare(make_history("openai", 6))
        report = context.session.report()
    assert report.phase_turns == PhaseTurns(raw=6)
    assert (report.calls, report.phase) == (1, "masking")


def test_a_fork_reports_what_it_shares() -> None:
    """A branch of a conversation has the calls and turns before it left."""
    with ContextManager(MASKING, store="memory:", session="s") as context:
        for number in range(6):
            context.prepare(make_history("openai", number))
        context.prepare([*make_history("openai", 4), *make_task("No, the other way.")])
        report = context.session.report()
    assert report.turns == 4
    assert report.phase == "masking"


def test_masked_tokens_leave_out_what_summaries_cover() -> None:
    """Placeholders and summaries take their own shares off the observations."""
    strategy = "hybrid(window=2, fold=false, summarize_at=6, tail=4, summary_max_tokens=60, schedule=every-turn)"
    with ContextManager(
        strategy, session="s", store="memory:", advanced=Advanced(cache=Cache(control="client"))
    ) as context:
        before = context.prepare(make_history("openai", 5)).diagnostics.savings
        after = context.prepare(make_history("openai", 8)).diagnostics.savings
    assert before.covered == 0
    assert before.masked_tokens == before.hidden_tokens > 0
    assert after.covered > 0
    assert 0 < after.masked_tokens < after.hidden_tokens
