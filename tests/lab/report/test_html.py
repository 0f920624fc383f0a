"""A study as a page; what a browser makes of it is tested in tests/e2e."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

from elision.lab.report import page as pages
from elision.lab.report.figures import GROUPS
from elision.lab.report.replay_report import build_replay_report
from elision.lab.report.report import Provenance
from elision.lab.results import Composition, Study
from tests.lab.report.studies import HOSTILE, RAW, empty, hostile, row, series, study


class Page(HTMLParser):
    """The elements of a page, and the text of its scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.raw: dict[str, list[str]] = {"script": [], "style": []}
        self.words = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in self.raw:
            self.raw[tag].append("")

    def handle_data(self, data: str) -> None:
        tag = self.elements[-1][0] if self.elements else ""
        if tag in self.raw and self.cdata_elem == tag:
            self.raw[tag][-1] += data
        else:
            self.words += data

    def policy(self) -> str:
        return next(str(attrs["content"]) for tag, attrs in self.elements if attrs.get("http-equiv"))

    def data(self) -> dict[str, Any]:
        place = [attrs.get("id") for tag, attrs in self.elements if tag == "script"].index("study")
        result: dict[str, Any] = json.loads(self.raw["script"][place])
        return result


def build_page(what: Study, made_by: Provenance | None = None) -> str:
    return pages.build_page(build_replay_report(what, made_by))


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_policy_admits_the_pages_own_scripts_and_style_alone() -> None:
    """Everything is refused but one script and one style, each by its hash; nothing inline, nothing evaluated."""
    page = Page(build_page(study()))
    scripts = [text for text in page.raw["script"] if not text.startswith("{")]
    assert len(scripts) == 1
    directives = dict(part.strip().split(" ", 1) for part in page.policy().split(";"))
    assert directives == {
        "default-src": "'none'",
        "script-src": " ".join(map(_hash, scripts)),
        "style-src": _hash(page.raw["style"][0]),
        "base-uri": "'none'",
        "form-action": "'none'",
    }


def test_nothing_is_fetched() -> None:
    """No element has an address, and none carries a script or style as an attribute."""
    for tag, attributes in Page(build_page(hostile())).elements:
        assert not {"src", "href", "srcset", "action", "style", "background"} & set(attributes), tag
        assert not [name for name in attributes if name.startswith("on")], tag


def test_hostile_names_make_no_elements() -> None:
    """The page of a hostile study has the same kinds of elements as that of a harmless one, and shows the names."""
    harmless, page = Page(build_page(study())), Page(build_page(hostile()))
    assert {tag for tag, _ in page.elements} == {tag for tag, _ in harmless.elements}
    assert sum(tag == "script" for tag, _ in page.elements) == 2
    assert "<img src=x onerror=" in page.words
    assert "[bold]not bold[/bold]" in page.words
    assert "${title} $data {0} %s & &amp; &lt;" in page.words


def test_embedded_json_cannot_leave_its_element() -> None:
    """Markup and line separators are escaped, and the values come back as they were."""
    text = pages.embed_json(list(HOSTILE))
    assert not re.search(r"[<>&\u2028\u2029]", text)
    assert json.loads(text) == list(HOSTILE)


def test_numbers_that_json_does_not_know_are_refused() -> None:
    """Infinity would break the page silently."""
    with pytest.raises(ValueError, match="JSON"):
        pages.embed_json([float("inf")])


def test_page_can_be_written() -> None:
    """Whatever the names hold, the page is valid UTF-8 and below 2.5 MB."""
    assert len(build_page(hostile()).encode()) < 2_500_000


def test_rows_and_lines_reach_the_page() -> None:
    """Each row and each line is in the data; the longest run is shown first."""
    data = Page(build_page(study())).data()
    assert len(data["rows"]) == 10
    assert len(data["series"]) == 10
    assert data["runs"][data["first"]] == {"name": "two.jsonl", "reader": "swe-agent", "calls": 50}
    assert data["featured"] == "masking"


def test_huge_studies_are_cut_and_say_so() -> None:
    """Ten thousand runs leave a page of less than 2.5 MB with the dearest of them."""
    files = tuple(f"runs/{'long-name-' * 8}{number}.jsonl" for number in range(5_000))
    rows = tuple(
        row(strategy, file=file, usd=place + 1.0) for place, file in enumerate(files) for strategy in ("raw", "masking")
    )
    lines = {(file, "main", strategy): series(strategy) for file in files for strategy in ("raw", "masking")}
    text = build_page(replace(study(("raw", "masking")), rows=rows, series=lines))
    assert len(text.encode()) < 2_500_000
    assert "rows of the most expensive runs, of 10,000" in text
    assert "longest runs." in text
    names = [run["name"] for run in Page(text).data()["runs"]]
    assert any(name.endswith("-4999.jsonl") for name in names)
    assert not any(name.endswith("-0.jsonl") for name in names)


