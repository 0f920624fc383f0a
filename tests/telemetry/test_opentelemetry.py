"""Metrics and spans for OpenTelemetry, with the real SDK and its exporters in memory."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as names
from opentelemetry.trace import SpanKind

from elision.errors import MissingExtra
from elision.telemetry import opentelemetry as ours
from elision.telemetry.diagnostics import Diagnostics
from elision.telemetry.metric_table import METRICS
from elision.telemetry.opentelemetry import OpenTelemetry
from tests.telemetry.sample_passes import FULL, QUIET, any_pass, make_later
from tests.telemetry.test_metric_table import PROMISED


@pytest.fixture
def reader() -> InMemoryMetricReader:
    return InMemoryMetricReader()


@pytest.fixture
def meters(reader: InMemoryMetricReader) -> Iterator[MeterProvider]:
    provider = MeterProvider([reader], shutdown_on_exit=False)
    yield provider
    provider.shutdown()


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def tracers(exporter: InMemorySpanExporter) -> Iterator[TracerProvider]:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield provider
    provider.shutdown()


def collected(reader: InMemoryMetricReader) -> dict[str, Any]:
    data = reader.get_metrics_data()
    scopes = [scope for resource in (data.resource_metrics if data else ()) for scope in resource.scope_metrics]
    return {metric.name: metric for scope in scopes for metric in scope.metrics}


def points(metric: Any) -> dict[tuple[Any, ...], Any]:
    return {tuple(point.attributes.values()): point for point in metric.data.data_points}


def test_metrics(reader: InMemoryMetricReader, meters: MeterProvider) -> None:
    """Every metric of the table arrives under its own name, with its unit and its labels as attributes."""
    report = OpenTelemetry(meters)
    for told in (FULL, QUIET, make_later(QUIET)):
        report(told)
    found = collected(reader)
    assert set(found) == {metric.name for metric in METRICS} | {
        *(ours.USED_INPUT, ours.USED_OUTPUT, ours.USED_CACHED, ours.DURATION)
    }
    assert set(found) >= PROMISED
    assert points(found["agent_context_tokens_out"])["claude-sonnet-4-5",].value == 12_400
    assert points(found["agent_context_passes_total"])["no", "cap-on-raw"].value == 2
    assert points(found["agent_context_saved_usd"])["claude-sonnet-4-5", "hiding"].value == pytest.approx(0.35)
    assert found["agent_context_saved_usd"].data.is_monotonic is False
    assert found["agent_context_passes_total"].data.is_monotonic is True
    assert found["agent_context_tokens_in"].unit == "{token}"
    seconds = points(found["agent_context_pass_seconds"])[()]
    assert (seconds.count, seconds.explicit_bounds[0]) == (3, 0.0005)
    assert {*found["agent_context_tokens_in"].data.data_points[0].attributes} == {"gen_ai.request.model"}
    assert {*found["agent_context_faults_total"].data.data_points[0].attributes} == {
        "agent_context.kind",
        "agent_context.cause",
    }


def test_the_summarizer_as_a_client(reader: InMemoryMetricReader, meters: MeterProvider) -> None:
    """The summarizer's calls are generative AI calls of ours: usage and duration under the conventions' names."""
    OpenTelemetry(meters)(FULL)
    found = collected(reader)
    call = ("chat", "anthropic", "claude-haiku-4-5")
    used = {name: points(found[name])[*call, "text"].value for name in (ours.USED_INPUT, ours.USED_OUTPUT)}
    assert used == {ours.USED_INPUT: 8_500, ours.USED_OUTPUT: 580}
    assert points(found[ours.USED_CACHED])[*call, "text"].value == 500
    assert found[ours.USED_INPUT].data.is_monotonic
    assert points(found[ours.DURATION])[call].sum == 2.5


def test_the_names_are_the_conventions() -> None:
    """Names that the semantic conventions have are written as they have them."""
    assert names.GEN_AI_REQUEST_MODEL == ours.MODEL
    assert names.GEN_AI_OPERATION_NAME == ours.OPERATION
    assert names.GEN_AI_CONVERSATION_ID == ours.CONVERSATION
    assert names.GEN_AI_USAGE_INPUT_TOKENS == ours.INPUT
    assert names.GEN_AI_USAGE_OUTPUT_TOKENS == ours.OUTPUT
    assert names.GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS == ours.CACHED
    assert names.GEN_AI_PROVIDER_NAME == ours.PROVIDER


@pytest.mark.parametrize(
    ("model", "provider"),
    [("gpt-5.2", "openai"), ("gemini-3-pro", "gcp.gemini"), ("kimi-k3", "moonshot_ai"), ("a-model", "unknown")],
)
def test_who_serves_the_summarizer(
    reader: InMemoryMetricReader, meters: MeterProvider, model: str, provider: str
) -> None:
    """The provider has the conventions' name, whatever our price table calls it."""
    assert FULL.summarized is not None
    OpenTelemetry(meters)(replace(FULL, summarized=replace(FULL.summarized, model=model)))
    assert {point[1] for point in points(collected(reader)[ours.DURATION])} == {provider}


def test_no_spans_unless_asked(meters: MeterProvider, tracers: TracerProvider, exporter: InMemorySpanExporter) -> None:
    """Spans name sessions; so they are asked for."""
    OpenTelemetry(meters, tracers)(FULL)
    assert exporter.get_finished_spans() == ()


def test_spans(meters: MeterProvider, tracers: TracerProvider, exporter: InMemorySpanExporter) -> None:
    """A pass is a span as long as it took, the summarizer's call one inside it, faults and guards are events."""
    OpenTelemetry(meters, tracers, spans=True)(FULL)
    inner, outer = exporter.get_finished_spans()
    assert (outer.name, inner.name) == ("agent_context.prepare", "chat claude-haiku-4-5")
    assert inner.kind is SpanKind.CLIENT
    assert inner.parent is not None
    assert inner.parent.span_id == outer.context.span_id
    assert outer.end_time - outer.start_time == 2_750_000_000
    assert inner.end_time - inner.start_time == 2_500_000_000
    assert outer.attributes["gen_ai.conversation.id"] == "task-42"
    assert outer.attributes["gen_ai.conversation.compacted"] is True
    assert outer.attributes["agent_context.tokens_out"] == 12_000
    assert not any(name.startswith("gen_ai.usage") for name in outer.attributes)
    assert inner.attributes["gen_ai.usage.input_tokens"] == 8_500
    assert inner.attributes["gen_ai.usage.cache_read.input_tokens"] == 500
    assert [event.name for event in outer.events] == ["fault", "fault", "guard", "guard"]


def test_a_quiet_pass_is_one_span(
    meters: MeterProvider, tracers: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    """Where no model was asked there is no call."""
    OpenTelemetry(meters, tracers, spans=True)(QUIET)
    assert [span.name for span in exporter.get_finished_spans()] == ["agent_context.prepare"]


def test_without_a_provider() -> None:
    """Where the application set nothing up, the API's own no-op providers take it."""
    OpenTelemetry(spans=True).report_pass(FULL)


@given(st.lists(any_pass, max_size=3))
def test_any_pass(told: list[Diagnostics]) -> None:
    """Whatever a pass says, it is taken."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    report = OpenTelemetry(provider, TracerProvider(shutdown_on_exit=False), spans=True)
    for each in told:
        report.report_pass(each)
    if told:
        assert points(collected(reader)["agent_context_pass_seconds"])[()].count == len(told)
    provider.shutdown()


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where opentelemetry-api is not installed, the error names the extra."""
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(MissingExtra, match=r"needs an extra: .*\[otel\]"):
        OpenTelemetry()
