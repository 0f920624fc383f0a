"""Compute from the diagnostics of one pass what is added to each metric. The state is each session's last totals."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Final, NamedTuple

from elision.telemetry import metric_table
from elision.telemetry.diagnostics import Costs, Diagnostics
from elision.telemetry.metric_table import Metric, normalize_label

#: Sessions whose totals are remembered; the one that was quiet for longest is forgotten first.
MAX_SESSIONS: Final = 10_000
#: Characters of a model's name: requests say it, and it may be of any length. Bedrock's profiles have about a hundred.
MAX_NAME_LENGTH: Final = 128
_log: Final = logging.getLogger("elision.telemetry")


class Sample(NamedTuple):
    """What one pass says of one metric: the value of a gauge, the growth of a sum, an observation of a histogram."""

    metric: Metric
    value: float
    labels: Mapping[str, str]


class PassCollector(ABC):
    """A callback for `on_event` that never raises into the agent: what fails is logged, the first time with a trace."""

    #: Whether a pass may be reported after its view was returned, in another thread, with a copy of the context.
    is_deferrable = True

    def __init__(self) -> None:
        self._failed = False

    def __call__(self, diagnostics: Diagnostics) -> None:
        try:
            self.report_pass(diagnostics)
        except Exception:  # noqa: BLE001 - a named boundary: telemetry is never a reason to fail a request
            _log.warning("%s could not take a pass", type(self).__name__, exc_info=not self._failed)
            self._failed = True

    @abstractmethod
    def report_pass(self, diagnostics: Diagnostics) -> None:
        """Report one pass; may raise."""


def is_deferrable(listener: object) -> bool:
    """Return whether a listener may be called after the view was returned: only ours, others may need their thread."""
    # A method of a collector counts as the collector.
    owner = getattr(listener, "__self__", listener)
    return isinstance(owner, PassCollector) and owner.is_deferrable


@dataclass(slots=True)
class _SessionTotals:
    """Totals of a session as of its last pass."""

    costs: Costs = field(default_factory=Costs)
    rewrites: Mapping[str, int] = field(default_factory=dict)
    recalls: int = 0
    guards: frozenset[str] = frozenset()


class Sampler:
    """Turns diagnostics, whose totals are of one session, into samples, whose sums are of all sessions of a process."""

    def __init__(self) -> None:
        self._totals: OrderedDict[tuple[str, str], _SessionTotals] = OrderedDict()
        self._models: set[str] = set()
        self._lock = Lock()

    def sample_pass(self, diagnostics: Diagnostics) -> list[Sample]:
        """Return every sample of one pass."""
        with self._lock:
            samples = list(_sample_pass(diagnostics))
            # A pass that failed as a whole knows nothing of its session.
            if not diagnostics.call:
                return samples
            totals = _SessionTotals(
                costs=diagnostics.costs,
                rewrites=dict(diagnostics.rewrites),
                recalls=diagnostics.recalls,
                guards=list_reporting_guards(diagnostics),
            )
            # A session may be resumed in a new process or after a fork. Its earlier totals were counted elsewhere, so
            # counting begins at them.
            key = (diagnostics.session, diagnostics.branch)
            before = self._totals.get(key) or (totals if diagnostics.call > 1 else _SessionTotals())
            samples += [*self._sample_newest(diagnostics), *self._sample_growth(diagnostics, before)]
            self._totals[key] = totals
            self._totals.move_to_end(key)
            if len(self._totals) > MAX_SESSIONS:
                self._totals.popitem(last=False)
        return samples

    def _limit_model(self, name: str) -> str:
        name = clean_model_name(name) or "unknown"
        if name == metric_table.OTHER_LABEL:
            return name
        if name in self._models or len(self._models) < metric_table.MAX_MODELS:
            self._models.add(name)
            return name
        return metric_table.OTHER_LABEL

    def _sample_newest(self, diagnostics: Diagnostics) -> Iterator[Sample]:
        """Yield what is as of the newest call, and what is added up over all calls."""
        model = {"model": self._limit_model(diagnostics.model)}
        yield Sample(metric_table.TOKENS_IN, diagnostics.raw, model)
        yield Sample(metric_table.TOKENS_OUT, diagnostics.after, model)
        yield Sample(metric_table.MASKED, diagnostics.savings.masked_tokens, model)
        yield Sample(metric_table.FOLDED, diagnostics.savings.folded_tokens, model)
        yield Sample(metric_table.HIDDEN_OBSERVATIONS, diagnostics.savings.hidden_tokens, model)
        yield Sample(metric_table.SUMMARY_TOKENS, diagnostics.summary_tokens, model)
        yield Sample(metric_table.COST, diagnostics.costs.ours, model)
        yield Sample(metric_table.TURNS, diagnostics.turns, model)
        yield Sample(metric_table.RAW_TOKENS, diagnostics.raw, model)
        yield Sample(metric_table.SENT_TOKENS, diagnostics.after, model)
        yield Sample(metric_table.PHASES, 1, {"phase": normalize_label("phase", diagnostics.phase)})
        yield Sample(metric_table.HISTORIES, 1, {"how": normalize_label("how", diagnostics.history)})

    def _sample_growth(self, diagnostics: Diagnostics, previous: _SessionTotals) -> Iterator[Sample]:
        """Yield what totals of the session have grown by."""
        model = self._limit_model(diagnostics.model)
        for bill in metric_table.LABELS["bill"]:
            grown = getattr(diagnostics.costs, bill) - getattr(previous.costs, bill)
            if grown > 0:
                yield Sample(metric_table.BILLS, grown, {"model": model, "bill": bill})
        for by in metric_table.LABELS["by"]:
            if saved := getattr(diagnostics.costs, by) - getattr(previous.costs, by):
                yield Sample(metric_table.SAVED, saved, {"model": model, "by": by})
        for cause, count in diagnostics.rewrites.items():
            if (new := count - previous.rewrites.get(cause, 0)) > 0:
                yield Sample(metric_table.REWRITES, new, {"cause": normalize_label("cause", cause)})
        if (recalls := diagnostics.recalls - previous.recalls) > 0:
            yield Sample(metric_table.RECALLS, recalls, {})
        for guard in sorted(list_reporting_guards(diagnostics) - previous.guards):
            yield Sample(metric_table.STOPS, 1, {"guard": normalize_label("guard", guard)})


def clean_model_name(name: str) -> str:
    """Return a model's name as a label or a line may hold it: at most `MAX_NAME_LENGTH` printable characters."""
    cut = name[:MAX_NAME_LENGTH]
    return cut if cut.isprintable() else "".join(each if each.isprintable() else "?" for each in cut)


