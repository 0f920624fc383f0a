"""Metrics for Prometheus to scrape: `on_event=Prometheus()`. Needs the extra `prometheus`."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from lacuna.errors import MissingExtra
from lacuna.telemetry.diagnostics import Diagnostics
from lacuna.telemetry.metrics import METRICS, Metric
from lacuna.telemetry.readings import Collector, Readings

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


class _Instruments:
    """The metrics of one registry, shared by all that report to it: a name can be registered only once."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.readings = Readings()
        self.by_name = {metric.name: _instrument(metric, registry) for metric in METRICS}


_LOCK: Final = Lock()
_BY_REGISTRY: Final[WeakKeyDictionary[CollectorRegistry, _Instruments]] = WeakKeyDictionary()


class Prometheus(Collector):
    """Reports each pass to a registry; any number of context managers may share one, or one registry.

    registry: prometheus_client's own if None. Raises MissingExtra without prometheus-client.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        super().__init__()
        try:
            import prometheus_client
        except ImportError:
            raise MissingExtra("metrics for Prometheus", "prometheus") from None
        chosen = prometheus_client.REGISTRY if registry is None else registry
        with _LOCK:
            if chosen not in _BY_REGISTRY:
                _BY_REGISTRY[chosen] = _Instruments(chosen)
            self._instruments = _BY_REGISTRY[chosen]

    def take(self, diagnostics: Diagnostics) -> None:
        for sample in self._instruments.readings.read(diagnostics):
            _put(sample.metric, self._instruments.by_name[sample.metric.name], sample.value, sample.labels)


def _instrument(metric: Metric, registry: CollectorRegistry) -> Any:
    from prometheus_client import Counter, Gauge, Histogram

    text = f"{metric.meaning} ({metric.unit})" if metric.unit != "1" else metric.meaning
    if metric.kind == "histogram":
        return Histogram(metric.name, text, metric.labels, registry=registry, buckets=metric.buckets)
    kind = Counter if metric.kind == "counter" else Gauge
    return kind(metric.name, text, metric.labels, registry=registry)


def _put(metric: Metric, instrument: Any, value: float, labels: Mapping[str, str]) -> None:
    series = instrument.labels(**labels) if metric.labels else instrument
    if metric.kind == "gauge":
        series.set(value)
    elif metric.kind == "histogram":
        series.observe(value)
    else:
        series.inc(value)
