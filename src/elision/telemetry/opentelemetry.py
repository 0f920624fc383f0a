"""Report metrics and spans to OpenTelemetry: `on_event=OpenTelemetry()`. Needs the extra `otel`.

Names follow the semantic conventions for generative AI where they have one, as of November 2026: a repository of their
own, open-telemetry/semantic-conventions-genai, docs/gen-ai/client-inference.md. Elision is the client of one kind of
call only, the summarizer's: that is reported as `gen_ai.client.inference.*`. The agent's own calls are its client's to
report, and would be counted twice here.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from elision.errors import MissingExtra
from elision.telemetry.diagnostics import Diagnostics, Summarized
from elision.telemetry.metric_table import METRICS, Metric, PassCollector, Sampler
from elision.trajectory.price_lookup import find_maker

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter, MeterProvider
    from opentelemetry.trace import Tracer, TracerProvider

SCOPE: Final = "elision"
#: Unit -> as UCUM writes it; what is counted is in braces.
_UNITS: Final = {"tokens": "{token}", "turns": "{turn}", "USD": "{USD}", "seconds": "s", "bytes": "By", "1": "1"}
MODEL: Final = "gen_ai.request.model"
OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
CONVERSATION: Final = "gen_ai.conversation.id"
COMPACTED: Final = "gen_ai.conversation.compacted"
INPUT: Final = "gen_ai.usage.input_tokens"
OUTPUT: Final = "gen_ai.usage.output_tokens"
CACHED: Final = "gen_ai.usage.cache_read.input_tokens"
MODALITY: Final = "gen_ai.token.modality"
USED_INPUT: Final = "gen_ai.client.inference.usage.input_tokens"
USED_OUTPUT: Final = "gen_ai.client.inference.usage.output_tokens"
USED_CACHED: Final = "gen_ai.client.inference.usage.cache_read.input_tokens"
DURATION: Final = "gen_ai.client.inference.duration"
#: Makers in our price table -> what the conventions call them; others have one name in both.
_PROVIDERS: Final = {"google": "gcp.gemini", "moonshotai": "moonshot_ai"}
#: Kind of a metric -> the method of its instrument that takes a value, where that is not `add`.
_RECORDERS: Final[Mapping[str, str]] = {"gauge": "set", "histogram": "record"}
#: Buckets as the conventions advise.
_DURATION_BUCKETS: Final = tuple(0.01 * 2**power for power in range(14))


class OpenTelemetry(PassCollector):
    """Reports each pass to a meter, and with `spans` to a tracer too.

    meters, tracers: providers; the global ones if None. spans: one for each pass, named `agent_context.prepare`, and
    one inside it for a summarizer call; sessions are named there and nowhere else.
    Raises MissingExtra without opentelemetry-api.
    """

    def __init__(
        self, meters: MeterProvider | None = None, tracers: TracerProvider | None = None, *, spans: bool = False
    ) -> None:
        super().__init__()
        try:
            from opentelemetry import metrics, trace
        except ImportError:
            raise MissingExtra("metrics for OpenTelemetry", "otel") from None
        meter = metrics.get_meter(SCOPE, meter_provider=meters)
        self._readings = Sampler()
        self._recorders = {
            metric.name: getattr(_create_instrument(metric, meter), _RECORDERS.get(metric.kind, "add"))
            for metric in METRICS
        }
        self._usage = {
            name: meter.create_counter(name, unit="{token}", description="tokens of the summarizer's calls")
            for name in (USED_INPUT, USED_OUTPUT, USED_CACHED)
        }
        self._duration = meter.create_histogram(
            DURATION,
            unit="s",
            description="duration of the summarizer's calls",
            explicit_bucket_boundaries_advisory=_DURATION_BUCKETS,
        )
        # A span ends when it is reported.
        self.is_deferrable = not spans
        self._tracer = trace.get_tracer(SCOPE, tracer_provider=tracers) if spans else None

    def report_pass(self, diagnostics: Diagnostics) -> None:
        for sample in self._readings.sample_pass(diagnostics):
            self._recorders[sample.metric.name](sample.value, rename_labels(sample.labels))
        if diagnostics.summarized is not None:
            self._report_summarizer(diagnostics.summarized)
        if self._tracer is not None:
            _record_span(self._tracer, diagnostics, time.time_ns())

    def _report_summarizer(self, summarized: Summarized) -> None:
        """Report a summarizer call. The digest asks no model, and is none."""
        if not summarized.input and not summarized.output:
            return
        call = _describe_call(summarized)
        for name, tokens in (
            (USED_INPUT, summarized.input),
            (USED_OUTPUT, summarized.output),
            (USED_CACHED, summarized.cached),
        ):
            self._usage[name].add(tokens, {**call, MODALITY: "text"})
        if summarized.seconds > 0:
            self._duration.record(summarized.seconds, call)


def _describe_call(summarized: Summarized) -> dict[str, str]:
    """Return what all signals of a summarizer call say of it."""
    maker = find_maker(summarized.model) or "unknown"
    call = {OPERATION: "chat", PROVIDER: _PROVIDERS.get(maker, maker)}
    if summarized.model:
        call[MODEL] = summarized.model
    return call


def _create_instrument(metric: Metric, meter: Meter) -> Any:
    unit = _UNITS[metric.unit]
    if metric.kind == "histogram":
        return meter.create_histogram(
            metric.name, unit, metric.meaning, explicit_bucket_boundaries_advisory=metric.buckets
        )
    make = {"gauge": meter.create_gauge, "counter": meter.create_counter, "updown": meter.create_up_down_counter}
    return make[metric.kind](metric.name, unit, metric.meaning)


def rename_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Return labels under the names that OpenTelemetry has for them."""
    return {MODEL if name == "model" else f"agent_context.{name}": value for name, value in labels.items()}


