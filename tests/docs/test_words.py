"""What exists is in the documentation, and what the documentation names exists."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from docs import update_settings
from elision.cli.app import app
from elision.config.setting_keys import ALL_KEYS
from elision.formats.registry import READERS
from elision.gateway import request_metrics as gateway_metrics
from elision.gateway.request_record import RequestRecord, collect_facts
from elision.lab.report.wording import GLOSSARY as REPORT_WORDS
from elision.lab.results import Control, Row, Study, prices_json
from elision.strategies.decision_context import Budget
from elision.strategies.extractors import BUILT_IN
from elision.strategies.selectors import Rule
from elision.strategies.spec import PRESETS, SCHEDULES, STRATEGIES
from elision.strategies.strategy import Strategy
from elision.telemetry.diagnostics import Diagnostics
from elision.telemetry.metric_table import METRICS
from elision.trajectory.price_table import load_price_table
from elision.trajectory.usage import Usage
from tests.docs.blocks import CONTRIBUTING, DOCS, PAGES, README, ROOT, blocks, commands, prose

DOC = ROOT / "docs"
SOURCE = ROOT / "src" / "elision"
#: Pages that a script writes, or whose rows a test takes from the code.
GENERATED = {"reference/cli.md", "reference/metrics.md"}
MOST_PAGES, MOST_WORDS = 45, 45_000
NOT_ENGLISH = re.compile(
    r"(?i)\b(beside|mend(?:s|ed)?|for whom|whoever|what it hid|told|said|the same from the bytes|goes? on|anew"
    r"|stands? (?:for|in front|behind|nowhere)|as (?:it|they) (?:came|comes?|stands?)|go(?:es)? out"
    r"|of (?:its|their) own|by itself|what came of|in force|passed over|of which nothing"
    r"|nothing says|speaks? up|spoke up)\b"
)
NOT_REWRITTEN = {"reference/cli.md"}


def quoted(page: str) -> set[str]:
    """Everything in `code` on a page, blocks left out."""
    return set(re.findall(r"`([^`\n]+)`", prose(DOC / page)))


def options(kind: type[Any]) -> set[str]:
    return {field.name for field in fields(kind) if not field.name.startswith("_")}


def test_glossary() -> None:
    """It has the words of the reports and those that README and CONTRIBUTING promise, in order, with examples."""
    entries = {
        entry.partition("\n")[0]: entry
        for entry in re.split(r"^### ", prose(DOC / "concepts/glossary.md"), flags=re.MULTILINE)[1:]
    }
    assert list(entries) == sorted(entries)
    assert len(entries) <= 30
    assert "| the documents' term | the field's term | ours |" in prose(DOC / "concepts/glossary.md")
    assert all("Example: " in entry for entry in entries.values())
    words = " ".join(entries)
    assert all(word in words for word, *_ in REPORT_WORDS if word != "redone")
    for page in (README, CONTRIBUTING):
        promised = re.search(r"The words \(([^)]*)\)[^.]*docs/concepts/glossary\.md", prose(page))
        assert promised
        assert set(promised[1].split(", ")) <= set(entries)


def test_strategies() -> None:
    """Every strategy has a section with each of its own options, and the shared ones stand there once for all."""
    sections = re.split(r"^### ", prose(DOC / "concepts/strategies.md"), flags=re.MULTILINE)
    for name, kind in STRATEGIES.items():
        section = next(text for text in sections if text.startswith(f"`{name}`\n"))
        assert options(kind) - options(Strategy) <= set(re.findall(r"`([^`\n]+)`", section))
    assert options(Strategy) | options(Budget) | options(Rule) <= quoted("concepts/strategies.md")


def test_presets_are_what_they_stand_for() -> None:
    """Every preset stands in a table with its text."""
    text = prose(DOC / "concepts/strategies.md")
    assert all(f"| `{name}` | `{spec}` |" in text for name, spec in PRESETS.items())


def test_schedules() -> None:
    """Every schedule and its options are explained."""
    names = {name for kind in SCHEDULES.values() for name in options(kind)}
    assert set(SCHEDULES) | names <= quoted("concepts/schedules.md")


def test_readers() -> None:
    """Every reader stands in the table, in the order in which they are asked."""
    listed = re.findall(r"^\| `([\w-]+)` \|", prose(DOC / "reference/formats.md"), re.MULTILINE)
    assert listed == [reader.name for reader in READERS]


def test_extractors() -> None:
    """Every file of extractors that serves a table entry is listed, and the last resort."""
    files = {entry.extractor.__module__.rsplit(".", 1)[1] for entry in BUILT_IN.registrations}
    assert files | {"generic"} <= quoted("concepts/placeholders.md")


def test_price_sets() -> None:
    """Every named price set is listed where it is chosen and where it is explained."""
    assert set(load_price_table().sets) <= quoted("start/replay.md") & quoted("concepts/schedules.md")


def test_commands() -> None:
    """Every command is in the README and is run somewhere, and every option of `replay` is explained."""
    group: Any = app
    typed = {
        command.text.removeprefix("elision ").split()[0]
        for page in [README, *DOCS]
        for block in blocks(page)
        for command in commands(block)
    }
    assert set(group.commands) <= typed
    assert all(f"`elision {name}`" in prose(README) for name in group.commands)
    flags = {name for item in group.commands["replay"].params for name in item.opts if name.startswith("-")}
    assert flags - {"--help", "--help-all"} <= quoted("start/replay.md")


def test_options_on_pages_exist() -> None:
    """Every option that a page passes to a command is one of that command, also where the block is not run."""
    for page in PAGES:
        for block in blocks(page):
            for words in _list_elision_calls(block.text):
                command: Any = app
                while words and words[0] in getattr(command, "commands", {}):
                    command = command.commands[words.pop(0)]
                known = {name for item in command.params for name in item.opts} | {"--help", "--help-all"}
                own = itertools.takewhile(lambda word: word != "--", words)
                given = {word.partition("=")[0] for word in own if re.match(r"-[-a-z]", word)}
                # What follows a wrapped agent's name is the agent's.
                assert command.name == "wrap" or given <= known, (page.name, sorted(given - known))


def _list_elision_calls(text: str) -> Iterator[list[str]]:
    """The words after `elision` in each command of a block."""
    for line in re.sub(r"\\\n", " ", text).splitlines():
        found = re.match(r"(?:\$ )?(?:[A-Z_]+=\S+ )*elision (?=[a-z])(.*)", line)
        if found:
            yield shlex.split(found[1], comments=True)


def test_json_keys() -> None:
    """Every key of `elision.replay/1` is explained."""
    row = Row().json()
    study = Study(prices=load_price_table().sets["anthropic"], counter="o200k", strategies=(), rows=()).json()
    prices = prices_json(load_price_table().sets["anthropic"])
    keys = {*row, *row["tokens"], *study, *prices, *prices["cache"], *(key for tier in prices["tiers"] for key in tier)}
    assert keys | options(Control) <= quoted("reference/json.md")


def test_every_page_is_in_the_index() -> None:
    """The index leads to every page."""
    linked = set(re.findall(r"\]\(([\w/-]+\.md)\)", prose(DOC / "index.md")))
    assert linked == {str(page.relative_to(DOC)) for page in DOCS} - {"index.md"}


@pytest.mark.parametrize("page", DOCS, ids=[str(page.relative_to(ROOT)) for page in DOCS])
def test_pages_are_short(page: Path) -> None:
    """No page that a person writes has more than 1,200 words, code blocks and tables that a script fills left out."""
    if str(page.relative_to(DOC)) not in GENERATED:
        written = re.sub(r"<!-- (?:table|results): .*?<!-- end -->", "", prose(page), flags=re.DOTALL)
        assert count_words(written) <= 1_200


def count_words(text: str) -> int:
    return sum(bool(re.search(r"\w", word)) for word in text.split())


def test_the_documentation_is_short() -> None:
    """All of it, code blocks included."""
    assert len(DOCS) <= MOST_PAGES
    assert sum(count_words(page.read_text(encoding="utf-8")) for page in DOCS) <= MOST_WORDS


@pytest.mark.parametrize("page", DOCS, ids=[str(page.relative_to(ROOT)) for page in DOCS])
def test_phrases_that_nobody_says(page: Path) -> None:
    """A page has none of them, code left out."""
    text = re.sub(r"`[^`\n]*`", "", prose(page))
    if str(page.relative_to(DOC)) not in NOT_REWRITTEN:
        assert NOT_ENGLISH.findall(text) == []


def test_percentages_have_one_style() -> None:
    """`96 %`, with a blank, on every page and screen; Python's own `:.0%` leaves it out."""
    shown = {
        str(page.relative_to(ROOT)): re.findall(r".*(?<![%\w])\d[\d.]*%(?![0-9A-F]{2}).*", prose(page))
        for page in PAGES
    }
    assert {page: lines for page, lines in shown.items() if lines} == {}
    formats = {
        str(path.relative_to(ROOT)): re.findall(r"\{[^{}]*:[^{}]*%\}", path.read_text(encoding="utf-8"))
        for path in SOURCE.rglob("*.py")
    }
    assert {path: found for path, found in formats.items() if found} == {}


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_links_lead_somewhere(page: Path) -> None:
    """Every link to a file finds it, every link to a heading finds that."""
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if target.startswith(("http://", "https://")):
            continue
        path, _, heading = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        assert not heading or heading in headings(file), target


