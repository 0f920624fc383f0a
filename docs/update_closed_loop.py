"""Write the table and the chart of the closed loop into the docs, from docs/data/closed-loop.json.

`python docs/update_closed_loop.py` writes them. `--take FILE` first keeps the comparisons of what
`elision lab closed-loop --json > FILE` found; single outcomes are left out.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from elision.telemetry.context_report import format_signed
from elision.testing.loop.comparison import Comparison, render_chart
from elision.testing.loop.loop_study import Results

ROOT = Path(__file__).parents[1]
DATA = ROOT / "docs/data/closed-loop.json"
PAGE = ROOT / "docs/concepts/decisions.md"
CHART = ROOT / "docs/images/closed-loop.svg"
_TABLE = re.compile(r"(<!-- results: closed-loop -->\n).*?(<!-- end -->)", re.DOTALL)


def load_results() -> Results:
    """Read what is published. Raises msgspec.ValidationError, which names the place."""
    return msgspec.json.decode(DATA.read_bytes(), type=Results)


def take_results(source: Path) -> None:
    found = msgspec.json.decode(source.read_bytes(), type=Results)
    kept = msgspec.structs.replace(found, outcomes=())
    DATA.write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=1) + b"\n")


def fill_page(text: str, results: Results) -> str:
    """Return the page's text with the table anew."""
    return _TABLE.sub(lambda found: f"{found[1]}\n{build_table(results)}\n\n{found[2]}", text)


def build_table(results: Results) -> str:
    """Return a row for each strategy: what it does at the first price list, and its cost at all of them."""
    by_prices: dict[str, dict[str, Comparison]] = {}
    for each in results.comparisons:
        by_prices.setdefault(each.prices, {})[each.variant] = each
    first = next(iter(by_prices.values()))
    lists = [*by_prices]
    columns = ["strategy", "solved", "change, points", "calls", *(f"cost, {name}" for name in lists)]
    columns += [f"$ a solved task, {lists[0]}", "recalls"]
    lines = [_join(columns), _join(["---"] * len(columns))]
    for variant, row in first.items():
        costs = [by_prices[name][variant] for name in lists]
        lines.append(
            _join(
                [
                    f"`{variant}`",
                    f"{100 * row.solved:.0f} %",
                    f"{format_signed(100 * row.solved_change)} "
                    f"({format_signed(100 * row.solved_interval.low)} … "
                    f"{format_signed(100 * row.solved_interval.high)})",
                    f"{row.calls:.0f}",
                    *(f"{c.usd_ratio:.2f} ({c.usd_interval.low:.2f}–{c.usd_interval.high:.2f})" for c in costs),
                    "–" if row.usd_per_solved is None else f"{row.usd_per_solved:.2f}",
                    f"{row.recalls:.1f}",
                ]
            )
        )
    tasks = next(iter(first.values())).tasks
    note = f"{tasks} tasks of {results.knobs.calls} calls, seeds {results.first_seed} to "
    return "\n".join(
        [f"{note}{results.first_seed + results.seeds - 1}; cost / `raw` with its 95 % interval:", "", *lines]
    )


def _join(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the table and the chart of the closed loop.")
    parser.add_argument("--take", type=Path, metavar="FILE", help="what the benchmark wrote with --json")
    options = parser.parse_args()
    if options.take:
        take_results(options.take)
    results = load_results()
    PAGE.write_text(fill_page(PAGE.read_text(encoding="utf-8"), results), encoding="utf-8")
    CHART.write_text(render_chart(results.comparisons), encoding="utf-8")


if __name__ == "__main__":
    main()
