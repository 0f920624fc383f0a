"""Means, pairs and intervals of the published runs.

An interval is a paired bootstrap of 95 %: 10,000 samples of the instances, seeded, so that it is the same each time.
With the instances sorted and the seeds 0 (solved) and 1 (cost) it gives the authors' own intervals to the last digit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from docs.paper.facts import AgentRun, Experiment

SAMPLES = 10_000
SOLVED_SEED = 0
COST_SEED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float


def list_common(experiments: Iterable[Experiment]) -> list[str]:
    """Return the instances that all `experiments` ran, sorted."""
    return sorted(set.intersection(*(set(each.runs) for each in experiments)))


def mean_usd(experiment: Experiment, instances: Sequence[str] | None = None) -> float:
    """Return the mean cost of a run, USD, summaries included."""
    return _mean(experiment, lambda run: run.usd, instances)


def mean_turns(experiment: Experiment, instances: Sequence[str] | None = None) -> float:
    """Return the mean number of turns."""
    return _mean(experiment, lambda run: run.turns, instances)


def count_solved(experiment: Experiment, instances: Sequence[str] | None = None) -> int:
    """Return how many instances were solved."""
    return sum(experiment.runs[name].solved for name in instances or experiment.runs)


def summary_share(experiment: Experiment) -> float:
    """Return the part of the whole cost that the calls for summaries have."""
    return sum(run.summary_cost for run in experiment.runs.values()) / sum(run.usd for run in experiment.runs.values())


def estimate_difference(
    experiment: Experiment, base: Experiment, value: Callable[[AgentRun], float], seed: int, instances: Sequence[str]
) -> Estimate:
    """Estimate how much the mean of `experiment` is above that of `base`; a run that is missing counts as 0."""
    ours, theirs = _sample_means(experiment, base, value, seed, instances)
    low, high = np.quantile(ours[1:] - theirs[1:], [0.025, 0.975])
    return Estimate(value=float(ours[0] - theirs[0]), low=float(low), high=float(high))


def estimate_ratio(
    experiment: Experiment, base: Experiment, value: Callable[[AgentRun], float], seed: int, instances: Sequence[str]
) -> Estimate:
    """Estimate the mean of `experiment` as a multiple of that of `base`, over the same instances."""
    ours, theirs = _sample_means(experiment, base, value, seed, instances)
    low, high = np.quantile(ours[1:] / theirs[1:], [0.025, 0.975])
    return Estimate(value=float(ours[0] / theirs[0]), low=float(low), high=float(high))


def _mean(experiment: Experiment, value: Callable[[AgentRun], float], instances: Sequence[str] | None) -> float:
    names = instances or list(experiment.runs)
    return sum(value(experiment.runs[name]) for name in names) / len(names)


def _sample_means(
    experiment: Experiment, base: Experiment, value: Callable[[AgentRun], float], seed: int, instances: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the means of both: first the plain one, then one of each sample. Both have the same instances in each."""
    counts = _draw_samples(seed, len(instances))
    means = []
    for each in (experiment, base):
        known = np.array([value(each.runs[name]) if name in each.runs else 0.0 for name in instances], dtype=float)
        means.append(np.concatenate([[known.mean()], counts @ known / len(instances)]))
    return means[0], means[1]


@lru_cache(maxsize=8)
def _draw_samples(seed: int, size: int) -> np.ndarray:
    """Return how often each of `size` instances is in each sample."""
    picked = np.random.default_rng(seed).integers(0, size, size=(SAMPLES, size))
    places = picked + size * np.arange(SAMPLES)[:, np.newaxis]
    return np.bincount(places.ravel(), minlength=SAMPLES * size).reshape(SAMPLES, size).astype(np.float32)
