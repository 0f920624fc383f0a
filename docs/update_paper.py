"""Write what is made from the published runs: tables of both pages, figures, the packaged table of turns.

`python docs/update_paper.py` writes it; `--check` only compares, and names what differs. `--compact FILE` first makes
the data in docs/data/complexity-trap from the authors' experiment_instance_costs_combined.csv.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from docs.paper.facts import PaperFacts, compact_source, load_facts  # noqa: E402
from docs.paper.figures import draw_figures  # noqa: E402
from docs.paper.tables import build_tables  # noqa: E402
from docs.paper.turn_table import build_turn_table  # noqa: E402

from elision.errors import ElisionError  # noqa: E402

PAGES = ("docs/concepts/paper.md", "docs/concepts/decisions.md")
TURN_TABLE = "src/elision/lab/elongation.toml"

#: A table in a page: its name, and what stands there until it is written anew.
_TABLE = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def fill_page(text: str, tables: Mapping[str, str]) -> str:
    """Return the page's text with every table anew. Raises KeyError for a table that there is not."""
    return _TABLE.sub(lambda found: f"{found[1]}\n{tables[found[2]]}\n{found[3]}", text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """What the data give. tables: Markdown by name. figures: SVG by name. turn_table: TOML."""

    tables: Mapping[str, str]
    figures: Mapping[str, str]
    turn_table: str


def build_outputs(facts: PaperFacts) -> Outputs:
    """Return everything that is made from `facts`."""
    return Outputs(tables=build_tables(facts), figures=draw_figures(facts), turn_table=build_turn_table(facts))


def list_outdated(outputs: Outputs, root: Path = ROOT) -> list[str]:
    """Return the files that differ from `outputs`, as paths below `root`."""
    outdated = []
    for page in PAGES:
        text = (root / page).read_text(encoding="utf-8")
        if fill_page(text, outputs.tables) != text:
            outdated.append(page)
    outdated += [name_figure(name) for name, svg in outputs.figures.items() if not _is_drawn(svg, name, root)]
    if (root / TURN_TABLE).read_text(encoding="utf-8") != outputs.turn_table:
        outdated.append(TURN_TABLE)
    return outdated


def name_figure(name: str) -> str:
    """Return the path of a figure below the repository."""
    return f"docs/images/paper-{name}.svg"


def write_outputs(outputs: Outputs) -> None:
    """Write tables, figures and the table of turns."""
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        (ROOT / page).write_text(fill_page(text, outputs.tables), encoding="utf-8")
    for name, svg in outputs.figures.items():
        (ROOT / name_figure(name)).write_text(svg, encoding="utf-8")
    (ROOT / TURN_TABLE).write_text(outputs.turn_table, encoding="utf-8")


def _is_drawn(svg: str, name: str, root: Path) -> bool:
    figure = root / name_figure(name)
    return figure.exists() and figure.read_text(encoding="utf-8") == svg


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a file differs")
    parser.add_argument("--compact", type=Path, metavar="FILE", help="first make the data from the authors' file")
    options = parser.parse_args()
    try:
        if options.compact:
            compact_source(options.compact)
        facts = load_facts()
    except ElisionError as error:
        print(error, file=sys.stderr)
        return 2
    outputs = build_outputs(facts)
    if not options.check:
        write_outputs(outputs)
        return 0
    outdated = list_outdated(outputs)
    for name in outdated:
        print(f"{name}: differs from the data; run python docs/update_paper.py", file=sys.stderr)
    return int(bool(outdated))


if __name__ == "__main__":
    sys.exit(main())
