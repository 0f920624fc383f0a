"""The report in a real browser: charts drawn, nothing fetched, nothing of a recording run, tables that sort."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from elision.lab.elongation import TurnAssumption, TurnFactor
from elision.lab.report.page import build_page
from elision.lab.report.replay_report import build_replay_report
from elision.lab.report.tuning_report import build_tuning_report
from elision.lab.results import Study
from elision.lab.tuning.tuning_result import Tuning
from tests.lab.report.studies import HOSTILE, empty, hostile, study
from tests.lab.report.test_tuning_reports import MADE_BY
from tests.lab.report.tunings import tuning
from tests.soak import pair_cases

if TYPE_CHECKING:
    from playwright.sync_api import Dialog, Page

_CHARTS = ("cost", "recall", "context")


@dataclass
class Opened:
    """A page and everything it did that it should not."""

    page: Page
    url: str
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def dismiss(self, dialog: Dialog) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def run(self, script: str) -> Any:
        return self.page.evaluate(script)

    def column(self, title: str) -> list[str]:
        """The visible cells of a column of the runs' table."""
        heads = "[...document.querySelectorAll('#runs thead th:not([hidden])')].map(th => th.textContent)"
        place = self.run(heads).index(title)
        cells = "place => [...document.querySelectorAll('#runs tbody tr')].map(row => row.cells[place].textContent)"
        result: list[str] = self.page.evaluate(cells, place)
        return result


Open = Callable[..., Opened]


@pytest.fixture
def opened(empty_pages: Iterator[Page], tmp_path: Path) -> Iterator[Open]:
    """Opens a study's page from a file; whatever it did wrong fails the test at its end."""
    pages: list[Opened] = []

    def open_page(what: Study | Tuning, *, width: int = 1280, scheme: Any = "light") -> Opened:
        file = tmp_path / f"report{len(pages)}.html"
        report = build_tuning_report(what, MADE_BY) if isinstance(what, Tuning) else build_replay_report(what)
        file.write_text(build_page(report), encoding="utf-8")
        page = next(empty_pages)
        result = Opened(page, file.as_uri())
        page.on("request", lambda request: result.requests.append(request.url))
        page.on("console", lambda message: result.complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: result.complaints.append(str(error)))
        page.on("dialog", result.dismiss)
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        page.goto(result.url)
        pages.append(result)
        return result

    yield open_page
    for each in pages:
        assert each.complaints == []
        assert each.requests == [each.url]
        assert each.run("window.violations") == []
        assert each.run("window.harmed") is None
        each.page.goto("about:blank")


def _sizes(opened: Opened, selector: str) -> list[tuple[float, float]]:
    script = (
        "selector => [...document.querySelectorAll(selector)].map(node => node.getBoundingClientRect())"
        ".map(box => [box.width, box.height])"
    )
    return [(width, height) for width, height in opened.page.evaluate(script, selector)]


def _shown(opened: Opened, selector: str) -> list[tuple[float, float]]:
    """The sizes of what is shown: a chart is in the page once for each width of a screen."""
    return [size for size in _sizes(opened, selector) if size[1]]


@pytest.mark.parametrize(("width", "scheme"), pair_cases([1280, 390], ["light", "dark"]))
def test_charts_are_drawn(opened: Open, width: int, scheme: str) -> None:
    """On a desk, in the dark and on a phone every chart has its marks, and the page does not scroll sideways."""
    report = opened(study(), width=width, scheme=scheme)
    for chart in _CHARTS:
        ((wide, high),) = [size for size in _sizes(report, f"#{chart} > svg") if size[0]]
        assert wide > 250, chart
        assert high > 200, chart
    assert len(_shown(report, "#cost .piece")) == 20  # four payees of each strategy
    assert len(_shown(report, "#cost .hindsight")) == 2  # a tick for each strategy with a hindsight
    assert len(_shown(report, "#recall .mark")) == 4
    lines = _sizes(report, "#context .line")
    assert len(lines) == 3  # raw, the recommended strategy, the cheapest
    assert all(wide > 150 for wide, _ in lines)
    assert report.run("document.documentElement.scrollWidth") <= width


