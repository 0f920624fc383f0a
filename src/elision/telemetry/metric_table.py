"""List every metric in a table: name, kind, unit, labels, meaning. Both backends make their instruments from it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from elision.errors import SummaryCause
from elision.telemetry.diagnostics import ContextPhase, FaultKind

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
