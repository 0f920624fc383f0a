"""Metrics for Prometheus to scrape: `on_event=Prometheus()`. Needs the extra `prometheus`."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Literal
from weakref import WeakKeyDictionary

from elision.errors import MissingExtra
from elision.telemetry.diagnostics import Diagnostics
from elision.telemetry.metrics import METRICS, Metric
from elision.telemetry.readings import Collector, Readings

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
        if registry is None:
            chosen = prometheus_client.REGISTRY
        else:
            chosen = registry
        with _LOCK:
            if chosen not in _BY_REGISTRY:
                _BY_REGISTRY[chosen] = _Instruments(chosen)
            self._instruments = _BY_REGISTRY[chosen]

    def take(self, diagnostics: Diagnostics) -> None:
        for sample in self._instruments.readings.read(diagnostics):
            self._instruments.by_name[sample.metric.name].put(sample.value, sample.labels)


class Instrument:
    """What a metric is reported to; a series is looked up by its labels once. made: prometheus_client's own."""

    def __init__(self, metric: Metric, made: Any) -> None:
        self._metric = metric
        self._made = made
        self._series: dict[tuple[str, ...], Any] = {}

    def put(self, value: float, labels: Mapping[str, str]) -> None:
        """Add `value` to the series with these labels, or set it."""
        told = tuple(map(labels.__getitem__, self._metric.labels))
        series = self._series.get(told)
        if series is None:
            series = self._series[told] = self._made.labels(*told) if told else self._made
        if self._metric.kind == "gauge":
            series.set(value)
        elif self._metric.kind == "histogram":
            series.observe(value)
        else:
            series.inc(value)


def instrument(metric: Metric, registry: CollectorRegistry, *, standing: bool = False) -> Instrument:
    """The instrument of `metric`, made in `registry`.

    standing: how much there is just now. Where several processes report as one (PROMETHEUS_MULTIPROC_DIR), it is the
    sum over those alive; other sums go on behind a process's end, and the newest call is whichever process made it.
    """
    return Instrument(metric, _made(metric, registry, standing=standing))


def _made(metric: Metric, registry: CollectorRegistry, *, standing: bool) -> Any:
    from prometheus_client import Counter, Gauge, Histogram

    if metric.unit != "1":
        text = f"{metric.meaning} ({metric.unit})"
    else:
        text = metric.meaning
    if metric.kind == "histogram":
        return Histogram(metric.name, text, metric.labels, registry=registry, buckets=metric.buckets)
    if metric.kind == "counter":
        return Counter(metric.name, text, metric.labels, registry=registry)
    together: Literal["livesum", "mostrecent", "sum"]
    if standing:
        together = "livesum"
    elif metric.kind == "gauge":
        together = "mostrecent"
    else:
        together = "sum"
    return Gauge(metric.name, text, metric.labels, registry=registry, multiprocess_mode=together)