def test_tables_fit_a_desk(opened: Open) -> None:
    """At 1280 pixels no table scrolls sideways, and a run with a long id is one line with all of it to point at."""
    what = study(("raw", "summarization, every turn", "masking(budget=20000)"), ("runs/" + "long-id " * 30, "runs/b"))
    rows = tuple(replace(each, repeats=120, repeats_hidden=100, summaries=20) for each in what.rows)
    report = opened(replace(what, rows=rows))
    wider = "[...document.querySelectorAll('.scroll')].filter(node => node.scrollWidth > node.clientWidth).length"
    assert report.run(wider) == 0
    assert all(high < 40 for _, high in _sizes(report, "#runs tbody tr"))
    titles = report.run("[...document.querySelectorAll('#runs td.name')].map(node => node.title)")
    assert any(title.count("long-id") == 30 for title in titles)


_CUT_TABLES = "[...document.querySelectorAll('.scroll')].filter(node => node.scrollWidth > node.clientWidth).length"


def test_every_column_fits_a_desk(opened: Open) -> None:
    """At 1280 pixels the comparison of strategies shows all of its columns, with figures as long as they get."""
    what = study(("raw", "masking, every turn", "summarization, every turn", "masking", "hybrid"))
    rows = tuple(
        replace(
            each,
            own_items=100,
            own_found=98,
            late_usd=each.late_usd / 20,
            summaries=48,
            hindsight_usd=each.usd,
            extended_usd=(each.raw_usd * 0.51, each.raw_usd * 0.76),
        )
        for each in what.rows
    )
    turns = TurnAssumption(mode="band", factors={"masking": TurnFactor(low=0.9, high=1.1, basis="five models")})
    report = opened(replace(what, rows=rows, turns=turns))
    ask_for_columns(report)
    titles = report.run("[...document.querySelectorAll('thead')].map(each => each.textContent).join()")
    for title in ("break-even", "as measured", "own words", "visible, not in summary"):
        assert title in titles
    assert report.run(_CUT_TABLES) == 0


def ask_for_columns(report: Opened) -> None:
    """Tick the box above each table that has more columns."""
    for box in report.page.locator(".columns input").all():
        box.check()


_VISIBLE_HEADS = """[...document.querySelectorAll('table')].map(
    table => [...table.querySelectorAll('thead th')].filter(head => head.getClientRects().length).length
)"""


@pytest.mark.parametrize("page", [study, tuning])
def test_a_table_has_seven_columns_until_the_reader_asks_for_more(
    opened: Open, page: Callable[[], Study | Tuning]
) -> None:
    """None has more at first; with its box ticked one has all of them, and still fits."""
    report = opened(page())
    assert max(report.run(_VISIBLE_HEADS)) == 7
    ask_for_columns(report)
    assert max(report.run(_VISIBLE_HEADS)) > 7
    assert report.run(_CUT_TABLES) == 0


@pytest.mark.parametrize("page", [study, tuning, hostile])
def test_nothing_is_cut_off_on_a_phone(opened: Open, page: Callable[[], Study | Tuning]) -> None:
    """Each figure stands below its heading, within the window, with all columns too, and no table scrolls sideways."""
    report = opened(page(), width=390)
    for _ in range(2):
        assert report.run(_CUT_TABLES) == 0
        ends = "[...document.querySelectorAll('td, th, p, h1, h2')].map(node => node.getBoundingClientRect().right)"
        assert report.run(f"Math.max(...{ends})") <= 390
        ask_for_columns(report)
    labels = "[...document.querySelectorAll('td[data-title]')].map(node => getComputedStyle(node, '::before').content)"
    assert '"none"' not in report.run(labels)


