"""`elision lab closed-loop`: does the agent still succeed, and what does a solved task cost?"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from elision.cli.declarations import Option
from elision.cli.options import Jobs, Output, count_processes
from elision.errors import SettingError, SpecError

if TYPE_CHECKING:
    from elision.testing.loop.loop_study import LiveModel
    from elision.testing.loop.task_plan import Knobs


def closed_loop(
    *,
    strategy: Annotated[
        list[str] | None,
        Option(
            "--strategy",
            "-s",
            help="A strategy, with options of the context manager after a plus: 'masking + cache_ttl=1h'; may be "
            "repeated.",
        ),
    ] = None,
    prices: Annotated[list[str] | None, Option("--prices", help="A price set or model; may be repeated.")] = None,
    family: Annotated[list[str] | None, Option("--family", help="Tasks of this family only; may be repeated.")] = None,
    seeds: Annotated[int, Option("--seeds", help="Tasks of each family.", min=1)] = 30,
    first_seed: Annotated[int, Option("--first-seed", help="First seed.", rare=True, min=0)] = 0,
    knob: Annotated[
        list[str] | None,
        Option("--knob", help="NAME=VALUE: a property of tasks or agent, such as calls=200; may be repeated."),
    ] = None,
    by_family: Annotated[bool, Option("--by-family", help="Print a table for each family, too.", rare=True)] = False,
    chart: Annotated[Path | None, Option("--svg", help="Write the comparisons as a chart.")] = None,
    model: Annotated[
        str | None, Option("--model", help="A real model in the agent's place: openai:NAME or anthropic:NAME.")
    ] = None,
    base_url: Annotated[
        str,
        Option("--base-url", help="With --model: its base URL.", rare=True),
    ] = "",
    key_variable: Annotated[
        str, Option("--key-variable", help="With --model: the environment variable with its key.", rare=True)
    ] = "",
    budget: Annotated[
        float | None, Option("--max-cost-usd", help="With --model: what all its calls may cost.", rare=True)
    ] = None,
    rows: Annotated[
        Path | None, Option("--rows", help="With --model: the file that keeps its runs.", rare=True)
    ] = None,
    jobs: Jobs = 0,
    output: Output,
) -> None:
    """Let simulated agents solve tasks under each strategy: how many succeed, and what a solved task costs.

    Every strategy does the same tasks as raw. The agent reads only the prompt that the strategy leaves it.
    """
    # Slow to import, and help needs none of it.
    import msgspec

    from elision.cli.outputs import check_outputs, replace_file
    from elision.lab.report.report import Sentence
    from elision.lab.run_loading import find_named_prices
    from elision.testing.loop.closed_loop import FAMILIES, Variant
    from elision.testing.loop.comparison import format_comparisons, render_chart
    from elision.testing.loop.loop_study import (
        PRICES,
        VARIANTS,
        LoopSettings,
        parse_knobs,
        run_loop_study,
    )

    families = family or tuple(FAMILIES)
    if unknown := set(families) - set(FAMILIES):
        raise SpecError(f"--family {min(unknown)}: give one of {', '.join(FAMILIES)}")
    knobs = parse_knobs(knob or [])
    live = None
    priced = prices or PRICES
    if model:
        live = _open_model(model, base_url, key_variable, budget, rows, knobs)
        # A real model is paid for at one price list: its own unless another is named.
        priced = (prices or [model.partition(":")[2]])[:1]
    settings = LoopSettings(
        variants=[Variant.parse(text) for text in strategy or VARIANTS],
        prices=priced,
        families=families,
        seeds=seeds,
        first_seed=first_seed,
        knobs=knobs,
    )
    for name in settings.prices:
        find_named_prices(name)
    # Before anything is paid for.
    check_outputs({"svg": chart})
    results = run_loop_study(settings, processes=count_processes(jobs), live=live, report=output.note)
    if chart is not None:
        replace_file(chart, [render_chart(results.comparisons).encode()])
    tables = [format_comparisons(results.comparisons)]
    if by_family:
        tables += [f"== {name}\n{format_comparisons(each)}" for name, each in results.families.items()]
    lines = (Sentence(line, whole=True) for line in "\n\n".join(tables).splitlines())
    output.answer("lab closed-loop", msgspec.to_builtins(results), *lines)


def _open_model(
    text: str, base_url: str, key_variable: str, budget: float | None, rows: Path | None, knobs: Knobs
) -> LiveModel:
    """Return the model and the file of its runs. Raises SettingError."""
    from elision.agent.model import AnthropicModel, OpenAIModel
    from elision.providers.provider_table import PROVIDERS
    from elision.testing.loop.loop_study import LiveModel, RunFile

    models = {"openai": OpenAIModel, "anthropic": AnthropicModel}
    shape, _, name = text.partition(":")
    if shape not in models or not name:
        raise SettingError(f"--model {text!r}: write openai:NAME or anthropic:NAME")
    if budget is None or rows is None:
        raise SettingError("a real model costs money: give --max-cost-usd, and --rows FILE to keep what it paid for")
    host = PROVIDERS[shape].host
    key = os.environ.get(key_variable or host.key_variable, "")
    url = base_url or os.environ.get(host.url_variable, "") or host.url
    model = models[shape](name, key=key, base_url=url)
    return LiveModel(model=model, file=RunFile(rows, f"{shape}:{name}", knobs, budget))
