"""What the tokens of recorded runs are: tool results, reasoning and text, tool calls, words of the user, head."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from elision.lab.ratios import divide_or_none
from elision.trajectory.composition import measure_head, measure_turn
from elision.trajectory.tokens import Sizer
from elision.trajectory.trajectory import Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Composition:
    """Tokens of the runs of one format, each message counted once.

    reasoning: reasoning and text of the assistant, frames included. actions: tool calls, or the command in the text.
    user: user messages between turns. head: system prompt, tools and task.
    """

    reader: str
    runs: int = 1
    observations: int = 0
    reasoning: int = 0
    actions: int = 0
    user: int = 0
    head: int = 0

    @property
    def turn_tokens(self) -> int:
        """Tokens of all turns: everything but the head."""
        return self.observations + self.reasoning + self.actions + self.user

    def share_of_turns(self, tokens: int) -> float | None:
        """Return `tokens` as a share of those of all turns; None without any."""
        return divide_or_none(tokens, self.turn_tokens)

    def __add__(self, other: Composition) -> Composition:
        return Composition(
            reader=self.reader if self.reader == other.reader else "",
            runs=self.runs + other.runs,
            observations=self.observations + other.observations,
            reasoning=self.reasoning + other.reasoning,
            actions=self.actions + other.actions,
            user=self.user + other.user,
            head=self.head + other.head,
        )


def sum_compositions(compositions: Iterable[Composition | None]) -> tuple[Composition, ...]:
    """Return one composition per format, by its name; None is left out."""
    found: dict[str, list[Composition]] = defaultdict(list)
    for each in compositions:
        if each is not None:
            found[each.reader].append(each)
    return tuple(sum(found[name][1:], found[name][0]) for name in sorted(found))


def measure_run(run: Trajectory, sizer: Sizer) -> Composition:
    """Return the composition of one run."""
    found = measure_head(run.head, sizer)
    for turn in run.turns:
        found += measure_turn(turn, sizer)
    return Composition(
        reader=run.format,
        observations=found.observations,
        reasoning=found.reasoning,
        actions=found.actions,
        user=found.user,
        head=found.head,
    )