# -- spans ------------------------------------------------------------------------------------------------------------


def _record_span(tracer: Tracer, diagnostics: Diagnostics, now_ns: int) -> None:
    """Record a finished pass as a span that ends at `now_ns`, in nanoseconds since the epoch."""
    from opentelemetry.trace import SpanKind, set_span_in_context

    start = now_ns - int(diagnostics.seconds * 1e9)
    span = tracer.start_span("agent_context.prepare", start_time=start, attributes=_collect_attributes(diagnostics))
    for fault in diagnostics.faults:
        span.add_event("fault", {"kind": fault.kind, "cause": fault.cause}, timestamp=now_ns)
    for said in (diagnostics.stop, diagnostics.hint):
        if said is not None:
            span.add_event("guard", {"says": str(said)}, timestamp=now_ns)
    summarized = diagnostics.summarized
    if summarized is not None and (summarized.input or summarized.output):
        inner = tracer.start_span(
            f"chat {summarized.model}".strip(),
            context=set_span_in_context(span),
            kind=SpanKind.CLIENT,
            start_time=max(start, now_ns - int(summarized.seconds * 1e9)),
            attributes={
                **_describe_call(summarized),
                INPUT: summarized.input,
                CACHED: summarized.cached,
                OUTPUT: summarized.output,
                "agent_context.route": summarized.route,
            },
        )
        inner.end(now_ns)
    span.end(now_ns)


def _collect_attributes(diagnostics: Diagnostics) -> dict[str, str | int | float]:
    """Return what a pass did. Tokens have names of our own, since what is sent is not yet what is used."""
    return {
        CONVERSATION: diagnostics.session,
        MODEL: diagnostics.model,
        COMPACTED: diagnostics.after < diagnostics.raw,
        "agent_context.call": diagnostics.call,
        "agent_context.turns": diagnostics.turns,
        "agent_context.phase": diagnostics.phase,
        "agent_context.tokens_in": diagnostics.raw,
        "agent_context.tokens_out": diagnostics.after,
        "agent_context.freed_tokens": diagnostics.before - diagnostics.after,
        "agent_context.masked": len(diagnostics.masked),
        "agent_context.clipped": len(diagnostics.clipped),
        "agent_context.folded": len(diagnostics.folded),
        "agent_context.unfolded": len(diagnostics.unfolded),
        "agent_context.epoch": diagnostics.epoch,
        "agent_context.history": diagnostics.history,
        "agent_context.cost_usd": diagnostics.costs.ours,
        "agent_context.hiding_saved_usd": diagnostics.costs.hiding,
        "agent_context.caching_saved_usd": diagnostics.costs.caching,
    }
