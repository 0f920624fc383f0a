"""The recorded bill beside the simulated one, and where they part, why.

Two simulations run over the same requests (`lab/recorded_requests.py`) through the cache of the lab
(`trajectory/cache.py`): `counted` sizes them as we count our rendered messages, `lengths` takes every prompt as long
as it was billed. The first is what a replay can know; the second leaves nothing but the cache's behaviour to be wrong
about.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from elision.engine import count_output_tokens
from elision.errors import PriceError
from elision.lab.ratios import divide_or_zero
from elision.lab.recorded_requests import (
    ROUNDING_TOKENS,
    PromptGrowth,
    RecordedRequest,
    Restart,
    TokenFit,
    fit_growth,
    list_requests,
)
from elision.lab.results import encode_problems
from elision.trajectory.cache import AS_FORESEEN, HOUR_SECONDS, CacheFinding, PromptCache
from elision.trajectory.price_lookup import cost_reported_usage, find_prices, find_tokenizer
from elision.trajectory.price_table import load_price_table
from elision.trajectory.prices import CacheRules, Prices
from elision.trajectory.tokens import Sizer
from elision.trajectory.trajectory import Problem, Trajectory
from elision.trajectory.usage import Usage
from elision.trajectory.view import View

#: A difference of prompt tokens, as a share, that is none worth explaining.
NEAR: Final = 0.02
#: Share of a call's prompt below which a difference is rounding (of blocks, units, a few tokens of framing).
ROUNDING = 0.01

#: Why a call read less, or more, than the call before it left in the cache.
Cause: TypeAlias = Literal[
    "no-cache",
    "compaction",
    "second-model",
    "gap",
    "minimum",
    "changed-prefix",
    "missed",
    "answer",
    "kept-longer",
    "unsent",
]

#: What the causes mean, for a person.
CAUSES: Final[Mapping[Cause, str]] = {
    "compaction": "the recording agent cut its own context",
    "second-model": "the first call of another model",
    "gap": "more time than the cache keeps an entry",
    "minimum": "the prompt is shorter than what is cached",
    "no-cache": "no cache read or write in the whole run",
    "changed-prefix": "all rewritten without a gap: settings or tools",
    "missed": "the provider's best effort did not find it",
    "answer": "the provider cached its own answer too",
    "kept-longer": "the entry outlived its documented lifetime",
    "unsent": "more is recorded than was sent (clipped)",
}
#: Causes that the simulation foresees, so that both sides read the same there.
FORESEEN: Final = frozenset[Cause]({"compaction", "second-model", "gap", "minimum"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Billing:
    """How one model is billed: a price list where one is known, and cache rules always."""

    prices: Prices | None
    rules: CacheRules

    def build_usage(self, prompt: int, read: int, output: int, hour: int = 0) -> Usage:
        """A call's bill; without a price list no USD, and all that is not read is plain input.

        hour: leading tokens whose entries live an hour.
        """
        if self.prices is None:
            return Usage(input=prompt - read, cache_read=read, output=output)
        return Usage(**msgspec.structs.asdict(self.prices.bill_call(prompt, read, output, hour)))

    def cost_usd(self, usage: Usage) -> float | None:
        """What recorded token counts cost, in USD: as recorded, else at the list price."""
        if usage.usd is not None or self.prices is None:
            return usage.usd
        return cost_reported_usage(usage, self.prices)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedCall:
    """One call. counted, lengths: as simulated.

    growth: what it sent beyond the call before, where a fit may be made of it.
    """

    index: int
    model: str
    billed: Usage
    counted: Usage
    lengths: Usage
    restart: Restart = ""
    cause: Cause | None = None
    growth: PromptGrowth | None = None

    @property
    def over(self) -> int:
        """Tokens that the simulation by billed lengths reads more from cache than was billed."""
        return self.lengths.cache_read - self.billed.cache_read


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseTally:
    """Calls of one cause, and the tokens that the simulation by billed lengths reads too many there (signed)."""

    calls: int = 0
    tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """One run, or many.

    prices: of the run's model, None where none are known. stated: whether the recording itself gave the USD.
    """

    file: str = ""
    trajectory: str = ""
    reader: str = ""
    model: str = ""
    prices: Prices | None = None
    stated: bool = False
    calls: tuple[CalibratedCall, ...] = ()

    @property
    def priced_as(self) -> str | None:
        """The name of the price list."""
        return None if self.prices is None else self.prices.name

    @property
    def cached(self) -> bool:
        """Whether a cache was at work at all."""
        return any(call.billed.cache_read or call.billed.cache_write for call in self.calls)

    @property
    def billed(self) -> Usage:
        return sum_usages(call.billed for call in self.calls)

    @property
    def counted(self) -> Usage:
        return sum_usages(call.counted for call in self.calls)

    @property
    def lengths(self) -> Usage:
        return sum_usages(call.lengths for call in self.calls)

    @property
    def difference(self) -> float:
        """Simulated less billed cache-read share, lengths from our messages."""
        return read_share(self.counted) - read_share(self.billed)

    @property
    def elsewhere(self) -> float | None:
        """The same over the calls that no unforeseen cause explains; None if there is none."""
        plain = [call for call in self.calls if call.cause is None or call.cause in FORESEEN]
        if not plain:
            return None
        return read_share(sum_usages(call.counted for call in plain)) - read_share(
            sum_usages(call.billed for call in plain)
        )

    @property
    def causes(self) -> dict[Cause, CauseTally]:
        """In the order of CAUSES, those that occur."""
        found = {cause: [call for call in self.calls if call.cause == cause] for cause in CAUSES}
        return {
            cause: CauseTally(calls=len(calls), tokens=sum(call.over for call in calls))
            for cause, calls in found.items()
            if calls
        }

    @property
    def length_difference(self) -> float:
        """Our prompt tokens less the billed ones, as a share of these."""
        return divide_or_zero(self.counted.prompt - self.billed.prompt, self.billed.prompt)

    @property
    def usd_difference(self) -> float | None:
        """Our bill less the recorded one, as a share of it; None where either is unknown."""
        ours, billed = self.counted.usd, self.billed.usd
        if ours is None or not billed:
            return None
        return ours / billed - 1

    def to_json(self) -> dict[str, Any]:
        return {
            "file": self.file,
            "trajectory": self.trajectory,
            "reader": self.reader,
            "model": self.model,
            "priced_as": self.priced_as,
            "usd_recorded": self.stated,
            **calibration_figures(self),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationStudy:
    """Everything a calibration found. counter: how tokens were counted. silent: recordings without usage."""

    counter: str
    runs: tuple[Calibration, ...] = ()
    silent: tuple[tuple[str, str], ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def cached(self) -> tuple[Calibration, ...]:
        """The runs at whose provider a cache was at work: those that can be compared."""
        return tuple(run for run in self.runs if run.cached)

    @property
    def uncached(self) -> tuple[Calibration, ...]:
        return tuple(run for run in self.runs if not run.cached)

    @property
    def total(self) -> Calibration:
        """All comparable runs as one."""
        return Calibration(
            stated=all(run.stated for run in self.cached),
            calls=tuple(call for run in self.cached for call in run.calls),
        )

    @property
    def steady(self) -> Calibration:
        """The comparable runs as one in which the agent changed no prefix."""
        return Calibration(calls=tuple(call for run in self.steady_runs for call in run.calls))

    @property
    def steady_runs(self) -> tuple[Calibration, ...]:
        return tuple(run for run in self.cached if "changed-prefix" not in run.causes)

    @property
    def near_runs(self) -> tuple[Calibration, ...]:
        """The comparable runs whose prompts are as long as billed, within `NEAR`."""
        return tuple(run for run in self.cached if abs(run.length_difference) <= NEAR)

    @property
    def fits(self) -> dict[str, TokenFit]:
        """Model -> how it counts, fitted on all of its calls; models with too few calls are left out."""
        growths: dict[str, list[PromptGrowth]] = defaultdict(list)
        for run in self.cached:
            for call in run.calls:
                if call.growth is not None:
                    growths[call.model].append(call.growth)
        fits = {model: fit_growth(found) for model, found in growths.items()}
        return {model: fit for model, fit in fits.items() if fit is not None}

    def to_json(self) -> dict[str, Any]:
        return {
            "counter": self.counter,
            "runs": [run.to_json() for run in self.runs],
            "totals": {"runs": len(self.cached), **calibration_figures(self.total)},
            "without_changed_prefix": {"runs": len(self.steady_runs), **calibration_figures(self.steady)},
            "runs_within_2_percent": len(self.near_runs),
            "token_fits": {model: fit.to_json(find_tokenizer(model)) for model, fit in self.fits.items()},
            "without_usage": [{"file": file, "trajectory": trajectory} for file, trajectory in self.silent],
            "problems": encode_problems(self.problems),
        }


def read_share(usage: Usage) -> float:
    """Share of the prompt tokens that was read from cache."""
    return divide_or_zero(usage.cache_read, usage.prompt)


def sum_usages(usages: Iterable[Usage]) -> Usage:
    """The sum; USD only where every part has it."""
    return sum(usages, Usage(usd=0.0))


def calibration_figures(run: Calibration) -> dict[str, Any]:
    """The numbers of a run, or of many, as JSON."""
    restarts = [call.restart for call in run.calls]
    return {
        "calls": len(run.calls),
        **{name: _encode_usage(getattr(run, name)) for name in ("billed", "counted", "lengths")},
        "difference": run.difference,
        "difference_elsewhere": run.elsewhere,
        "length_difference": run.length_difference,
        "usd_difference": run.usd_difference,
        "compactions": {"recorded": restarts.count("recorded"), "inferred": restarts.count("inferred")},
        "causes": {cause: asdict(tally) for cause, tally in run.causes.items()},
    }


def _encode_usage(usage: Usage) -> dict[str, Any]:
    parts = ("prompt", "input", "cache_write", "cache_read", "output", "usd")
    return {**{name: getattr(usage, name) for name in parts}, "read_share": read_share(usage)}


# -- one run ----------------------------------------------------------------------------------------------------------


def calibrate_run(trajectory: Trajectory, sizer: Sizer) -> Calibration | None:
    """`trajectory` as it was billed and as it is simulated; None where no usage was recorded."""
    if not any(turn.usage is not None and turn.usage.prompt for turn in trajectory.turns):
        return None
    sizer = sizer.count_as(find_tokenizer(trajectory.model)).take_output()
    sent = list(list_requests(trajectory, sizer))
    billings = _open_billings(sent)
    books = _CalibrationLedger(
        billings,
        warm=sent[0].usage.cache_read if sent[0].call == 1 else 0,
        no_cache=not any(request.usage.cache_read or request.usage.cache_write for request in sent),
    )
    outputs = {turn.index: count_output_tokens(turn, sizer) for turn in trajectory.turns}
    main = billings.get(trajectory.model) or billings[sent[0].model]
    return Calibration(
        file=trajectory.file,
        trajectory=trajectory.id,
        reader=trajectory.format,
        model=trajectory.model,
        prices=main.prices,
        stated=all(request.usage.usd is not None for request in sent),
        calls=tuple(books.add_call(request, outputs[request.call]) for request in sent),
    )


def _open_billings(sent: Sequence[RecordedRequest]) -> dict[str, Billing]:
    """Return how each model is billed, on the day of its first call."""
    billings: dict[str, Billing] = {}
    writes = {request.model for request in sent if request.usage.cache_write}
    for request in sent:
        if request.model not in billings:
            billings[request.model] = open_billing(request.model, request.day, writes=request.model in writes)
    return billings


def open_billing(model: str, on: date | None, *, writes: bool) -> Billing:
    """How `model` is billed on a day. writes: whether its recorded bills hold cache writes.

    A model without a price keeps the cache rules of the provider it names, or of the way of billing it shows.
    """
    with suppress(PriceError):
        prices = find_prices(model, on=on)
        return Billing(prices=prices, rules=prices.cache)
    providers = load_price_table().providers
    if writes:
        return Billing(prices=None, rules=providers["anthropic"].cache)
    hosts = model.lower().split("/")[:-1]
    named = (provider.cache for provider in providers.values() if provider.hosts.intersection(hosts))
    return Billing(prices=None, rules=next(named, CacheRules()))


class _CalibrationLedger:
    """Both simulated caches of a run, call by call.

    warm: tokens that other runs had left in the first model's cache; `billings` is in call order.
    """

    def __init__(self, billings: Mapping[str, Billing], *, warm: int, no_cache: bool) -> None:
        self._billings = billings
        self._no_cache = no_cache
        first = next(iter(billings))
        warmth = {model: warm if model == first else 0 for model in billings}
        self._counted = {model: PromptCache(billing.rules, warmth[model]) for model, billing in billings.items()}
        self._lengths = {model: PromptCache(billing.rules, warmth[model]) for model, billing in billings.items()}
        self._before: dict[str, RecordedRequest] = {}
        self._newest = ""

    def add_call(self, request: RecordedRequest, output: int) -> CalibratedCall:
        model = request.model
        lengths = self._bill_request(self._lengths[model], request, request.billed, output)
        cause = self._find_cause(request, lengths.cache_read)
        finding = make_finding(cause, request.usage, is_restart=bool(request.restart))
        counted = self._bill_request(self._counted[model], request, request.counted, output, finding)
        self._before[model], self._newest = request, model
        return CalibratedCall(
            index=request.call,
            model=model,
            billed=replace(request.usage, usd=self._billings[model].cost_usd(request.usage)),
            counted=counted,
            lengths=lengths,
            restart=request.restart,
            cause=cause,
            growth=request.growth,
        )

    def _find_cause(self, request: RecordedRequest, simulated: int) -> Cause | None:
        """Return the likely cause why this call did not simply read what the one before left; None where it did.

        simulated: tokens that it reads by the rules of the cache.
        """
        usage, rules = request.usage, self._billings[request.model].rules
        before = self._before.get(request.model)
        left = before.usage.prompt if before else 0
        slack = max(ROUNDING_TOKENS, int(ROUNDING * usage.prompt))
        is_lost = left - usage.cache_read > slack
        has_more = usage.cache_read - simulated > slack
        is_late = before is not None and _has_expired(before, request, rules)
        by_prefix = rules.kind == "prefix"
        possible: tuple[tuple[Cause, bool], ...] = (
            ("no-cache", self._no_cache),
            ("compaction", request.restart != ""),
            ("kept-longer", has_more and is_late),
            ("answer", has_more and by_prefix and before is not None),
            ("gap", is_lost and is_late),
            ("minimum", is_lost and left < rules.minimum),
            ("second-model", before is None and self._newest not in ("", request.model)),
            ("missed", is_lost and by_prefix),
            ("changed-prefix", is_lost),
            ("unsent", request.unsent > 0),
        )
        return next((cause for cause, holds in possible if holds), None)

    def _bill_request(
        self,
        cache: PromptCache,
        request: RecordedRequest,
        view: View,
        output: int,
        finding: CacheFinding = AS_FORESEEN,
    ) -> Usage:
        read = cache.record_request(view, request.now, request.model, finding=finding)
        return self._billings[request.model].build_usage(view.tokens, read, output, view.hour_tokens)


def _has_expired(before: RecordedRequest, request: RecordedRequest, rules: CacheRules) -> bool:
    """Return whether the entry of the call before was dead by now."""
    if before.now is None or request.now is None:
        return False
    is_for_an_hour = before.billed.hour_length >= before.billed.length
    return request.now - before.now > (HOUR_SECONDS if is_for_an_hour else rules.ttl)


def make_finding(cause: Cause | None, usage: Usage, *, is_restart: bool) -> CacheFinding:
    """Return what the recorded bill says that the cache held at a call, where no rule foresees it.

    The recording agent changed its prompt, or the provider kept less or more than it documents: that happened in the
    world of the recording, whatever was hidden. A request that was cut begins as its bill says.
    """
    if is_restart:
        return CacheFinding(most=usage.cache_read, warm=usage.cache_read)
    match cause:
        case "changed-prefix" | "missed":
            return CacheFinding(most=usage.cache_read)
        case "gap":
            # Other runs kept as much of the front alive.
            return CacheFinding(most=usage.cache_read, warm=usage.cache_read)
        case "answer":
            return CacheFinding(has_answer=True, most=usage.cache_read)
        case "kept-longer":
            return CacheFinding(outlived=True)
        case "second-model":
            return CacheFinding(warm=usage.cache_read)
    return AS_FORESEEN
