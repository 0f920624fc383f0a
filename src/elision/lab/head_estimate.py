"""Heads that a recording leaves out: their size and warmth from the first call's recorded usage (design 9)."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from elision.trajectory.tokens import Sizer
from elision.trajectory.trajectory import Trajectory


def add_recorded_head(trajectory: Trajectory, sizer: Sizer) -> Trajectory:
    """`trajectory` with the unrecorded head as an opaque part: first billed prompt - counted text.

    It is as warm as the first call's recorded cache read says. Unchanged where no usage was recorded. Turns before
    the first billed one (a greeting that no model wrote, in tau2-bench) are part of its prompt.
    """
    first = next((turn for turn in trajectory.turns if turn.usage is not None and turn.usage.prompt), None)
    if first is None or first.usage is None:
        return trajectory
    head = trajectory.head
    counted = sizer.count_tools(head) + sum(sizer.count_message(message) for message in head.messages)
    for turn in trajectory.turns[: first.index - 1]:
        counted += sizer.count_assistant(turn)
        counted += sum(sizer.count_observation(observation) for observation in turn.observations)
        counted += sum(sizer.count_message(message) for message in turn.interjections)
    hidden = max(0, first.usage.prompt - counted)
    # What a later call reads is the run's own.
    warm = first.usage.cache_read if first.index == 1 else 0
    return replace(trajectory, head=msgspec.structs.replace(head, hidden_tokens=hidden, warm_tokens=warm))
