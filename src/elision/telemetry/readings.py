"""From the diagnostics of one pass to what is added to each metric; the state is what each session told before."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

from elision.telemetry import metrics
from elision.telemetry.diagnostics import Costs, Diagnostics
from elision.telemetry.metrics import Metric, listed

#: Sessions whose totals are remembered; the one that was quiet for longest is forgotten first.
SESSIONS: Final = 10_000
#: Characters of a model's name: requests say it, and it may be of any length. Bedrock's profiles have about a hundred.
NAME: Final = 128
_log: Final = logging.getLogger("elision.telemetry")


@dataclass(frozen=True, slots=True)
class Sample:
    """What one pass says of one metric: the value of a gauge, the growth of a sum, an observation of a histogram."""

    metric: Metric
    value: float
    labels: Mapping[str, str]


class Collector(ABC):
    """A callback for `on_event` that never raises into the agent: what fails is logged, the first time with a trace."""

    def __init__(self) -> None:
        self._failed = False

    def __call__(self, diagnostics: Diagnostics) -> None:
        try:
            self.take(diagnostics)
        except Exception:  # noqa: BLE001 - a named boundary: telemetry is never a reason to fail a request
            _log.warning("%s could not take a pass", type(self).__name__, exc_info=not self._failed)
            self._failed = True

    @abstractmethod
    def take(self, diagnostics: Diagnostics) -> None:
        """Report one pass; may raise."""


@dataclass(slots=True)
class _Told:
    """Totals of a session as they were last told."""

    costs: Costs = field(default_factory=Costs)
    rewrites: Mapping[str, int] = field(default_factory=dict)
    recalls: int = 0
    guards: frozenset[str] = frozenset()


class Readings:
    """Turns diagnostics, whose totals are of one session, into samples, whose sums are of all sessions of a process."""

    def __init__(self) -> None:
        self._told: OrderedDict[tuple[str, str], _Told] = OrderedDict()
        self._models: set[str] = set()
        self._lock = Lock()

    def read(self, told: Diagnostics) -> list[Sample]:
        """Every sample of one pass."""
        with self._lock:
            before = self._before(told)
            samples = [*_did(told), *_times(told)]
            # A pass that failed as a whole knows nothing of its session.
            if told.call:
                samples += [*self._newest(told), *self._sums(told), *self._growth(told, before)]
                self._remember(told)
        return samples

    def _before(self, told: Diagnostics) -> _Told:
        """What was told of this session before. Of one that is taken up again, in a new process or behind a fork, the
        totals were counted elsewhere: they are where counting begins."""
        known = self._told.get((told.session, told.branch))
        return known or (_Told() if told.call <= 1 else _as_told(told))

    def _remember(self, told: Diagnostics) -> None:
        key = (told.session, told.branch)
        self._told[key] = _as_told(told)
        self._told.move_to_end(key)
        if len(self._told) > SESSIONS:
            self._told.popitem(last=False)

    def _model(self, name: str) -> str:
        name = model_name(name) or "unknown"
        if name == metrics.OTHER:
            return name
        if name in self._models or len(self._models) < metrics.MODELS:
            self._models.add(name)
            return name
        return metrics.OTHER

    def _newest(self, told: Diagnostics) -> Iterator[Sample]:
        model = {"model": self._model(told.model)}
        yield Sample(metrics.TOKENS_IN, told.raw, model)
        yield Sample(metrics.TOKENS_OUT, told.after, model)
        yield Sample(metrics.MASKED, told.savings.hidden_tokens, model)
        yield Sample(metrics.SUMMARY_TOKENS, told.summary_tokens, model)
        yield Sample(metrics.COST, told.costs.ours, model)
        yield Sample(metrics.TURNS, told.turns, model)

    def _sums(self, told: Diagnostics) -> Iterator[Sample]:
        """What is added up over all calls."""
        model = {"model": self._model(told.model)}
        yield Sample(metrics.RAW_TOKENS, told.raw, model)
        yield Sample(metrics.SENT_TOKENS, told.after, model)
        yield Sample(metrics.HISTORIES, 1, {"how": listed("how", told.history)})

    def _growth(self, told: Diagnostics, before: _Told) -> Iterator[Sample]:
        """What totals of the session have grown by."""
        model = self._model(told.model)
        for bill in metrics.LABELS["bill"]:
            grown = getattr(told.costs, bill) - getattr(before.costs, bill)
            if grown > 0:
                yield Sample(metrics.BILLS, grown, {"model": model, "bill": bill})
        for by in metrics.LABELS["by"]:
            if saved := getattr(told.costs, by) - getattr(before.costs, by):
                yield Sample(metrics.SAVED, saved, {"model": model, "by": by})
        for cause, count in told.rewrites.items():
            if (new := count - before.rewrites.get(cause, 0)) > 0:
                yield Sample(metrics.REWRITES, new, {"cause": listed("cause", cause)})
        if (recalls := told.recalls - before.recalls) > 0:
            yield Sample(metrics.RECALLS, recalls, {})
        for guard in sorted(_guards(told) - before.guards):
            yield Sample(metrics.STOPS, 1, {"guard": listed("guard", guard)})


def model_name(name: str) -> str:
    """A model's name as it may stand in a label or a line: not for longer than `NAME`, and printable."""
    cut = name[:NAME]
    if cut.isprintable():
        return cut
    return "".join(each if each.isprintable() else "?" for each in cut)


def _did(told: Diagnostics) -> Iterator[Sample]:
    """What the pass itself did and met."""
    acted = "yes" if told.acted else "no"
    yield Sample(metrics.PASSES, 1, {"acted": acted, "reason": metrics.reason(told.reason)})
    for how, hidden in (("mask", told.masked), ("clip", told.clipped)):
        if hidden:
            yield Sample(metrics.HIDDEN, sum(each.tokens for each in hidden), {"how": how})
    if told.summarized is not None:
        yield Sample(metrics.HIDDEN, told.summarized.tokens, {"how": "summary"})
        yield Sample(metrics.SUMMARY_CALLS, 1, {"outcome": listed("outcome", told.summarized.route)})
    for fault in told.faults:
        yield Sample(metrics.FAULTS, 1, {"kind": listed("kind", fault.kind), "cause": listed("cause", fault.cause)})
        if fault.kind == "summarizer":
            yield Sample(metrics.SUMMARY_CALLS, 1, {"outcome": "failed"})


def _times(told: Diagnostics) -> Iterator[Sample]:
    yield Sample(metrics.PASS_SECONDS, told.seconds, {})
    if told.summarizer_seconds > 0:
        yield Sample(metrics.SUMMARIZER_SECONDS, told.summarizer_seconds, {})


def _guards(told: Diagnostics) -> frozenset[str]:
    spoken = {told.stop.guard} if told.stop else set()
    return frozenset(spoken | ({"plateau_window"} if told.hint else set()))


def _as_told(told: Diagnostics) -> _Told:
    return _Told(costs=told.costs, rewrites=dict(told.rewrites), recalls=told.recalls, guards=_guards(told))
