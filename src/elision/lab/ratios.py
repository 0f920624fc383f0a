"""Shares, sums of what may not be known, and how sure a figure over few instances is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import NormalDist
from types import ModuleType
from typing import Final

import msgspec

from elision.errors import MissingExtra


def divide_or_zero(part: float, whole: float) -> float:
    """Return `part` as a share of `whole`; 0 where that is 0."""
    return part / whole if whole else 0.0


def divide_or_none(part: float, whole: float | None) -> float | None:
    """Return `part` as a share of `whole`; None where that is 0 or not known."""
    return part / whole if whole else None


def sum_or_none(values: Iterable[float | None]) -> float | None:
    """Return the sum; None where one of `values` is not known."""
    listed = list(values)
    return None if None in listed else sum(filter(None, listed))


#: Share of such intervals that hold the true value.
CONFIDENCE: Final = 0.95
#: Shares of the drawn values below the ends of such an interval.
_ENDS: Final = ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2)
#: Samples that a bootstrap draws.
RESAMPLES: Final = 10_000
#: Values that are drawn at a time, so that large tables need little memory.
_DRAWN_AT_ONCE: Final = 2_000_000


class Interval(msgspec.Struct, frozen=True, array_like=True):
    """From `low` to `high`, both included; a pair in JSON."""

    low: float
    high: float


def estimate_share(successes: int, trials: int) -> Interval:
    """Return Wilson's score interval of a share. Raises ValueError unless 0 <= successes <= trials and trials > 0.

    Source: Wilson, E. B. (1927), Probable inference, the law of succession, and statistical inference, JASA 22, 209.
    """
    if trials <= 0 or not 0 <= successes <= trials:
        raise ValueError(f"{successes} of {trials}: no share")
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    share = successes / trials
    spread = 1 + z * z / trials
    middle = (share + z * z / (2 * trials)) / spread
    half = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials)) / spread
    # At the ends the formula gives 0 and 1, but for rounding.
    low = 0.0 if successes == 0 else max(0.0, middle - half)
    high = 1.0 if successes == trials else min(1.0, middle + half)
    return Interval(low, high)


def bootstrap_mean(values: Sequence[float], *, resamples: int = RESAMPLES, seed: int = 0) -> Interval:
    """Return the percentile bootstrap interval of the mean of `values`; the same for the same seed.

    Give differences within pairs for the interval of a paired difference. Raises ValueError without values,
    MissingExtra without numpy.

    Source: Efron, B. (1979), Bootstrap methods: another look at the jackknife, Annals of Statistics 7, 1.
    """
    if not values:
        raise ValueError("no values: no mean")
    np = _load_numpy()
    given = np.asarray(values, dtype=np.float64)
    random = np.random.default_rng(seed)
    means = np.empty(resamples)
    step = max(1, _DRAWN_AT_ONCE // len(given))
    for start in range(0, resamples, step):
        rows = min(step, resamples - start)
        means[start : start + rows] = given[random.integers(0, len(given), (rows, len(given)))].mean(axis=1)
    low, high = np.quantile(means, _ENDS)
    return Interval(float(low), float(high))


def bootstrap_ratio(values: Sequence[float], base: Sequence[float], *, resamples: int = RESAMPLES) -> Interval:
    """Return the percentile bootstrap interval of sum(values) / sum(base), drawn in pairs. Raises MissingExtra."""
    np = _load_numpy()
    pairs = np.array([values, base])
    drawn = np.random.default_rng(0).integers(0, len(values), (resamples, len(values)))
    sums = pairs[:, drawn].sum(axis=2)
    low, high = np.quantile(sums[0] / sums[1], _ENDS)
    return Interval(float(low), float(high))


def _load_numpy() -> ModuleType:
    """Return numpy. Loaded with the first interval, since it is slow to import and only the extra `report` has it."""
    try:
        import numpy
    except ImportError as error:
        raise MissingExtra("an interval", "report") from error
    return numpy
