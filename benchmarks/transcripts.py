"""What it costs to keep whole turns for SQL beside the log: bytes and time, over recorded runs under `hybrid`.

`python -m benchmarks transcripts`; ELISION_BENCH_POSTGRES names a PostgreSQL store, in whose schemas it makes its own.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter

from elision.engine import Log, LogSetup, decide, make_plain_terms, run_pass
from elision.formats.registry import read_runs
from elision.lab.replay import model_free_summarizer
from elision.lab.run_as_recorded import calls
from elision.stores.store import NewSession
from elision.stores.store_urls import open_store
from elision.strategies.spec import parse_strategy
from elision.trajectory.events import Event
from elision.trajectory.price_lookup import find_price_set
from elision.trajectory.tokens import Sizer, make_counter
from elision.trajectory.trajectory import Trajectory

RUNS = (
    "mini-swe-agent-marshmallow-1343.traj.json.gz",
    "pi-session.jsonl.gz",
    "swe-agent-sympy-20801.traj.gz",
)
FOLDER = Path(__file__).parents[1] / "examples" / "runs"


def list_appends(run: Trajectory) -> list[Sequence[Event]]:
    """Return the events of a session that decides on every call of `run`, an append for each call."""
    sizer = Sizer(make_counter())
    session = Log.fold((), LogSetup(parse_strategy("hybrid"), find_price_set("anthropic"), sizer))
    session.set_head(run.head)
    appends: list[Sequence[Event]] = []
    written = 0
    for turn, (now, model) in zip(run.turns, calls(run), strict=True):
        run_pass(decide(session, make_plain_terms(now, model)), model_free_summarizer(sizer))
        session.add_turn(turn)
        appends.append(session.events[written:])
        written = len(session.events)
    return appends


def list_urls(folder: Path) -> Iterator[tuple[str, str]]:
    yield "SQLite", f"sqlite:///{folder}/log.db"
    yield "SQLite, turns=full", f"sqlite:///{folder}/full.db?turns=full"
    server = os.environ.get("ELISION_BENCH_POSTGRES")
    if server:
        mark = "&" if "?" in server else "?"
        number = os.getpid()
        yield "PostgreSQL, turns=short", f"{server}{mark}schema=bench_short_{number}&turns=short"
        yield "PostgreSQL", f"{server}{mark}schema=bench_full_{number}"


def measure_store(url: str, appends: Sequence[Sequence[Event]]) -> tuple[int, int, float]:
    """Return the bytes of the log before packing, the bytes stored, and the median milliseconds of an append."""
    store = open_store(url)
    store.create(NewSession(key="run", family="run", at=0.0))
    times, length = [], 0
    for number, events in enumerate(appends):
        start = perf_counter()
        length = store.append("run", events, after=length, at=float(number))
        times.append(perf_counter() - start)
    store.compact()
    found = store.footprint()
    store.delete("run")
    store.close()
    return found.raw_bytes, found.stored_bytes, median(times) * 1_000


def main() -> None:
    for name in RUNS:
        run = next(each for each in read_runs(FOLDER / name) if isinstance(each, Trajectory) and each.turns)
        appends = list_appends(run)
        print(f"{name}: {len(run.turns)} turns")
        with tempfile.TemporaryDirectory() as folder:
            for label, url in list_urls(Path(folder)):
                raw, stored, milliseconds = measure_store(url, appends)
                sizes = f"{raw / 1e6:6.2f} MB raw  {stored / 1e6:6.2f} MB stored"
                print(f"  {label:24} {sizes}  {milliseconds:6.2f} ms an append")