def headings(page: Path) -> set[str]:
    """Anchors as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_paths_exist(page: Path) -> None:
    """Every path of the repository that a page names is there, or is made by a recipe."""
    made = {block.title for page in (ROOT / "tests" / "recipes").glob("*.md") for block in blocks(page)}
    for path in re.findall(r"`((?:src|tests|docs|examples|benchmarks)/[\w./-]+)`", prose(page)):
        assert (ROOT / path).exists() or path in made, path


def test_the_tree() -> None:
    """The architecture's tree has a line for every folder with modules or data to the second level, and no other."""
    (tree,) = [
        block.text for block in blocks(DOC / "internals/architecture.md") if block.text.startswith("src/elision/\n")
    ]
    listed: list[str] = []
    for line in tree.splitlines()[1:]:
        indent, name, words = re.fullmatch(r"( +)(\S+/) +(\S.*)", line).groups()  # type: ignore[union-attr]
        assert words
        outer = [each for each in listed if each.count("/") == 1][-1:] if len(indent) == 4 else []
        listed.append("".join([*outer, name]))
    folders = (path for path in SOURCE.rglob("*") if path.is_dir() and "__pycache__" not in path.parts)
    inner = (path.relative_to(SOURCE) for path in folders)
    assert listed == sorted(f"{path}/" for path in inner if len(path.parts) <= 2)


