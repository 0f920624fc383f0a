"""How far the evidence measure can be trusted: noise and floor of each format."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from elision.lab.evidence import Evidence, EvidenceTally, common_items, measure_noise
from elision.lab.ratios import divide_or_none
from elision.lab.replay import replay_run
from elision.lab.results import Control
from elision.lab.study_settings import StudySettings
from elision.strategies.spec import parse_strategy
from elision.trajectory.trajectory import Trajectory


def group_by_format(runs: Sequence[Trajectory]) -> dict[str, list[int]]:
    places: dict[str, list[int]] = defaultdict(list)
    for place, run in enumerate(runs):
        places[run.format].append(place)
    return places


def find_common_items(runs: Sequence[Trajectory], known: Sequence[Evidence]) -> list[frozenset[str]]:
    """Return, for each of `runs`, the items that are common property of its format."""
    result: list[frozenset[str]] = [frozenset()] * len(runs)
    for places in group_by_format(runs).values():
        for place, items in zip(places, common_items([known[place] for place in places]), strict=True):
            result[place] = items
    return result


def measure_controls(
    runs: Sequence[Trajectory],
    known: Sequence[Evidence],
    common: Sequence[frozenset[str]],
    settings: StudySettings | None,
) -> tuple[Control, ...]:
    """settings: what to replay the floor with; None after an interruption, when nothing more is replayed."""
    result = []
    for name, places in sorted(group_by_format(runs).items()):
        own = [known[place] for place in places]
        floor, window = None, None
        if settings:
            floor, window = _measure_floor([runs[place] for place in places], own, settings)
        result.append(
            Control(
                reader=name,
                runs=len(places),
                noise=_mean_of(measure_noise(own, [frozenset()] * len(own))),
                noise_filtered=_mean_of(measure_noise(own, [common[place] for place in places])),
                floor=floor,
                floor_window=window,
            )
        )
    return tuple(result)


def _measure_floor(
    runs: Sequence[Trajectory], known: Sequence[Evidence], settings: StudySettings
) -> tuple[float | None, int | None]:
    """Evidence recall of plain masking at the window under which runs were recorded: what it calls lost, was."""
    items = found = 0
    windows = set()
    for run, own in zip(runs, known, strict=True):
        tally = replay_floor(run, own, settings)
        if tally is not None:
            windows.add(run.recorded_window)
            items += tally.items
            found += tally.found
    return divide_or_none(found, items), min(filter(None, windows), default=None)


def replay_floor(run: Trajectory, known: Evidence, settings: StudySettings) -> EvidenceTally | None:
    """Return what plain masking hides at the window under which `run` was recorded; None if it saw everything."""
    if not run.recorded_window:
        return None
    plain = parse_strategy(f"paper-masking(window={run.recorded_window})")
    return replay_run(run, plain, settings.find_prices(run), settings.size_run(run), known=known).evidence


def _mean_of(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return divide_or_none(sum(known), len(known))