def test_a_tuning_fits_a_desk_and_a_phone(opened: Open) -> None:
    """The page of a tuning names strategies in full: they are wrapped. No page scrolls sideways."""
    report = opened(tuning())
    assert report.run(_CUT_TABLES) == 0
    for width in (390, 1280):
        report.page.set_viewport_size({"width": width, "height": 900})
        assert report.run("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize(("page", "width"), pair_cases([study, tuning], [390, 1280]))
def test_the_mark_of_the_recommended_strategy_holds_its_word(
    opened: Open, page: Callable[[], Study | Tuning], width: int
) -> None:
    """The word stands within its pill, with room on both sides, and the pill within its cell."""
    report = opened(page(), width=width)
    measured = report.run(
        """[...document.querySelectorAll('.badge')].map(badge => {
            const range = document.createRange();
            range.selectNodeContents(badge);
            return [badge.closest('td'), badge, range].map(node => node.getBoundingClientRect().toJSON());
        })"""
    )
    assert measured
    for cell, pill, word in measured:
        assert cell["left"] <= pill["left"] <= word["left"] - 5
        assert word["right"] + 5 <= pill["right"] <= cell["right"]


@pytest.mark.parametrize("width", [1280, 400])
def test_the_raw_line_is_behind_everything(opened: Open, width: int) -> None:
    """It goes from top to bottom; bars and texts are drawn after it, and no text is cut at the chart's edge."""
    report = opened(study(), width=width)
    boxes = "selector => [...document.querySelectorAll(selector)].map(node => node.getBoundingClientRect().toJSON())"
    (line,) = [box for box in report.page.evaluate(boxes, "#cost .paid") if box["height"]]
    assert line["height"] == pytest.approx(5 * 44, abs=15)
    after = "document.querySelector('#cost .paid').compareDocumentPosition(document.querySelector('#cost .{}'))"
    for other in ("piece", "bar-name", "bar-amount"):
        assert report.run(after.format(other)) & 4
    texts = [box for box in report.page.evaluate(boxes, ".chart text") if box["width"]]
    assert len(texts) > 30
    assert all(text["left"] >= 0 and text["right"] <= width for text in texts)


@pytest.mark.parametrize("width", [1280, 400])
def test_a_pointer_reads_the_sizes_of_a_call(opened: Open, width: int) -> None:
    """Anywhere above the lines: the call, and the context of each line that is shown; a line marks the call."""
    report = opened(study(), width=width)
    ((wide, high),) = _sizes(report, "#context > svg")
    report.page.locator("#context").hover(position={"x": wide - 20, "y": high / 3})
    report.page.wait_for_selector("#tip:not([hidden])")
    words = report.page.inner_text("#tip").split("\n")
    assert words[0].startswith("call")
    text = report.page.inner_text("#tip")
    for name in ("raw", "masking", "hybrid"):
        assert name in text
    assert "(every turn)" not in text
    assert report.run("document.querySelector('.crosshair').hidden") is False
    report.page.mouse.move(1, 1)
    assert report.run("document.querySelector('.crosshair').hidden") is True


def test_points_are_labelled(opened: Open) -> None:
    """Beside its points the scatter names the strategies."""
    report = opened(study())
    texts = report.run(
        "[...document.querySelectorAll('#recall .mark-label')]"
        ".filter(node => node.getBoundingClientRect().width > 0).map(node => node.textContent)"
    )
    assert set(texts) >= {"raw", "masking (every turn)", "masking", "hybrid"}


def test_nothing_of_a_recording_is_run(opened: Open) -> None:
    """Hostile names are shown as they are and do nothing; the fixture looks for dialogs, requests and violations."""
    report = opened(hostile())
    assert report.run("document.querySelectorAll('img, link, iframe, object, a').length") == 0
    assert report.run("document.body.innerText").count("<img src=x onerror=") > 1
    assert "</script><script>" in report.run("document.getElementById('run').textContent")
    for place in range(len(HOSTILE)):
        report.page.select_option("#run", index=place)
    report.page.hover("#cost .large .piece >> nth=5")
    report.page.wait_for_selector("#tip:not([hidden])")
    assert "masking (every turn)" in report.page.inner_text("#tip")


def test_runs_sort_by_number_and_by_name(opened: Open) -> None:
    """A click sorts, the next one the other way round; amounts as numbers, and the heading says how."""
    files = tuple(f"runs/{name}.jsonl" for name in ("b2", "b10", "a"))
    report = opened(study(files=files))
    assert report.column("cost") == ["$3.20", "$2.40", "$1.60"]
    heads = "[...document.querySelectorAll('#runs th')].map(th => th.getAttribute('aria-sort'))"
    assert report.run(heads).count("descending") == 1
    report.page.click("#runs th button >> text=cost")
    assert report.column("cost") == ["$1.60", "$2.40", "$3.20"]
    assert report.run(heads).count("ascending") == 1
    report.page.click("#runs th button >> text=run")
    assert report.column("run") == ["a.jsonl", "b2.jsonl", "b10.jsonl"]
    report.page.click("#runs th button >> text=run")
    assert report.column("run") == ["b10.jsonl", "b2.jsonl", "a.jsonl"]


def test_runs_filter_by_strategy(opened: Open) -> None:
    """First the strategy of the headline; then another, or all with their names."""
    report = opened(study())
    assert report.column("cost") == ["$2.40", "$1.60"]
    report.page.select_option("#only", label="hybrid")
    assert report.column("cost") == ["$1.50", "$1.00"]
    report.page.select_option("#only", label="all")
    assert len(report.column("strategy")) == 10
    assert set(report.column("strategy")) == set(study().strategies)


def test_unknown_values_sort_last(opened: Open) -> None:
    """Runs without hindsight stand below the others, whichever way the column is sorted."""
    report = opened(study())
    report.page.select_option("#only", label="all")
    ask_for_columns(report)
    for _ in range(2):
        report.page.click("#runs th button >> text=hindsight")
        values = report.column("×\xa0hindsight")
        assert values[-6:] == ["–"] * 6
        assert "–" not in values[:4]


def _line(report: Opened) -> str:
    """The path of raw's line."""
    result: str = report.run("document.querySelector('#context .line').getAttribute('points')")
    return result


def _last_tick(report: Opened) -> int:
    script = "[...document.querySelectorAll('#context .tick')].map(node => node.textContent)"
    return max(int(text) for text in report.run(script) if text.isdigit())


def test_choosing_a_run_changes_the_sawtooth(opened: Open) -> None:
    """The longest run comes first; another one has another line, and its axis ends where it ends."""
    report = opened(study(files=("runs/short.jsonl", "runs/long.jsonl", "runs/longest.jsonl")))
    assert report.run("document.getElementById('run').selectedOptions[0].textContent") == "longest.jsonl (60 calls)"
    before, ticks = _line(report), _last_tick(report)
    report.page.select_option("#run", label="short.jsonl (40 calls)")
    report.page.wait_for_function(
        "before => document.querySelector('#context .line').getAttribute('points') !== before", arg=before
    )
    assert _last_tick(report) < ticks


def test_rewrites_are_marked(opened: Open) -> None:
    """Three rewrites for each of two strategies, the one with a summary larger."""
    sizes = _sizes(opened(study()), "#context .event")
    assert len(sizes) == 6
    assert len([wide for wide, _ in sizes if wide > 8]) == 1


def test_the_legend_switches_lines(opened: Open) -> None:
    """A strategy that is unticked has no line, and is back when it is ticked again."""
    report = opened(study())
    for lines in (2, 3):
        report.page.click("input[data-strategy='0']")
        report.page.wait_for_function(
            "lines => document.querySelectorAll('#context .line').length === lines", arg=lines
        )


def test_a_run_of_the_table_is_shown_above(opened: Open) -> None:
    """A click on a run's name chooses it for the sawtooth."""
    report = opened(study())
    report.page.click("#runs td button >> text=one.jsonl")
    assert report.run("document.getElementById('run').selectedOptions[0].textContent") == "one.jsonl (40 calls)"


def test_an_empty_study(opened: Open) -> None:
    """A page without runs complains of nothing and says what was wrong."""
    report = opened(empty())
    assert "no known format" in report.run("document.body.innerText")


def test_long_tables_are_shown_in_part(opened: Open) -> None:
    """Three hundred rows at first, all of them on demand."""
    report = opened(study(("raw", "masking"), files=tuple(f"runs/{number}.jsonl" for number in range(310))))
    assert len(report.column("run")) == 300
    report.page.click("#more")
    assert len(report.column("run")) == 310
