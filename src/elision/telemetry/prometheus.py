"""Metrics for Prometheus to scrape: `on_event=Prometheus()`. Needs the extra `prometheus`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Literal
from weakref import WeakKeyDictionary

from elision.errors import MissingExtra
from elision.telemetry.diagnostics import Diagnostics
from elision.telemetry.metric_table import METRICS, Metric, PassCollector, Sampler

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


_LOCK: Final = Lock()
#: The metrics of a registry are shared by all that report to it: a name can be registered only once.
_BY_REGISTRY: Final[WeakKeyDictionary[CollectorRegistry, tuple[Sampler, dict[str, Instrument]]]] = WeakKeyDictionary()

#: Kind of a metric -> the method of prometheus_client's that takes a value, where that is not `inc`.
_RECORDERS: Final[Mapping[str, str]] = {"gauge": "set", "histogram": "observe"}


class Prometheus(PassCollector):
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
                _BY_REGISTRY[chosen] = Sampler(), {each.name: create_instrument(each, chosen) for each in METRICS}
            self._sampler, self._instruments = _BY_REGISTRY[chosen]

    def report_pass(self, diagnostics: Diagnostics) -> None:
        for sample in self._sampler.sample_pass(diagnostics):
            self._instruments[sample.metric.name].record(sample.value, sample.labels)


class Instrument:
    """What a metric is reported to; a series is looked up by its labels once. made: prometheus_client's own."""

    def __init__(self, metric: Metric, made: Any) -> None:
        self._metric = metric
        self._made = made
        self._recorders: dict[tuple[str, ...], Callable[[float], None]] = {}

    def record(self, value: float, labels: Mapping[str, str]) -> None:
        """Add `value` to the series with these labels, or set it."""
        key = tuple([labels[name] for name in self._metric.labels])
        recorder = self._recorders.get(key)
        if recorder is None:
            series = self._made.labels(*key) if key else self._made
            recorder = self._recorders[key] = getattr(series, _RECORDERS.get(self._metric.kind, "inc"))
        recorder(value)


def create_instrument(metric: Metric, registry: CollectorRegistry, *, is_current_amount: bool = False) -> Instrument:
    """Create the instrument of `metric` in `registry`.

    is_current_amount: whether it is an amount that exists now. Where several processes report as one
        (PROMETHEUS_MULTIPROC_DIR), it is then the sum over the live processes. Other sums keep what ended processes
        added, and a gauge is of the newest call, whichever process made it.
    """
    from prometheus_client import Counter, Gauge, Histogram

    text = metric.meaning if metric.unit == "1" else f"{metric.meaning} ({metric.unit})"
    made: Any
    if metric.kind == "histogram":
        made = Histogram(metric.name, text, metric.labels, registry=registry, buckets=metric.buckets)
    elif metric.kind == "counter":
        made = Counter(metric.name, text, metric.labels, registry=registry)
    else:
        together: Literal["livesum", "mostrecent", "sum"] = "mostrecent" if metric.kind == "gauge" else "sum"
        if is_current_amount:
            together = "livesum"
        made = Gauge(metric.name, text, metric.labels, registry=registry, multiprocess_mode=together)
    return Instrument(metric, made)
