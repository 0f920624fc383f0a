"""The runs that a provider plays, and which of them a request belongs to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from elision.testing.recorded import Recorded, Reply
from elision.testing.request import Asked
from elision.trajectory.trajectory import Trajectory

#: How a model name begins that names a run: "run:airline-13".
RUN = "run:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The run that a request belongs to, and what answers it."""

    recorded: Recorded
    reply: Reply


class Shelf:
    """Recorded runs by name. Two runs of one id are told apart by what was said in them only."""

    def __init__(self, runs: Iterable[Trajectory]) -> None:
        self.recorded = [Recorded(run) for run in runs]
        if not self.recorded:
            raise ValueError("a playback server needs at least one run")

    @property
    def names(self) -> list[str]:
        """What a client may ask for as its model, each once, in the order given."""
        return list(dict.fromkeys(f"{RUN}{each.run.id}" for each in self.recorded))

    def find(self, asked: Asked) -> Found | None:
        """By the run that the model name names, else by the history, the task and the recorded model, in that order.

        None where no run fits. A run that is named but never said what the history says fits none.
        """
        if asked.model.startswith(RUN):
            candidates = self._named(asked.model)
        else:
            candidates = self.recorded
        placed = [(each, each.following(asked.said)) for each in candidates]
        fitting = [(each, number) for each, number in placed if number is not None]
        if not fitting:
            return None
        recorded, number = min(fitting, key=lambda pair: self._distance(pair[0], asked))
        return Found(recorded=recorded, reply=recorded.reply(number))

    def _named(self, model: str) -> list[Recorded]:
        return [each for each in self.recorded if f"{RUN}{each.run.id}" == model]

    def _distance(self, recorded: Recorded, asked: Asked) -> tuple[bool, bool, bool]:
        """How well a run fits beside its history; less is better."""
        task = recorded.task.strip()
        same = any(text.strip() == task for text in asked.users)
        return not same, not any(task and task in text for text in asked.users), recorded.run.model != asked.model
