"""A calibration for the terminal: one line a run, the causes, the bills of all runs together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from elision.lab.calibrate import CAUSES, FORESEEN, NEAR, Calibration, CalibrationStudy, Cause, read_share
from elision.lab.report.figures import format_deviation, format_plural, format_share
from elision.lab.report.fitting import choose_columns, open_table
from elision.lab.report.fitting import measure_column as width_of
from elision.trajectory.price_lookup import find_tokenizer

#: A difference of cache-read share that is none worth explaining.
BAR: Final = 0.02
#: Columns from which on the causes stand beside the numbers.
WIDE: Final = 110
#: Cells of a run's name that are shown however narrow the terminal.
_NAME: Final = 12
#: Columns of numbers, and which stays the longer (higher) where room is short.
_SHARES: Final = {"calls": 2, "tokens": 4, "billed": 6, "ours": 5, "diff": 7, "length": 0, "$ billed": 3, "$ ours": 1}
_TOKENS: Final = {"prompt": 6, "read": 5, "written": 3, "plain": 1, "output": 2, "USD": 4}
_SUFFIXES: Final = (".gz", ".tar", ".jsonl", ".json", ".traj", ".eval")


def print_study(study: CalibrationStudy, console: Console, *, detail: bool = False) -> None:
    """The whole of `study`. detail: the token bill of every run too."""
    for number, part in enumerate(_build_parts(study, console.width, detail=detail)):
        if number:
            console.print()
        console.print(part)


def _build_parts(study: CalibrationStudy, width: int, *, detail: bool) -> Iterator[RenderableType]:
    names = label_runs(study.runs)
    cached = [(name, run) for name, run in zip(names, study.runs, strict=True) if run.cached]
    if cached:
        yield _build_shares_table(cached, study, width)
        yield from _build_causes(cached, study, width)
        if detail:
            yield from (_build_bill_table(name, run, width) for name, run in cached)
        yield _build_bill_table(
            f"All {len(cached)} runs, in tokens" if len(cached) > 1 else "In tokens", study.total, width
        )
        if study.fits:
            yield _build_fits_table(study)
        yield _build_key(study)
    yield from _list_left_out(study)


def label_runs(runs: Sequence[Calibration]) -> list[str]:
    """What to call each run: its file or archive, with its folder where names collide, its id where it is not alone."""
    held = Counter(run.file for run in runs)
    places = {file: file.partition("!")[0] for file in held}
    short = {file: _strip_suffixes(place) for file, place in places.items()}
    taken = Counter(short.values())
    found = []
    for run in runs:
        name = short[run.file]
        if taken[name] > 1:
            # With its folder, that of a member of an archive included.
            *folders, file = run.file.replace("!", "/").split("/")
            name = "/".join((*folders[-1:], _strip_suffixes(file)))
        found.append(strip_controls(name + (f" {run.trajectory}" if held[run.file] > 1 else "")))
    return found


def strip_controls(text: str) -> str:
    """`text` without anything a terminal would act on."""
    return "".join(letter if letter.isprintable() else "·" for letter in text)


def _strip_suffixes(file: str) -> str:
    name = file.rsplit("/", 1)[-1]
    while name.endswith(_SUFFIXES):
        name = name.rpartition(".")[0]
    return name or file


def _crop_name(name: str, width: int) -> Text:
    """The end of a name tells more than its beginning; never read as markup."""
    return Text(name if len(name) <= width else f"…{name[1 - width :]}")


# -- one line a run ---------------------------------------------------------------------------------------------------


def _add_title(title: str, table: Table) -> Group:
    return Group(Text(title, style="bold"), table)


def _build_shares_table(cached: Sequence[tuple[str, Calibration]], study: CalibrationStudy, width: int) -> Group:
    runs = [*cached, *([("all", study.total)] if len(cached) > 1 else [])]
    cells = [_row_cells(run) for _, run in runs]
    shown = _choose_columns(_SHARES, cells, width - _NAME)
    taken = sum(width_of(_column_cells(_SHARES, cells, place)) for place in shown)
    room = 26 if width >= WIDE else width - taken
    table = _build_number_table("run", _SHARES, shown)
    if width >= WIDE:
        table.add_column("cause: calls")
    for place, ((name, run), row) in enumerate(zip(runs, cells, strict=True)):
        causes = [_list_causes(run)] if width >= WIDE else []
        style = "bold" if place == len(cached) else ""
        table.add_row(_crop_name(name, room), *(row[column] for column in shown), *causes, style=style)
    return _add_title("Our prompt tokens against the billed ones, share of them read from cache, and USD", table)


def _build_number_table(first: str, titles: Mapping[str, int], shown: Sequence[int]) -> Table:
    table = open_table()
    table.add_column(first, no_wrap=True)
    for place in shown:
        table.add_column(list(titles)[place], justify="right", no_wrap=True)
    return table


def _column_cells(titles: Mapping[str, int], rows: Sequence[Sequence[Text | str]], place: int) -> list[str]:
    return [list(titles)[place], *(str(row[place]) for row in rows)]


def _choose_columns(titles: Mapping[str, int], rows: Sequence[Sequence[Text | str]], room: int) -> list[int]:
    """Places of the columns of numbers that fit into `room` cells, whole."""
    return choose_columns(
        [_column_cells(titles, rows, place) for place in range(len(titles))], list(titles.values()), room
    )


def _row_cells(run: Calibration) -> list[Text | str]:
    return [
        f"{len(run.calls):,}",
        format_deviation(run.length_difference),
        f"{read_share(run.billed):.3f}",
        f"{read_share(run.counted):.3f}",
        Text(f"{round(run.difference, 3) + 0.0:+.3f}", style=_row_style(run)),  # + 0.0 turns -0 into 0
        f"{read_share(run.lengths):.3f}",
        _format_usd(run.billed.usd),
        _format_usd(run.counted.usd),
    ]


def _row_style(run: Calibration) -> str:
    """Green within the bar, yellow where the calls without an unforeseen cause are, else red."""
    if abs(run.difference) <= BAR:
        return "green"
    if abs(run.elsewhere or 0.0) <= BAR:
        return "yellow"
    return "red"


def _format_usd(usd: float | None) -> str:
    if usd is None:
        return "–"
    return f"{usd:,.2f}" if usd >= 1 else f"{usd:.3f}"


# -- causes -----------------------------------------------------------------------------------------------------------


def _list_causes(run: Calibration) -> Text:
    """Causes and their calls; those that the simulation foresees are dim."""
    return Text(", ").join(
        Text(f"{cause} {tally.calls}", style="dim" if cause in FORESEEN else "") for cause, tally in run.causes.items()
    )


def _build_causes(
    cached: Sequence[tuple[str, Calibration]], study: CalibrationStudy, width: int
) -> Iterator[RenderableType]:
    """Per run, where the first table has no room for it; then what each cause means and what it amounts to."""
    found = study.total.causes
    if not found:
        return
    if width < WIDE:
        table = open_table()
        table.add_column("run", no_wrap=True)
        table.add_column("cause: calls")
        for name, run in cached:
            if run.causes:
                table.add_row(_crop_name(name, min(30, width // 2)), _list_causes(run))
        yield _add_title("Calls that did not simply read what the call before had left", table)
    yield _build_legend(found)


def _build_legend(found: Iterable[Cause]) -> RenderableType:
    known = [cause for cause in found if cause in FORESEEN]
    other = [cause for cause in found if cause not in FORESEEN]
    grid = Table.grid(padding=(0, 2))
    for title, causes in (("simulated", known), ("not simulated", other)):
        for number, cause in enumerate(causes):
            grid.add_row(Text("" if number else title, style="dim"), Text(cause), Text(CAUSES[cause], style="dim"))
    return grid


# -- bills ------------------------------------------------------------------------------------------------------------


def _build_bill_table(title: str, run: Calibration, width: int) -> Group:
    usages = (("billed", run.billed), ("ours", run.counted), ("length", run.lengths))
    rows = []
    for _, usage in usages:
        counts = (usage.prompt, usage.cache_read, usage.cache_write, usage.input, usage.output)
        rows.append([*(f"{count:,}" for count in counts), _format_usd(usage.usd)])
    shown = _choose_columns(_TOKENS, rows, width - len("billed"))
    table = _build_number_table("", _TOKENS, shown)
    for (name, _), row in zip(usages, rows, strict=True):
        table.add_row(name, *(row[place] for place in shown))
    return _add_title(title, table)


def _build_fits_table(study: CalibrationStudy) -> Group:
    """How each model counts: as fitted here, beside what the table of prices has."""
    table = open_table()
    table.add_column("model", no_wrap=True)
    for title in ("calls", "output", "read", "table", "explained"):
        table.add_column(title, justify="right", no_wrap=True)
    for model, fit in study.fits.items():
        listed = find_tokenizer(model).tokens_per_counted
        name = _crop_name(strip_controls(model), 36)
        figures = (f"{fit.per_output:.2f}", f"{fit.per_counted:.2f}", f"{listed:.2f}", f"{fit.explained:.3f}")
        table.add_row(name, f"{fit.calls:,}", *figures)
    return _add_title("Billed tokens per reported token of output, and per token read that we count", table)


def _build_key(study: CalibrationStudy) -> RenderableType:
    lines = [
        f"ours: prompts as long as we count them ({study.counter}, on the model's scale); length: as long as billed.",
        f"Prompt tokens: {format_deviation(study.total.length_difference)} in total, within {format_share(NEAR)} on "
        f"{len(study.near_runs)} of {format_plural(len(study.cached), 'run')}.",
        *_list_usd_differences(study),
    ]
    if not study.total.stated:
        lines.append("Where a recording states no cost, USD billed is its token counts at the list price.")
    return Text("\n".join(lines), style="dim")


def _list_usd_differences(study: CalibrationStudy) -> Iterator[str]:
    in_all, steady = study.total.usd_difference, study.steady.usd_difference
    if in_all is not None:
        yield f"USD: {format_deviation(in_all)} in total."
    if steady is not None and study.steady_runs != study.cached:
        changed = len(study.cached) - len(study.steady_runs)
        yield f"USD without {format_plural(changed, 'run')} whose agent changed a prefix: {format_deviation(steady)}."


# -- the rest ---------------------------------------------------------------------------------------------------------


def _list_left_out(study: CalibrationStudy) -> Iterator[RenderableType]:
    """What could not be compared, a line each."""
    lines = []
    if study.uncached:
        files = _format_files(run.file for run in study.uncached)
        lines.append(f"No cache recorded, {format_plural(len(study.uncached), 'run')}: {files}")
    if study.silent:
        lines.append(
            f"No usage recorded, {format_plural(len(study.silent), 'run')}: "
            f"{_format_files(file for file, _ in study.silent)}"
        )
    if study.problems:
        lines.append(
            f"{format_plural(len(study.problems), 'problem')}, first: {strip_controls(str(study.problems[0]))}"
        )
    if lines:
        yield Text("\n".join(lines))


def _format_files(files: Iterable[str], most: int = 5) -> str:
    held = Counter(strip_controls(_strip_suffixes(file)) for file in files)
    named = [name if runs == 1 else f"{name} ({runs})" for name, runs in held.items()]
    rest = len(named) - most
    return ", ".join((*named[:most], *([f"and {rest} more"] if rest > 0 else [])))
