"""The table of metrics and what may stand under a label."""

from __future__ import annotations

import re

import pytest

from elision.strategies.spec import SCHEDULES, parse_strategy
from elision.telemetry.metric_table import LABELS, METRICS, OTHER_LABEL, label_reason, normalize_label
from tests.properties.builders import steps
from tests.telemetry.sample_passes import run_passes

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
