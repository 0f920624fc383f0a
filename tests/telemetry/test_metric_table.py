"""The table of metrics, what may stand under a label, and what a pass adds to each metric."""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.manager.call_diagnostics import build_failed_diagnostics
from elision.strategies.spec import SCHEDULES, parse_strategy
from elision.telemetry import metric_table
from elision.telemetry.diagnostics import Costs, Diagnostics, Fault
from elision.telemetry.metric_table import (
    LABELS,
    MAX_MODELS,
    METRICS,
    OTHER_LABEL,
    PassCollector,
    Sample,
    Sampler,
    label_reason,
    normalize_label,
)
from tests.properties.builders import steps
from tests.telemetry.sample_passes import FULL, QUIET, any_pass, make_later, run_passes

#: The names that were promised, as they were promised.
PROMISED = {
    "agent_context_tokens_in",
    "agent_context_tokens_out",
    "agent_context_masked_observation_tokens",
    "agent_context_summary_tokens",
    "agent_context_summary_calls_total",
    "agent_context_estimated_cost_usd",
    "agent_context_turn_count",
}


def test_the_promised_names() -> None:
    """They are there, to the letter."""
    assert {metric.name for metric in METRICS} >= PROMISED


def test_names() -> None:
    """Names are each once; what only grows ends in _total, and nothing else does; a unit is at the end of a name."""
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    for metric in METRICS:
        assert re.fullmatch(r"agent_context_[a-z_]+", metric.name)
        assert metric.name.endswith("_total") == (metric.kind == "counter")
        assert bool(metric.buckets) == (metric.kind == "histogram")
        if metric.unit in ("seconds", "USD"):
            assert f"_{metric.unit.lower()}" in metric.name


def test_labels_are_few() -> None:
    """Every label has a list, none is a session, and no metric can have more than a few hundred series."""
    for metric in METRICS:
        assert set(metric.labels) <= set(LABELS)
        assert "session" not in metric.labels
        series = 1
        for label in metric.labels:
            series *= len(LABELS[label]) + 1 or 33
        assert series < 400


@pytest.mark.parametrize(
    "spec",
    [
        *(f"hybrid(window=3, summarize_at=12, tail=4, schedule={name})" for name in SCHEDULES if name != "hindsight"),
        "masking(window=2, budget=budget(tokens=2500, reserved=0, soft=0.5))",
        "summarization(every=5, tail=4, schedule=every-turn, summary_max_tokens=60)",
        "two-tier(keep_recent=3, soft=1200, hard=1400, after_steps=20, summary_max_tokens=60)",
        "hybrid(window=4, tail=4, summarize_tokens=500, summary_max_tokens=60)",
        "raw",
    ],
)
def test_reasons_of_real_passes(spec: str) -> None:
    """No reason that a strategy gives is unlisted."""
    assert parse_strategy(spec)
    assert OTHER_LABEL not in {label_reason(told.reason) for told in run_passes(spec, steps(40))}


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("fewer than 10 turns eligible", "too-few-turns"),
        ("summary rejected: longer than what it replaces", "summary-rejected"),
        ("eligible", "eligible"),
        ("nothing eligible", "nothing-eligible"),
        ("not planned", "not-planned"),
        ("deferred: thinking in turn 7 is bound to what precedes it", "bound-thinking"),
        ("held: nothing more is hidden while the store fails", "store-failing"),
        ("a new one", OTHER_LABEL),
        ("", OTHER_LABEL),
    ],
)
def test_reason(text: str, label: str) -> None:
    """What varies in a reason is left out; what nobody knows is `other`."""
    assert label_reason(text) == label
    assert label == OTHER_LABEL or label in LABELS["reason"]


def test_listed() -> None:
    """A value stands as it is listed, however it is spelled; an unlisted one does not."""
    assert normalize_label("cause", "rate-limited") == normalize_label("cause", "Rate limited ") == "rate-limited"
    assert normalize_label("guard", "max_turns") == "max_turns"
    assert normalize_label("cause", "ECONNRESET 10.0.0.7") == OTHER_LABEL


def summed(*told: Diagnostics) -> dict[str, float]:
    """Name and labels -> the newest value of a gauge, the sum of everything else."""
    reader, found = Sampler(), defaultdict[str, float](float)
    for each in told:
        for sample in reader.sample_pass(each):
            key = " ".join([sample.metric.name, *sample.labels.values()])
            found[key] = sample.value + (0 if sample.metric.kind == "gauge" else found[key])
    return {key.removeprefix("agent_context_"): value for key, value in found.items()}


