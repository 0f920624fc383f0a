"""The gateway's metrics as a table, and what each served request adds to them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from elision.gateway.served import Served
from elision.telemetry.metric_table import OTHER_LABEL, Metric
from elision.telemetry.samples import Sample

_FRONT: Final = "agent_context_gateway_"


def _counter(name: str, meaning: str, *labels: str, unit: str = "1") -> Metric:
    return Metric(name=_FRONT + name, kind="counter", unit=unit, meaning=meaning, labels=labels)  # type: ignore[arg-type]


def _seconds(name: str, meaning: str, *buckets: float, labels: tuple[str, ...] = ("api",)) -> Metric:
    return Metric(name=_FRONT + name, kind="histogram", unit="seconds", meaning=meaning, labels=labels, buckets=buckets)


REQUESTS: Final = _counter(
    "requests_total", "requests by how they went out and the class of their answer", "api", "how", "status"
)
ERRORS: Final = _counter("errors_total", "requests in which something went wrong, by what", "api", "cause")
BYTES_IN: Final = _counter("bytes_in_total", "bytes of requests, as clients sent them", "api", unit="bytes")
BYTES_UP: Final = _counter("bytes_up_total", "bytes of requests, as providers were sent them", "api", unit="bytes")
BYTES_OUT: Final = _counter("bytes_out_total", "bytes of answers, as clients got them", "api", unit="bytes")
ADDED: Final = _seconds(
    "added_seconds",
    "from a request's last byte to its first towards the provider",
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5),
)
WAITED: Final = _seconds(
    "waited_seconds",
    "of that, waiting for another request of the same session",
    *(0.0005, 0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10),
)
FIRST: Final = _seconds(
    "first_byte_seconds",
    "from a request's last byte to its answer's first",
    *(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120),
)
WHOLE: Final = _seconds(
    "answer_seconds",
    "from a request's last byte to its answer's last",
    *(0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600),
)
RECALLS: Final = _counter("recalls_total", "calls of the recall tools that were answered on the way", "api")
ROUNDS: Final = _counter("rounds_total", "requests to providers; more than one where a model recalled", "api")
CACHE_MISSES: Final = _counter("cache_misses_total", "cache misses by the reason that the provider gives", "reason")
CLEARED: Final = _counter("cleared_tokens_total", "prompt tokens that the provider cleared itself", unit="tokens")
DROPPED: Final = _counter("thinking_dropped_total", "thinking blocks that the provider left out")
IN_FLIGHT: Final = Metric(
    name=_FRONT + "in_flight", kind="gauge", unit="1", meaning="requests being served just now", labels=()
)
WAITING: Final = Metric(
    name=_FRONT + "waiting", kind="gauge", unit="1", meaning="requests that wait for their turn", labels=()
)
HELD: Final = Metric(
    name=_FRONT + "held_bytes", kind="gauge", unit="bytes", meaning="room taken by requests being served", labels=()
)
SESSIONS: Final = Metric(name=_FRONT + "sessions", kind="gauge", unit="1", meaning="sessions held in memory", labels=())

METRICS: Final[tuple[Metric, ...]] = (
    REQUESTS,
    ERRORS,
    BYTES_IN,
    BYTES_UP,
    BYTES_OUT,
    ADDED,
    WAITED,
    FIRST,
    WHOLE,
    RECALLS,
    ROUNDS,
    CACHE_MISSES,
    CLEARED,
    DROPPED,
)
#: As it stands at this moment, in each worker.
STANDING: Final[tuple[Metric, ...]] = (IN_FLIGHT, WAITING, HELD, SESSIONS)

#: What went wrong, in one word; providers' refusals are `upstream-4xx` and `upstream-5xx`, two apart.
_CAUSES: Final = (
    "dns",
    "refused",
    "tls",
    "connect",
    "connect-timeout",
    "read-timeout",
    "cut",
    "malformed",
    "upstream-429",
    "upstream-529",
    "upstream-4xx",
    "upstream-5xx",
    "client-gone",
    "too-large",
    "slow-request",
    "busy",
    "stopping",
    "unreadable",
    "overflow",
    "unbound",
    "rejected",
    "limit",
    "store",
    "summarizer",
    "dialect",
    "callback",
    "engine",
    "prepare",
    "render",
    "exchanges",
    "recall",
    "bug",
)
#: Cache-miss reasons that providers document (docs/reference/providers.md).
_REASONS: Final = (
    "model_changed",
    "system_changed",
    "tools_changed",
    "messages_changed",
    "input_changed",
    "prompt_cache_key_changed",
    "text_format_changed",
    "reasoning_effort_changed",
    "verbosity_changed",
    "service_tier_changed",
    "context_compacted",
    "previous_message_not_found",
    "comparison_response_not_found",
    "unavailable",
)

#: Label -> the values it takes, `other` apart.
LABELS: Final[dict[str, tuple[str, ...]]] = {
    "api": ("openai", "openai-responses", "anthropic", "none"),
    "how": ("view", "same", "shadow", "passed", "failed", "refused"),
    "status": ("2xx", "3xx", "4xx", "5xx", "none"),
    "cause": _CAUSES,
    "reason": _REASONS,
}


def cause(word: str) -> str:
    """The label of a cause."""
    if word in _CAUSES:
        return word
    if word.startswith("upstream-"):
        kind = f"{word[:-2]}xx"
    else:
        kind = ""
    if kind in _CAUSES:
        return kind
    return OTHER_LABEL


def standing(*, in_flight: int, waiting: int, held: int, sessions: int) -> Iterator[Sample]:
    """How much there is just now, of one worker."""
    for metric, value in zip(STANDING, (in_flight, waiting, held, sessions), strict=True):
        yield Sample(metric, value, {})


def samples(served: Served) -> Iterator[Sample]:
    """What one request adds to each metric."""
    api: dict[str, str] = {"api": served.api or "none"}
    if served.status:
        status = f"{served.status // 100}xx"
    else:
        status = "none"
    yield Sample(REQUESTS, 1, {**api, "how": _listed("how", served.how), "status": _listed("status", status)})
    if served.cause:
        yield Sample(ERRORS, 1, {**api, "cause": cause(served.cause)})
    for metric, size in ((BYTES_IN, served.bytes_in), (BYTES_UP, served.bytes_up), (BYTES_OUT, served.bytes_out)):
        yield Sample(metric, size, api)
    for metric, seconds in ((WAITED, served.waited), (FIRST, served.first), (WHOLE, served.whole)):
        if seconds:
            yield Sample(metric, seconds, api)
    if served.rounds:
        yield Sample(ADDED, served.added, api)
        yield Sample(ROUNDS, served.rounds, api)
    yield from _answered(served, api)


def _answered(served: Served, api: dict[str, str]) -> Iterator[Sample]:
    if served.recalls:
        yield Sample(RECALLS, served.recalls, api)
    if served.cache_miss:
        yield Sample(CACHE_MISSES, 1, {"reason": _listed("reason", served.cache_miss)})
    if served.cleared_tokens:
        yield Sample(CLEARED, served.cleared_tokens, {})
    if served.thinking_dropped:
        yield Sample(DROPPED, served.thinking_dropped, {})


def _listed(label: str, value: str) -> str:
    if value in LABELS[label]:
        return value
    return OTHER_LABEL
