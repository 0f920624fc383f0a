"""`make bench`: every benchmark, or those named.

`--peers`: other libraries too, where there are any. `--small`: less work where a benchmark has a small form, which
`make bars` takes; its figures differ from the whole one's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from inspect import signature

from benchmarks import (
    bombs,
    callbacks,
    choice,
    closed_loop,
    expectations,
    fact_distances,
    fleet,
    folding,
    frameworks,
    gateway,
    install,
    load_limits,
    memory,
    peer_default,
    per_call,
    prepare,
    repeated_lines,
    replay_time,
    scale,
    schedules,
    spread,
    stall,
    standstill,
    stores,
    summaries,
    tables,
    transcripts,
    turn_lists,
)

PEERS, SMALL = "--peers", "--small"
BENCHMARKS: dict[str, Callable[..., None]] = {
    "bombs": bombs.main,
    "callbacks": callbacks.main,
    "choice": choice.main,
    "closed-loop": closed_loop.main,
    "expectations": expectations.main,
    "fact-distances": fact_distances.main,
    "fleet": fleet.main,
    "folding": folding.main,
    "frameworks": frameworks.main,
    "gateway": gateway.main,
    "install": install.main,
    "memory": memory.main,
    "peer-default": peer_default.main,
    "per-call": per_call.main,
    "prepare": prepare.main,
    "repeated-lines": repeated_lines.main,
    "replay-time": replay_time.main,
    "scale": scale.main,
    "schedules": schedules.main,
    "spread": spread.main,
    "stall": stall.main,
    "standstill": standstill.main,
    "stores": stores.main,
    "summaries": summaries.main,
    "tables": tables.main,
    "load-limits": load_limits.main,
    "transcripts": transcripts.main,
    "turn-lists": turn_lists.main,
}

USAGE = f"python -m benchmarks [{PEERS}] [{SMALL}] [NAME ...], each NAME one of {', '.join(BENCHMARKS)}"


def main(arguments: list[str]) -> None:
    names = [name for name in arguments if name not in (PEERS, SMALL)]
    given = {option.removeprefix("--"): True for option in (PEERS, SMALL) if option in arguments}
    if "--help" in names:
        print(USAGE)
        return
    if not BENCHMARKS.keys() >= set(names):
        sys.exit(USAGE)
    for name in names or BENCHMARKS:
        print(f"== {name}")
        known = signature(BENCHMARKS[name]).parameters
        BENCHMARKS[name](**{option: value for option, value in given.items() if option in known})


if __name__ == "__main__":
    main(sys.argv[1:])
