"""Which points of a space are evaluated: all of them, or those that a sampler of Optuna proposes.

Both are the same for the same seed, however many processes replay: points are proposed in batches of a fixed size, and
the sampler learns the results of a batch in the order in which it proposed them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from elision.errors import MissingExtra
from elision.lab.results import Row
from elision.lab.tuning.search_space import FAMILIES, SearchSpace
from elision.strategies.strategy import Strategy

#: Replays strategies on the fit part; their sums, None for one that does not fit.
Evaluate: TypeAlias = Callable[[Sequence[Strategy]], list[Row | None]]

#: Points that are proposed before any of them is learnt.
BATCH: Final = 8
#: Points that are chosen at random before the sampler uses what it learnt.
RANDOM_POINTS: Final = 16
#: A sampler that proposes known points this many times as often as it may is at its end.
MOST_ASKED: Final = 4
#: Options whose values are in an order that means something.
_ORDERED: Final = frozenset(("window", "summarize_at", "tail", "every", "gist"))


def search_exhaustively(strategies: Sequence[Strategy], evaluate: Evaluate) -> None:
    """Evaluate every one of `strategies`."""
    for start in range(0, len(strategies), BATCH):
        evaluate(strategies[start : start + BATCH])


def search_by_sampling(
    space: SearchSpace, evaluate: Evaluate, *, trials: int, seed: int, first: Sequence[Strategy]
) -> None:
    """Evaluate `trials` points that a multi-objective sampler proposes: cost, facts visible, turns missing something.

    first: points to begin with. It ends earlier where the sampler proposes known points only. Raises MissingExtra.
    """
    optuna = load_optuna()
    study = optuna.create_study(
        directions=["minimize", "maximize", "minimize"],
        sampler=optuna.samplers.TPESampler(seed=seed, n_startup_trials=RANDOM_POINTS),
    )
    _enqueue_points(study, space, first)
    seen: set[Strategy] = set()
    for _ in range(0, MOST_ASKED * trials, BATCH):
        batch = [_propose_point(study, space) for _ in range(BATCH)]
        for _, strategy in batch:
            if strategy is not None and len(seen) < trials:
                seen.add(strategy)
        asked = list(dict.fromkeys(strategy for _, strategy in batch if strategy is not None and strategy in seen))
        rows = dict(zip(asked, evaluate(asked), strict=True))
        for trial, strategy in batch:
            _report_result(optuna, study, trial, None if strategy is None else rows.get(strategy))
        if len(seen) >= trials:
            return


def load_optuna() -> Any:
    """Return the module optuna, quiet. Raises MissingExtra without it."""
    try:
        import optuna
    except ImportError:
        raise MissingExtra("a search of a space larger than --trials", "tune") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _enqueue_points(study: Any, space: SearchSpace, first: Sequence[Strategy]) -> None:
    wanted = set(first)
    for family, choice in space.iterate_choices():
        if space.make_strategy(family, choice) in wanted:
            study.enqueue_trial({"family": family} | {f"{family}.{name}": place for name, place in choice.items()})


def _propose_point(study: Any, space: SearchSpace) -> tuple[Any, Strategy | None]:
    """Return a trial and its strategy; None for values that exclude each other."""
    trial = study.ask()
    family = trial.suggest_categorical("family", list(space.values["family"]))
    choice = {}
    for name, count in space.list_options(family):
        # A family's option is a parameter of its own: a good window of masking says little about hybrid's.
        if name in _ORDERED:
            choice[name] = trial.suggest_int(f"{family}.{name}", 0, count - 1)
        else:
            choice[name] = trial.suggest_categorical(f"{family}.{name}", list(range(count)))
    assert set(choice) == set(FAMILIES[family])
    return trial, space.make_strategy(family, choice)


def _report_result(optuna: Any, study: Any, trial: Any, row: Row | None) -> None:
    if row is None:
        study.tell(trial, state=optuna.trial.TrialState.FAIL)
        return
    study.tell(trial, [row.usd, row.evidence_recall or 0.0, row.missing_turns])