def test_the_newest_pass() -> None:
    """Gauges say what the newest pass said."""
    found = summed(FULL, QUIET)
    assert found["tokens_in claude-sonnet-4-5"] == 45_400
    assert found["tokens_out claude-sonnet-4-5"] == 12_400
    assert found["summary_tokens claude-sonnet-4-5"] == 0
    assert found["estimated_cost_usd claude-sonnet-4-5"] == 0.55
    assert found["turn_count claude-sonnet-4-5"] == 18
    assert summed(FULL)["masked_observation_tokens claude-sonnet-4-5"] == 12_000
    assert summed(FULL)["folded_observation_tokens claude-sonnet-4-5"] == 2_940
    assert summed(FULL)["hidden_observation_tokens claude-sonnet-4-5"] == 33_000


def test_what_a_pass_did() -> None:
    """Passes are counted by reason, hidden tokens by how, faults by kind and cause."""
    found = summed(FULL, QUIET, make_later(QUIET))
    assert found["passes_total yes rewrite-pays"] == 1
    assert found["passes_total no cap-on-raw"] == 2
    assert found["hidden_tokens_total mask"] == 1_000
    assert found["hidden_tokens_total clip"] == 50_000
    assert found["hidden_tokens_total summary"] == 8_000
    assert (found["folds_total fold"], found["folds_total unfold"]) == (1, 2)
    assert found["faults_total store StoreError"] == found["faults_total summarizer timeout"] == 1
    assert found["raw_tokens_total claude-sonnet-4-5"] == 45_000 + 2 * 45_400
    assert found["histories_total continue"] == 3


def test_summaries() -> None:
    """A summary counts by its route, a failure as one."""
    found = summed(FULL)
    assert found["summary_calls_total fresh"] == found["summary_calls_total failed"] == 1


def test_totals_of_a_session_are_counted_once() -> None:
    """Cost, saving, rewrites and recalls of a session grow by what is new in them."""
    found = summed(FULL, QUIET, make_later(QUIET))
    assert found["cost_usd_total claude-sonnet-4-5 ours"] == pytest.approx(0.55)
    assert found["cost_usd_total claude-sonnet-4-5 summarizer"] == pytest.approx(0.02)
    assert found["saved_usd claude-sonnet-4-5 hiding"] == pytest.approx(0.9 - 0.55)
    assert found["rewrites_total mask"] == found["rewrites_total summary"] == 1
    assert found["recalls_total"] == 2


def test_a_saving_may_be_negative() -> None:
    """What cost more than sending everything is told as it is."""
    dear = replace(FULL, costs=Costs(ours=1.0, raw=0.4))
    assert summed(dear)["saved_usd claude-sonnet-4-5 hiding"] == pytest.approx(-0.6)


def test_a_session_that_is_taken_up_again() -> None:
    """In a new process the totals of a session were counted already: counting begins where they stand."""
    found = summed(replace(FULL, call=200), replace(QUIET, call=201))
    assert found["cost_usd_total claude-sonnet-4-5 ours"] == pytest.approx(0.05)
    assert "recalls_total" not in found
    assert found["passes_total no cap-on-raw"] == 1


def test_sessions_are_kept_apart() -> None:
    """Each session and each branch has totals of its own."""
    other = replace(FULL, session="task-43", branch="task-43", costs=Costs(ours=2.0, raw=3.0))
    found = summed(FULL, other, QUIET)
    assert found["cost_usd_total claude-sonnet-4-5 ours"] == pytest.approx(2.55)
    fork = replace(QUIET, branch="task-42/2", call=9, costs=Costs(ours=0.7))
    assert summed(FULL, fork)["cost_usd_total claude-sonnet-4-5 ours"] == pytest.approx(0.5)


def test_a_guard_is_counted_when_it_begins_to_speak() -> None:
    """A guard says the same at every later call; that is one stop."""
    stopped = make_later(FULL, turns=18)
    found = summed(FULL, stopped, make_later(stopped))
    assert found["stops_total max_turns"] == found["stops_total plateau_window"] == 1


