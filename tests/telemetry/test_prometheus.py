"""Metrics as Prometheus scrapes them, with the real client library."""

from __future__ import annotations

import sys
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as open_metrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parsed_strictly
from prometheus_client.parser import text_string_to_metric_families

from elision.errors import MissingExtra
from elision.telemetry.diagnostics import Diagnostics
from elision.telemetry.metric_table import METRICS
from elision.telemetry.prometheus import Prometheus
from tests.telemetry.sample_passes import FULL, QUIET, any_pass, make_later
from tests.telemetry.test_metric_table import PROMISED


def scraped(registry: CollectorRegistry) -> dict[str, float]:
    """Series as `name{labels}` -> value."""
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return {
        " ".join([sample.name, *sample.labels.values()]): sample.value
        for family in families
        for sample in family.samples
    }


def test_a_scrape() -> None:
    """The promised names stand on the page as they are, with the values of the newest pass or the sums."""
    registry = CollectorRegistry()
    report = Prometheus(registry)
    for told in (FULL, QUIET, make_later(QUIET)):
        report(told)
    found = scraped(registry)
    assert {name.split()[0] for name in found} >= PROMISED
    assert found["agent_context_tokens_in claude-sonnet-4-5"] == 45_400
    assert found["agent_context_summary_calls_total fresh"] == 1
    assert found["agent_context_passes_total no cap-on-raw"] == 2
    assert found["agent_context_saved_usd hiding claude-sonnet-4-5"] == pytest.approx(0.35)
    assert found["agent_context_pass_seconds_count"] == 3
    assert found["agent_context_pass_seconds_bucket 0.0025"] == 2


def test_every_metric_is_there() -> None:
    """One pass that did everything leaves no metric of the table unscraped, each with its kind and its meaning."""
    registry = CollectorRegistry()
    Prometheus(registry)(FULL)
    families = {family.name: family for family in registry.collect()}
    kinds = {"gauge": "gauge", "updown": "gauge", "counter": "counter", "histogram": "histogram"}
    for metric in METRICS:
        family = families[metric.name.removesuffix("_total")]
        assert family.type == kinds[metric.kind]
        assert family.documentation.startswith(metric.meaning)
        assert family.samples


def test_it_is_valid_open_metrics() -> None:
    """The stricter format takes it too."""
    registry = CollectorRegistry()
    Prometheus(registry)(FULL)
    assert len(list(parsed_strictly(open_metrics(registry).decode()))) == len(METRICS)


def test_one_registry_for_many() -> None:
    """A second reporter to the same registry adds to the first, and another registry knows nothing of it."""
    registry, other = CollectorRegistry(), CollectorRegistry()
    Prometheus(registry)(FULL)
    Prometheus(registry)(QUIET)
    Prometheus(other)
    assert scraped(registry)["agent_context_cost_usd_total ours claude-sonnet-4-5"] == pytest.approx(0.55)
    assert not any("claude" in name for name in scraped(other))


def test_threads() -> None:
    """Passes of many sessions at once are all counted."""
    registry = CollectorRegistry()
    report = Prometheus(registry)
    threads = [Thread(target=lambda: [report(QUIET) for _ in range(200)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert scraped(registry)["agent_context_passes_total no cap-on-raw"] == 800


@given(st.lists(any_pass, max_size=4))
def test_any_pass(told: list[Diagnostics]) -> None:
    """Whatever a pass says, it is taken, and the page can be read."""
    registry = CollectorRegistry()
    report = Prometheus(registry)
    for each in told:
        report.report_pass(each)
    assert scraped(registry)["agent_context_pass_seconds_count"] == len(told)


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where prometheus-client is not installed, the error names the extra."""
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(MissingExtra, match=r"needs an extra: .*\[prometheus\]"):
        Prometheus()
