"""Does the agent still succeed, and what does a solved task cost? Agents that read only the prompt they are sent.

    python -m benchmarks closed-loop --seeds 10 --variants masking "masking(fold=false)" "hybrid + summary_facts=0.5"

Every variant does the same tasks as `raw`; docs/concepts/closed-loop.md says what the tasks and the agent are like.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks.closed_loop_chart import render_chart
from elision.agent.http_models import AnthropicModel, OpenAIModel
from elision.errors import ElisionError, SettingError
from elision.providers.provider_table import PROVIDERS
from elision.testing.loop.closed_loop import FAMILIES, EndpointError, TaskOutcome, Variant, run_task
from elision.testing.loop.comparison import Comparison, compare_variants, format_comparisons
from elision.testing.loop.knobs import Knobs
from elision.testing.loop.live_runs import BudgetSpentError, RunFile, run_live_tasks
from elision.trajectory.price_lookup import find_price_set, find_prices
from elision.trajectory.prices import Prices

VARIANTS: Final = (
    "masking",
    "masking(fold=false)",
    "hybrid",
    "hybrid(fold=false)",
    "hybrid + summary_facts=0.5",
    "two-tier",
    "paper-masking",
    "paper-hybrid",
)
#: The flagship, the cheapest cache, no cache: reads at 0.05, 0.025 and 1 x the input price.
PRICES: Final = ("claude-opus-5-5", "claude-fable-5-2", "uncached")
SEEDS: Final = 30
MODELS: Final = {"openai": OpenAIModel, "anthropic": AnthropicModel}
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
    variants = [Variant.parse(text) for text in dict.fromkeys(("raw", *options.variants))]
    jobs = [
        Job(family=family, seed=seed, variant=variant, prices=prices, knobs=options.knobs)
        for prices, family, seed, variant in product(
            options.prices, options.families, range(options.first_seed, options.first_seed + options.seeds), variants
        )
    ]
    outcomes = ask_model(options, jobs) if options.model else list(do_jobs(jobs, options.jobs))
    results = Results(
        knobs=options.knobs,
        first_seed=options.first_seed,
        seeds=options.seeds,
        comparisons=compare_variants(outcomes),
        families={
            family: compare_variants(each for each in outcomes if each.family == family)
            for family in dict.fromkeys(each.family for each in outcomes)
        },
        outcomes=outcomes,
    )
    print(format_comparisons(results.comparisons))
    if options.by_family:
        for family, comparisons in results.families.items():
            print(f"\n== {family}\n{format_comparisons(comparisons)}")
    if options.chart:
        options.chart.write_text(render_chart(results.comparisons), encoding="utf-8")
    if options.json:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1))


def ask_model(options: argparse.Namespace, jobs: Sequence[Job]) -> Sequence[TaskOutcome]:
    """Run the tasks with a real model as far as the budget goes, and return all outcomes of their file."""
    file, prices = options.run_file, find_named_prices(options.prices[0])
    # One task under every variant before the next task, so that what is done can be compared at any time.
    tasks = [(job.family, job.seed, job.variant) for job in sorted(jobs, key=lambda job: (job.seed, job.family))]
    try:
        for outcome in run_live_tasks(options.model, tasks, prices, options.knobs, file):
            print(
                f"{outcome.family} {outcome.seed} {outcome.variant}: {outcome.ending}, ${outcome.usd:.3f}", flush=True
            )
    except (BudgetSpentError, EndpointError) as error:
        print(f"stopped: {error}; the same command goes on from {file.path}")
    print(f"${file.spent:.2f} of ${file.budget:.2f} spent")
    asked = {(family, seed, str(variant)) for family, seed, variant in tasks}
    found = [each for each in file.outcomes if (each.family, each.seed, each.variant) in asked]
    has_raw = {(each.family, each.seed) for each in found if each.variant == "raw"}
    return [each for each in found if (each.family, each.seed) in has_raw]


def do_jobs(jobs: Sequence[Job], processes: int) -> Iterator[TaskOutcome]:
    """Yield the outcomes of `jobs` in their order."""
    if processes == 1:
        yield from map(do_job, jobs)
        return
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(do_job, jobs, chunksize=max(1, min(16, len(jobs) // (4 * processes))))


def do_job(job: Job) -> TaskOutcome:
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
    parser.add_argument("--chart", type=Path, metavar="FILE", help="draw the comparisons as SVG")
    parser.add_argument("--by-family", action="store_true", help="print a table for each family too")
    parser.add_argument("--model", metavar="openai:NAME|anthropic:NAME", help="a real model in the agent's place")
    parser.add_argument(
        "--base-url", default="", metavar="URL", help="where it is served, as the provider's client takes it"
    )
    parser.add_argument("--key-variable", default="", metavar="NAME", help="environment variable with its key")
    parser.add_argument("--budget", type=float, metavar="USD", help="what all its calls may cost; needed with --model")
    parser.add_argument("--rows", type=Path, metavar="FILE", help="where its runs are kept; needed with --model")
    options = parser.parse_args([*arguments])
    try:
        options.knobs = parse_knobs([*options.knobs, *([f"calls={options.calls}"] if options.calls else [])])
        for text in options.variants:
            Variant.parse(text)
        if options.model:
            _open_model(options)
        for name in options.prices:
            find_named_prices(name)
    except (ElisionError, ValueError) as error:
        parser.error(str(error))
    if options.seeds < 1 or options.jobs < 1:
        parser.error("--seeds and --jobs are 1 or more")
    return options


def _open_model(options: argparse.Namespace) -> None:
    """Put the model, its one price list and the file of its runs into `options`. Raises SettingError, PriceError."""
    shape, _, name = options.model.partition(":")
    if shape not in MODELS or not name:
        raise SettingError(f"--model {options.model!r}: write openai:NAME or anthropic:NAME")
    if options.budget is None or options.rows is None:
        raise SettingError("a real model costs money: give --budget USD, and --rows FILE to keep what it paid for")
    host = PROVIDERS[shape].host
    key = os.environ.get(options.key_variable or host.key_variable, "")
    url = options.base_url or os.environ.get(host.url_variable, "") or host.url
    options.model = MODELS[shape](name, key=key, base_url=url)
    options.prices = options.prices[:1] if options.prices is not PRICES else [name]
    options.run_file = RunFile(options.rows, f"{shape}:{name}", options.knobs, options.budget)


def parse_knobs(pairs: Iterable[str]) -> Knobs:
    """Return knobs from texts such as `rot=0.1`. Raises ValueError, which names the knob."""
    values: dict[str, Any] = dict(pair.partition("=")[::2] for pair in pairs)
    return msgspec.convert(values, Knobs, strict=False)
