"""What is folded, and what hiding its sources adds."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from elision.strategies.fold_ledger import MOST_GROWTH, Exposure, FoldLedger
from elision.trajectory.plan import FoldedRun, Key


def run(source: Key, start: int, lines: int) -> FoldedRun:
    return FoldedRun(0, lines, source, start)


def ledger(*folds: tuple[Key, tuple[FoldedRun, ...], int], leaving: Iterable[Key] = ()) -> FoldLedger:
    made = FoldLedger()
    for key, runs, tokens in folds:
        made.add_fold(key, runs, tokens)
    for key in leaving:
        made.set_leaving(key, leaves=True)
    return made


def test_lines_of_a_source_are_shown_again_once() -> None:
    """Two folds of the same lines: one is shown whole and the other refers to it; at most both are whole."""
    folds = ledger(((2, 1), (run((1, 1), 0, 10),), 100), ((3, 1), (run((1, 1), 5, 10),), 100), leaving=[(1, 1)])
    assert folds.leaving_tokens == 150
    assert folds.measure_exposure(0, covers=False) == Exposure(150, 200)
    assert folds.measure_exposure(1, covers=True) == Exposure(150, 200)
    assert folds.measure_exposure(1, covers=False) == Exposure(0, 0)


def test_what_is_masked_with_its_source_is_not_shown_whole() -> None:
    """It adds nothing where masking it pays anyway, and else what the placeholder is longer than the fold."""
    folds = ledger(((2, 1), (run((1, 1), 0, 10),), 100), leaving=[(1, 1), (2, 1)])
    assert folds.leaving_tokens == 0
    folds.set_leaving((2, 1), leaves=False)
    folds.set_mask_tokens((2, 1), 12)
    assert folds.leaving_tokens == 12
    folds.set_leaving((1, 1), leaves=False)
    assert folds.leaving_tokens == 0


def test_what_refers_to_a_changed_fold_is_written_in_other_words() -> None:
    """The lines that it names have other numbers then; it is never more than whole. One that is masked is gone."""
    folds = ledger(
        ((2, 1), (run((1, 1), 0, 10),), 100),
        ((3, 1), (run((2, 1), 20, 10),), 500),
        ((4, 1), (run((3, 1), 20, 10),), 9),
        leaving=[(1, 1)],
    )
    assert folds.measure_exposure(0, covers=False) == Exposure(100, 100 + MOST_GROWTH + 9)
    folds.set_mask_tokens((2, 1), 12)
    assert folds.measure_exposure(0, covers=False) == Exposure(12, 12 + 500 + 9)


def test_a_fold_that_moves_relies_on_its_new_source() -> None:
    """And on the old one no longer; one that is taken back relies on nothing."""
    folds = ledger(((3, 1), (run((1, 1), 0, 10),), 100), leaving=[(1, 1)])
    folds.add_fold((3, 1), (run((2, 1), 0, 10),), 90)
    assert folds.leaving_tokens == 0
    assert folds.list_dependents((1, 1)) == set()
    assert folds.list_dependents((2, 1)) == {(3, 1)}
    folds.remove_fold((3, 1))
    assert folds.list_dependents((2, 1)) == set()
    assert (3, 1) not in folds


@given(
    st.lists(
        st.tuples(
            st.sampled_from(("fold", "remove", "leave", "stay", "mask", "whole")), st.integers(1, 6), st.integers(1, 6)
        ),
        max_size=40,
    )
)
def test_the_running_total_is_what_is_measured(steps: list[tuple[str, int, int]]) -> None:
    """However folds come and go: the estimate kept is the one that is worked out from scratch."""
    folds = FoldLedger()
    for what, turn, other in steps:
        key = (turn, 1)
        if (
            what == "fold"
            and other < turn
            and (key in folds or not any((later, 1) in folds for later in range(turn, 7)))
        ):
            folds.add_fold(key, (run((other, 1), turn, 10), run((1, 1), other, 3)), 10 * turn)
        elif what == "remove":
            folds.remove_fold(key)
        elif what in ("leave", "stay"):
            folds.set_leaving(key, leaves=what == "leave")
        elif key in folds:
            folds.set_mask_tokens(key, other if what == "mask" else None)
        measured = folds.measure_exposure(0, covers=False)
        assert measured.estimated == min(folds.leaving_tokens, measured.most)