def test_settings() -> None:
    """The table of settings is what `python docs/update_settings.py` writes: a row for each, with its default."""
    text = update_settings.PAGE.read_text(encoding="utf-8")
    assert update_settings.fill_page(text) == text
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+?) \|", text, re.MULTILINE))
    assert list(rows) == list(ALL_KEYS)
    known = {"max_context_pct": "0.85", "reserved": "1,000", "gateway_port": "8377", "gateway_wait_seconds": "10"}
    assert rows | known == rows


def test_metrics() -> None:
    """Every metric has a row that says what the table in the code says, in its order."""
    row = r"^\| `(agent_context_\w+)` \| (\w+) \| (\w+) \| ?(.*?) \| (.*) \|$"
    rows = re.findall(row, prose(DOC / "reference/metrics.md"), re.MULTILINE)
    ours = [
        (each.name, each.kind, each.unit, ", ".join(f"`{label}`" for label in each.labels), each.meaning)
        for each in (*METRICS, *gateway_metrics.METRICS, *gateway_metrics.GAUGES)
    ]
    assert [tuple(cell.strip() for cell in row) for row in rows] == ours


def test_log_fields() -> None:
    """Every field of a request's line is explained."""
    told = RequestRecord(path="/v1/files", cause="dns", status=502)
    for each in fields(RequestRecord):
        if each.type in ("str", "int", "float", "bool") and not getattr(told, each.name):
            setattr(told, each.name, {"str": "x", "int": 2, "float": 1.0, "bool": True}[str(each.type)])
    told.usage = Usage(input=1, cache_read=1, output=1)
    told.step_diagnostics = [Diagnostics(session="s", branch="s", call=1, turns=1, before=1, after=1, raw=1, reason="")]
    assert set(collect_facts(told)) - {"event"} <= quoted("reference/metrics.md")
    assert len(collect_facts(told)) == 28
