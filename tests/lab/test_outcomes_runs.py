"""Runs with their cost and instance: recordings, stored sessions, tables, and how each finds its instance."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from elision import Advanced
from elision.errors import CorruptError, FormatError
from elision.lab.outcomes import InstanceRun
from elision.lab.outcomes_runs import (
    InstanceNamer,
    Task,
    load_recorded_runs,
    load_stored_runs,
    load_table_runs,
    load_tasks,
)
from elision.manager import ContextManager
from elision.manager.advanced_options import gather_options
from elision.stores.memory import MemoryStore
from elision.stores.store import NewSession
from elision.summarizers.digest import write_digest
from elision.summarizers.summary_checks import SummaryResult
from elision.trajectory.events import Event
from elision.trajectory.plan import SummaryRequest
from elision.trajectory.price_lookup import find_prices
from elision.trajectory.usage import Usage
from tests.cli.stored import EAGER, HYBRID, MODEL, Clock, looked, opening
from tests.lab.outcome_files import mini_traj, traj, write_value

NAMER = InstanceNamer(["django__django-11099", "django__django-1109", "psf__requests-2"])


# -- which instance ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("django__django-11099", "django__django-11099"),
        ("masking/django__django-1109", "django__django-1109"),
        ("run_psf__requests-2.b", "psf__requests-2"),
        ("psf__requests-2 attempt 3", "psf__requests-2"),
        ("psf__requests-23", "psf__requests-23"),
        ("xpsf__requests-2", "xpsf__requests-2"),
        ("7c0e", "7c0e"),
    ],
)
def test_by_name(name: str, expected: str) -> None:
    """The longest id that is no part of a longer word; without one the name stands."""
    assert NAMER.find_instance(name) == expected


def test_by_file() -> None:
    assert NAMER.find_instance("main", "runs/psf__requests-2/events.jsonl") == "psf__requests-2"


def test_by_task() -> None:
    """What is asked, whole or as a part, however its lines break; nothing where two instances ask the same."""
    namer = InstanceNamer([], [Task("a", "Mend the parser."), Task("b", "Twice."), Task("c", "Twice.")])
    assert namer.find_instance("s1", "", "Mend the\n  parser.") == "a"
    assert namer.find_instance("s1", "", "<pr>\nMend the parser.\n</pr> Work in /testbed.") == "a"
    assert namer.find_instance("s1", "", "Twice.") == "s1"
    assert namer.find_instance("s1", "", "Something else.") == "s1"


@pytest.mark.parametrize("form", ["lines", "list"])
def test_tasks_of_a_benchmark(tmp_path: Path, form: str) -> None:
    records = [{"instance_id": "a", "problem_statement": "Mend\nit."}, {"instance_id": "b", "problem_statement": "No."}]
    text = "\n".join(map(json.dumps, records)) if form == "lines" else json.dumps(records)
    assert load_tasks(write_value(tmp_path / "t.jsonl", text)) == [Task("a", "Mend it."), Task("b", "No.")]


def test_tasks_of_trajectories(tmp_path: Path) -> None:
    write_value(tmp_path / "a" / "a.traj.json", mini_traj("a", 1, 0.1, "Mend\nit."))
    assert load_tasks(tmp_path) == [Task("a", "Mend it.")]


# -- recordings -------------------------------------------------------------------------------------------------------


def only(runs: list[InstanceRun]) -> InstanceRun:
    (found,) = runs
    return found


def test_what_a_recording_states(tmp_path: Path) -> None:
    """Of the whole run, or of each call; predictions and reports beside it are no problems."""
    write_value(tmp_path / "a" / "a.traj", traj(3, 1.25))
    write_value(tmp_path / "b" / "b.traj.json", mini_traj("b", 2, 0.5))
    write_value(tmp_path / "preds.json", {"a": {"model_patch": ""}})
    write_value(tmp_path / "notes.json", {"x": 1})
    runs, problems = load_recorded_runs(tmp_path, "raw", InstanceNamer([]))
    assert [(run.instance, run.usd, run.turns, run.source) for run in runs] == [
        ("a", 1.25, 3, "stated"),
        ("b", 1.0, 2, "stated"),
    ]
    assert len(problems) == 1
    assert "notes.json" in problems[0]


def test_usage_at_list_prices(tmp_path: Path) -> None:
    """Where the recording states no cost, and wherever other prices are asked for."""
    value = mini_traj("a", 2, 0.5)
    path = write_value(tmp_path / "a.traj.json", value)
    prices = find_prices("claude-sonnet-4-5")
    asked = only(load_recorded_runs(path, "raw", InstanceNamer([]), prices)[0])
    assert asked.usd == pytest.approx(2 * prices.cost_usage(Usage(input=1_000, output=10)))
    assert asked.source == "usage"
    for message in value["messages"]:
        message.get("extra", {}).pop("cost", None)
    own = only(load_recorded_runs(write_value(path, value), "raw", InstanceNamer([]))[0])
    assert own.usd == pytest.approx(2 * find_prices("gpt-5").cost_usage(Usage(input=1_000, output=10)))


def test_an_unknown_cost(tmp_path: Path) -> None:
    """A stated 0 means that the scaffold knew no price."""
    run = only(load_recorded_runs(write_value(tmp_path / "a.traj", traj(3, 0.0)), "raw", InstanceNamer([]))[0])
    assert (run.usd, run.source) == (None, "unknown")


def test_attempts_count_together(tmp_path: Path) -> None:
    """A retrying agent's attempts are one run of the instance."""
    path = write_value(tmp_path / "a.traj", {"attempts": [traj(3, 1.0), traj(2, 0.5)]})
    run = only(load_recorded_runs(path, "raw", InstanceNamer(["a"]))[0])
    assert (run.instance, run.usd, run.turns) == ("a", 1.5, 5)


