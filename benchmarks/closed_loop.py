"""Does the agent still succeed, and what does a solved task cost? Agents that read only the prompt they are sent.

    python -m benchmarks closed-loop --seeds 10 --variants masking "masking(fold=5)" "hybrid + summary_facts=0.5"

Every variant does the same tasks as `raw`; docs/concepts/closed-loop.md says what the tasks and the agent are like.
"""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any, Final

import msgspec

from elision.errors import ElisionError
from elision.testing.loop.closed_loop import FAMILIES, TaskOutcome, Variant, run_task
from elision.testing.loop.comparison import Comparison, compare_variants, format_comparisons, split_by_family
from elision.testing.loop.knobs import Knobs
from elision.trajectory.price_lookup import find_price_set, find_prices
from elision.trajectory.prices import Prices

VARIANTS: Final = (
    "masking",
    "masking(fold=5)",
    "keep-facts",
    "hybrid",
    "hybrid + summary_facts=0.5",
    "two-tier",
    "paper-masking",
    "paper-hybrid",
)
#: The flagship, the cheapest cache, no cache: reads at 0.05, 0.025 and 1 x the input price.
PRICES: Final = ("claude-opus-5-5", "claude-fable-5-2", "uncached")
SEEDS: Final = 30
SMALL_SEEDS: Final = 2


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One task that is to be done."""

    family: str
    seed: int
    variant: Variant
    prices: str
    knobs: Knobs


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """What a benchmark found, as it is published."""

    knobs: Knobs
    first_seed: int
    seeds: int
    comparisons: Sequence[Comparison]
    families: dict[str, Sequence[Comparison]]
    outcomes: Sequence[TaskOutcome]


def main(*, small: bool = False) -> None:
    run_command(["--seeds", str(SMALL_SEEDS), "--prices", PRICES[0], "--calls", "40"] if small else [])


def run_command(arguments: Sequence[str]) -> None:
    options = _parse_options(arguments)
    logging.getLogger("elision").setLevel(logging.ERROR)
    variants = [Variant.parse(text) for text in dict.fromkeys(("raw", *options.variants))]
    jobs = [
        Job(family=family, seed=seed, variant=variant, prices=prices, knobs=options.knobs)
        for prices, family, seed, variant in product(
            options.prices, options.families, range(options.first_seed, options.first_seed + options.seeds), variants
        )
    ]
    outcomes = list(do_jobs(jobs, options.jobs))
    results = Results(
        knobs=options.knobs,
        first_seed=options.first_seed,
        seeds=options.seeds,
        comparisons=compare_variants(outcomes),
        families={family: compare_variants(own) for family, own in split_by_family(outcomes).items()},
        outcomes=outcomes,
    )
    print(format_comparisons(results.comparisons))
    if options.by_family:
        for family, comparisons in results.families.items():
            print(f"\n== {family}\n{format_comparisons(comparisons)}")
    if options.json:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1))


def do_jobs(jobs: Sequence[Job], processes: int) -> Iterator[TaskOutcome]:
    """Yield the outcomes of `jobs` in their order."""
    if processes == 1:
        yield from map(do_job, jobs)
        return
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(do_job, jobs, chunksize=max(1, min(16, len(jobs) // (4 * processes))))


def do_job(job: Job) -> TaskOutcome:
    logging.getLogger("elision").setLevel(logging.ERROR)
    return run_task(job.family, job.seed, job.variant, find_named_prices(job.prices), job.knobs)


def find_named_prices(name: str) -> Prices:
    """Return a price set, or the prices of a model."""
    try:
        return find_price_set(name)
    except ElisionError:
        return find_prices(name)


def _parse_options(arguments: Iterable[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks closed-loop", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=SEEDS, metavar="N", help=f"tasks of each family (default {SEEDS})")
    parser.add_argument("--first-seed", type=int, default=0, metavar="K", help="the first of them (default 0)")
    parser.add_argument("--variants", nargs="+", default=VARIANTS, metavar="TEXT", help="STRATEGY [+ OPTION=VALUE, …]")
    parser.add_argument("--prices", nargs="+", default=PRICES, metavar="NAME", help="price sets or models")
    parser.add_argument("--families", nargs="+", default=[*FAMILIES], choices=[*FAMILIES], metavar="NAME")
    parser.add_argument("--knobs", nargs="+", default=[], metavar="NAME=VALUE", help="what tasks and agent are like")
    parser.add_argument("--calls", type=int, metavar="N", help="short for --knobs calls=N")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="processes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write outcomes and comparisons")
    parser.add_argument("--by-family", action="store_true", help="print a table for each family too")
    options = parser.parse_args([*arguments])
    try:
        options.knobs = parse_knobs([*options.knobs, *([f"calls={options.calls}"] if options.calls else [])])
        for text in options.variants:
            Variant.parse(text).check()
        for name in options.prices:
            find_named_prices(name)
    except (ElisionError, ValueError) as error:
        parser.error(str(error))
    if options.seeds < 1 or options.jobs < 1:
        parser.error("--seeds and --jobs are 1 or more")
    return options


def parse_knobs(pairs: Iterable[str]) -> Knobs:
    """Return knobs from texts such as `rot=0.1`. Raises ValueError, which names the knob."""
    values: dict[str, Any] = dict(pair.partition("=")[::2] for pair in pairs)
    return msgspec.convert(values, Knobs, strict=False)
