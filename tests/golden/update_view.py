"""Writes the golden views anew: `python tests/golden/update_view.py`. Read the difference before committing it."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path

from rich.console import Console

from elision.cli.view_report import ViewReporter
from elision.formats.registry import read_runs
from elision.lab.report.terminal import print_report
from elision.lab.run_as_recorded import add_recorded_head
from elision.lab.views import ViewAt, list_views, to_json
from elision.providers.anthropic.messages import AnthropicRenderer
from elision.providers.openai_chat.messages import OpenAIChatRenderer
from elision.providers.shared.base_renderer import ViewRenderer
from elision.strategies.spec import parse_strategy
from elision.trajectory.price_lookup import find_price_set
from elision.trajectory.tokens import Sizer, make_counter
from elision.trajectory.trajectory import Trajectory

FOLDER = Path(__file__).parent / "view"
EXCERPT = Path(__file__).parents[1] / "data" / "claude_code" / "excerpt.jsonl"
#: The published placeholder: these are golden views, not golden placeholders.
SPEC = 'masking(window=2, schedule=every-turn, gist=0, placeholder="[Observation omitted for brevity]")'
CALL = 5
SIZER = Sizer(make_counter())


def _run() -> Trajectory:
    run = next(found for found in read_runs(EXCERPT) if isinstance(found, Trajectory))
    # The name alone: where the repository stands is no part of a page.
    return add_recorded_head(replace(run, file=EXCERPT.name), SIZER)


def _view(renderer: ViewRenderer) -> ViewAt:
    return next(
        islice(list_views(_run(), parse_strategy(SPEC), find_price_set("anthropic"), SIZER, renderer), CALL - 1, None)
    )


def _screen(*, diff: bool) -> str:
    stream = io.StringIO()
    console = Console(file=stream, width=100, color_system=None, legacy_windows=False)
    reporter = ViewReporter(trajectory=_run(), label=SPEC, sizer=SIZER, full=False)
    print_report(reporter.build(_view(OpenAIChatRenderer()), diff=diff), console)
    return "".join(f"{line.rstrip()}\n" for line in stream.getvalue().splitlines())


def _json(renderer: ViewRenderer) -> str:
    shown = _view(renderer)
    rows = [*({"system": each} for each in shown.system), *shown.messages]
    return "".join(f"{to_json(row)}\n" for row in rows)


#: Golden file -> what it should hold.
CASES: dict[str, Callable[[], str]] = {
    "page.txt": lambda: _screen(diff=False),
    "difference.txt": lambda: _screen(diff=True),
    "openai.jsonl": lambda: _json(OpenAIChatRenderer()),
    "anthropic.jsonl": lambda: _json(AnthropicRenderer()),
}


if __name__ == "__main__":
    for name, made in CASES.items():
        (FOLDER / name).write_text(made(), encoding="utf-8")
