"""`/metrics`: the library's metrics and the gateway's, for Prometheus. Needs the extra `prometheus`.

Several workers report as one: each writes files into a shared folder, and any of them adds all files up.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Final

from elision.errors import MissingExtra, PriceError
from elision.gateway import request_metrics
from elision.gateway.request_record import RequestRecord
from elision.telemetry.diagnostics import Diagnostics
from elision.telemetry.metric_table import MAX_MODELS, OTHER_LABEL
from elision.telemetry.prometheus import Instrument, Prometheus, create_instrument
from elision.telemetry.samples import Sample, clean_model_name
from elision.trajectory.price_lookup import find_prices

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


class MetricsPage:
    """The metrics of one process, as a page that Prometheus scrapes."""

    content_type: str = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._library = Prometheus(self._registry)
        self._models = {""}
        self._tenants: set[str] = set()
        self._instruments: dict[str, Instrument] = {
            each.name: create_instrument(each, self._registry, is_current_amount=each in request_metrics.GAUGES)
            for each in (*request_metrics.METRICS, *request_metrics.GAUGES)
        }

    def add_request(self, record: RequestRecord) -> None:
        """Add what one request counts."""
        for sample in request_metrics.make_samples(record):
            self._record_sample(sample)
        if record.namespace and 200 <= record.status < 300:
            for sample in request_metrics.make_tenant_samples(record, self._limit_tenant(record.namespace)):
                self._record_sample(sample)
        for each in record.step_diagnostics:
            self._library(self._limit_model(each, answered=200 <= record.status < 300))

    def add_store_outage(self) -> None:
        """Count that the store could be written no more."""
        self._record_sample(Sample(request_metrics.STORE_OUTAGES, 1, {}))

    def add_lease_failure(self) -> None:
        """Count that what keys spend could be counted no more."""
        self._record_sample(Sample(request_metrics.LEASE_FAILURES, 1, {}))

    def set_gauges(self, *, in_flight: int, waiting: int, held_bytes: int, sessions: int) -> None:
        """Set the gauges of this worker."""
        for sample in request_metrics.make_gauge_samples(
            in_flight=in_flight, waiting=waiting, held_bytes=held_bytes, sessions=sessions
        ):
            self._record_sample(sample)

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
