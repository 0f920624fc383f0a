"""The gateway's metrics as a table, what each request adds to them, and the page for Prometheus with the library's too.

Needs the extra `prometheus`. Several workers report as one: each writes files into a shared folder, and any of them
adds all files up.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Final

from elision.errors import MissingExtra, PriceError
from elision.gateway.request_record import RequestRecord
from elision.providers.provider_table import PROVIDERS
from elision.telemetry.diagnostics import Diagnostics
from elision.telemetry.metric_table import MAX_MODELS, OTHER_LABEL, Metric, Sample, clean_model_name
from elision.telemetry.prometheus import Instrument, Prometheus, create_instrument
from elision.trajectory.price_lookup import find_prices
from elision.trajectory.run_roles import ROLES
from elision.trajectory.usage import Usage

try:
    from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
    from prometheus_client.multiprocess import MultiProcessCollector
except ImportError as error:
    raise MissingExtra("metrics for Prometheus", "prometheus") from error

#: The folder; prometheus_client reads it when it is imported, so a worker has it before it starts.
FOLDER_VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"
#: Tenants with a label of their own in one worker; later ones are `other`.
MAX_TENANTS: Final = 100
#: Characters of a key's hash that are the label.
TENANT_CHARS: Final = 9

_PREFIX: Final = "agent_context_gateway_"


def _make_counter(name: str, meaning: str, *labels: str, unit: str = "1") -> Metric:
    return Metric(name=_PREFIX + name, kind="counter", unit=unit, meaning=meaning, labels=labels)  # type: ignore[arg-type]


def _make_histogram(name: str, meaning: str, *buckets: float, labels: tuple[str, ...] = ("api",)) -> Metric:
    return Metric(
        name=_PREFIX + name, kind="histogram", unit="seconds", meaning=meaning, labels=labels, buckets=buckets
    )


REQUESTS: Final = _make_counter(
    "requests_total", "requests by how they were sent and by status class", "api", "how", "status"
)
ERRORS: Final = _make_counter("errors_total", "failed requests by cause", "api", "cause")
BYTES_IN: Final = _make_counter("bytes_in_total", "bytes of requests received from clients", "api", unit="bytes")
BYTES_UP: Final = _make_counter("bytes_up_total", "bytes of requests sent to providers", "api", unit="bytes")
BYTES_OUT: Final = _make_counter("bytes_out_total", "bytes of responses sent to clients", "api", unit="bytes")
ADDED_SECONDS: Final = _make_histogram(
    "added_seconds",
    "from a request's last byte to the first byte sent to the provider",
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5),
)
WAITED_SECONDS: Final = _make_histogram(
    "waited_seconds",
    "of that, waiting for another request of the same session",
    *(0.0005, 0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10),
)
FIRST_BYTE_SECONDS: Final = _make_histogram(
    "first_byte_seconds",
    "from a request's last byte to the first byte of the response",
    *(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120),
)
ANSWER_SECONDS: Final = _make_histogram(
    "answer_seconds",
    "from a request's last byte to the last byte of the response",
    *(0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600),
)
RECALLS: Final = _make_counter("recalls_total", "recalls that the gateway answered", "api")
ROUNDS: Final = _make_counter("rounds_total", "requests to providers; more than one if a model recalled", "api")
CACHE_MISSES: Final = _make_counter(
    "cache_misses_total", "cache misses by the reason that the provider gives", "reason"
)
CLEARED_TOKENS: Final = _make_counter(
    "cleared_tokens_total", "prompt tokens that the provider cleared itself", unit="tokens"
)
PINNED: Final = _make_counter("pinned_requests_total", "requests whose tools were sent as their session first had them")
PINNED_TOKENS: Final = _make_counter(
    "pinned_tokens_total", "prompt tokens that those requests read from the cache", unit="tokens"
)
THINKING_DROPPED: Final = _make_counter("thinking_dropped_total", "thinking blocks that the provider left out")
STORE_OUTAGES: Final = _make_counter("store_outages_total", "outages of the store")
LEASE_FAILURES: Final = _make_counter("lease_failures_total", "outages of the counter of key spending")
TENANT_REQUESTS: Final = _make_counter("tenant_requests_total", "requests to models by tenant", "tenant")
TENANT_RAW: Final = _make_counter(
    "tenant_raw_tokens_total", "prompt tokens of a tenant, had nothing been hidden", "tenant", unit="tokens"
)
TENANT_SENT: Final = _make_counter(
    "tenant_sent_tokens_total", "prompt tokens of a tenant, as sent", "tenant", unit="tokens"
)
ROLE_REQUESTS: Final = _make_counter("role_requests_total", "requests to models by role", "role")
ROLE_TOKENS: Final = _make_counter(
    "role_tokens_total", "billed tokens by role: agents, sub-agents, side calls", "role", "part", unit="tokens"
)
IN_FLIGHT: Final = Metric(name=_PREFIX + "in_flight", kind="gauge", unit="1", meaning="requests in progress", labels=())
WAITING: Final = Metric(name=_PREFIX + "waiting", kind="gauge", unit="1", meaning="requests that wait", labels=())
HELD_BYTES: Final = Metric(
    name=_PREFIX + "held_bytes", kind="gauge", unit="bytes", meaning="memory of requests in progress", labels=()
)
SESSIONS: Final = Metric(
    name=_PREFIX + "sessions", kind="gauge", unit="1", meaning="sessions held in memory", labels=()
)

METRICS: Final[tuple[Metric, ...]] = (
    REQUESTS,
    ERRORS,
    BYTES_IN,
    BYTES_UP,
    BYTES_OUT,
    ADDED_SECONDS,
    WAITED_SECONDS,
    FIRST_BYTE_SECONDS,
    ANSWER_SECONDS,
    RECALLS,
    ROUNDS,
    CACHE_MISSES,
    CLEARED_TOKENS,
    PINNED,
    PINNED_TOKENS,
    THINKING_DROPPED,
    STORE_OUTAGES,
    LEASE_FAILURES,
    TENANT_REQUESTS,
    TENANT_RAW,
    TENANT_SENT,
    ROLE_REQUESTS,
    ROLE_TOKENS,
)
#: As it stands at this moment, in each worker.
GAUGES: Final[tuple[Metric, ...]] = (IN_FLIGHT, WAITING, HELD_BYTES, SESSIONS)

#: What went wrong, in one word; providers' refusals are `upstream-4xx` and `upstream-5xx`, two apart.
_CAUSES: Final = (
    "dns",
    "refused",
    "tls",
    "connect",
    "connect-timeout",
    "read-timeout",
    "cut",
    "malformed",
    "upstream-429",
    "upstream-529",
    "upstream-4xx",
    "upstream-5xx",
    "client-gone",
    "too-large",
    "slow-request",
    "busy",
    "stopping",
    "unreadable",
    "overflow",
    "budget",
    "unbound",
    "rejected",
    "limit",
    "rate",
    "store",
    "summarizer",
    "dialect",
    "callback",
    "engine",
    "prepare",
    "render",
    "exchanges",
    "recall",
    "bug",
)
#: Cache-miss reasons that providers document (docs/reference/providers.md).
_REASONS: Final = (
    "model_changed",
    "system_changed",
    "tools_changed",
    "messages_changed",
    "input_changed",
    "prompt_cache_key_changed",
    "text_format_changed",
    "reasoning_effort_changed",
    "verbosity_changed",
    "service_tier_changed",
    "context_compacted",
    "previous_message_not_found",
    "comparison_response_not_found",
    "unavailable",
)

#: Label -> the values it takes, `other` apart.
LABELS: Final[dict[str, tuple[str, ...]]] = {
    "api": (*PROVIDERS, "none"),
    "how": ("view", "same", "shadow", "passed", "failed", "refused"),
    "status": ("2xx", "3xx", "4xx", "5xx", "none"),
    "cause": _CAUSES,
    "reason": _REASONS,
    # Bounded by number: `MAX_TENANTS`.
    "tenant": (),
    "role": ROLES,
    "part": ("input", "cache_write", "cache_read", "output"),
}


def label_cause(word: str) -> str:
    """Return the label of a cause."""
    if word.startswith("upstream-") and word not in _CAUSES:
        word = f"{word[:-2]}xx"
    return _limit_label("cause", word)


def make_samples(record: RequestRecord) -> list[Sample]:
    """Return what one request adds to each metric."""
    api: dict[str, str] = {"api": record.api or "none"}
    # The class of an answer's status; 0 is for none.
    status = _limit_label("status", f"{record.status // 100}xx") if record.status else "none"
    amounts: list[tuple[Metric, float, dict[str, str]]] = [
        (WAITED_SECONDS, record.waited_seconds, api),
        (FIRST_BYTE_SECONDS, record.first_byte_seconds, api),
        (ANSWER_SECONDS, record.total_seconds, api),
        (ROUNDS, record.rounds, api),
        (RECALLS, record.recalls, api),
        (CLEARED_TOKENS, record.cleared_tokens, {}),
        (PINNED, record.is_pinned, {}),
        (PINNED_TOKENS, record.usage.cache_read if record.is_pinned and record.usage is not None else 0, {}),
        (THINKING_DROPPED, record.thinking_dropped, {}),
    ]
    samples = [
        Sample(REQUESTS, 1, {**api, "how": _limit_label("how", record.how), "status": status}),
        Sample(BYTES_IN, record.bytes_in, api),
        Sample(BYTES_UP, record.bytes_up, api),
        Sample(BYTES_OUT, record.bytes_out, api),
        *(Sample(metric, amount, labels) for metric, amount, labels in amounts if amount),
    ]
    if record.rounds:
        samples.append(Sample(ADDED_SECONDS, record.added_seconds, api))
    if record.cause:
        samples.append(Sample(ERRORS, 1, {**api, "cause": label_cause(record.cause)}))
    if record.cache_miss:
        samples.append(Sample(CACHE_MISSES, 1, {"reason": _limit_label("reason", record.cache_miss)}))
    if record.role and 200 <= record.status < 300:
        samples += _make_role_samples(record.role, record.usage)
    return samples


def _make_role_samples(role: str, usage: Usage | None) -> list[Sample]:
    """Return what one answered request adds to the metrics of the role that made it."""
    samples = [Sample(ROLE_REQUESTS, 1, {"role": role})]
    if usage is not None:
        for part in LABELS["part"]:
            if tokens := getattr(usage, part):
                samples.append(Sample(ROLE_TOKENS, tokens, {"role": role, "part": part}))
    return samples


def make_tenant_samples(record: RequestRecord, tenant: str) -> list[Sample]:
    """Return what one request adds to its tenant's metrics."""
    labels = {"tenant": tenant}
    samples = [Sample(TENANT_REQUESTS, 1, labels)]
    for step in record.step_diagnostics:
        samples.append(Sample(TENANT_RAW, step.raw, labels))
        samples.append(Sample(TENANT_SENT, step.raw if step.shadow else step.after, labels))
    return samples


