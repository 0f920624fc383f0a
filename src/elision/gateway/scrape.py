"""`/metrics`: the library's metrics and the gateway's, on a page that Prometheus scrapes. Needs the extra `prometheus`.

Several workers report as one: each writes into files of a folder that all share, and whichever is asked adds them up.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Final

from elision.errors import MissingExtra, PriceError
from elision.gateway import metrics
from elision.gateway.served import Served
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
SHARED: Final = "PROMETHEUS_MULTIPROC_DIR"


class Scrape:
    """The metrics of one process. `take` each served request, `stand` as things stand; `page` is what is scraped."""

    content_type: str = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._library = Prometheus(self._registry)
        self._models = {""}
        self._made: dict[str, Instrument] = {
            each.name: create_instrument(each, self._registry, is_current_amount=each in metrics.STANDING)
            for each in (*metrics.METRICS, *metrics.STANDING)
        }

    def take(self, served: Served) -> None:
        """Add what one request says."""
        for sample in metrics.samples(served):
            self._put(sample)
        for each in served.passes:
            self._library(self._named(each, answered=200 <= served.status < 300))

    def stand(self, *, in_flight: int, waiting: int, held: int, sessions: int) -> None:
        """Note how much there is just now."""
        for sample in metrics.standing(in_flight=in_flight, waiting=waiting, held=held, sessions=sessions):
            self._put(sample)

    def page(self) -> bytes:
        """All of it, over all workers, in Prometheus's text format."""
        if not os.environ.get(SHARED):
            return bytes(generate_latest(self._registry))
        together = CollectorRegistry()
        MultiProcessCollector(together)  # type: ignore[no-untyped-call]
        return bytes(generate_latest(together))

    def _named(self, told: Diagnostics, *, answered: bool) -> Diagnostics:
        """A pass, of `other` where nobody vouches for its model. Whoever reaches the gateway may ask for any name, with
        no valid key, and as many as are told apart would soon be taken by names that no provider has."""
        name = clean_model_name(told.model)
        if name not in self._models:
            # Priced ones never take all room: one model's price is found under many spellings.
            if not answered and (len(self._models) > MAX_MODELS // 2 or not _priced(name)):
                return replace(told, model=OTHER_LABEL)
            if len(self._models) < MAX_MODELS:
                self._models.add(name)
        return told

    def _put(self, sample: Sample) -> None:
        self._made[sample.metric.name].record(sample.value, sample.labels)


def _priced(model: str) -> bool:
    try:
        find_prices(model)
    except PriceError:
        return False
    return True
