"""Which points are evaluated: all of a small space, or as many as were asked for of a large one."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import pytest

from elision.errors import MissingExtra
from elision.lab.results import Row
from elision.lab.tuning.search_space import SearchSpace, parse_space
from elision.lab.tuning.tuner import load_optuna, search_by_sampling
from elision.strategies.spec import parse_strategy
from elision.strategies.strategy import Strategy
from elision.trajectory.prices import Bill


class _Figures:
    """Replays that cost nothing: a window costs what it shows."""

    def __init__(self) -> None:
        self.asked: list[Strategy] = []

    def evaluate(self, strategies: Sequence[Strategy]) -> list[Row | None]:
        self.asked += strategies
        return [self._find_row(strategy) for strategy in strategies]

    @staticmethod
    def _find_row(strategy: Strategy) -> Row | None:
        window = getattr(strategy, "window", 15)
        if window == 58:
            return None
        return Row(
            bill=Bill(usd=window), raw_usd=60, evidence_items=60, evidence_found=window, regret_turns=60 - window
        )


def _sample(trials: int, seed: int, space: SearchSpace | None = None) -> list[Strategy]:
    figures = _Figures()
    first = [parse_strategy("masking"), parse_strategy("hybrid")]
    search_by_sampling(space or SearchSpace(), figures.evaluate, trials=trials, seed=seed, first=first)
    return figures.asked


def test_a_sampled_search_evaluates_what_was_asked_for() -> None:
    """So many points and no more, beginning with the given ones; points that do not fit do not stop it."""
    pytest.importorskip("optuna", reason="the extra `tune` is not installed")
    asked = _sample(40, 3)
    assert len(set(asked)) == 40
    assert {parse_strategy("masking"), parse_strategy("hybrid")} <= set(asked[:8])


def test_a_seed_decides_all() -> None:
    """The same points in the same order; others for another seed."""
    pytest.importorskip("optuna", reason="the extra `tune` is not installed")
    assert _sample(24, 1) == _sample(24, 1)
    assert _sample(24, 1) != _sample(24, 2)


def test_a_sampler_at_its_end_stops() -> None:
    """A space of two points has no third one."""
    pytest.importorskip("optuna", reason="the extra `tune` is not installed")
    space = parse_space(["family=masking", "window=5,10", "schedule=cache-aware", "gist=50"])
    assert len(set(_sample(20, 0, space))) == 2


def test_without_optuna_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what it is needed for."""
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingExtra, match=r"larger than --trials .*\[tune\]"):
        load_optuna()
