"""`elision demo`: the runs that come with Elision, replayed, or one of them through a gateway."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import click

from elision.cli.declarations import Option
from elision.cli.options import HtmlFile, Jobs, Output, Pricing, StudyRequest, count_processes
from elision.errors import FormatError, SettingError

#: The newest flagship, as which the runs are priced a second time.
FLAGSHIP: Final = "claude-opus-5-5"


def demo(
    *,
    gateway: Annotated[
        bool, Option("--gateway", help="Send a recorded run through a gateway instead, with its dashboard.")
    ] = False,
    html_file: HtmlFile = None,
    store: Annotated[
        Path | None, Option("--store", help="With --gateway: the folder of the session; default: a new one.")
    ] = None,
    stay: Annotated[
        bool, Option("--stay", help="With --gateway: serve until Ctrl-C; the default in a terminal.")
    ] = False,
    once: Annotated[
        bool, Option("--once", help="With --gateway: end after the run; the default without a terminal.")
    ] = False,
    jobs: Jobs = 0,
    output: Output,
) -> None:
    """Replay the runs that come with Elision; with --gateway, send one through a gateway.

    It needs no key, and nothing leaves this machine. The replay prices the runs as their own models, then as the newest
    flagship.
    """
    if gateway:
        if html_file is not None:
            raise SettingError("--html is for the replay; the gateway has its dashboard")
        if stay and once:
            raise SettingError("--stay and --once contradict each other; give one")
        from elision.cli.gateway_demo import run_gateway_demo

        run_gateway_demo(find_runs(), store, output, stays=True if stay else not once and None)
        return
    if stay or once or store is not None:
        raise SettingError("--store, --stay and --once belong to --gateway")
    from elision.cli.replay import replay

    place = find_runs()
    if output.json:
        if html_file is not None:
            raise SettingError("--json prints both replays and writes no page: leave out --html")
        output.answer("demo", {"as_recorded": _replay(place, None, jobs), "flagship": _replay(place, FLAGSHIP, jobs)})
        return
    click.echo("1 of 2: each run at the prices of its own model\n")
    replay(
        paths=[str(place)],
        pricing=Pricing(),
        html_file=html_file,
        jobs=jobs,
        study=StudyRequest(),
        output=output,
    )
    click.echo(
        f"\n2 of 2: the same runs, all at the prices of {FLAGSHIP}, the newest flagship\n"
        "Its cached tokens are cheaper, so the cache that masking at every turn destroys is worth more.\n"
    )
    replay(
        paths=[str(place)],
        pricing=Pricing(FLAGSHIP),
        no_hindsight=True,
        jobs=jobs,
        study=StudyRequest(),
        output=output,
    )
    if not output.quiet:
        click.echo("  the gateway, tried     elision demo --gateway")
        click.echo("  your own runs          elision replay FILE")


def find_runs() -> Path:
    """Return the folder of the runs that come with Elision: in the package, or in a clone's examples."""
    for folder in (Path(__file__).parents[1] / "demo_runs", Path(__file__).parents[3] / "examples" / "runs"):
        if folder.is_dir():
            return folder
    raise FormatError("the runs of the demo are not installed; get a clone, or give your own: elision replay PATH")


def _replay(place: Path, model: str | None, jobs: int) -> dict[str, Any]:
    from elision.lab.run_loading import StudySettings, load_runs, parse_candidates
    from elision.lab.study import run_study

    has_hindsight = model is None
    candidates = parse_candidates([], hindsight=has_hindsight, model_summaries=False)
    settings = StudySettings(prices=Pricing(model).choose(), candidates=candidates, hindsight=has_hindsight)
    return run_study(load_runs([place]), settings, jobs=count_processes(jobs)).json()
