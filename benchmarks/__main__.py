"""`make bench`: every benchmark, or those named."""

from __future__ import annotations

import sys

from benchmarks import load_limits, per_call, replay_time, schedules, stores

BENCHMARKS = {
    "per-call": per_call,
    "replay-time": replay_time,
    "schedules": schedules,
    "stores": stores,
    "load-limits": load_limits,
}

if __name__ == "__main__":
    for name in sys.argv[1:] or BENCHMARKS:
        print(f"== {name}")
        BENCHMARKS[name].main()
