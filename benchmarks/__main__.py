"""`make bench`: every benchmark, or those named.

`--peers`: other libraries too, where there are any. `--small`: less work where a benchmark has a small form, which
`make bars` takes; its figures differ from the whole one's.
"""

from __future__ import annotations

import sys
from importlib import import_module
from inspect import signature

PEERS, SMALL = "--peers", "--small"
#: Each is the module of that name. It is loaded when it runs, because some need what only `make setup` installs.
BENCHMARKS = (
    "bombs",
    "breakpoints",
    "callbacks",
    "choice",
    "closed-loop",
    "deferred-tools",
    "expectations",
    "fact-distances",
    "fleet",
    "folding",
    "frameworks",
    "gateway",
    "install",
    "lifetimes",
    "memory",
    "old-arguments",
    "peer-default",
    "per-call",
    "prepare",
    "repeated-lines",
    "replay-time",
    "scale",
    "schedules",
    "spread",
    "stall",
    "standstill",
    "stores",
    "summaries",
    "tables",
    "load-limits",
    "transcripts",
    "turn-lists",
    "whole-prompt",
)

USAGE = f"python -m benchmarks [{PEERS}] [{SMALL}] [NAME ...], each NAME one of {', '.join(BENCHMARKS)}"


def main(arguments: list[str]) -> None:
    names = [name for name in arguments if name not in (PEERS, SMALL)]
    given = {option.removeprefix("--"): True for option in (PEERS, SMALL) if option in arguments}
    if "--help" in names:
        print(USAGE)
        return
    if not set(BENCHMARKS) >= set(names):
        sys.exit(USAGE)
    for name in names or BENCHMARKS:
        print(f"== {name}")
        run = import_module(f"benchmarks.{name.replace('-', '_')}").main
        known = signature(run).parameters
        run(**{option: value for option, value in given.items() if option in known})


if __name__ == "__main__":
    main(sys.argv[1:])