def test_times() -> None:
    """A pass without a summarizer says nothing of one."""
    assert [each.metric for each in Sampler().sample_pass(QUIET) if each.metric.kind == "histogram"] == [
        metric_table.PASS_SECONDS
    ]
    assert {each.metric for each in Sampler().sample_pass(FULL) if each.metric.kind == "histogram"} == {
        metric_table.PASS_SECONDS,
        metric_table.SUMMARIZER_SECONDS,
    }


def test_a_pass_that_failed_as_a_whole() -> None:
    """What failed before it knew its session is counted, and no gauge falls to nothing."""
    faults = (Fault(kind="engine", cause="KeyError", what="'x'"),)
    lost = build_failed_diagnostics("task-42", faults, 0.01)
    found = summed(FULL, lost)
    assert found["passes_total no failed"] == found["faults_total engine KeyError"] == 1
    assert found["tokens_in claude-sonnet-4-5"] == 45_000


def test_models_are_bounded() -> None:
    """However many models there are, their label takes a bounded number of values; none at all is `unknown`."""
    reader, seen = Sampler(), set()
    for number in range(100):
        for sample in reader.sample_pass(replace(QUIET, model=f"model-{number}" if number else "")):
            seen.add(sample.labels.get("model", "unknown"))
    assert len(seen) == MAX_MODELS + 1
    assert {"unknown", OTHER_LABEL} <= seen


def test_names_of_models_are_bounded() -> None:
    """Whatever the length of a model's name, its label is short and printable; `other` takes no room."""
    reader = Sampler()
    for name, label in (
        ("x\ny" + "z" * 1_000_000, "x?y" + "z" * (metric_table.MAX_NAME_LENGTH - 3)),
        (OTHER_LABEL, OTHER_LABEL),
    ):
        told = reader.sample_pass(replace(QUIET, model=name))
        assert {each.labels["model"] for each in told if "model" in each.labels} == {label}
    assert len(reader._models) == 1


def test_sessions_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory of sessions is bounded; the one that was quiet for longest goes first."""
    monkeypatch.setattr(metric_table, "MAX_SESSIONS", 2)
    reader = Sampler()
    for name in ("a", "b", "a", "c"):
        reader.sample_pass(replace(FULL, session=name, branch=name))
    assert [session for session, _ in reader._totals] == ["a", "c"]


def test_a_real_run() -> None:
    """Over a whole run the sums are what the last diagnostics say."""
    told = run_passes("hybrid(window=3, summarize_at=12, tail=4, schedule=every-turn)", steps(40), max_turns=30)
    found = summed(*told)
    assert found["cost_usd_total claude-sonnet-4-5 ours"] == pytest.approx(told[-1].costs.ours)
    assert found["saved_usd claude-sonnet-4-5 hiding"] == pytest.approx(told[-1].costs.hiding)
    assert found["rewrites_total mask"] == told[-1].epoch - 1 > 0
    assert found["stops_total max_turns"] == 1
    assert sum(value for key, value in found.items() if key.startswith("passes_total")) == len(told) == 41


@given(st.lists(any_pass, max_size=8))
def test_any_pass(told: list[Diagnostics]) -> None:
    """Whatever a pass says, labels are listed ones, sums never shrink, and a metric's labels are all given."""
    reader = Sampler()
    for each in told:
        for sample in reader.sample_pass(each):
            assert tuple(sample.labels) == sample.metric.labels
            assert all(
                value in (*LABELS[label], OTHER_LABEL) for label, value in sample.labels.items() if label != "model"
            )
            assert sample.value >= 0 or sample.metric in (metric_table.SAVED,)


class Broken(PassCollector):
    """Fails at every pass."""

    def report_pass(self, diagnostics: Diagnostics) -> None:
        raise RuntimeError("no such host")


def test_a_collector_never_raises(caplog: pytest.LogCaptureFixture) -> None:
    """What fails in telemetry is logged, with a trace the first time, and the agent goes on."""
    broken = Broken()
    with caplog.at_level(logging.WARNING, logger="elision.telemetry"):
        broken(FULL)
        broken(QUIET)
    assert [record.getMessage() for record in caplog.records] == ["Broken could not take a pass"] * 2
    assert [bool(record.exc_info) for record in caplog.records] == [True, False]


def test_samples_are_values() -> None:
    """Two equal passes of two new processes give equal samples."""
    assert Sampler().sample_pass(FULL) == Sampler().sample_pass(FULL)
    assert isinstance(Sampler().sample_pass(FULL)[0], Sample)
