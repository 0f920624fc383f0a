"""Why a simulated run does not cost what it was billed: the difference in parts, each from what the log holds.

A call's difference is the sum of three: the bill is not the list price of its tokens, the prompt has another length,
and another share of it is read from the cache. No part is assumed: what the first two leave is the cache's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

from elision.lab.calibrate import CAUSES, FORESEEN, CalibratedCall, Calibration
from elision.lab.ratios import divide_or_zero
from elision.lab.report.figures import format_plural
from elision.lab.results import BILLED, SentSummary
from elision.lab.run_loading import find_recorded_prices
from elision.lab.sent_rows import replay_recording
from elision.telemetry.context_report import format_signed_percent
from elision.trajectory.price_lookup import find_tokenizer, is_same_model
from elision.trajectory.prices import Prices
from elision.trajectory.tokens import OURS
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.turn import has_sealed_reasoning
from elision.trajectory.usage import Usage

#: Shares of a bill up to which a difference needs no cause: of one run, and of all.
NEAR_RUN: Final = 0.05
NEAR_TOTAL: Final = 0.02
#: Share of a bill below which a part of the difference is ruled out as its cause.
RULED_OUT: Final = 0.01
#: Ratios of stated amounts to the list price that differ by no more than that are one ratio.
SAME_RATIO: Final = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What a simulated bill is more than the recorded one, in USD, by part.

    prompt, simulated: tokens of all prompts, as billed and as simulated. ratios: stated amount by list price, by call.
    """

    billed: float = 0.0
    amounts: float = 0.0
    cache: float = 0.0
    lengths: float = 0.0
    prompt: int = 0
    simulated: int = 0
    ratios: tuple[float, ...] = ()

    @property
    def share(self) -> float:
        """All of it as a share of the recorded bill."""
        return divide_or_zero(self.amounts + self.cache + self.lengths, self.billed)