def _limit_label(label: str, value: str) -> str:
    return value if value in LABELS[label] else OTHER_LABEL


class MetricsPage:
    """The metrics of one process, as a page that Prometheus scrapes."""

    content_type: str = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._library = Prometheus(self._registry)
        self._models = {""}
        self._tenants: set[str] = set()
        self._instruments: dict[str, Instrument] = {
            each.name: create_instrument(each, self._registry, is_current_amount=each in GAUGES)
            for each in (*METRICS, *GAUGES)
        }

    def add_request(self, record: RequestRecord) -> None:
        """Add what one request counts."""
        for sample in make_samples(record):
            self._record_sample(sample)
        if record.namespace and 200 <= record.status < 300:
            for sample in make_tenant_samples(record, self._limit_tenant(record.namespace)):
                self._record_sample(sample)
        for each in record.step_diagnostics:
            self._library(self._limit_model(each, answered=200 <= record.status < 300))

    def add_store_outage(self) -> None:
        """Count that the store could be written no more."""
        self._record_sample(Sample(STORE_OUTAGES, 1, {}))

    def add_lease_failure(self) -> None:
        """Count that what keys spend could be counted no more."""
        self._record_sample(Sample(LEASE_FAILURES, 1, {}))

    def set_gauges(self, *, in_flight: int, waiting: int, held_bytes: int, sessions: int) -> None:
        """Set the gauges of this worker."""
        for metric, value in zip(GAUGES, (in_flight, waiting, held_bytes, sessions), strict=True):
            self._record_sample(Sample(metric, value, {}))

    def render(self) -> bytes:
        """Return the metrics of all workers in Prometheus's text format."""
        if not os.environ.get(FOLDER_VARIABLE):
            return bytes(generate_latest(self._registry))
        together = CollectorRegistry()
        MultiProcessCollector(together)  # type: ignore[no-untyped-call]
        return bytes(generate_latest(together))

    def _limit_model(self, diagnostics: Diagnostics, *, answered: bool) -> Diagnostics:
        """Return the diagnostics, with the model `other` unless it has prices or an answer.

        Anyone who reaches the gateway may send any model name, without a valid key. The number of labels is limited,
        and such names would use it up.
        """
        name = clean_model_name(diagnostics.model)
        if name not in self._models:
            # Priced ones never take all room: one model's price is found under many spellings.
            if not answered and (len(self._models) > MAX_MODELS // 2 or not _has_price(name)):
                return replace(diagnostics, model=OTHER_LABEL)
            if len(self._models) < MAX_MODELS:
                self._models.add(name)
        return diagnostics

    def _limit_tenant(self, namespace: str) -> str:
        """Return the label of a key that a provider answered: the beginning of its hash, or `other` behind the cap."""
        label = namespace[:TENANT_CHARS]
        if label not in self._tenants:
            if len(self._tenants) >= MAX_TENANTS:
                return OTHER_LABEL
            self._tenants.add(label)
        return label

    def _record_sample(self, sample: Sample) -> None:
        self._instruments[sample.metric.name].record(sample.value, sample.labels)


def _has_price(model: str) -> bool:
    try:
        find_prices(model)
    except PriceError:
        return False
    return True
