"""Every metric in a table: name, kind, unit, labels, meaning; and what one pass adds to each, from its diagnostics.

Both backends make their instruments from the table. What is added is the growth of a session since its last totals.
"""

from __future__ import annotations

import logging
import re
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

from elision.errors import SummaryCause
from elision.telemetry.diagnostics import ContextPhase, Costs, Diagnostics, FaultKind

#: gauge: as of the newest pass. counter: only grows, over all sessions of the process. updown: a sum that may shrink.
MetricKind: TypeAlias = Literal["gauge", "counter", "updown", "histogram"]
Unit: TypeAlias = Literal["tokens", "turns", "USD", "seconds", "bytes", "1"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric. labels: each takes few values (`LABELS`), sessions are none. buckets: of a histogram, in its unit."""

    name: str
    kind: MetricKind
    unit: Unit
    meaning: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


def _make_gauge(name: str, unit: Unit, meaning: str) -> Metric:
    return Metric(name=name, kind="gauge", unit=unit, meaning=meaning, labels=("model",))


def _make_counter(name: str, unit: Unit, meaning: str, *labels: str) -> Metric:
    return Metric(name=name, kind="counter", unit=unit, meaning=meaning, labels=labels)


TOKENS_IN: Final = _make_gauge(
    "agent_context_tokens_in", "tokens", "prompt of the newest call, had nothing been hidden"
)
TOKENS_OUT: Final = _make_gauge("agent_context_tokens_out", "tokens", "prompt of the newest call, as it is sent")
MASKED: Final = _make_gauge(
    "agent_context_masked_observation_tokens",
    "tokens",
    "tokens that placeholders remove from the prompt of the newest call",
)
FOLDED: Final = _make_gauge(
    "agent_context_folded_observation_tokens",
    "tokens",
    "tokens that folding removes from the prompt of the newest call",
)
HIDDEN_OBSERVATIONS: Final = _make_gauge(
    "agent_context_hidden_observation_tokens",
    "tokens",
    "tool results left out of the prompt of the newest call by placeholders, summaries and folding",
)
SUMMARY_TOKENS: Final = _make_gauge("agent_context_summary_tokens", "tokens", "size of the live summary; 0 for none")
SUMMARY_CALLS: Final = _make_counter(
    "agent_context_summary_calls_total", "1", "summaries requested, by outcome", "outcome"
)
COST: Final = _make_gauge(
    "agent_context_estimated_cost_usd",
    "USD",
    "the newest session's bill so far: prompts, answers, summarizer, recalls",
)
TURNS: Final = _make_gauge("agent_context_turn_count", "turns", "turns of the newest session so far")

PASSES: Final = _make_counter(
    "agent_context_passes_total",
    "1",
    "passes by reason; acted=no are decisions that were not taken",
    "acted",
    "reason",
)
REWRITES: Final = _make_counter("agent_context_rewrites_total", "1", "cache rewrites by cause", "cause")
RAW_TOKENS: Final = _make_counter(
    "agent_context_raw_tokens_total", "tokens", "prompt tokens of all calls, had nothing been hidden", "model"
)
SENT_TOKENS: Final = _make_counter(
    "agent_context_sent_tokens_total", "tokens", "prompt tokens of all calls, as sent", "model"
)
HIDDEN: Final = _make_counter(
    "agent_context_hidden_tokens_total",
    "tokens",
    "tokens hidden, counted once, when they are hidden",
    "how",
)
FOLDS: Final = _make_counter(
    "agent_context_folds_total",
    "1",
    "tool results that were folded, changed their reference, or are shown in full again",
    "how",
)
BILLS: Final = _make_counter(
    "agent_context_cost_usd_total",
    "USD",
    "bills of all sessions; summarizer and recalls are part of ours",
    "model",
    "bill",
)
SAVED: Final = Metric(
    name="agent_context_saved_usd",
    kind="updown",
    unit="USD",
    labels=("model", "by"),
    meaning="net saving of all sessions against raw: by hiding, with summarizer, recalls and extra cache "
    "writes debited, and by cache breakpoints that clients do not set",
)
RECALLS: Final = _make_counter("agent_context_recalls_total", "1", "recalls of hidden results")
FAULTS: Final = _make_counter(
    "agent_context_faults_total",
    "1",
    "failures that did not stop the request",
    "kind",
    "cause",
)
STOPS: Final = _make_counter("agent_context_stops_total", "1", "sessions in which a guard reported", "guard")
PHASES: Final = _make_counter("agent_context_phase_calls_total", "1", "calls by phase of the session", "phase")
HISTORIES: Final = _make_counter("agent_context_histories_total", "1", "calls by how the history continued", "how")
PASS_SECONDS: Final = Metric(
    name="agent_context_pass_seconds",
    kind="histogram",
    unit="seconds",
    meaning="duration of a pass, summarizer included",
    buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5, 30, 120),
)
SUMMARIZER_SECONDS: Final = Metric(
    name="agent_context_summarizer_seconds",
    kind="histogram",
    unit="seconds",
    meaning="duration of the summarizer's calls",
    buckets=(0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160),
)

METRICS: Final[tuple[Metric, ...]] = (
    TOKENS_IN,
    TOKENS_OUT,
    MASKED,
    FOLDED,
    HIDDEN_OBSERVATIONS,
    SUMMARY_TOKENS,
    SUMMARY_CALLS,
    COST,
    TURNS,
    PASSES,
    REWRITES,
    RAW_TOKENS,
    SENT_TOKENS,
    HIDDEN,
    FOLDS,
    BILLS,
    SAVED,
    RECALLS,
    FAULTS,
    STOPS,
    PHASES,
    HISTORIES,
    PASS_SECONDS,
    SUMMARIZER_SECONDS,
)

# -- labels -----------------------------------------------------------------------------------------------------------

#: What a value becomes that is not on its list, so that no label ever takes more values than are listed.
OTHER_LABEL: Final = "other"
#: Models with a label of their own in one process; later ones are `other`.
MAX_MODELS: Final = 32

#: A reason as the diagnostics word it, or how it begins -> its label.
_REASON_LABELS: Final = {
    "nothing eligible": "nothing-eligible",
    "fewer than ": "too-few-turns",
    "too small to cache": "too-small-to-cache",
    "another model's cache is warm": "other-cache-warm",
    "rewrite not yet paid for": "not-yet-paid",
    "rewrite would not pay": "would-not-pay",
    "cap on raw": "cap-on-raw",
    "not planned": "not-planned",
    "summary rejected": "summary-rejected",
    "summary is being written": "summary-pending",
    "eligible": "eligible",
    "summary due": "summary-due",
    "summary pays": "summary-pays",
    "rewrite pays": "rewrite-pays",
    "rewrite is free": "rewrite-free",
    "cold cache": "cold-cache",
    "planned": "planned",
    "over budget": "over-budget",
    "soft threshold": "soft-threshold",
    "above hard": "above-hard",
    "above soft": "above-soft",
    "above summarize_tokens": "above-summarize-tokens",
    "forced": "forced",
    "deferred": "bound-thinking",
    "held": "store-failing",
    "failed": "failed",
}
#: Kinds of errors that are passed over, by the names of their classes.
_ERROR_NAMES: Final = (
    "StoreError",
    "CorruptError",
    "ConflictError",
    "UnknownHandle",
    "DialectError",
    "FormatError",
    "SpecError",
    "SettingError",
    "PriceError",
    "MissingExtra",
    "OSError",
    "TimeoutError",
    "MemoryError",
    "RecursionError",
    "RuntimeError",
    "AssertionError",
    "AttributeError",
    "IndexError",
    "KeyError",
    "TypeError",
    "ValueError",
    "UnicodeEncodeError",
)

#: Label -> the values it takes, `other` apart; `model` is bounded by number.
LABELS: Final[dict[str, tuple[str, ...]]] = {
    "acted": ("yes", "no"),
    "reason": tuple(_REASON_LABELS.values()),
    "cause": ("mask", "summary", "clip", "head", "model", *get_args(SummaryCause), *_ERROR_NAMES),
    "outcome": ("fresh", "extend", "model-free", "failed"),
    "how": ("mask", "clip", "summary", "fold", "unfold", "continue", "amended", "undo", "fork", "replaced"),
    "by": ("hiding", "caching"),
    "phase": get_args(ContextPhase),
    "bill": ("ours", "raw", "summarizer", "recalls"),
    "kind": get_args(FaultKind),
    "guard": ("max_turns", "max_cost_usd", "plateau_window"),
    "model": (),
}


def label_reason(text: str) -> str:
    """Return the label of a reason."""
    for start, label in _REASON_LABELS.items():
        if text.startswith(start):
            return label
    return OTHER_LABEL


def normalize_label(label: str, value: str) -> str:
    """Return `value` as it may be written under `label`: one of the listed values, else `other`."""
    plain = re.sub(r"[\s_]+", "-", value.strip().lower())
    for spelling in (value, plain):
        if spelling in LABELS[label]:
            return spelling
    return OTHER_LABEL


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
        if name == OTHER_LABEL:
            return name
        if name in self._models or len(self._models) < MAX_MODELS:
            self._models.add(name)
            return name
        return OTHER_LABEL

    def _sample_newest(self, diagnostics: Diagnostics) -> Iterator[Sample]:
        """Yield what is as of the newest call, and what is added up over all calls."""
        model = {"model": self._limit_model(diagnostics.model)}
        yield Sample(TOKENS_IN, diagnostics.raw, model)
        yield Sample(TOKENS_OUT, diagnostics.after, model)
        yield Sample(MASKED, diagnostics.savings.masked_tokens, model)
        yield Sample(FOLDED, diagnostics.savings.folded_tokens, model)
        yield Sample(HIDDEN_OBSERVATIONS, diagnostics.savings.hidden_tokens, model)
        yield Sample(SUMMARY_TOKENS, diagnostics.summary_tokens, model)
        yield Sample(COST, diagnostics.costs.ours, model)
        yield Sample(TURNS, diagnostics.turns, model)
        yield Sample(RAW_TOKENS, diagnostics.raw, model)
        yield Sample(SENT_TOKENS, diagnostics.after, model)
        yield Sample(PHASES, 1, {"phase": normalize_label("phase", diagnostics.phase)})
        yield Sample(HISTORIES, 1, {"how": normalize_label("how", diagnostics.history)})

    def _sample_growth(self, diagnostics: Diagnostics, previous: _SessionTotals) -> Iterator[Sample]:
        """Yield what totals of the session have grown by."""
        model = self._limit_model(diagnostics.model)
        for bill in LABELS["bill"]:
            grown = getattr(diagnostics.costs, bill) - getattr(previous.costs, bill)
            if grown > 0:
                yield Sample(BILLS, grown, {"model": model, "bill": bill})
        for by in LABELS["by"]:
            if saved := getattr(diagnostics.costs, by) - getattr(previous.costs, by):
                yield Sample(SAVED, saved, {"model": model, "by": by})
        for cause, count in diagnostics.rewrites.items():
            if (new := count - previous.rewrites.get(cause, 0)) > 0:
                yield Sample(REWRITES, new, {"cause": normalize_label("cause", cause)})
        if (recalls := diagnostics.recalls - previous.recalls) > 0:
            yield Sample(RECALLS, recalls, {})
        for guard in sorted(list_reporting_guards(diagnostics) - previous.guards):
            yield Sample(STOPS, 1, {"guard": normalize_label("guard", guard)})


def clean_model_name(name: str) -> str:
    """Return a model's name as a label or a line may hold it: at most `MAX_NAME_LENGTH` printable characters."""
    cut = name[:MAX_NAME_LENGTH]
    return cut if cut.isprintable() else "".join(each if each.isprintable() else "?" for each in cut)


def _sample_pass(diagnostics: Diagnostics) -> Iterator[Sample]:
    """Yield what the pass itself did, what failed in it and how long it took."""
    acted = "yes" if diagnostics.acted else "no"
    yield Sample(PASSES, 1, {"acted": acted, "reason": label_reason(diagnostics.reason)})
    for how, hidden in (("mask", diagnostics.masked), ("clip", diagnostics.clipped)):
        if hidden:
            yield Sample(HIDDEN, sum(each.tokens for each in hidden), {"how": how})
    for how, count in (("fold", len(diagnostics.folded)), ("unfold", len(diagnostics.unfolded))):
        if count:
            yield Sample(FOLDS, count, {"how": how})
    if diagnostics.summarized is not None:
        yield Sample(HIDDEN, diagnostics.summarized.tokens, {"how": "summary"})
        yield Sample(SUMMARY_CALLS, 1, {"outcome": normalize_label("outcome", diagnostics.summarized.route)})
    for fault in diagnostics.faults:
        yield Sample(
            FAULTS,
            1,
            {"kind": normalize_label("kind", fault.kind), "cause": normalize_label("cause", fault.cause)},
        )
        if fault.kind == "summarizer":
            yield Sample(SUMMARY_CALLS, 1, {"outcome": "failed"})
    yield Sample(PASS_SECONDS, diagnostics.seconds, {})
    if diagnostics.summarizer_seconds > 0:
        yield Sample(SUMMARIZER_SECONDS, diagnostics.summarizer_seconds, {})


def list_reporting_guards(diagnostics: Diagnostics) -> frozenset[str]:
    """Return the names of the guards that report a stop or a hint in this pass."""
    guards: set[str] = set()
    if diagnostics.stop:
        guards.add(diagnostics.stop.guard)
    if diagnostics.hint:
        guards.add("plateau_window")
    return frozenset(guards)
