"""Studies on disk as commands run them: begin or continue one, show how far it is, report it."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import click

from elision.audit.audit_report import AuditReport
from elision.cli.options import Output, Pricing, StudyRequest, count_processes
from elision.cli.outputs import ProgressMeter
from elision.errors import SpecError
from elision.lab.report.figures import format_count, format_duration, format_plural, neutralize_text
from elision.lab.report.report import Column, Table, TableRow
from elision.lab.results import Study
from elision.lab.run_loading import StudySettings, describe_models, describe_prices_of
from elision.study.audit_study import AuditWork, build_audit
from elision.study.manifest import Shard
from elision.study.run_sample import describe_settings, prepare_study, restore_settings
from elision.study.shard_runner import (
    Engine,
    ReplayWork,
    RunnerProgress,
    ShardTask,
    ShardWork,
    find_missing_shards,
    make_engine,
    run_shards,
)
from elision.study.study_folder import StudyFolder
from elision.study.study_report import build_study, list_billed_models, list_uses
from elision.study.study_tables import BATCH, SUMMARY_FOLDER, open_study, summarize_batches
from elision.trajectory.prices import Prices

#: Exit code where shards failed three times.
INCOMPLETE = 3
#: Rows of the user's query that a terminal shows.
SHOWN_ROWS = 1_000


def run_replay_study(
    paths: Sequence[str],
    settings: StudySettings,
    given: Mapping[str, str | None],
    request: StudyRequest,
    output: Output,
    *,
    calls: bool,
) -> bool:
    """Replay `paths` into a study; whether it is to be reported now. given: price options. Exits as `run_study`."""
    options = describe_settings(settings, given, calls=calls)
    left = run_study(paths, settings, options, ReplayWork(settings, calls), request, output)
    return not left and not request.shard


def run_audit_study(
    paths: Sequence[str], tokens: str, prices: Prices | None, request: StudyRequest, output: Output
) -> AuditReport | None:
    """Audit `paths` into a study; the report, once all of it is finished. Exits as `run_study`."""
    settings = StudySettings(prices=prices, candidates=(), tokens=tokens)
    options = {"kind": "audit", "tokens": tokens}
    left = run_study(paths, settings, options, AuditWork(tokens, prices), request, output)
    if left or request.shard:
        return None
    with open_study(request.out, "audit") as tables:
        return build_audit(tables)


def run_study(
    paths: Sequence[str],
    settings: StudySettings,
    options: Mapping[str, Any],
    work: ShardWork,
    request: StudyRequest,
    output: Output,
) -> int:
    """Begin the study of `paths`, or go on with it; return how many of its shards are left.

    Exits with 3 for shards that failed, with 130 for Ctrl-C.
    """
    place, count = parse_shard(request.shard)
    only_prepares = request.workers == "0"
    cores = 1 if request.shard else count_processes()
    engine = None if only_prepares else make_engine(request.workers, cores)
    folder = StudyFolder(request.out.rstrip("/"))
    with _show_stage(output) as stage:
        plan, shards = prepare_study(folder, paths, settings, options, stage)
    part = place % count
    # Neighbours, so that batches are finished while others are not begun.
    own = shards[len(shards) * part // count : len(shards) * (part + 1) // count]
    missing = find_missing_shards(folder, own, plan.digest)
    name = f"shard {request.shard}" if request.shard else "study"
    units = sum(len(shard.units) for shard in own)
    _print_line(
        output, f"{name}: {format_plural(units, 'file')} in {format_plural(len(own), 'shard')}, {len(missing)} to do"
    )
    if engine is None:
        return len(shards)
    task = ShardTask(folder.url, plan.digest, work)
    try:
        progress = _watch_shards(missing, task, engine, output, summarizes=options["kind"] == "replay")
    except KeyboardInterrupt:
        left = len(find_missing_shards(folder, own, plan.digest))
        _print_line(output, f"interrupted: {left} of {len(own)} shards are left; run the command again to continue")
        raise click.exceptions.Exit(130) from None
    for number, reason in sorted(progress.failed.items()):
        _print_line(output, f"shard {number} failed three times: {reason}")
    if progress.failed:
        raise click.exceptions.Exit(INCOMPLETE)
    if options["kind"] == "replay":
        summarize_batches(folder.url)
    left = len(find_missing_shards(folder, shards, plan.digest))
    if not left:
        folder.remove_leftovers(("", "rows", "problems", "calls", SUMMARY_FOLDER))
    elif request.shard:
        _print_line(output, f"{name} is finished; {left} of {len(shards)} shards of the study are left")
    return left


def _watch_shards(
    shards: Sequence[Shard], task: ShardTask, engine: Engine, output: Output, *, summarizes: bool
) -> RunnerProgress:
    """Do the work of `shards`, and show how far it is. summarizes: whether finished batches get their summary."""
    summarized = 0
    with ProgressMeter(output.notes, "replaying") as meter:

        def watch(progress: RunnerProgress) -> None:
            nonlocal summarized
            meter.show(describe_progress(progress), progress.done / progress.every if progress.every else None)
            if summarizes and progress.done - summarized >= BATCH:
                summarized = progress.done
                summarize_batches(task.folder)

        return run_shards(shards, task, engine, watch)


def parse_shard(text: str) -> tuple[int, int]:
    """Return the part and the number of parts; both countings of array jobs, from 0 and from 1, reach every part."""
    if not text:
        return 0, 1
    place, _, count = text.partition("/")
    if not (place.isdecimal() and count.isdecimal() and 0 <= int(place) <= int(count) and int(count) >= 1):
        raise SpecError(f"--shard {text}: give I/N, such as 17/400; I counts from 0 or from 1")
    return int(place), int(count)


def _print_line(output: Output, text: str) -> None:
    output.note(neutralize_text(text))


@contextmanager
def _show_stage(output: Output) -> Iterator[Callable[[str], None]]:
    if not output.notes.is_terminal:
        yield lambda what: None
        return
    with output.notes.status("opening the study") as status:
        yield status.update


def describe_progress(progress: RunnerProgress) -> str:
    """Return how far the shards are, in one line."""
    left = progress.seconds_left
    time_left = "" if left is None else f", {format_duration(left)} left"
    return (
        f"{progress.done} of {progress.every} shards, {format_count(progress.runs)} runs,"
        f" {progress.runs_per_second:.1f} runs/s{time_left},"
        f" {format_plural(progress.problems + len(progress.failed), 'problem')}"
    )


def load_replay_study(url: str) -> tuple[Study, str, str]:
    """Return what the study at `url` has found so far, the models and bills of its runs, and as what they are priced.

    Raises FormatError where there is no study.
    """
    with open_study(url, "replay") as tables:
        settings = restore_settings(tables.plan, Pricing(**tables.plan.options["price_options"]).choose())
        study = build_study(tables, settings)
        uses = list_uses(tables)
        priced = describe_prices_of(uses, settings.prices) if uses else ""
        return study, describe_models(list_billed_models(tables)), priced


def print_query(url: str, sql: str, output: Output) -> None:
    """Print what a query of the user's finds in a study: JSON if asked for, a table on a terminal, else CSV."""
    with open_study(url) as tables:
        names, rows = tables.run_query(sql)
        if not output.json and not sys.stdout.isatty():
            writer = csv.writer(sys.stdout, lineterminator="\n")
            writer.writerow(names)
            writer.writerows(rows)
            return
        # Dates and decimals, as databases have them, become text.
        found = json.loads(json.dumps(list(rows if output.json else islice(rows, SHOWN_ROWS)), default=str))
        shown = [TableRow(["" if value is None else str(value) for value in row]) for row in found]
        table = Table([Column(name, -place, "left") for place, name in enumerate(names)], shown)
        output.answer("replay --sql", {"columns": list(names), "rows": found}, table)


def list_paths(paths: Sequence[str]) -> list[Path]:
    """Return those of `paths` that are on this machine."""
    return [Path(path) for path in paths if "://" not in path]
