"""A calibration as sections of a report: one line a run, the causes, the bills of all runs, and what was sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import Final

from elision.lab.bill_check import NEAR_RUN, NEAR_TOTAL, BillCheck, BillChecks
from elision.lab.calibrate import CAUSES, FORESEEN, NEAR, Calibration, CalibrationStudy, read_share
from elision.lab.report.figures import NOTHING, format_change, format_count, format_plural, format_share, format_usd
from elision.lab.report.report import Block, Column, Facts, Section, Sentence, Table, TableRow, Words
from elision.lab.report.sent_wording import list_missing_bills
from elision.telemetry.context_report import format_signed_percent
from elision.trajectory.price_lookup import find_tokenizer

#: A difference of cache-read share that is none worth explaining.
BAR: Final = 0.02
#: Cells of a run's name that are shown however narrow the terminal.
_NAME: Final = 12
_SHARES: Final = (
    Column("calls", 2),
    Column("tokens", 4),
    Column("billed", 6),
    Column("ours", 5),
    Column("diff", 7),
    Column("length", 0),
    Column("$ billed", 3),
    Column("$ ours", 1),
)
_TOKENS: Final = (
    Column("prompt", 6),
    Column("read", 5),
    Column("written", 3),
    Column("plain", 1),
    Column("output", 2),
    Column("USD", 4),
)
_FITS: Final = ("calls", "output", "read", "table", "explained")
#: Files that are named of those that could not be compared.
_NAMED: Final = 5
_SUFFIXES: Final = (".gz", ".tar", ".jsonl", ".json", ".traj", ".eval")


def build_calibration_sections(study: CalibrationStudy, *, detail: bool = False) -> Iterator[Section]:
    """Yield the whole of `study`. detail: the token bill of every run too."""
    names = label_runs(study.runs)
    cached = [(name, run) for name, run in zip(names, study.runs, strict=True) if run.cached]
    if cached:
        title = "Our prompt tokens against the billed ones, share of them read from cache, and USD"
        rows = [TableRow([name, *_list_share_cells(run)]) for name, run in cached]
        if len(cached) > 1:
            rows.append(TableRow(["all", *_list_share_cells(study.total)], "strong"))
        yield Section(title, [Table([Column("run"), *_SHARES], rows, least=_NAME, clip="start")])
        yield from _show_causes(cached, study)
        if detail:
            yield from (Section(name, [_build_bill_table(run)]) for name, run in cached)
        title = f"All {len(cached)} runs, in tokens" if len(cached) > 1 else "In tokens"
        yield Section(title, [_build_bill_table(study.total)])
        if study.fits:
            title = "Billed tokens per reported token of output, and per token read that we count"
            yield Section(title, [_build_fits_table(study)])
        yield Section("", [Sentence(line, "quiet") for line in _list_key(study)])
    yield Section("", [Sentence(line) for line in _list_left_out(study)])


def build_check_section(checks: BillChecks) -> Section:
    """Return how far the runs as recorded are off their bills, and why."""
    title = "As recorded, which is what replays compare with, against the bill"
    return Section(title, [Sentence(line) for line in list_check_lines(checks)])


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
        found.append(name + (f" {run.trajectory}" if held[run.file] > 1 else ""))
    return found


def _strip_suffixes(file: str) -> str:
    name = file.rsplit("/", 1)[-1]
    while name.endswith(_SUFFIXES):
        name = name.rpartition(".")[0]
    return name or file


def _list_share_cells(run: Calibration) -> list[Words]:
    # + 0.0 turns -0 into 0.
    difference = f"{round(run.difference, 3) + 0.0:+.3f}"
    mood = "better"
    if abs(run.difference) > BAR:
        # Perhaps only its calls with an unforeseen cause are beyond the bar.
        mood = "warning" if abs(run.elsewhere or 0.0) <= BAR else "worse"
    return [
        format_count(len(run.calls)),
        format_signed_percent(run.length_difference),
        f"{read_share(run.billed):.3f}",
        f"{read_share(run.counted):.3f}",
        [(difference, mood)],
        f"{read_share(run.lengths):.3f}",
        _format_amount(run.billed.usd),
        _format_amount(run.counted.usd),
    ]


def _format_amount(usd: float | None) -> str:
    if usd is None:
        return NOTHING
    return f"{usd:,.2f}" if usd >= 1 else f"{usd:.3f}"


def _show_causes(cached: Sequence[tuple[str, Calibration]], study: CalibrationStudy) -> Iterator[Section]:
    """Yield the causes of each run, then what each cause means and whether the simulation foresees it."""
    found = study.total.causes
    if not found:
        return
    rows = [TableRow([name, _list_causes(run)]) for name, run in cached if run.causes]
    known = [("simulated", cause) for cause in found if cause in FORESEEN]
    other = [("not simulated", cause) for cause in found if cause not in FORESEEN]
    blocks: list[Block] = [
        Table([Column("run"), Column("cause: calls", 0, "wrap")], rows, least=_NAME, clip="start"),
        Facts([(cause, [(f"{CAUSES[cause]} ({kind})", "quiet")]) for kind, cause in (*known, *other)]),
    ]
    yield Section("Calls that did not simply read what the call before had left", blocks)


def _list_causes(run: Calibration) -> Words:
    """Return causes and their calls; those that the simulation foresees are quiet."""
    pieces: list[str | tuple[str, str]] = []
    for cause, tally in run.causes.items():
        pieces += [", "] if pieces else []
        pieces.append((f"{cause} {tally.calls}", "quiet" if cause in FORESEEN else ""))
    return pieces


def _build_bill_table(run: Calibration) -> Table:
    rows = []
    for name, usage in (("billed", run.billed), ("ours", run.counted), ("length", run.lengths)):
        counts = (usage.prompt, usage.cache_read, usage.cache_write, usage.input, usage.output)
        rows.append(TableRow([name, *map(format_count, counts), _format_amount(usage.usd)]))
    return Table([Column(""), *_TOKENS], rows)


def _build_fits_table(study: CalibrationStudy) -> Table:
    """Return how each model counts: as fitted here, beside what the table of prices has."""
    rows = []
    for model, fit in study.fits.items():
        listed = find_tokenizer(model).tokens_per_counted
        figures = (f"{fit.per_output:.2f}", f"{fit.per_counted:.2f}", f"{listed:.2f}", f"{fit.explained:.3f}")
        rows.append(TableRow([model, format_count(fit.calls), *figures]))
    return Table([Column("model"), *(Column(title, -place) for place, title in enumerate(_FITS))], rows, least=_NAME)


def _list_key(study: CalibrationStudy) -> Iterator[str]:
    yield f"ours: prompts as long as we count them ({study.counter}, on the model's scale); length: as long as billed."
    yield (
        f"Prompt tokens: {format_signed_percent(study.total.length_difference)} in total, "
        f"within {format_share(NEAR)} on {len(study.near_runs)} of {format_plural(len(study.cached), 'run')}."
    )
    in_all, steady = study.total.usd_difference, study.steady.usd_difference
    if in_all is not None:
        yield f"USD: {format_signed_percent(in_all)} in total."
    if steady is not None and study.steady_runs != study.cached:
        changed = len(study.cached) - len(study.steady_runs)
        runs = format_plural(changed, "run")
        yield f"USD without {runs} whose agent changed a prefix: {format_signed_percent(steady)}."
    if not study.total.stated:
        yield "Where a recording states no cost, USD billed is its token counts at the list price."


def _list_left_out(study: CalibrationStudy) -> Iterator[str]:
    """Yield what could not be compared, a line each."""
    if study.uncached:
        files = _format_files(run.file for run in study.uncached)
        yield f"No cache recorded, {format_plural(len(study.uncached), 'run')}: {files}"
    if study.silent:
        files = _format_files(file for file, _ in study.silent)
        yield f"No usage recorded, {format_plural(len(study.silent), 'run')}: {files}"
    if study.problems:
        yield f"{format_plural(len(study.problems), 'problem')}, first: {study.problems[0]}"


def _format_files(files: Iterable[str]) -> str:
    held = Counter(_strip_suffixes(file) for file in files)
    named = [name if runs == 1 else f"{name} ({runs})" for name, runs in held.items()]
    if len(named) > _NAMED:
        named[_NAMED:] = [f"and {len(named) - _NAMED} more"]
    return ", ".join(named)


# -- what was sent, against the bill ----------------------------------------------------------------------------------


def list_check_lines(checks: BillChecks) -> Iterator[str]:
    """Yield the total, each exception with its cause, and the runs without a bill."""
    difference = checks.difference
    if difference is not None:
        near = sum(abs(check.difference or 0.0) <= NEAR_RUN for check in checks.compared)
        yield (
            f"{format_usd(checks.recorded_usd)} as recorded, {format_usd(checks.billed_usd)} as billed "
            f"({format_change(1 + difference)}); within {format_share(NEAR_RUN)} on {format_count(near)} of "
            f"{format_plural(len(checks.compared), 'run')}."
        )
        main = checks.find_main_run()
        if main is not None:
            share = format_change(1 + (main.difference or 0.0))
            yield f"That is over {format_share(NEAR_TOTAL)}. Most of it is of {_name_run(main)}, {share}: {main.cause}"
    for check in checks.compared:
        for reason in check.reasons:
            yield f"{_name_run(check)}: {reason}"
    missing = "; ".join(list_missing_bills(checks.sending))
    if missing:
        yield f"No bill to compare with: {missing}."


def _name_run(check: BillCheck) -> str:
    name = PurePath(check.file).name
    is_alone = check.trajectory in ("main", "") or check.trajectory in name
    return name if is_alone else f"{name} {check.trajectory}"
