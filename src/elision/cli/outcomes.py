"""`elision lab outcomes`: runs joined with their outcomes, cost against solve rate."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from elision.cli.declarations import Argument, Option
from elision.cli.options import HtmlFile, Output, Pricing
from elision.errors import FormatError

if TYPE_CHECKING:
    from elision.lab.outcomes import InstanceRun
    from elision.lab.outcomes_runs import InstanceNamer
    from elision.trajectory.prices import Prices


def outcomes(
    *,
    runs: Annotated[
        list[str],
        Argument(
            help="[NAME=]RUNS: runs of one strategy: recordings (files, folders), a store's address, or a CSV table.",
        ),
    ],
    reports: Annotated[
        list[str] | None,
        Option(
            "--outcomes",
            help="[NAME=]PATH: outcomes: reports of the SWE-bench harness, a folder of report.json, "
            "predictions, exit statuses; may be repeated.",
        ),
    ] = None,
    tasks: Annotated[
        list[Path] | None,
        Option(
            "--tasks",
            help="Trajectories or a benchmark's instances, to match stored sessions to instances by their "
            "task; may be repeated.",
        ),
    ] = None,
    by: Annotated[
        str, Option("--by", help="The column of a CSV table that names the strategy.", rare=True)
    ] = "strategy",
    baseline: Annotated[
        str | None,
        Option("--baseline", help="Strategy to compare the others with; default: raw, or the first."),
    ] = None,
    seed: Annotated[int, Option("--seed", help="Seed of the bootstrap intervals.", min=0, rare=True)] = 0,
    html_file: HtmlFile = None,
    png_file: Annotated[
        Path | None, Option("--png", help="Write cost against solve rate as a picture.", rare=True)
    ] = None,
    pricing: Pricing,
    output: Output,
) -> None:
    """Join runs with their outcomes by instance id: cost against solve rate, strategy by strategy.

    NAME is the strategy. Without it, a store's sessions use the strategy that they began with, and recordings the name
    of their folder or file. A cost is the one that the recording states, or the reported usage at list prices.
    """
    # Slow to import, and help needs none of it.
    from elision.cli.outputs import check_outputs, make_provenance
    from elision.lab.outcomes import join_outcomes
    from elision.lab.outcomes_files import merge_outcomes, read_outcomes
    from elision.lab.outcomes_report import build_outcomes_report
    from elision.lab.outcomes_runs import InstanceNamer, load_tasks

    files = {"html": html_file, "png": png_file}
    check_outputs(
        files, (Path(place) for _, place in map(_split_name, [*runs, *(reports or [])]) if not _is_store(place))
    )
    prices = pricing.choose()
    with output.notes.status("reading"):
        found = merge_outcomes(read_outcomes(Path(path), name) for name, path in map(_split_name, reports or []))
        asked = [task for path in tasks or [] for task in load_tasks(path)]
        namer = InstanceNamer(found.instances, asked)
        loaded, problems = _load_runs(runs, namer, by, prices)
    study = join_outcomes(
        loaded,
        found,
        baseline=baseline or "",
        seed=seed,
        problems=problems,
        priced_as=prices.name if prices else "",
    )
    output.show(build_outcomes_report(study, make_provenance()), files)


def _load_runs(
    given: Sequence[str], namer: InstanceNamer, by: str, prices: Prices | None
) -> tuple[list[InstanceRun], list[str]]:
    """Read every argument; the runs, and what could not be read."""
    from elision.config.setting_readers import conceal_password
    from elision.formats.source import derive_run_name
    from elision.lab.outcomes_runs import load_recorded_runs, load_stored_runs, load_table_runs
    from elision.stores.store_urls import open_existing

    loaded: list[InstanceRun] = []
    problems: list[str] = []
    for name, place in map(_split_name, given):
        if _is_store(place):
            with closing(open_existing(place)) as store:
                runs, trouble = load_stored_runs(store, conceal_password(place), name, namer, prices)
        elif (table := load_table_runs(Path(place), name, by)) is not None:
            runs, trouble = table, []
        else:
            runs, trouble = load_recorded_runs(Path(place), name or derive_run_name(place), namer, prices)
        loaded += runs
        problems += trouble
    return loaded, problems


def _split_name(argument: str) -> tuple[str, str]:
    """Split NAME=PATH where what follows an equals sign is there; a path may have one itself. Raises FormatError."""
    if _is_store(argument) or Path(argument).exists():
        return "", argument
    for place, letter in enumerate(argument):
        rest = argument[place + 1 :]
        if letter == "=" and rest and (_is_store(rest) or Path(rest).exists()):
            return argument[:place].strip(), rest
    raise FormatError(
        f"{argument.rpartition('=')[2]}: there is no such file or folder; give runs or a table of outcomes"
    )


def _is_store(text: str) -> bool:
    from elision.stores.store_urls import STORE_KINDS

    scheme, colon, _ = text.partition(":")
    return bool(colon) and scheme in STORE_KINDS
