"""`elision tune`: the settings that suit the user's own runs, found on some of them and judged on the others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

from elision.cli.declarations import Option
from elision.cli.options import (
    Dialect,
    HtmlFile,
    Jobs,
    Output,
    Paths,
    Pricing,
    Tokens,
    check_study_extra,
    count_processes,
)
from elision.errors import OutputError
from elision.lab.tuning import JUDGE_SHARE, MIN_EVIDENCE, TRIALS

if TYPE_CHECKING:
    from elision.lab.run_loading import Loaded
    from elision.lab.tuning.tuner import TuneProgress, TuneSettings
    from elision.lab.tuning.tuning_result import Objective, Tuning

SpaceTexts = Annotated[
    list[str] | None,
    Option(
        "--space",
        help="NAME=VALUE,VALUE: values to try instead of the built-in ones, such as window=5,10 or family=masking; "
        "may be repeated. NAME: family, window, summarize_at, tail, every, schedule, gist, rules.",
    ),
]
ObjectiveName = Annotated[
    str,
    Option(
        "--objective",
        help="cost: recommend the cheapest point that keeps --min-evidence. evidence: the one with most facts "
        "visible at no more than the default's cost.",
    ),
]
StudyFile = Annotated[
    Path | None,
    Option("--study", help="Keep each finished replay in this file; a second run continues from it.", rare=True),
]
SettingsFile = Annotated[
    Path | None, Option("--out", help="Write the recommended point as a settings file, e.g. elision.toml.")
]


def tune(
    *,
    paths: Paths,
    pricing: Pricing,
    tokens: Tokens = "o200k",
    dialect: Dialect = "openai",
    space: SpaceTexts = None,
    trials: Annotated[
        int,
        Option("--trials", help="Maximum number of points to replay; a smaller space is searched completely.", min=1),
    ] = TRIALS,
    objective: ObjectiveName = "cost",
    min_evidence: Annotated[
        float,
        Option("--min-evidence", help="Share of the facts visible under the default that must stay visible."),
    ] = MIN_EVIDENCE,
    judge_share: Annotated[
        float, Option("--judge-share", help="Share of the runs that judge the result; 0 for none.", rare=True)
    ] = JUDGE_SHARE,
    seed: Annotated[int, Option("--seed", help="Seed of the split and the search.", min=0, rare=True)] = 0,
    study: StudyFile = None,
    out: SettingsFile = None,
    force: Annotated[bool, Option("--force", help="Replace the file of --out if it exists.")] = False,
    html_file: HtmlFile = None,
    png_file: Annotated[Path | None, Option("--png", help="Write the picture of cost and facts.", rare=True)] = None,
    jobs: Jobs = 0,
    output: Output,
) -> None:
    """Find the window, summaries, schedule, gist and tool rules that suit recorded runs.

    Some of the runs judge what was found on the others, and figures of both parts are shown. From a study (`elision
    replay --out`) it takes at most 2,000 runs, chosen by the seed.
    """
    # Slow to import, and help needs none of it.
    from elision.cli.outputs import check_outputs, encode_text, make_provenance
    from elision.lab.report.tuning_report import build_tuning_report, write_settings
    from elision.lab.run_loading import describe_prices_of, list_model_uses, list_recorded_models
    from elision.lab.tuning.search_space import parse_space
    from elision.lab.tuning.tuner import TuneSettings, check_tune_settings
    from elision.providers.provider_table import find_provider

    settings = TuneSettings(
        prices=pricing.choose(),
        space=parse_space(space or []),
        tokens=tokens,
        dialect=find_provider(dialect).name,
        trials=trials,
        seed=seed,
        judge_share=judge_share,
        objective=cast("Objective", objective),
        min_evidence=min_evidence,
    )
    check_tune_settings(settings)
    files = {"html": html_file, "png": png_file, "toml": out}
    if out is not None and out.exists() and not force and str(out) != "-":
        raise OutputError(f"--out {out}: already exists; use --force to replace it, or name another file")
    check_outputs(files, [*paths, *([study] if study else [])])
    with output.notes.status("reading"):
        loaded, chosen = _load_runs(paths, seed)
    if chosen:
        output.note(chosen)
    result = _run(loaded, settings, study, count_processes(jobs), output)
    if not result.finished:
        files["toml"] = None
    recorded = list_recorded_models(loaded.runs)
    made_by = make_provenance(recorded)
    priced = describe_prices_of(list_model_uses(loaded.runs), settings.prices)
    output.note(f"Recorded as {recorded}; priced here as {priced}.")
    output.show(
        build_tuning_report(result, made_by),
        files,
        render=lambda kind: encode_text(write_settings(result, made_by)),
        problems=result.problems,
        finished=result.finished,
    )


def _load_runs(paths: list[Path], seed: int) -> tuple[Loaded, str]:
    """Return the runs of `paths`; of a study at most a sample, with a sentence on it."""
    from elision.lab.run_loading import load_runs

    if len(paths) > 1 or not (paths[0] / "study.json").is_file():
        return load_runs(paths), ""
    check_study_extra(f"tune {paths[0]}")
    from elision.study.run_sample import load_tuning_sample

    return load_tuning_sample(str(paths[0]), seed)


def _run(loaded: Loaded, settings: TuneSettings, study: Path | None, jobs: int, output: Output) -> Tuning:
    from importlib.metadata import version

    from elision.cli.outputs import ProgressMeter
    from elision.lab.tuning.tuner import tune_runs

    with ProgressMeter(output.notes, "tuning") as meter:

        def show(progress: TuneProgress) -> None:
            done = f"{progress.finished} of at most {progress.every} replays finished"
            meter.show(done, progress.finished / progress.every if progress.every else None)

        return tune_runs(loaded, settings, version=version("elision"), jobs=jobs, study=study, progress=show)
