"""The pauses between the calls of one session: how often they were how long, and what the next one may cost.

A pause is measured in pings: the requests that would have kept the cache entries alive until it ended.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

#: Seconds before the end of a cache entry's life at which a ping is sent, so that it arrives in time.
PING_MARGIN = 15.0
#: Pauses that would need more pings than this are counted as one kind: no ping pays there.
MOST_PINGS = 12


def count_pings(pause: float, life: float) -> int:
    """Return the pings that keep an entry alive through `pause`, at most `MOST_PINGS` + 1. Both in seconds."""
    if pause <= life:
        return 0
    return min(math.ceil((pause - life) / (life - PING_MARGIN)), MOST_PINGS + 1)


@dataclass(frozen=True, slots=True)
class PingPlan:
    """What a pause costs a token of the prompt, in multiples of the input price.

    pings: requests at most that are sent in it. cost: expected, of them and of writing the token again.
    """

    pings: int
    cost: float


class PauseHistogram:
    """A fold over pauses: how often each number of pings was needed, for entries that live `life` seconds.

    prior: how often before anything was seen, by number of pings; they need not be whole.
    """

    def __init__(self, life: float, prior: Sequence[float]) -> None:
        self.life = life
        self._counts = [*prior, *[0.0] * (MOST_PINGS + 2 - len(prior))]
        self._total = sum(self._counts)

    def add_pause(self, pause: float, weight: float = 1.0) -> None:
        """Count a pause of so many seconds."""
        self._counts[count_pings(pause, self.life)] += weight
        self._total += weight

    def estimate_share(self, least: int) -> float:
        """Return the expected share of pauses that need `least` pings or more."""
        return sum(self._counts[least:]) / self._total

    def plan_pings(self, read: float, rewrite: float, most: int, ending: float = 0.0) -> PingPlan:
        """Return the number of pings, `most` at the highest, with which the next pause is expected to cost least.

        read: what a ping costs. rewrite: what it costs that the entry is dead. ending: how likely no call follows.
        """
        going = 1 - ending
        best = PingPlan(0, going * self.estimate_share(1) * rewrite)
        covered = 0.0
        for pings in range(1, min(most, MOST_PINGS) + 1):
            covered += self._counts[pings] / self._total * read * pings
            outlasted = self.estimate_share(pings + 1) * (read * pings + rewrite)
            cost = going * (covered + outlasted) + ending * read * pings
            if cost < best.cost:
                best = PingPlan(pings, cost)
        return best
