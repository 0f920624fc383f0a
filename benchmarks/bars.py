"""`make bars`: whether every figure that README, the docs or a closing note promises still holds.

`bars.toml` lists them. Each is measured in a small form, so it may differ from the figure of the whole benchmark; it is
compared with its limit, and with what it was when it last landed (`bars.json`). A bar regresses if it breaks a limit
that it kept when it landed, or if it breaks its limit and is worse than it was by more than its slack.

    python -m benchmarks.bars [--only WORD] [--land]

--only WORD: the bars whose name or command contains WORD. --land: write what was measured to `bars.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import msgspec
import psutil

from benchmarks.recordings import CORPUS, ROOT

BARS: Final = Path(__file__).with_suffix(".toml")
LANDED: Final = Path(__file__).with_suffix(".json")
#: A bar that needs an idle machine is not judged if other work uses more than this share of its cores, in percent.
MOST_OTHER_WORK: Final = 15
#: Seconds after which a command is given up.
PATIENCE: Final = 600


class Verdict(Enum):
    """What a measurement says of its bar."""

    KEPT = "kept"
    MISSED = "missed, as landed"
    NEW = "missed, and new"
    REGRESSED = "REGRESSED"
    BUSY = "machine busy, not judged"
    SKIPPED = "skipped"
    FAILED = "FAILED"


class Bar(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One promise.

    find: a regular expression over what `command` prints; its group is the figure, two groups are a ratio. at_most,
    at_least, exactly: the limit, one of them. slack: the share by which a figure that breaks its limit may be worse
    than when it landed. needs_idle: whether other work on the machine changes the figure. needs_recordings: whether the
    shared recordings are needed. promised: places, each a file and a text in it.
    """

    name: str
    command: str
    find: str
    promised: tuple[str, ...]
    at_most: float | None = None
    at_least: float | None = None
    exactly: float | None = None
    slack: float = 0.1
    needs_idle: bool = False
    needs_recordings: bool = False

    def __post_init__(self) -> None:
        if sum(limit is not None for limit in (self.at_most, self.at_least, self.exactly)) != 1:
            raise ValueError(f"{self.name}: give one of at_most, at_least, exactly")

    @property
    def limit(self) -> str:
        if self.exactly is not None:
            return f"{self.exactly:g}"
        return f"≤ {self.at_most:g}" if self.at_most is not None else f"≥ {self.at_least:g}"

    def is_kept(self, figure: float) -> bool:
        if self.exactly is not None:
            return abs(figure - self.exactly) < 1e-9
        return figure <= self.at_most if self.at_most is not None else figure >= (self.at_least or 0.0)

    def is_worse(self, figure: float, landed: float) -> bool:
        """Return whether `figure` is worse than `landed` by more than the slack."""
        if self.exactly is not None:
            return figure != landed
        margin = self.slack * abs(landed)
        return figure > landed + margin if self.at_most is not None else figure < landed - margin

    def judge(self, figure: float, landed: float | None, *, is_busy: bool) -> Verdict:
        if self.is_kept(figure):
            return Verdict.KEPT
        if self.needs_idle and is_busy:
            return Verdict.BUSY
        if landed is None:
            return Verdict.NEW
        if self.is_kept(landed) or self.is_worse(figure, landed):
            return Verdict.REGRESSED
        return Verdict.MISSED


