"""`make bench`: every benchmark, or those named. `--peers`: other libraries too, where there are any."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

from benchmarks import (
    callbacks,
    choice,
    expectations,
    folding,
    frameworks,
    gateway,
    lifetimes,
    load_limits,
    memory,
    per_call,
    prepare,
    repeated_lines,
    replay_time,
    schedules,
    stall,
    standstill,
    stores,
    summaries,
    transcripts,
    trims,
    which,
)

PEERS = "--peers"
BENCHMARKS: dict[str, Callable[[], None]] = {
    "callbacks": callbacks.main,
    "choice": choice.main,
    "expectations": expectations.main,
    "folding": folding.main,
    "frameworks": frameworks.main,
    "gateway": partial(gateway.main, peers=PEERS in sys.argv),
    "memory": memory.main,
    "per-call": per_call.main,
    "prepare": partial(prepare.main, peers=PEERS in sys.argv),
    "repeated-lines": repeated_lines.main,
    "replay-time": replay_time.main,
    "schedules": schedules.main,
    "stall": stall.main,
    "standstill": standstill.main,
    "stores": stores.main,
    "summaries": summaries.main,
    "lifetimes": lifetimes.main,
    "load-limits": load_limits.main,
    "transcripts": transcripts.main,
    "trims": trims.main,
    "which": which.main,
}

USAGE = f"python -m benchmarks [{PEERS}] [NAME ...], each NAME one of {', '.join(BENCHMARKS)}"


def main(arguments: list[str]) -> None:
    names = [name for name in arguments if name != PEERS]
    if "--help" in names:
        print(USAGE)
        return
    if not BENCHMARKS.keys() >= set(names):
        sys.exit(USAGE)
    for name in names or BENCHMARKS:
        print(f"== {name}")
        BENCHMARKS[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
