"""Print a table of the scenarios, framework by framework: `python -m tests.adapters.table [HOST...] [--hooks MODULE]`.

hooks: a package with a module for each framework, named as its host: tests.adapters.hooks. A cell has the model calls,
the results hidden in the last request, the rewrites, and the cost beside that of the same history without an adapter's
hand.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.adapters import checks
from tests.adapters.environments import ENVIRONMENTS, Recordings, explain_missing, run_host
from tests.adapters.recording import LegRecord
from tests.adapters.scenarios import SCENARIOS

_CHECKS: dict[str, Callable[[LegRecord], None]] = {
    "pairs": checks.check_pairs,
    "stored": checks.check_stored_raw,
    "results": checks.check_results_kept,
    "objects": lambda leg: checks.check_objects(leg, 1),
    "ended": checks.check_ended,
}


def describe_legs(recordings: Recordings, legs: list[LegRecord]) -> str:
    """Return a cell: `calls/hidden/rewrites cost`, and the checks that failed."""
    if legs[0].missing:
        return "-"
    failed = []
    for name, check in _CHECKS.items():
        for leg in legs:
            try:
                check(leg)
            except AssertionError:
                failed.append(name)
    requests = [request for leg in legs for request in leg.requests]
    if not requests:
        return "no request"
    by_agent = checks.split_by_agent(requests)
    rewrites = sum(checks.count_rewrites(each) for each in by_agent.values())
    cost = sum(checks.count_cost(each) for each in by_agent.values())
    hidden = sum(bool(message.handle) for message in requests[-1].messages)
    said = f"{len(requests)}/{hidden}/{rewrites} {cost:,.0f}"
    return f"{said} !{','.join(dict.fromkeys(failed))}" if failed else said


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("hosts", nargs="*", default=list(ENVIRONMENTS))
    parser.add_argument("--hooks", default="")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    for host in options.hosts:
        if reason := explain_missing(host):
            print(f"## {host}: {reason}")
            continue
        hook = f"{options.hooks}.{host}:attach" if options.hooks else ""
        with tempfile.TemporaryDirectory() as folder:
            only = [name for name in options.only.split(",") if name]
            recordings = run_host(host, Path(folder), hook, only)
            versions = ", ".join(f"{name} {version}" for name, version in recordings.versions.items())
            seconds = sum(leg.seconds for legs in recordings.legs.values() for leg in legs)
            print(f"## {host} ({versions}), import {recordings.import_seconds:.1f} s, play {seconds:.1f} s")
            for scenario in SCENARIOS:
                if scenario.name in recordings.legs:
                    print(f"{scenario.name:15} {describe_legs(recordings, recordings.legs[scenario.name])}", flush=True)


if __name__ == "__main__":
    main()
