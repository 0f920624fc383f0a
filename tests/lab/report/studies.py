"""Hand-made studies: an ordinary one, and one whose every name wants to do harm."""

from __future__ import annotations

from dataclasses import replace

from elision.lab.results import Control, Row, Series, Study
from elision.trajectory.price_lookup import find_price_set
from elision.trajectory.prices import Bill
from elision.trajectory.trajectory import Problem

RAW, EVERY_TURN, MASKING, HYBRID, HINDSIGHT = "raw", "masking (every turn)", "masking", "hybrid", "hybrid (hindsight)"
STRATEGIES = (RAW, EVERY_TURN, MASKING, HYBRID, HINDSIGHT)
#: Of sending everything, by strategy.
COSTS = {RAW: 1.0, EVERY_TURN: 1.5, MASKING: 0.8, HYBRID: 0.5, HINDSIGHT: 0.48}
KEPT = {RAW: 100, EVERY_TURN: 80, MASKING: 97, HYBRID: 90, HINDSIGHT: 90}

#: What a recording might be called by somebody who means harm.
HOSTILE = (
    "</script><script>window.harmed='script'</script>",
    '"><img src=x onerror="window.harmed=\'image\'">',
    "[bold]not bold[/bold] [link=https://example.org]x[/link]",
    "<!-- --><style>*{display:none}</style>",
    "escape \x1b[31mred\x1b[0m \x07 bell",
    "turned \u202egnp.exe \u2028 lines \u2029",
    "ünïcödé 長い名前 🦊 \ud800",
    "${title} $data {0} %s & &amp; &lt;",
    "a/" * 400 + "end.jsonl",
)


def row(
    strategy: str, file: str = "runs/one.jsonl", trajectory: str = "main", calls: int = 40, usd: float = 2.0
) -> Row:
    """A run of which everything would have cost `usd`; the rest follows from the strategy."""
    paid = usd * COSTS.get(strategy, 0.7)
    summaries = 2 if strategy.startswith("hybrid") else 0
    kept = KEPT.get(strategy, 85)
    return Row(
        file=file,
        trajectory=trajectory,
        reader="swe-agent",
        strategy=strategy,
        turns=calls,
        tool_turns=calls - 1,
        calls=calls,
        bill=Bill(cache_write=40_000, cache_read=900_000, output=4_000, usd=paid * 0.9),
        summarizer=Bill(cache_read=10_000, output=900, usd=paid * 0.1),
        raw_usd=usd,
        hindsight_usd=paid * 0.95 if "masking" in strategy else None,
        late_usd=max(0.0, usd - paid) / (calls * 0.35),
        peak=54_321,
        worst_ratio=1.05,
        epochs=1 + 3 * (strategy != RAW),
        summaries=summaries,
        evidence_items=100,
        evidence_found=kept,
        evidence_found_plain=kept - summaries,
        evidence_items_filtered=50,
        evidence_found_filtered=kept // 2,
        regret_turns=100 - kept,
    )


def series(strategy: str, calls: int = 40) -> Series:
    grown = range(1_000, 1_000 * (calls + 1), 1_000)
    if strategy == RAW:
        return Series(tokens=tuple(grown))
    tokens = tuple(size - size // 10_000 * 6_000 for size in grown)
    return Series(tokens=tokens, rewrites=(10, 20, 30), summaries=(20,) if strategy.startswith("hybrid") else ())


def study(
    strategies: tuple[str, ...] = STRATEGIES, files: tuple[str, ...] = ("runs/one.jsonl", "runs/two.jsonl")
) -> Study:
    """A run per file; each is ten calls longer and a dollar dearer than the one before."""
    rows, lines = [], {}
    for place, file in enumerate(files):
        calls = 40 + 10 * place
        for strategy in strategies:
            rows.append(row(strategy, file=file, calls=calls, usd=2.0 + place))
            lines[file, "main", strategy] = series(strategy, calls)
    return Study(
        prices=find_price_set("anthropic"),
        counter="o200k",
        strategies=strategies,
        rows=tuple(rows),
        controls=(
            Control(reader="swe-agent", runs=2, noise=0.31, noise_filtered=0.08, floor=0.93, floor_window=5),
            Control(reader="pi-session", runs=1, noise=None, noise_filtered=None),
        ),
        problems=(Problem(file="runs/broken.jsonl", line=12, reason="no JSON"),),
        series=lines,
        recommended=MASKING if MASKING in strategies else "",
    )


def hostile() -> Study:
    """The ordinary study, with HOSTILE for files, ids, formats, reasons, prices' sources and one strategy."""
    strategies = (*STRATEGIES, HOSTILE[0])
    whole = study(strategies, files=HOSTILE)
    rows = tuple(replace(each, reader=HOSTILE[1]) for each in whole.rows)
    return replace(
        whole,
        rows=rows,
        prices=replace(whole.prices, source=HOSTILE[1]),
        controls=tuple(replace(control, reader=HOSTILE[2]) for control in whole.controls),
        problems=tuple(Problem(file=text, line=1, reason=text) for text in HOSTILE),
    )


def empty() -> Study:
    """Nothing could be read."""
    problem = Problem(file="runs/broken.jsonl", line=None, reason="no known format")
    return replace(study(), rows=(), series={}, controls=(), problems=(problem,))