class Statement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Figures that no command here can measure, and why."""

    why: str
    stated: tuple[str, ...]


class Bars(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    bar: tuple[Bar, ...]
    unmeasured: tuple[Statement, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    bar: Bar
    verdict: Verdict
    figure: float | None = None
    why: str = ""


def load_bars(path: Path = BARS) -> Bars:
    """Read the bars. Raises msgspec.ValidationError, which names the place."""
    return msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), Bars)


def load_landed(path: Path = LANDED) -> dict[str, float]:
    """Return the figures that landed last, by the names of their bars."""
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def extract_figure(bar: Bar, output: str) -> float | None:
    """Return the figure of `bar` in what its command printed; None if it is not there."""
    found = re.search(bar.find, output)
    if found is None:
        return None
    texts = (group.rstrip(".,").replace(",", "").replace("−", "-").replace("±", "") for group in found.groups())
    numbers = [float(text) for text in texts]
    return numbers[0] / numbers[1] if len(numbers) == 2 else numbers[0]


def run_command(command: str) -> tuple[int, str]:
    """Run one command of the bars from the project's root, and return its exit code and what it printed."""
    words = shlex.split(command)
    scripts = Path(sys.executable).parent
    words[0] = sys.executable if words[0] == "python" else str(scripts / words[0])
    environment = {**os.environ, "PYTHONHASHSEED": "0", "COLUMNS": "80", "NO_COLOR": "1"}
    try:
        done = subprocess.run(
            words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        return 1, f"no end after {PATIENCE} s"
    return done.returncode, done.stdout + done.stderr


def measure_bars(bars: Iterable[Bar], landed: Mapping[str, float]) -> list[Result]:
    """Run each command once, and judge all of its bars."""
    commands: dict[str, list[Bar]] = {}
    for bar in bars:
        commands.setdefault(bar.command, []).append(bar)
    results = []
    for number, (command, own) in enumerate(commands.items(), start=1):
        missing = not CORPUS.is_dir() and any(bar.needs_recordings for bar in own)
        if missing:
            results += [Result(bar, Verdict.SKIPPED, why="the shared recordings are not here") for bar in own]
            continue
        is_busy = any(bar.needs_idle for bar in own) and psutil.cpu_percent(interval=1.0) > MOST_OTHER_WORK
        print(f"[{number} of {len(commands)}] {command}", end=" ", file=sys.stderr, flush=True)
        began = perf_counter()
        code, output = run_command(command)
        print(f"{perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
        for bar in own:
            figure = None if code else extract_figure(bar, output)
            if figure is None:
                why = output.strip().splitlines()[-1:] if code else ["its figure is not in the output"]
                results.append(Result(bar, Verdict.FAILED, why=" ".join(why)))
            else:
                results.append(Result(bar, bar.judge(figure, landed.get(bar.name), is_busy=is_busy), figure))
    return results


def format_table(results: Iterable[Result], landed: Mapping[str, float]) -> str:
    """Return the results as a table, one line a bar."""
    lines = [f"{'promise':64} {'now':>9} {'landed':>9} {'limit':>9}"]
    for result in results:
        before = landed.get(result.bar.name)
        idle = " (idle machine)" if result.bar.needs_idle else ""
        lines.append(
            f"{result.bar.name + idle:64} {_format(result.figure)} {_format(before)} {result.bar.limit:>9}  "
            f"{result.verdict.value}{': ' + result.why if result.why else ''}"
        )
    return "\n".join(lines)


def _format(figure: float | None) -> str:
    return f"{'–' if figure is None else f'{figure:.4g}':>9}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bars", description="Check every promised figure.")
    parser.add_argument("--only", default="", metavar="WORD", help="bars whose name or command contains WORD")
    parser.add_argument("--land", action="store_true", help="write what was measured to bars.json")
    options = parser.parse_args(arguments)
    landed = load_landed()
    chosen = [bar for bar in load_bars().bar if options.only in bar.name or options.only in bar.command]
    if not chosen:
        parser.error(f"no bar has {options.only!r} in its name or command")
    began = perf_counter()
    results = measure_bars(chosen, landed)
    print(format_table(results, landed))
    broken = [result for result in results if result.verdict in (Verdict.REGRESSED, Verdict.FAILED)]
    print(f"\n{len(results)} promises, {len(broken)} broken, in {(perf_counter() - began) / 60:.1f} minutes")
    for result in broken:
        print(f"  {result.bar.name}: {', '.join(result.bar.promised)}")
        print(f"    {result.bar.command}")
    if options.land:
        measured: dict[str, Any] = {result.bar.name: result.figure for result in results if result.figure is not None}
        text = json.dumps(dict(sorted({**landed, **measured}.items())), indent=1, ensure_ascii=False)
        LANDED.write_text(text + "\n", encoding="utf-8")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
