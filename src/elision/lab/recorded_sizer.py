"""Sizes of the messages of one recorded run, as the provider counted them in its prompts.

From one prompt to the next a run grows by what the model wrote and by what it read. What it wrote has the length that
was reported. What it read has what is left of the growth, divided in proportion to our counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from elision.errors import PriceError
from elision.lab.context_cuts import find_cuts
from elision.trajectory.price_lookup import find_prices, find_tokenizer
from elision.trajectory.prices import Prices
from elision.trajectory.tokenizer import OURS
from elision.trajectory.tokens import Sizer
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.turn import Head, Message, Observation, Turn

#: What was read has at most so many times our count on the model's scale. Beyond that the growth is of something else:
#: the agent changed its prompt, or sent what is not recorded. Less than our count was sent where the agent clipped it.
MOST_SHARE: Final = 4.0


class RecordedSizer(Sizer):
    """Counts the messages of `run`; those without a recorded length, and any other text, as `sizer` does."""

    def __init__(self, sizer: Sizer, run: Trajectory) -> None:
        super().__init__(sizer.counter, reasoning=sizer.reasoning, tokenizer=sizer.tokenizer, takes_output=True)
        # Messages are known by their identity, so they must live as long as this does.
        self._run = run
        self._lengths = dict(_list_lengths(run, sizer.take_output()))
        self._first_prompt = next((turn.usage.prompt for turn in run.turns[:1] if turn.usage is not None), 0)
        self.cuts = find_cuts(run, self._count_turn, self._count_head)
        self._lengths |= {id(cut.words): cut.tokens for cut in self.cuts.cuts if cut.tokens is not None}

    def take_output(self) -> Sizer:
        return self

    def count_tools(self, head: Head) -> int:
        """Recordings hold tools as JSON, and providers bill a terser form: never more than the first prompt had."""
        counted = Sizer.count_tools(self, head)
        if not self._first_prompt:
            return counted
        return max(0, min(counted, self._first_prompt - sum(map(self.count_message, head.messages))))

    def _count_head(self) -> int:
        head = self._run.head
        return self.count_tools(head) + sum(map(self.count_message, head.messages)) + head.hidden_tokens

    def _count_turn(self, turn: Turn) -> int:
        read = sum(map(self.count_observation, turn.observations)) + sum(map(self.count_message, turn.interjections))
        return self.count_assistant(turn) + read

    def count_observation(self, observation: Observation) -> int:
        known = self._lengths.get(id(observation))
        return Sizer.count_observation(self, observation) if known is None else known

    def count_message(self, message: Message) -> int:
        known = self._lengths.get(id(message))
        return Sizer.count_message(self, message) if known is None else known


def size_run(run: Trajectory, prices: Prices, sizer: Sizer) -> Sizer:
    """Return how the messages of `run` are counted where it is billed at `prices`.

    They have their recorded lengths where those are of the model that is priced, or of its family. Else our count is
    taken, on the scale of the prices.
    """
    scaled = sizer.count_as(prices.tokenizer)
    if any(turn.usage is not None and turn.usage.prompt for turn in run.turns) and is_recorded_on(run.model, prices):
        return RecordedSizer(scaled, run)
    return scaled


def is_recorded_on(model: str, prices: Prices) -> bool:
    """Whether `model` counts tokens as the model of `prices` does."""
    if prices.tokenizer != OURS:
        return find_tokenizer(model) == prices.tokenizer
    try:
        return find_prices(model).name == prices.name
    except PriceError:
        return False


def _list_lengths(run: Trajectory, sizer: Sizer) -> Iterator[tuple[int, int]]:
    """Yield the identity and the length of what was read in the run."""
    cut = {compaction.before for compaction in run.compactions}
    for turn, following in pairwise(run.turns):
        if following.index in cut or turn.usage is None or following.usage is None or turn.model != following.model:
            continue
        grown = following.usage.prompt - turn.usage.prompt
        yield from _divide_growth(turn, grown - sizer.count_assistant(turn), sizer)


def _divide_growth(turn: Turn, read: int, sizer: Sizer) -> Iterator[tuple[int, int]]:
    """Yield the identity and the length of each thing that was read after `turn`, `read` tokens in all."""
    counts = [(id(each), sizer.count_observation(each)) for each in turn.observations]
    counts += [(id(each), sizer.count_message(each)) for each in turn.interjections]
    counted = sum(count for _, count in counts)
    if not counted or not 0 <= read / counted <= MOST_SHARE:
        return
    for identity, count in counts:
        yield identity, round(count * read / counted)
