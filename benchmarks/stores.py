"""The linear-hash store against SQLite: the same turns, the same durability, the same run, each in its own process.

`python -m benchmarks stores` takes 10,000 and 100,000 turns; ELISION_BENCH_TURNS=1000000 names other numbers. Above
20,000 turns no contestant syncs each turn, which would measure the disk alone.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import resource
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter, process_time
from typing import TypeAlias

import msgspec

from benchmarks.stitched import runs
from elision.stores.linear_hash.store import LinearHashStore
from elision.stores.linear_hash.writer import WriterLimits
from elision.stores.sqlite import SqliteStore
from elision.stores.store import NewSession, Store
from elision.trajectory.events import TurnAdded
from elision.trajectory.turn import Part, Text, Turn

SIZES = tuple(int(size) for size in os.environ.get("ELISION_BENCH_TURNS", "10000,100000").split(","))
#: Turns of the small form.
SMALL = 3_000
#: Turns of one session, and lookups that are timed.
PER_SESSION, LOOKUPS = 100, 5_000
#: Up to so many turns the best of so many runs is shown: a sync takes as long as whoever else writes lets it.
REPEATED, REPEATS = 20_000, 3

#: What the linear hash is to reach: appends, lookups and bytes on disk, over SQLite's.
BARS = (1.3, 1.5, 1.0)

Opener: TypeAlias = Callable[[Path], Store]
#: Label -> how to open the store, turns per append.
CONTESTANTS: dict[str, tuple[Opener, int]] = {
    "SQLite, one turn a sync": (lambda folder: SqliteStore(folder / "store.db"), 1),
    "linear hash, one turn a sync": (lambda folder: LinearHashStore(folder), 1),
    "SQLite, 64 turns an append": (lambda folder: SqliteStore(folder / "store.db"), 64),
    "linear hash, 64 turns an append": (lambda folder: LinearHashStore(folder), 64),
    "linear hash, 64 appends a sync": (lambda folder: LinearHashStore(folder, WriterLimits(group=64)), 1),
}


class Stopwatch:
    """Adds up the seconds and the CPU seconds of the blocks that it is entered for."""

    def __init__(self) -> None:
        self.seconds = self.cpu = 0.0
        self._start = (0.0, 0.0)

    def __enter__(self) -> None:
        self._start = (perf_counter(), process_time())

    def __exit__(self, *_: object) -> None:
        self.seconds += perf_counter() - self._start[0]
        self.cpu += process_time() - self._start[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """appends, lookups: turns per second. memory: MB above what the process had before. disk: bytes after closing.

    append_cpu, lookup_cpu: microseconds of CPU per turn. pages: bucket pages read per lookup by handle, None where
    there are none; values: value pages.
    """

    appends: float
    lookups: float
    append_cpu: float
    lookup_cpu: float
    memory: float
    disk: int
    raw: int
    pages: float | None = None
    values: float | None = None
    load: float | None = None


def sessions(turns: Sequence[Turn], count: int) -> Iterator[tuple[str, list[TurnAdded]]]:
    """`count` turns in sessions; real ones over and over, each large text with a line that makes it another one."""
    for start in range(0, count, PER_SESSION):
        numbers = range(start, min(start + PER_SESSION, count))
        own = ((number, _own(turns[number % len(turns)], number, number - start + 1)) for number in numbers)
        yield f"session {start}", [TurnAdded(turn, f"n{number}") for number, turn in own]


def measure(folder: Path, opener: Opener, batch: int, turns: Sequence[Turn], count: int) -> Measured:
    """Append `count` turns, `batch` at once, then look handles up."""
    before = _peak()
    store = opener(folder)
    watch = Stopwatch()
    for key, events in sessions(turns, count):
        store.create(NewSession(key=key, family=key, at=1.0))
        for after in range(0, len(events), batch):
            chunk = events[after : after + batch]
            with watch:
                store.append(key, chunk, after=after, at=2.0)
    if isinstance(store, LinearHashStore):
        with watch:
            store.flush()
    store.close()
    store = opener(folder)
    looked = _look_up(store, turns, count)
    found = Measured(
        appends=count / watch.seconds,
        lookups=LOOKUPS / looked.seconds,
        append_cpu=watch.cpu / count * 1e6,
        lookup_cpu=looked.cpu / LOOKUPS * 1e6,
        memory=_peak() - before,
        disk=0,
        raw=store.footprint().raw_bytes,
    )
    if isinstance(store, LinearHashStore):
        done = store.statistics()
        values = done.value_reads / LOOKUPS
        found = replace(found, pages=done.pages_per_lookup, values=values, load=done.load)
    store.close()
    return replace(found, disk=sum(path.stat().st_size for path in folder.iterdir()))


def main(*, small: bool = False) -> None:
    turns = [turn for run in runs() for turn in run.turns]
    print(f"{len(turns)} recorded turns, again and again with another text each, in sessions of {PER_SESSION}.")
    for count in (SMALL,) if small else SIZES:
        print(f"{count:,} turns:")
        print(
            f"  {'':32} {'turns/s':>9} {'CPU us':>6} {'lookups/s':>9} {'CPU us':>6} {'MB disk':>8} {'of raw':>6} "
            f"{'MB RAM':>6}  pages a lookup"
        )
        results = dict(_measured(turns, count, repeats=REPEATS if SMALL < count <= REPEATED else 1))
        for label, found in results.items():
            pages = (
                f"{found.pages:.3f} of buckets, {found.values:.2f} of values, load {found.load:.2f}"
                if found.pages is not None
                else ""
            )
            print(
                f"  {label:32} {found.appends:9,.0f} {found.append_cpu:6.0f} {found.lookups:9,.0f} "
                f"{found.lookup_cpu:6.0f} {found.disk / 1e6:8.1f} "
                f"{found.disk / found.raw:6.0%} {found.memory:6.0f}  {pages}",
                flush=True,
            )
        for work in ("one turn a sync", "64 turns an append"):
            if f"SQLite, {work}" in results:
                _print_ratios(work, results[f"linear hash, {work}"], results[f"SQLite, {work}"])


def _print_ratios(work: str, ours: Measured, theirs: Measured) -> None:
    ratios = (ours.appends / theirs.appends, ours.lookups / theirs.lookups, ours.disk / theirs.disk)
    shown = [f"{ratio:.2f} x" for ratio in ratios]
    print(
        f"  Linear hash / SQLite, {work}: appends {shown[0]} (bar {BARS[0]}), lookups {shown[1]} (bar {BARS[1]}), "
        f"disk {shown[2]} (bar {BARS[2]})",
        flush=True,
    )


def _measured(turns: Sequence[Turn], count: int, repeats: int) -> Iterator[tuple[str, Measured]]:
    """Every contestant, the best of its runs; small ones take turns."""
    best: dict[str, Measured] = {}
    for left in reversed(range(repeats)):
        for label, (opener, batch) in CONTESTANTS.items():
            if count > REPEATED and "one turn a sync" in label:
                continue
            found = _apart(opener, batch, turns, count)
            before = best.get(label, found)
            best[label] = replace(
                found,
                appends=max(found.appends, before.appends),
                lookups=max(found.lookups, before.lookups),
                append_cpu=min(found.append_cpu, before.append_cpu),
                lookup_cpu=min(found.lookup_cpu, before.lookup_cpu),
            )
            if not left:
                yield label, best[label]


def _look_up(store: Store, turns: Sequence[Turn], count: int) -> Stopwatch:
    chance = random.Random(1)
    watch = Stopwatch()
    for _ in range(LOOKUPS):
        number = chance.randrange(count)
        while not turns[number % len(turns)].observations:
            number = (number + 1) % count
        first = number - number % PER_SESSION
        with watch:
            store.observation(f"session {first}", (number - first + 1, 1))
    return watch


def _own(turn: Turn, number: int, index: int) -> Turn:
    results = tuple(
        msgspec.structs.replace(each, content=tuple(_numbered(part, number) for part in each.content))
        for each in turn.observations
    )
    return msgspec.structs.replace(turn, index=index, observations=results)


def _numbered(part: Part, number: int) -> Part:
    return Text(f"{part.text}\n[{number}]") if isinstance(part, Text) else part


def _apart(opener: Opener, batch: int, turns: Sequence[Turn], count: int) -> Measured:
    """Measure in a process of its own, so that memory is the store's alone."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)

    def child(out: Connection) -> None:
        folder = Path(tempfile.mkdtemp(prefix="elision-bench-"))
        try:
            out.send(measure(folder, opener, batch, turns, count))
        finally:
            shutil.rmtree(folder)

    process = context.Process(target=child, args=(there,))
    process.start()
    there.close()
    found = here.recv()
    process.join()
    assert isinstance(found, Measured)
    return found


def _peak() -> float:
    """The most memory that this process had so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
