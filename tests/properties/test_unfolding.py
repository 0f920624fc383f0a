"""Folding loses nothing: what is folded can be unfolded, byte by byte, from observations that are shown."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from elision.formats.registry import read_runs
from elision.strategies.fold_ledger import SourceNames
from elision.strategies.repeated_lines import LineIndex, fold_observation, fold_text
from elision.trajectory.plan import Edit, FoldedRun, Key, make_handle
from elision.trajectory.tokens import make_counter
from elision.trajectory.trajectory import Trajectory
from tests.corpus import CORPUS, reproduces
from tests.figures import ReportFigures
from tests.properties.followed_references import check_references
from tests.properties.repeated_texts import Piece, draw_texts, write_text
from tests.soak import SOAK
from tests.strategies.unfolding import unfold_text

#: Sessions of a few observations each.
SESSIONS = 1_000_000 if SOAK else 500
NAMES = SourceNames(describe_call=lambda key: f"read_file f{key[0]} (1).py")

_pieces = st.builds(
    Piece, st.integers(0, 11), st.integers(0, 19), st.integers(0, 12), st.integers(0, 120), st.integers(0, 2)
)

_texts = st.builds(write_text, st.lists(_pieces, max_size=4), st.sampled_from(["", "\n", "\r\n"]))


def check_session(texts: Sequence[str], least_lines: int, removed: int = 0) -> int:
    """Fold each of `texts` against those before it; return how many runs there were.

    removed: the number of one that is hidden before the last one comes; 0 for none.
    """
    index = LineIndex(least_lines, least_characters=1)
    own: dict[Key, str] = {}
    folds: dict[Key, Edit] = {}
    for number, text in enumerate(texts, start=1):
        if number == len(texts):
            index.remove_observation((removed, 1))
            folds.pop((removed, 1), None)
        key = (number, 1)
        own[key] = text
        runs = tuple(index.find_runs(key, text))
        check_runs(runs, key, text, least_lines)
        for run in runs:
            assert run.source != (removed, 1) or number < len(texts)
            assert not is_hidden(folds[run.source].runs, run)
        folds[key] = Edit(key, "fold", fold_text(text, runs, NAMES), runs)
        check_references(folds[key], text, {make_handle(each): fold.text for each, fold in folds.items()})
        assert unfold_text(folds[key], own) == text
        index.add_observation(key, text, runs)
    for key in list(own):
        index.remove_observation(key)
    assert (index.line_count, index._find_blocks_at_once().places, index._whole) == (0, {}, {})
    return sum(len(fold.runs) for fold in folds.values())


def check_runs(runs: Sequence[FoldedRun], key: Key, text: str, least_lines: int) -> None:
    """They are in order, apart from each other, within the text, and of earlier observations."""
    end = 0
    for run in runs:
        assert run.start >= end
        assert run.lines >= least_lines or run.is_whole
        assert run.source < key
        end = run.start + run.lines
    assert end <= text.count("\n") + 1


def is_hidden(folded: Sequence[FoldedRun], run: FoldedRun) -> bool:
    """Whether any line that `run` names is folded in its source."""
    first, last = run.source_start, run.source_start + run.lines
    return any(first < other.start + other.lines and other.start < last for other in folded)


@given(st.lists(_texts, min_size=1, max_size=5), st.integers(2, 4), st.integers(0, 4))
def test_unfolding_restores_the_text(texts: list[str], least_lines: int, removed: int) -> None:
    """Whatever repeats, whatever was hidden before."""
    check_session(texts, least_lines, removed)


def test_unfolding_restores_many_texts(report_figures: ReportFigures) -> None:
    """The same over more sessions than Hypothesis draws; in a soak they have millions of observations."""
    random = Random(7)
    observations = runs = 0
    for _ in range(SESSIONS):
        texts = draw_texts(random)
        observations += len(texts)
        runs += check_session(texts, random.randint(2, 4), random.randint(0, 4))
    assert runs > SESSIONS
    report_figures(f"unfolding: {observations:,} generated observations, {runs:,} runs, all restored")


_few_lines = st.lists(st.sampled_from("ab"), min_size=1, max_size=9)


@given(_few_lines.map(lambda lines: lines[:5]), _few_lines)
def test_runs_are_the_longest_from_the_front(source: list[str], lines: list[str]) -> None:
    """As the plainest search finds them, which looks at every place."""
    index = LineIndex(least_lines=2, least_characters=1)
    index.add_observation((1, 1), "\n".join(source))
    expected = []
    start = 0
    if source == lines:
        expected, start = [(0, len(lines))], len(lines)
    while start < len(lines):
        longest = max(length for length in range(len(lines) - start + 1) if holds_lines(source, lines[start:], length))
        if longest >= 2:
            expected.append((start, longest))
        start += longest if longest >= 2 else 1
    assert [(run.start, run.lines) for run in index.find_runs((2, 1), "\n".join(lines))] == expected


def holds_lines(source: Sequence[str], lines: Sequence[str], length: int) -> bool:
    """Whether the first `length` of `lines` follow each other in `source`."""
    return any(source[place : place + length] == lines[:length] for place in range(len(source)))


@reproduces("unfolding over all recorded observations")
def test_unfolding_restores_recorded_observations(report_figures: ReportFigures) -> None:
    """Every observation of every recording, with the limits that strategies have."""
    count_tokens = make_counter("estimate").count
    observations = folded = 0
    for path in sorted(CORPUS.glob("*/*")):
        for run in read_runs(path):
            if isinstance(run, Trajectory):
                index, own = LineIndex(), dict[Key, str]()
                for turn in run.turns:
                    for position, observation in enumerate(turn.observations, start=1):
                        key, text = (turn.index, position), observation.text
                        own[key] = text
                        fold = fold_observation(index, key, text, count_tokens)
                        observations += 1
                        if fold is not None:
                            folded += 1
                            assert unfold_text(fold, own) == text
                        index.add_observation(key, text, fold.runs if fold else ())
    assert folded > observations / 10
    report_figures(f"unfolding: {observations:,} recorded observations, {folded:,} folded, all restored")
