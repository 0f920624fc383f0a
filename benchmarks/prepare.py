"""`prepare` on a session of 1,000 turns and 4.5 MB, one call a turn, everything on, against what it cannot do without.

`python -m benchmarks prepare --peers` sets other libraries beside it, each in an environment of its own.
"""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from benchmarks.apart import apart, peak
from benchmarks.bound import Bound, bound
from benchmarks.session import Chat, Message, anthropic, chat
from lacuna import ContextManager
from lacuna.strategies.guards import Guards
from lacuna.telemetry.diagnostics import Diagnostics
from lacuna.telemetry.logs import LOGGER, PassLog
from lacuna.trajectory.tokens import counter

#: The bar that the issue sets: the session's total over the bound's.
BAR = 3.0
#: Whole sessions, each beside a bound of its own; the best of them counts, since the machine has other work.
REPEATS = 3
#: Calls compared for the growth of the work: behind the warm-up, and at the end.
FEW, WARM_UP = 100, 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """seconds: of each call. memory: MB above what the process had before. disk: bytes of the store."""

    seconds: tuple[float, ...]
    memory: float
    disk: int
    summaries: int
    masked: int
    sent: int

    @property
    def total(self) -> float:
        return sum(self.seconds)

    @property
    def growth(self) -> float:
        """Median of the last calls over that of the first behind the warm-up: those that rewrite are among both."""
        return median(self.seconds[-FEW:]) / median(self.seconds[WARM_UP : WARM_UP + FEW])


class Clock:
    """Twenty seconds a turn, so that a provider's cache stays warm as it does in a real run."""

    def __init__(self) -> None:
        self.turn = 0

    def __call__(self) -> float:
        return 1.7e9 + 20.0 * self.turn


def manager(folder: Path, clock: Clock, told: list[Diagnostics], model: str) -> ContextManager:
    """Everything on: budget, guards, handles, listeners, a log line a pass, a durable store."""
    log = logging.getLogger(LOGGER)
    log.setLevel(logging.DEBUG)
    log.propagate = False
    log.handlers = [logging.StreamHandler(io.StringIO())]
    return ContextManager(
        "hybrid(window=10)",
        model=model,
        store=f"sqlite:///{folder / 'session.db'}",
        session="long",
        guards=Guards(max_turns=100_000, max_cost_usd=1e6, plateau_window=8),
        token_budget=100_000,
        reserved_for_response=4_096,
        cache_control="auto",
        on_event=[told.append, PassLog().take],
        clock=clock,
    )


def measure(found: Chat, folder: Path, model: str, calls: Callable[[Chat], Iterator[list[Message]]]) -> Measured:
    """A session from its first call to its last; `record` is part of a call."""
    counter().count("load the vocabulary")
    clock, told, seconds, before = Clock(), list[Diagnostics](), list[float](), peak()
    with manager(folder, clock, told, model) as context:
        for messages in calls(found):
            clock.turn += 1
            start = perf_counter()
            view = context.prepare(messages, tools=found.tools, system=found.system)
            context.record(_usage(model, view.diagnostics.after))
            seconds.append(perf_counter() - start)
        assert not any(each.faults for each in told), "a pass failed"
    return Measured(
        seconds=tuple(seconds),
        memory=peak() - before,
        disk=sum(path.stat().st_size for path in folder.iterdir()),
        summaries=told[-1].summaries,
        masked=sum(len(each.masked) for each in told),
        sent=told[-1].after,
    )


def _usage(model: str, tokens: int) -> dict[str, int]:
    if "claude" in model:
        return {"input_tokens": tokens, "output_tokens": 100}
    return {"prompt_tokens": tokens, "completion_tokens": 100}


def beside(found: Chat, repeats: int) -> list[tuple[Measured, Bound]]:
    """Sessions, each with the bound as it was next to it."""
    work: list[tuple[Measured, Bound]] = []
    for _ in range(repeats):
        measured = apart(lambda folder: measure(found, folder, "gpt-4.1", Chat.calls))
        work.append((measured, apart(lambda folder: bound(found, folder))))
    return work


def main(arguments: Sequence[str] = ()) -> None:
    counter().count("load the vocabulary")
    found = chat()
    runs = beside(found, REPEATS)
    for m, b in runs:
        print(f"{m.total:.3f} bound {b.sum:.3f} = {b}, ratio {m.total/b.sum:.2f}, last {m.seconds[-1]*1e3:.2f} p50 {median(m.seconds)*1e3:.2f} max {max(m.seconds)*1e3:.1f} growth {m.growth:.2f} mem {m.memory:.0f} disk {m.disk} sum {m.summaries} masked {m.masked} sent {m.sent}")


if __name__ == "__main__":
    main(sys.argv[1:])
