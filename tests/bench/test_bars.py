"""`make bars`: the list of promises, and how a measurement is judged."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from benchmarks import bars
from benchmarks.__main__ import BENCHMARKS
from benchmarks.bars import Bar, Verdict, extract_figure, format_table, load_bars, load_landed, measure_bars

from tests.docs.blocks import ROOT

PAGES = ("README.md", "docs/internals/performance.md")
#: A number with a unit, or a multiple.
FIGURE = re.compile(
    r"\$\d+(?:[.,]\d+)*|[−+±]?\d+(?:[.,]\d+)*\s?(?:%|×|(?:x|ms|µs|us|ns|s|MB|/s|rewrites|points?|times)\b)"
)
#: How a place names what it promises: `FILE: TEXT`. A TEXT that begins with "$ " is a command and what follows it in
#: its block; one that begins with "| " is the rows of a table that begin so.
PLACE = re.compile(r"(?P<file>\S+): (?P<text>.+)", re.DOTALL)


def make_bar(**given: object) -> Bar:
    known = {"name": "x", "command": "python -c 0", "find": r"(\d+)", "promised": ("README.md: Elision",)}
    return msgspec.convert({**known, **given}, Bar)


def list_places() -> list[str]:
    found = load_bars()
    return [place for bar in found.bar for place in bar.promised] + [
        place for each in found.unmeasured for place in each.stated
    ]


def find_spans(page: str, text: str) -> Iterator[tuple[int, int]]:
    """Yield the parts of `page` that a place with `text` stands for."""
    for found in re.finditer(re.escape(text), page):
        end = found.end()
        if text.startswith("$ "):
            end = page.index("\n```", end)
        elif text.startswith("| "):
            end = page.index("\n", end)
        yield found.start(), end


def test_each_figure_in_readme_and_performance_has_a_row() -> None:
    """A figure that is printed is measured by a bar, or it is said why none can measure it."""
    places = [PLACE.fullmatch(place) for place in list_places()]
    bare = []
    for name in PAGES:
        page = (ROOT / name).read_text(encoding="utf-8")
        spans = [span for each in places if each and each["file"] == name for span in find_spans(page, each["text"])]
        for figure in FIGURE.finditer(page):
            if not any(start <= figure.start() and figure.end() <= end for start, end in spans):
                line = page.count("\n", 0, figure.start()) + 1
                bare.append(f"{name}:{line}: {figure[0]}")
    assert not bare, "\n".join(bare)


def test_each_place_is_there() -> None:
    """The text that a bar stands for is in the file that it names."""
    for place in list_places():
        found = PLACE.fullmatch(place)
        assert found, place
        assert found["text"] in (ROOT / found["file"]).read_text(encoding="utf-8"), place


def test_names_and_commands() -> None:
    """Names are unique, each expression has one group or two, and each benchmark that is named exists."""
    found = load_bars().bar
    assert len({bar.name for bar in found}) == len(found)
    for bar in found:
        assert re.compile(bar.find).groups in (1, 2), bar.name
        if bar.command.startswith("python -m benchmarks "):
            assert bar.command.split()[-1] in BENCHMARKS, bar.name
    assert load_landed().keys() <= {bar.name for bar in found}


@pytest.mark.parametrize(
    ("figure", "landed", "verdict"),
    [
        (2.9, 6.0, Verdict.KEPT),
        (6.2, 6.0, Verdict.MISSED),
        (6.7, 6.0, Verdict.REGRESSED),
        (3.1, 2.9, Verdict.REGRESSED),
        (3.1, None, Verdict.NEW),
    ],
)
def test_what_regresses(figure: float, landed: float | None, verdict: Verdict) -> None:
    """A broken limit is a regression unless it was broken before and got no worse than the slack allows."""
    assert make_bar(at_most=3.0).judge(figure, landed, is_busy=True) is verdict
    upside_down = make_bar(at_least=-3.0)
    assert upside_down.judge(-figure, -landed if landed else None, is_busy=True) is verdict


def test_a_busy_machine_is_no_judge() -> None:
    """A bar that needs an idle machine is not judged on a busy one, unless it is kept even so."""
    bar = make_bar(at_most=3.0, needs_idle=True)
    assert bar.judge(9.0, 2.0, is_busy=True) is Verdict.BUSY
    assert bar.judge(2.5, 2.0, is_busy=True) is Verdict.KEPT
    assert bar.judge(9.0, 2.0, is_busy=False) is Verdict.REGRESSED


def test_an_exact_figure() -> None:
    """A figure that is computed, not measured, has to be the same."""
    bar = make_bar(exactly=7.93, find=r"costs \$([\d.]+)")
    assert extract_figure(bar, "Masking costs $7.93.") == 7.93
    assert bar.judge(7.93, 7.93, is_busy=False) is Verdict.KEPT
    assert bar.judge(7.94, 7.94, is_busy=False) is Verdict.MISSED
    assert bar.judge(7.94, 7.93, is_busy=False) is Verdict.REGRESSED


def test_one_limit(tmp_path: Path) -> None:
    """A bar without a limit, or with two, is refused by name; so is a misspelt field."""
    path = tmp_path / "bars.toml"
    bar = '[[bar]]\nname = "a"\ncommand = "b"\nfind = "(c)"\npromised = []\n'
    for wrong in ("", "at_most = 1\nat_least = 1\n", "at_most = 1\natleast = 1\n"):
        path.write_text(bar + wrong, encoding="utf-8")
        with pytest.raises(msgspec.ValidationError):
            load_bars(path)


def test_a_command_is_run_once(tmp_path: Path) -> None:
    """Bars of one command share its output; a command that fails fails all of its bars, with its last line."""
    script = tmp_path / "figures.py"
    log = tmp_path / "log"
    script.write_text(f"open({str(log)!r}, 'a').write('x'); print('12 and 1,500')", encoding="utf-8")
    one = make_bar(name="one", command=f"python {script}", find=r"^(\d+)", at_most=12.0)
    two = make_bar(name="two", command=f"python {script}", find=r"and ([\d,]+)", at_least=1500.0)
    none = make_bar(name="none", command=f"python {script}", find=r"(\d+) or", at_least=1.0)
    broken = make_bar(name="broken", command="python -c 'raise SystemExit(\"no such file\")'", at_least=1.0)
    results = measure_bars([one, two, none, broken], {})
    assert log.read_text(encoding="utf-8") == "x"
    assert [(each.verdict, each.figure) for each in results] == [
        (Verdict.KEPT, 12),
        (Verdict.KEPT, 1500),
        (Verdict.FAILED, None),
        (Verdict.FAILED, None),
    ]
    table = format_table(results, {"one": 11.5})
    assert "11.5" in table
    assert "no such file" in table


def test_recordings_that_are_not_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A bar that needs the shared recordings is skipped without them, and says so."""
    monkeypatch.setattr(bars, "CORPUS", tmp_path / "none")
    (result,) = measure_bars([make_bar(at_most=1.0, needs_recordings=True)], {})
    assert result.verdict is Verdict.SKIPPED
    assert "recordings" in result.why