# -- sessions ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def store() -> Iterator[MemoryStore]:
    made = MemoryStore()
    yield made
    made.close()


def work(store: MemoryStore, session: str, turns: int, strategy: str = EAGER, **more: Any) -> None:
    """A session of so many turns, each billed 1,000 new tokens and 10 of answer."""
    messages = opening(more.pop("task", "Find the slow module."))
    given = {"model": MODEL, "store": store, "session": session, "clock": Clock(), **more}
    with ContextManager(strategy, **gather_options(given)) as context:
        for turn in range(1, turns + 1):
            context.prepare(messages)
            context.record({"prompt_tokens": 1_000, "completion_tokens": 10})
            messages += looked(turn)


def call_usd() -> float:
    return find_prices(MODEL).cost_usage(Usage(input=1_000, output=10))


def test_a_session(store: MemoryStore) -> None:
    """Named after its instance, billed as reported, under the strategy that it began with."""
    work(store, "django__django-11099", 4)
    run = only(load_stored_runs(store, "memory:", "", NAMER)[0])
    assert (run.instance, run.turns, run.source) == ("django__django-11099", 4, "usage")
    assert run.usd == pytest.approx(4 * call_usd())
    assert run.strategy == "masking(schedule=every-turn, window=2)"
    assert only(load_stored_runs(store, "memory:", "eager", NAMER)[0]).strategy == "eager"


def test_a_session_by_its_task(store: MemoryStore) -> None:
    """A scaffold that names no session: the task tells."""
    work(store, "4f1c", 2, task="<pr>Mend the\nparser.</pr>")
    namer = InstanceNamer(["a"], [Task("a", "Mend the parser.")])
    assert only(load_stored_runs(store, "memory:", "", namer)[0]).instance == "a"


def test_sub_agents_count_to_their_run(store: MemoryStore) -> None:
    work(store, "psf__requests-2", 3)
    work(store, "psf__requests-2/scout", 2, parent="psf__requests-2", clock=Clock(1_700_001_000.0))
    run = only(load_stored_runs(store, "memory:", "", NAMER)[0])
    assert (run.turns, run.name) == (5, "psf__requests-2")
    assert run.usd == pytest.approx(5 * call_usd())


def test_a_fork_counts_once(store: MemoryStore) -> None:
    """What it shares with its parent is the parent's."""
    work(store, "psf__requests-2", 3)
    options: dict[str, Any] = {"model": MODEL, "store": store, "session": "psf__requests-2"}
    with ContextManager(
        EAGER, **gather_options({"advanced": Advanced(clock=Clock(1_700_001_000.0)), **options})
    ) as context:
        context.prepare([*opening(), *looked(1), {"role": "user", "content": "Another way, please."}])
        context.record({"prompt_tokens": 1_000, "completion_tokens": 10})
    assert len(store.sessions()) == 2
    run = only(load_stored_runs(store, "memory:", "", NAMER)[0])
    assert run.turns == 4
    assert run.usd == pytest.approx(4 * call_usd())


