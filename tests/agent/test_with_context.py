"""The agent with the real context manager: hidden and recalled, stored and gone on with, in both shapes."""

from __future__ import annotations

from pathlib import Path

import pytest

from elision import ContextManager, Guards, open_store
from elision.agent import Prompt, RetryPolicy, Shell, run_agent
from elision.agent.loop import load_conversation
from elision.agent.model import Shape
from elision.telemetry.diagnostics import Diagnostics
from elision.testing.builders import call, commands
from elision.testing.exchange import Cut, Refused
from elision.testing.playback import Playback
from elision.testing.recorded_provider import Terms
from elision.testing.scripted import ScriptedModel
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.turn import Turn
from tests.agent.test_model import SHAPES, Played, model

EAGER = "masking(window=2, schedule=every-turn, fold=false)"
COUNT = commands(*(f"seq {number * 50} {number * 50 + 200}" for number in range(8)), id="count", task="Count.")


@pytest.mark.parametrize(("shape", "strategy"), [("openai", "hybrid"), ("anthropic", "masking")])
def test_a_recorded_run_is_worked_through_with_gaps(shape: Shape, strategy: str, runs: dict[str, Trajectory]) -> None:
    """90 recorded turns under a strategy: every request is sound, the right turn answers, and less is sent."""
    run = runs["openhands-pylint"]
    with Playback(run) as server, ContextManager(strategy, model="claude-sonnet-5") as context:
        ended = run_agent(model(shape, server, f"run:{run.id}"), Played(run), run.head.messages[-1].text, context)
        assert server.violations == []
        assert [request.turn for request in server.requests] == list(range(1, 92))
    report = ended.report
    assert ended.ending == "done"
    assert report.newest is not None
    assert report.newest.costs.saved > 0
    assert sum(step.diagnostics.raw - step.diagnostics.after for step in report.steps) > 100_000
    assert report.masked_results > 10
    assert bool(report.summary_calls) == (strategy == "hybrid")
    if shape == "anthropic":
        # What the context reckons is what the provider's cache billed; OpenAI's shape has no marks for this model.
        assert report.newest.costs.billed == pytest.approx(report.newest.costs.ours, rel=0.03)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_whole_agent_over_faults(shape: Shape, tmp_path: Path) -> None:
    """A real shell, a real server that fails in between, gaps: the task is done, and nothing unsound was sent."""
    faults = [None, None, None, None, Refused(status=529), Cut(), None, Refused(status=429, retry_after=1)]
    with Playback(COUNT, faults=faults) as server, ContextManager(EAGER, model="claude-sonnet-5") as context:
        patience = RetryPolicy(sleep=lambda _: None)
        ended = run_agent(model(shape, server), Shell(tmp_path), "Count.", context, retry=patience)
        assert server.violations == []
        assert [request.status for request in server.requests].count(200) == 10
    assert (ended.ending, ended.result) == ("done", "Done.")
    assert ended.report.masked_results == 6


@pytest.mark.parametrize("shape", SHAPES)
def test_a_session_goes_on_in_another_process(shape: Shape, tmp_path: Path) -> None:
    """What is read back from the store is the same history: the log continues, hidden things stay hidden."""
    url = f"sqlite:///{tmp_path}/agent.db"
    told: list[Diagnostics] = []
    with Playback(COUNT) as server:
        llm, shell = model(shape, server, "run:count"), Shell(tmp_path)
        with ContextManager(EAGER, model="claude-sonnet-5", store=url, session="s") as context:
            first = run_agent(llm, shell, "Count.", context, max_turns=5)
        store = open_store(url)
        before = load_conversation(store, "s", shape)
        assert before is not None
        with ContextManager(EAGER, model="claude-sonnet-5", store=store, session="s", on_event=told.append) as context:
            options = {"system": before.system} if before.system else {}
            ended = run_agent(llm, shell, "", context, history=before.messages, **options)
        assert server.violations == []
        assert [request.turn for request in server.requests] == list(range(1, 10))
        assert [info.relation for info in store.sessions()] == [""]
        store.close()
    assert (first.ending, ended.ending) == ("stopped", "done")
    assert {each.history for each in told} == {"continue"}
    assert told[0].turns == 5


def test_no_session_no_history() -> None:
    """A session that the store does not have has said nothing."""
    assert load_conversation(open_store("memory:"), "nowhere", "openai") is None


def test_what_was_hidden_is_recalled(tmp_path: Path) -> None:
    """The model asks for a handle that stands in its prompt and is shown the very output."""

    def asks(prompt: Prompt) -> Turn:
        shown = str(prompt.messages)
        assert "t1.1" in shown
        assert "\\n77\\n78\\n" not in shown
        assert any("elision_recall" in str(tool) for tool in prompt.tools)
        return Turn(index=1, actions=(call("elision_recall", handle="t1.1"),))

    steps = [
        Turn(index=1, actions=(call("bash", command=f"seq {step * 1000 + 1} {step * 1000 + 200}"),))
        for step in range(4)
    ]
    with ContextManager(EAGER, model="claude-sonnet-5") as context:
        ended = run_agent(ScriptedModel([*steps, asks, "Done."]), Shell(tmp_path), "Count.", context)
    assert ended.messages[-2]["content"].startswith("1\n2\n3\n")
    assert ended.messages[-2]["content"].rstrip().endswith("\n200")


def test_guards_of_the_context_end_the_run(tmp_path: Path) -> None:
    """A limit of cost, and turns that stand still, end it with the numbers."""
    same = [Turn(index=1, actions=(call("bash", command="false"),))] * 9
    with ContextManager("raw", model="claude-sonnet-5", guards=Guards(plateau_window=3)) as context:
        ended = run_agent(ScriptedModel(same), Shell(tmp_path), "Go.", context)
    assert ended.ending == "stopped"
    assert "no progress for 3 turns" in ended.why
    with ContextManager("raw", model="claude-sonnet-5", guards=Guards(max_cost_usd=0.002)) as context:
        ended = run_agent(ScriptedModel(same), Shell(tmp_path), "Go.", context)
    assert "max_cost_usd" in ended.why


@pytest.mark.parametrize("shape", SHAPES)
def test_a_window_is_learned_from_the_provider(shape: Shape, tmp_path: Path) -> None:
    """A prompt that the provider calls too long is prepared again within the limit that it named."""
    with (
        Playback(COUNT, Terms(window=3_000)) as server,
        ContextManager("masking(fold=false)", model="claude-sonnet-5") as context,
    ):
        ended = run_agent(model(shape, server), Shell(tmp_path), "Count.", context)
        statuses = [request.status for request in server.requests]
    assert ended.ending == "done", ended.why
    assert 400 in statuses


def test_the_report_of_a_run_has_the_report_of_its_session(tmp_path: Path) -> None:
    """A second run of the same session reports its own steps, and beside them the session with both runs' turns."""
    store = open_store(f"sqlite:///{tmp_path / 'agent.db'}")
    turns = []
    for _ in range(2):
        with Playback(COUNT) as server, ContextManager(EAGER, store=store, session="s") as context:
            loaded = load_conversation(store, "s", "openai")
            history = loaded.messages if loaded else []
            ended = run_agent(model("openai", server), Shell(tmp_path), "Count.", context, 3, history=history)
        report = ended.report
        assert report.context_report is not None
        turns.append((len(report.steps), report.context_report.turns, report.context_report.phase))
    store.close()
    assert turns[0] == (3, 3, "raw")
    assert turns[1][0] < turns[1][1]
    assert turns[1][2] == "masking"
