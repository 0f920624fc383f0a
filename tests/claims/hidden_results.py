"""Recorded results with the placeholders that `masking` writes for them, ten turns later."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from elision.formats.registry import read_runs
from elision.strategies.extractors import BUILT_IN, files, search
from elision.strategies.extractors.outcome import find_tool_name, matches_tool
from elision.strategies.gist import KnownIdentifiers
from elision.strategies.placeholder import Placeholders
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.turn import Observation, Turn

EXAMPLES: Final = Path(__file__).parents[2] / "examples" / "runs"
#: Turns after which a result is hidden: the default window.
WINDOW: Final = 10
_PLACEHOLDERS: Final = Placeholders()
_GIST_MARK: Final = " tokens hidden | "


@dataclass(frozen=True, slots=True)
class HiddenResult:
    """A result, and what its placeholder says of it.

    place: run and turn. call: the arguments, decoded. label, outcome: as the extractors wrote them.
    gist: as it is written. items: its words.
    """

    place: str
    call: str
    text: str
    label: str
    outcome: str
    is_lookup: bool
    gist: str

    @property
    def items(self) -> Sequence[str]:
        return self.gist.split()


def list_runs(paths: Sequence[Path]) -> Iterator[Trajectory]:
    """Yield the runs of recordings."""
    for path in paths:
        yield from (run for run in read_runs(path) if isinstance(run, Trajectory))


def list_hidden_results(run: Trajectory) -> Iterator[HiddenResult]:
    """Yield every result of `run` that is longer than its placeholder."""
    known = KnownIdentifiers()
    known.add_head(run.head)
    newer = iter(run.turns)
    for number, turn in enumerate(run.turns):
        while (seen := next(newer, None)) is not None:
            known.add_turn(seen)
            if seen.index >= run.turns[min(number + WINDOW, len(run.turns) - 1)].index:
                break
        yield from _hide_results(run, turn, known)


def _hide_results(run: Trajectory, turn: Turn, known: KnownIdentifiers) -> Iterator[HiddenResult]:
    for position, observation in enumerate(turn.observations, start=1):
        outcome = BUILT_IN.find_outcome(turn, observation)
        placeholder = _PLACEHOLDERS.write_placeholder((turn.index, position), turn, observation, known)
        if len(placeholder) >= len(observation.text):
            continue
        action = turn.find_action(observation)
        call = ""
        if action is not None:
            call = "\n".join(map(str, action.decoded_arguments.values())) or action.arguments
        gist = placeholder.partition(_GIST_MARK)[2].removesuffix("]")
        yield HiddenResult(
            place=f"{run.id} turn {turn.index}",
            call=call,
            text=observation.text,
            label=outcome.label,
            outcome=outcome.result,
            is_lookup=_is_lookup(turn, observation),
            gist=gist,
        )


def _is_lookup(turn: Turn, observation: Observation) -> bool:
    """Return whether the outcome says what was read or found: it does not say what failed in there."""
    action = turn.find_action(observation)
    tool = find_tool_name(action, observation)
    for each in BUILT_IN.registrations:
        if matches_tool(tool, each.tools) and each.extractor(action, observation, turn.text) is not None:
            return each.extractor.__module__ in (files.__name__, search.__name__)
    return False
