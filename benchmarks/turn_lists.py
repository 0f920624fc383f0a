"""`elision.turns.mask` against the published one-liner, which looks at nothing but the number of a turn.

Both mask the same lists in one process; the fastest of some rounds counts, since the machine has other work.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from elision.turns import mask

#: The aim: how many times as long as the one-liner `mask` may take for the longest list.
BAR = 20
LENGTHS = (10, 100, 1_000)
ROUNDS = 15

Turns = list[tuple[str, str, str]]


def main() -> None:
    print(f"{'turns':>6} {'one-liner':>10} {'mask':>10} {'ratio':>7}")
    for length in LENGTHS:
        turns = make_turns(length)
        published = measure(lambda: mask_observations(turns, len(turns)))  # noqa: B023 - called at once
        ours = measure(lambda: mask(turns))  # noqa: B023 - called at once
        print(f"{length:>6,} {published * 1e6:>7,.0f} us {ours * 1e6:>7,.0f} us {ours / published:>6.1f}x")
    print(f"at {LENGTHS[-1]:,} turns at most {BAR}x: {'met' if ours <= BAR * published else 'MISSED'}")


def mask_observations(turns: Turns, current_turn: int, m: int = 10) -> Turns:
    """The published function, word for word."""
    return [(r, a, "[omitted]" if i < current_turn - m else o) for i, (r, a, o) in enumerate(turns)]


def make_turns(count: int) -> Turns:
    """Make turns whose observations all differ, of some 130 tokens each."""
    return [(f"think {k} about it all", "run part", "word and word again " * 40 + str(k)) for k in range(count)]


def measure(run: Callable[[], object]) -> float:
    """Return the seconds of the fastest of some rounds."""
    seconds = []
    for _ in range(ROUNDS):
        started = perf_counter()
        run()
        seconds.append(perf_counter() - started)
    return min(seconds)
