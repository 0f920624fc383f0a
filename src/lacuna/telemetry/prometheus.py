"""Metrics for Prometheus to scrape: `on_event=Prometheus()`. Needs the extra `prometheus`."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Literal
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
        self.by_name = {metric.name: instrument(metric, registry) for metric in METRICS}


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
            put(sample.metric, self._instruments.by_name[sample.metric.name], sample.value, sample.labels)


def instrument(metric: Metric, registry: CollectorRegistry, *, standing: bool = False) -> Any:
    """The instrument of `metric`, made in `registry`.

    standing: how much there is just now. Where several processes report as one (PROMETHEUS_MULTIPROC_DIR), it is the
    sum over those alive; other sums go on behind a process's end, and the newest call is whichever process made it.
    """
    from prometheus_client import Counter, Gauge, Histogram

    text = f"{metric.meaning} ({metric.unit})" if metric.unit != "1" else metric.meaning
    if metric.kind == "histogram":
        return Histogram(metric.name, text, metric.labels, registry=registry, buckets=metric.buckets)
    if metric.kind == "counter":
        return Counter(metric.name, text, metric.labels, registry=registry)
    together: Literal["livesum", "mostrecent", "sum"]
    together = "livesum" if standing else "mostrecent" if metric.kind == "gauge" else "sum"
    return Gauge(metric.name, text, metric.labels, registry=registry, multiprocess_mode=together)


def put(metric: Metric, made: Any, value: float, labels: Mapping[str, str]) -> None:
    """Add `value` to the instrument that was made of `metric`, or set it."""
    series = made.labels(**labels) if metric.labels else made
    if metric.kind == "gauge":
        series.set(value)
    elif metric.kind == "histogram":
        series.observe(value)
    else:
        series.inc(value)