def divide_difference(calls: Iterable[tuple[Usage, int, float]], prices: Prices) -> Difference:
    """Return the difference of the bills of `calls` in its parts.

    calls: of the run's own model, as billed; the tokens of the simulated prompt, and its cost in USD.
    """
    billed = amounts = cache = lengths = 0.0
    prompt = simulated = 0
    ratios = []
    for usage, tokens, usd in calls:
        scale = tokens / usage.prompt
        hour = usage.cache_read + usage.cache_write_1h if usage.cache_write_1h else 0
        listed = prices.bill_call(usage.prompt, usage.cache_read, usage.output, hour).usd
        # As long as simulated, with the share that was read from the cache.
        resized = prices.bill_call(
            tokens, round(scale * usage.cache_read), usage.output, min(round(scale * hour), tokens)
        ).usd
        stated = usage.usd or 0.0
        billed += stated
        amounts += listed - stated
        lengths += resized - listed
        cache += usd - resized
        prompt += usage.prompt
        simulated += tokens
        ratios.append(stated / listed if listed else 1.0)
    return Difference(
        billed=billed,
        amounts=amounts,
        cache=cache,
        lengths=lengths,
        prompt=prompt,
        simulated=simulated,
        ratios=tuple(ratios),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BillCheck:
    """One run as recorded beside the same as billed, in USD; billed_usd is None where there is no bill.

    sending: how it was sent. cause: what the difference consists of, however small it is. reasons: a sentence for each
    simulation, as recorded and with our own counts, that is too far from the bill.
    """

    file: str
    trajectory: str
    billed_usd: float | None = None
    recorded_usd: float | None = None
    sending: SentSummary = field(default_factory=SentSummary)
    cause: str = ""
    reasons: tuple[str, ...] = ()

    @property
    def difference(self) -> float | None:
        """As recorded less as billed, as a share of this; None without a bill."""
        if not self.billed_usd or self.recorded_usd is None:
            return None
        return self.recorded_usd / self.billed_usd - 1

    def to_json(self) -> dict[str, Any]:
        return {
            "file": self.file,
            "trajectory": self.trajectory,
            "as_billed_usd": self.billed_usd,
            "as_recorded_usd": self.recorded_usd,
            "difference": self.difference,
            "cause": self.cause,
            "reasons": list(self.reasons),
        }


def check_bill(run: Trajectory, tokens: str) -> BillCheck:
    """Replay `run` as it was sent, at the prices of its own model, and compare. tokens: name of the counter."""
    prices = find_recorded_prices(run)
    as_sent = replay_recording(run, prices, tokens)
    billed = next((row.usd for row, _ in as_sent.rows if row.strategy == BILLED), None)
    calibration = as_sent.sent.billed
    if billed is None or calibration is None:
        return BillCheck(file=run.file, trajectory=run.id, sending=as_sent.summary)
    own = [call for call in calibration.calls if is_same_model(call.model, run.model)]
    replayed = [as_sent.replay.calls[call.index - 1] for call in own]
    sent = [(call.billed, seen.tokens, seen.usd) for call, seen in zip(own, replayed, strict=True)]
    counted = [(call.billed, call.counted.prompt, call.counted.usd or 0.0) for call in own]
    as_recorded = divide_difference(sent, prices)
    simulations = (("As recorded", as_recorded), ("Ours", divide_difference(counted, prices)))
    return BillCheck(
        file=run.file,
        trajectory=run.id,
        billed_usd=billed,
        recorded_usd=as_sent.usd,
        sending=as_sent.summary,
        cause=explain_difference(as_recorded, run, calibration),
        reasons=tuple(
            f"{name} is {format_signed_percent(found.share)} off: {explain_difference(found, run, calibration)}"
            for name, found in simulations
            if abs(found.share) > NEAR_RUN
        ),
    )


@dataclass(frozen=True, slots=True)
class BillChecks:
    """All runs beside their bills."""

    checks: tuple[BillCheck, ...]

    @property
    def compared(self) -> tuple[BillCheck, ...]:
        """The runs with a bill."""
        return tuple(check for check in self.checks if check.difference is not None)

    @property
    def sending(self) -> SentSummary:
        return sum((check.sending for check in self.checks), SentSummary())

    @property
    def billed_usd(self) -> float:
        return sum(check.billed_usd or 0.0 for check in self.compared)

    @property
    def recorded_usd(self) -> float:
        return sum(check.recorded_usd or 0.0 for check in self.compared)

    @property
    def difference(self) -> float | None:
        """As recorded less as billed, over all runs with a bill, as a share of this; None without any."""
        return self.recorded_usd / self.billed_usd - 1 if self.billed_usd else None

    def find_main_run(self) -> BillCheck | None:
        """Return the run that most of a difference in total is of, where that needs a cause; else None."""
        if self.difference is None or abs(self.difference) <= NEAR_TOTAL:
            return None
        return max(self.compared, key=lambda each: abs((each.recorded_usd or 0.0) - (each.billed_usd or 0.0)))

    def to_json(self) -> dict[str, Any]:
        return {
            "runs": [check.to_json() for check in self.checks],
            "as_billed_usd": self.billed_usd,
            "as_recorded_usd": self.recorded_usd,
            "difference": self.difference,
        }


# -- sentences --------------------------------------------------------------------------------------------------------


def explain_difference(found: Difference, run: Trajectory, calibration: Calibration) -> str:
    """Return a sentence with the parts that make the difference, the largest first, and those that are ruled out."""
    parts = {
        "the amounts": (found.amounts, _explain_amounts(found, calibration)),
        "the cache": (found.cache, _explain_cache(calibration.calls, run.model)),
        "the lengths of prompts": (found.lengths, _explain_lengths(found, run, calibration)),
    }
    shares = {name: divide_or_zero(usd, found.billed) for name, (usd, _) in parts.items()}
    ranked = sorted(shares, key=lambda name: -abs(shares[name]))
    told = [
        f"{parts[name][1]} ({format_signed_percent(shares[name])})" for name in ranked if abs(shares[name]) >= RULED_OUT
    ]
    out = [name for name in ranked if abs(shares[name]) < RULED_OUT]
    ending = f" Ruled out: {' and '.join(out)}." if out else ""
    return f"{'; '.join(told) or 'no part reaches 1 % of the bill'}.{ending}"


def _explain_amounts(found: Difference, calibration: Calibration) -> str:
    """Return why the bill is not the list price of its own tokens."""
    ratio = median(found.ratios) if found.ratios else 1.0
    is_one = all(abs(each / ratio - 1) <= SAME_RATIO for each in found.ratios)
    has_writes = calibration.prices is not None and calibration.prices.cache.kind == "breakpoints"
    writes = ", its cache writes not shown" if has_writes and not calibration.billed.cache_write else ""
    if not calibration.stated:
        return f"the log splits the tokens into cache writes and others in another way than the prices do{writes}"
    if is_one:
        return f"each stated amount is {ratio:.2f} × the list price of its tokens{writes}: the seller's own price"
    low, high = min(found.ratios), max(found.ratios)
    return f"stated amounts are {low:.2f} to {high:.2f} × the list price of their tokens{writes}: other prices"


def _explain_cache(calls: Iterable[CalibratedCall], model: str) -> str:
    """Return at how many calls the provider's cache held something that no rule foresees."""
    own = (call for call in calls if is_same_model(call.model, model))
    counts = Counter(call.cause for call in own if call.cause is not None and call.cause not in FORESEEN)
    if not counts:
        return "another share is read from the cache, at calls at which the bill shows no cause"
    named = ", ".join(
        f"{cause} at {format_plural(count, 'call')} ({CAUSES[cause]})" for cause, count in counts.most_common(2)
    )
    return f"another share is read from the cache, where it had what no rule predicts: {named}"


def _explain_lengths(found: Difference, run: Trajectory, calibration: Calibration) -> str:
    """Return why prompts have another length than they were billed."""
    difference = format_signed_percent(divide_or_zero(found.simulated - found.prompt, found.prompt))
    causes = []
    unsent = sum(call.cause == "unsent" for call in calibration.calls)
    if unsent:
        causes.append(f", because the agent cut results that are complete in the log ({unsent} ×)")
    inferred = sum(call.restart == "inferred" for call in calibration.calls)
    if inferred:
        causes.append(f", because the agent condensed its history without a record of it ({inferred} ×)")
    sealed = sum(has_sealed_reasoning(turn.content) for turn in run.turns)
    if sealed:
        causes.append(f", with sealed reasoning of unknown length in {format_plural(sealed, 'turn')}")
    tokenizer = find_tokenizer(run.model)
    if tokenizer == OURS:
        causes.append(", as nothing is known of how this model counts tokens")
    else:
        causes.append(f", at {tokenizer.tokens_per_counted:g} tokens of the model for each that we count")
    return f"our count of the prompts is {difference} off{''.join(causes)}"
