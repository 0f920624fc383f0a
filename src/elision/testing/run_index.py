"""The runs that a provider plays, and which of them a request belongs to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from elision.testing.parsed_request import ParsedRequest
from elision.testing.recorded_run import RecordedReply, RecordedRun
from elision.trajectory.trajectory import Trajectory

#: How a model name begins that names a run: "run:airline-13".
RUN_PREFIX = "run:"


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchedReply:
    """The run that a request belongs to, and what answers it."""

    recorded: RecordedRun
    reply: RecordedReply


class RunIndex:
    """Recorded runs by name. Two runs with one id differ only by what was said in them."""

    def __init__(self, runs: Iterable[Trajectory]) -> None:
        self.recorded = [RecordedRun(run) for run in runs]
        if not self.recorded:
            raise ValueError("a playback server needs at least one run")

    @property
    def names(self) -> list[str]:
        """Return what a client may ask for as its model, each once, in the order given."""
        return list(dict.fromkeys(f"{RUN_PREFIX}{each.run.id}" for each in self.recorded))

    def find_reply(self, request: ParsedRequest) -> MatchedReply | None:
        """Find the reply to a request: by the run that the model names, else by history, task and recorded model.

        None if no run fits. A run that is named but does not have the history fits none.
        """
        candidates = self.recorded
        if request.model.startswith(RUN_PREFIX):
            candidates = [each for each in candidates if f"{RUN_PREFIX}{each.run.id}" == request.model]
        placed = [(each, each.find_next_turn(request.assistant_messages)) for each in candidates]
        fitting = [(each, number) for each, number in placed if number is not None]
        if not fitting:
            return None
        recorded, number = min(fitting, key=lambda pair: self._measure_distance(pair[0], request))
        return MatchedReply(recorded=recorded, reply=recorded.get_reply(number))

    def _measure_distance(self, recorded: RecordedRun, request: ParsedRequest) -> tuple[bool, bool, bool]:
        """Return how badly a run fits apart from its history; less is better."""
        task = recorded.task.strip()
        same = any(text.strip() == task for text in request.user_texts)
        return (
            not same,
            not any(task and task in text for text in request.user_texts),
            recorded.run.model != request.model,
        )