def _sample_pass(diagnostics: Diagnostics) -> Iterator[Sample]:
    """Yield what the pass itself did, what failed in it and how long it took."""
    acted = "yes" if diagnostics.acted else "no"
    yield Sample(metric_table.PASSES, 1, {"acted": acted, "reason": metric_table.label_reason(diagnostics.reason)})
    for how, hidden in (("mask", diagnostics.masked), ("clip", diagnostics.clipped)):
        if hidden:
            yield Sample(metric_table.HIDDEN, sum(each.tokens for each in hidden), {"how": how})
    for how, count in (("fold", len(diagnostics.folded)), ("unfold", len(diagnostics.unfolded))):
        if count:
            yield Sample(metric_table.FOLDS, count, {"how": how})
    if diagnostics.summarized is not None:
        yield Sample(metric_table.HIDDEN, diagnostics.summarized.tokens, {"how": "summary"})
        yield Sample(
            metric_table.SUMMARY_CALLS, 1, {"outcome": normalize_label("outcome", diagnostics.summarized.route)}
        )
    for fault in diagnostics.faults:
        yield Sample(
            metric_table.FAULTS,
            1,
            {"kind": normalize_label("kind", fault.kind), "cause": normalize_label("cause", fault.cause)},
        )
        if fault.kind == "summarizer":
            yield Sample(metric_table.SUMMARY_CALLS, 1, {"outcome": "failed"})
    yield Sample(metric_table.PASS_SECONDS, diagnostics.seconds, {})
    if diagnostics.summarizer_seconds > 0:
        yield Sample(metric_table.SUMMARIZER_SECONDS, diagnostics.summarizer_seconds, {})


def list_reporting_guards(diagnostics: Diagnostics) -> frozenset[str]:
    """Return the names of the guards that report a stop or a hint in this pass."""
    guards: set[str] = set()
    if diagnostics.stop:
        guards.add(diagnostics.stop.guard)
    if diagnostics.hint:
        guards.add("plateau_window")
    return frozenset(guards)