def test_summaries_are_paid(store: MemoryStore) -> None:
    """What the model that wrote them was billed is part of the run's cost."""

    def write(request: SummaryRequest) -> SummaryResult:
        return SummaryResult(text=write_digest(request, len), input=2_000, output=100, usd=0.25)

    work(store, "psf__requests-2", 8, HYBRID, summarizer=write)
    run = only(load_stored_runs(store, "memory:", "", NAMER)[0])
    assert run.summary_usd > 0
    assert run.summary_usd % 0.25 == 0
    assert run.usd == pytest.approx(8 * call_usd() + run.summary_usd)


def test_calls_without_usage(store: MemoryStore) -> None:
    """They are counted, and a session without any usage has no known cost."""
    with ContextManager(
        EAGER, model=MODEL, store=store, session="psf__requests-2", advanced=Advanced(clock=Clock())
    ) as context:
        context.prepare(opening())
    run = only(load_stored_runs(store, "memory:", "", NAMER)[0])
    assert (run.usd, run.silent_calls, run.turns) == (None, 1, 1)


class DamagedStore(MemoryStore):
    """A store with one session that cannot be read."""

    def events(self, session: str, after: int = 0) -> Iterator[Event]:
        if session == "bad":
            raise CorruptError("record 3 is damaged")
        return super().events(session, after)


def test_a_damaged_session() -> None:
    """It is reported, and costs no other."""
    store = DamagedStore()
    for name in ("psf__requests-2", "bad"):
        store.create(NewSession(key=name, family=name, at=1.0))
    runs, problems = load_stored_runs(store, "memory:", "raw", NAMER)
    assert only(runs).instance == "psf__requests-2"
    assert problems == ["session bad: record 3 is damaged"]


# -- tables -----------------------------------------------------------------------------------------------------------

HEADER = "strategy,instance_id,cost,summary_cost,turn_count,resolved\n"


def test_a_table(tmp_path: Path) -> None:
    """Summaries are added to the cost; an empty cell is not known."""
    path = write_value(tmp_path / "t.csv", HEADER + "raw,a,1.0,0.5,7,1\nmasking,b,,,9,\n")
    first, second = load_table_runs(path, "") or []
    assert (first.strategy, first.usd, first.summary_usd, first.turns, first.solved) == ("raw", 1.5, 0.5, 7, True)
    assert (second.usd, second.source, second.solved) == (None, "unknown", None)
    assert {run.strategy for run in load_table_runs(path, "mine") or []} == {"mine"}


def test_another_column(tmp_path: Path) -> None:
    path = write_value(tmp_path / "t.csv", "instance_id,usd,experiment\na,1,N=21\n")
    assert only(load_table_runs(path, "", "experiment") or []).strategy == "N=21"
    with pytest.raises(FormatError, match=r"t\.csv:1: no column 'strategy' names the strategy; .*--by.*NAME="):
        load_table_runs(path, "")


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ("raw,a,1.0,0.5\n", ":2: 6 columns are expected, and this row has another number; was the file cut short"),
        ("raw,a,1.0,0.5,7,1,8\n", ":2: 6 columns are expected"),
        ("raw,a,one,0.5,7,1\n", ":2: cost is 'one', no number of zero or more"),
        ("raw,a,nan,0.5,7,1\n", ":2: cost is 'nan'"),
        ("raw,a,-1,0.5,7,1\n", ":2: cost is '-1'"),
        ("raw,a,1.0,0.5,7,1\nraw,,1.0,0.5,7,1\n", ":3: no instance_id in this row"),
        ("raw,a,1.0,0.5,7,maybe\n", ":2: resolved is 'maybe'; 1, 0, true or false is expected"),
    ],
)
def test_a_broken_table(tmp_path: Path, rows: str, expected: str) -> None:
    with pytest.raises(FormatError, match=expected):
        load_table_runs(write_value(tmp_path / "t.csv", HEADER + rows), "")


def test_no_table(tmp_path: Path) -> None:
    assert load_table_runs(write_value(tmp_path / "a.traj", traj(1, 0.1)), "") is None
    assert load_table_runs(tmp_path, "") is None
    with pytest.raises(FormatError, match="no column `cost`"):
        load_table_runs(write_value(tmp_path / "t.csv", "instance_id,strategy\na,raw\n"), "")