def test_a_run_without_hindsight_or_evidence() -> None:
    """Unknown values are null in the data, and the page has no chart of evidence."""
    bare = replace(row(RAW), raw_usd=0.0, hindsight_usd=None, late_usd=0.0, evidence_items=0)
    page = Page(build_page(replace(study((RAW,)), rows=(bare,), series={}, controls=(), problems=())))
    assert page.data()["rows"][0].count(None) == 3
    assert "recall" not in {attributes.get("id") for _, attributes in page.elements}


def test_a_study_without_hindsight_does_not_speak_of_it() -> None:
    """Neither its column, nor its mark, nor its word; the other columns of the runs are where they were."""
    whole, page = Page(build_page(study())), Page(build_page(replace(study(), hindsight=False)))
    assert "cannot be run live" not in page.words
    assert "Upright mark" not in page.words
    assert "× hindsight" not in page.words.replace("\xa0", " ")
    keys = [column["key"] for column in whole.data()["columns"]]
    place = keys.index("to_hindsight")
    assert [column["key"] for column in page.data()["columns"]] == keys[:place] + keys[place + 1 :]
    # A row holds the place of its run, and not the run's name and format.
    for with_it, without in zip(whole.data()["rows"], page.data()["rows"], strict=True):
        assert without == with_it[: place - 1] + with_it[place:]


def _ids(what: Study) -> set[str | None]:
    return {attributes.get("id") for _, attributes in Page(build_page(what)).elements}


def test_an_empty_study_has_no_charts() -> None:
    """It says that nothing was replayed and why, and needs no script."""
    page = Page(build_page(empty()))
    assert "No run was replayed." in page.words
    assert "no known format" in page.words
    assert "script-src 'none'" in page.policy()
    assert not _ids(empty()) & {"cost", "runs", "context"}


def test_nothing_empty_is_shown() -> None:
    """Controls without a figure are left out, and only words that are used are explained."""
    alone = Page(build_page(replace(study((RAW,)), controls=study().controls[1:]))).words
    assert "can be trusted" not in alone
    assert "cannot be run live" not in alone
    whole = Page(build_page(study())).words
    assert "can be trusted" in whole
    assert "cannot be run live" in whole
    assert "– under ×\xa0hindsight" in whole


def test_an_unfinished_study_says_so() -> None:
    """The warning stands in the head of the page."""
    assert "Interrupted: 2 runs finished" in Page(build_page(replace(study(), finished=False))).words


def test_one_strategy() -> None:
    """One strategy alone still has its charts."""
    assert {"cost", "recall", "context", "runs"} <= _ids(study(("masking",)))


def test_the_page_says_what_made_it() -> None:
    """Version, day, command line, recorded models and the prices' source, where they are handed in."""
    made_by = Provenance(
        version="9.9", date="2026-11-22", command="elision replay my <runs>", recorded="gpt-5 (2 runs)"
    )
    words = Page(build_page(study(), made_by)).words
    for text in ("Elision 9.9 on 2026-11-22", "elision replay my <runs>", "gpt-5 (2 runs)", "platform.claude.com"):
        assert text in words
    assert build_page(study(), made_by) == build_page(study(), made_by)
    assert "Made by" not in Page(build_page(study())).words


def test_the_context_chart_begins_with_three_lines() -> None:
    """Raw, the recommended strategy and the cheapest are ticked; the others can be."""
    boxes = [
        attributes
        for tag, attributes in Page(build_page(study())).elements
        if tag == "input" and "data-strategy" in attributes
    ]
    ticked = [study().strategies[int(str(box["data-strategy"]))] for box in boxes if "checked" in box]
    assert (len(boxes), ticked) == (5, ["raw", "masking", "hybrid"])


def test_rows_are_in_groups_and_the_recommended_one_is_marked() -> None:
    """As in the terminal."""
    text = build_page(study())
    places = [text.index(f">{name}</th>") for name in GROUPS if f">{name}</th>" in text]
    assert len(places) == 4
    assert places == sorted(places)
    assert text.count('<span class="badge">recommended</span>') == 1


def test_context_by_turn_and_composition() -> None:
    """A table of every strategy by turn; names of formats are text."""
    hostile_name = "<b>swe</b>"
    compositions = tuple(Composition(reader=name, observations=80, reasoning=20) for name in (hostile_name, "pi"))
    page = build_page(replace(study(), compositions=compositions))
    section = page[page.index("Tokens of the context") :]
    section = section[: section.index("</section>")]
    assert section.count("<tr>") == 1 + len(study().strategies)
    assert "50 (1 of 2 runs)" in section
    assert "&lt;b&gt;swe&lt;/b&gt; 80\xa0%" in page
    assert hostile_name not in page
    assert "Tokens of the context" not in build_page(replace(study(), series={}))
