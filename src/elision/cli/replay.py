"""`elision replay`: recorded runs under every strategy, priced as they would be billed."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from elision.cli.declarations import Option
from elision.cli.options import (
    Dialect,
    HtmlFile,
    Jobs,
    Output,
    Pricing,
    RunPaths,
    SqlText,
    StudyReport,
    StudyRequest,
    Tokens,
    check_memory_paths,
    check_study_extra,
    count_processes,
)
from elision.errors import FormatError, SpecError, install

if TYPE_CHECKING:
    from elision.lab.replay_summarizer import ReplaySummarizer
    from elision.lab.replay_workers import StudyProgress
    from elision.lab.report.report import Section
    from elision.lab.results import Study
    from elision.lab.run_loading import StudySettings


Strategies = Annotated[
    list[str] | None,
    Option("--strategy", "-s", help="A strategy, such as 'masking(window=20)'; may be repeated."),
]
RecordedWindows = Annotated[
    list[str] | None,
    Option(
        "--recorded-window",
        help="READER=N: the agent saw only its newest N tool results when runs of this format were "
        "recorded; for the evidence controls.",
        rare=True,
    ),
]
Elongation = Annotated[
    str | None,
    Option(
        "--elongation",
        help="Number of turns compared with raw: measured, none, or NAME=FACTOR,… such as "
        "masking=1.0,summarization=1.15; default: the measured range.",
        rare=True,
    ),
]
SummarizerSpec = Annotated[
    str | None,
    Option("--summarizer", help="Model that writes the summaries, such as openai:gpt-5-mini; its calls cost money."),
]
SummarizerUrl = Annotated[
    str | None, Option("--base-url", help="Address of the summarizer's model, if not its provider's.", rare=True)
]
SummarizerPrices = Annotated[
    str | None, Option("--summarizer-prices", help="Price the summarizer by this set or model.", rare=True)
]
SummarizerCache = Annotated[
    Path | None,
    Option(
        "--summarizer-cache",
        help="Folder for its answers, so you pay for each once; default: ~/.cache/elision/summaries.",
        rare=True,
    ),
]


def replay(
    *,
    paths: RunPaths = None,
    strategy: Strategies = None,
    pricing: Pricing,
    tokens: Tokens = "o200k",
    dialect: Dialect = "openai",
    rules: Annotated[
        bool, Option("--rules", help="List what each rule of the strategies matches, without a replay.")
    ] = False,
    forecast: Annotated[
        bool, Option("--forecast", help="Without runs: show when the strategies act in a typical coding run.")
    ] = False,
    html_file: HtmlFile = None,
    png_file: Annotated[Path | None, Option("--png", help="Write the first picture.", rare=True)] = None,
    recorded_window: RecordedWindows = None,
    no_hindsight: Annotated[
        bool,
        Option(
            "--no-hindsight", help="Skip each strategy's cheapest schedule, which takes time to compute.", rare=True
        ),
    ] = False,
    elongation: Elongation = None,
    jobs: Jobs = 0,
    summarizer: SummarizerSpec = None,
    base_url: SummarizerUrl = None,
    summarizer_prices: SummarizerPrices = None,
    summarizer_cache: SummarizerCache = None,
    study: StudyRequest,
    calls: Annotated[
        bool,
        Option("--calls", help="Keep the calls of each run in the study, for the chart of contexts.", rare=True),
    ] = False,
    report: StudyReport = None,
    sql: SqlText = None,
    output: Output,
) -> None:
    """Replay recorded runs under every strategy and price them as they would be billed.

    The digest writes the summaries without a model. With --summarizer a model does: its prompt, temperature and time
    limit come from the settings, and its key from the environment. With --out, any number of runs become a study in a
    folder or object store: run the command again to continue, and use --report at any time.
    """
    specs = strategy or []
    if forecast:
        from elision.cli.strategy_reports import show_forecasts

        if paths:
            raise SpecError("--forecast is about a typical coding run: leave out the recorded runs")
        show_forecasts(specs, pricing.choose(), output)
        return
    files = {"html": html_file, "png": png_file}
    if report is not None or sql is not None:
        _report_stored_study(paths, report, sql, files, output)
        return
    if not paths:
        raise SpecError("give the recorded runs: files or folders; or --report STUDY")
    if rules:
        from elision.cli.strategy_reports import show_rule_matches

        show_rule_matches(specs, check_memory_paths(paths), tokens, output)
        return
    writer = _choose_summarizer(summarizer, base_url, summarizer_prices, summarizer_cache)
    settings = _choose_settings(specs, pricing, tokens, dialect, elongation or "", writer, no_hindsight)
    if not (settings.hindsight or no_hindsight):
        output.note(f"Without each strategy's cheapest schedule, because that needs an extra: {install('report')}")
    if study.out:
        _refuse_given(
            {"--summarizer": writer, "--recorded-window": recorded_window, "--jobs": jobs},
            "is not for a study (--out); --workers sets the number of processes for one",
        )
        check_study_extra("--out")
        # Slow to import, and help needs none of it.
        from elision.cli import studies
        from elision.cli.outputs import check_outputs

        check_outputs(files, studies.list_paths(paths))
        if studies.run_replay_study(paths, settings, asdict(pricing), study, output, calls=calls):
            _report_stored_study(None, study.out, None, files, output)
    else:
        _refuse_given(
            {"--workers": study.workers, "--shard": study.shard, "--calls": calls},
            "is for a study; give --out FOLDER as well",
        )
        _replay_in_memory(paths, settings, recorded_window or [], jobs, files, output)


def _refuse_given(options: Mapping[str, object], reason: str) -> None:
    """Raise SpecError for the first of `options` that has a value."""
    for name, value in options.items():
        if value:
            raise SpecError(f"{name} {reason}")


def _choose_settings(
    strategies: Sequence[str],
    pricing: Pricing,
    tokens: str,
    dialect: str,
    elongation: str,
    writer: ReplaySummarizer | None,
    no_hindsight: bool,
) -> StudySettings:
    """Return what is replayed, and how. Cheapest schedules need an extra, and are left out without it."""
    from elision.lab.run_loading import StudySettings, parse_candidates
    from elision.providers.provider_table import find_provider

    has_hindsight = not no_hindsight and find_spec("numpy") is not None
    candidates = parse_candidates(strategies, hindsight=has_hindsight, model_summaries=writer is not None)
    return StudySettings(
        prices=pricing.choose(),
        candidates=candidates,
        tokens=tokens,
        dialect=find_provider(dialect).name,
        hindsight=has_hindsight,
        elongation=elongation,
        summarizer=writer,
    )


def _replay_in_memory(
    paths: list[str],
    settings: StudySettings,
    recorded_window: Sequence[str],
    jobs: int,
    files: Mapping[str, Path | None],
    output: Output,
) -> None:
    """Read the runs, replay them in `jobs` processes, and report. Raises FormatError if no run was replayed."""
    from elision.cli.outputs import ProgressMeter, check_outputs
    from elision.lab.run_loading import (
        describe_prices_of,
        list_model_uses,
        list_recorded_models,
        load_runs,
        set_recorded_windows,
    )
    from elision.lab.study import run_study

    places = check_memory_paths(paths)
    check_outputs(files, places)
    windows = {}
    for text in recorded_window:
        reader, _, number = text.partition("=")
        if not reader or not number.isdigit() or int(number) < 1:
            raise SpecError(f"--recorded-window {text}: give READER=N, such as swe-agent=5")
        windows[reader] = int(number)
    with output.notes.status("reading"):
        loaded = set_recorded_windows(load_runs(places), windows)
    if settings.summarizer is not None:
        output.note(
            f"{settings.summarizer.spec} writes the summaries; its answers are kept in {settings.summarizer.cache}"
        )
    with ProgressMeter(output.notes, "replaying") as meter:

        def show(progress: StudyProgress) -> None:
            done = f"{progress.finished} of {progress.every} replays finished"
            meter.show(f"{int(100 * progress.share)} % of the work is done, {done}", progress.share)

        result = run_study(loaded, settings, jobs=count_processes(jobs), progress=show)
    priced = describe_prices_of(list_model_uses(loaded.runs), settings.prices) if result.rows else ""
    recorded = list_recorded_models(loaded.runs)
    _report_study(result, files, recorded, priced, output, finished=result.finished, paths=paths, runs=len(loaded.runs))
    if not result.rows:
        raise FormatError("no run was replayed: " + "; ".join(map(str, result.problems[:3])))


def _report_stored_study(
    paths: list[str] | None, url: str | None, sql: str | None, files: Mapping[str, Path | None], output: Output
) -> None:
    """Report a study, or print what a query finds in it."""
    if paths or url is None:
        raise SpecError("--report STUDY takes no paths, and --sql asks that study: give --report STUDY [--sql QUERY]")
    check_study_extra("--report")
    from elision.cli import studies
    from elision.cli.outputs import check_outputs

    if sql is not None:
        studies.print_query(url, sql, output)
        return
    check_outputs(files)
    result, recorded, priced = studies.load_replay_study(url)
    _report_study(result, files, recorded, priced, output)


def _report_study(
    result: Study,
    files: Mapping[str, Path | None],
    recorded: str,
    priced: str,
    output: Output,
    *,
    finished: bool = True,
    paths: Sequence[str] = (),
    runs: int = 0,
) -> None:
    """Write the files and print the tables, or JSON.

    recorded: models and bills of the runs. priced: as what they are priced. paths: that the runs were read from.
    """
    from elision.cli.outputs import make_provenance
    from elision.lab.report.replay_report import build_replay_report

    report = build_replay_report(result, make_provenance(recorded))
    if result.rows:
        said = f"Recorded as {recorded}; priced here as {priced}."
        if paths and "billed" in recorded:
            said += f" `{shlex.join(['elision', 'audit', '--calibrate', *paths])}` compares recorded bills."
        output.note(said)
        if not output.quiet:
            page = files["html"]
            steps = build_next_steps(None if str(page) == "-" else page, paths, runs)
            report = replace(report, sections=[*report.sections, steps])
    else:
        if any(files.values()):
            output.note("Nothing is written, since no run is finished.")
        files = {}
    output.show(report, files, problems=result.problems, finished=finished)


def build_next_steps(page: Path | None, paths: Sequence[str] = (), runs: int = 0) -> Section:
    """Return commands to continue with, as they can be run. page: the report that was written as HTML.

    paths: that the runs were read from. runs: how many there are.
    """
    from elision.lab.report.report import Section, Sentence

    steps = []
    if page is not None:
        steps.append(f"charts and every run   {page.absolute().as_uri()}")
    if runs > 1:
        steps.append(f"the best strategy      {shlex.join(['elision', 'tune', *paths])}")
    elif runs == 1 and len(paths) == 1 and Path(paths[0]).is_file():
        steps.append(f"a call as it is sent   {shlex.join(['elision', 'view', *paths, '--call', 'last'])}")
    steps.append("in front of an agent   elision serve")
    # On one line whatever the width, so that a click opens the address and a copy is whole.
    return Section("Next", [Sentence(step, whole=True) for step in steps], only="terminal")


def _choose_summarizer(
    spec: str | None, base_url: str | None, prices: str | None, cache: Path | None
) -> ReplaySummarizer | None:
    """Return the model that writes the summaries; None for the digest.

    Raises SpecError, PriceError, SettingError, MissingExtra for what cannot be asked, before anything is read.
    """
    if spec is None or spec == "digest":
        given = (("--base-url", base_url), ("--summarizer-prices", prices), ("--summarizer-cache", cache))
        named = [name for name, value in given if value is not None]
        if named:
            raise SpecError(f"{named[0]}: no model writes summaries; give --summarizer too, such as openai:gpt-5-mini")
        return None
    from elision.config import load_settings
    from elision.lab.replay_summarizer import ReplaySummarizer, select_access
    from elision.lab.run_loading import find_named_prices
    from elision.summarizers.endpoints import find_default_folder

    found = load_settings()
    chosen = ReplaySummarizer(
        spec=spec,
        base_url=base_url or "",
        cache=cache or find_default_folder(os.environ),
        environment=select_access(os.environ),
        prices=find_named_prices(prices) if prices else None,
        prompt=found.prompt,
        temperature=found.summary_temperature,
        seconds=found.summary_seconds,
        redaction=found.redaction,
    )
    chosen.make_model_summarizer()
    return chosen
