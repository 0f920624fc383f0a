"""The sample: runs, chosen by hash, that say what is common property of a format and how far chance explains recall.

A row of a study depends on its own run and on the sample, never on the rest of the corpus. Of a small corpus the
sample is the whole, and the figures are those of a replay in memory.
"""

from __future__ import annotations

import io
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from elision.errors import FormatError
from elision.lab.evidence import COMMON, FEWEST_RUNS, Evidence, collect_evidence
from elision.lab.run_as_recorded import add_recorded_head
from elision.lab.run_loading import Loaded, number_duplicates
from elision.lab.study_settings import StudySettings
from elision.study.manifest import Unit, decode_manifest, read_unit
from elision.study.study_folder import MANIFEST_FILE, StudyFolder
from elision.trajectory.trajectory import Problem, Trajectory

#: Runs of a format that are enough, and units that are read at most to find them.
SAMPLED_RUNS: Final = 400
SAMPLED_UNITS: Final = 2_000
#: Runs that a tuning takes of a larger corpus.
TUNED_RUNS: Final = 2_000

SCHEMA: Final = pa.schema(
    [
        ("reader", pa.string()),
        ("runs", pa.list_(pa.struct([("file", pa.string()), ("trajectory", pa.string())]))),
        ("items", pa.list_(pa.uint64())),
        ("counts", pa.list_(pa.uint16())),
    ]
)
_Array: TypeAlias = np.ndarray[Any, Any]
_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class FormatSample:
    """The sampled runs of one format. items: hashes of what their observations hold, sorted; counts: in how many."""

    runs: frozenset[tuple[str, str]] = frozenset()
    items: _Array = field(default_factory=lambda: np.empty(0, np.uint64))
    counts: _Array = field(default_factory=lambda: np.empty(0, np.uint16))

    def find_common_items(self, run: Trajectory, known: Evidence) -> frozenset[str]:
        """Return the items of `run` that more than a fifth of the other sampled runs hold as well."""
        others = len(self.runs) - ((run.file, run.id) in self.runs)
        if others + 1 < FEWEST_RUNS:
            return frozenset()
        fresh = sorted(known.fresh)
        return frozenset(
            item
            for item, count in zip(fresh, self._count_others(run, known, fresh), strict=True)
            if count > COMMON * others
        )

    def measure_noise(self, run: Trajectory, known: Evidence, common: frozenset[str]) -> float | None:
        """Return the mean count of the run's items that another sampled run holds, as a share of those that it uses."""
        others = len(self.runs) - ((run.file, run.id) in self.runs)
        own = sum(1 for uses in known.uses.values() for use in uses if use.item not in common)
        if not others or not own:
            return None
        return float(self._count_others(run, known, sorted(known.fresh - common)).sum()) / others / own

    def _count_others(self, run: Trajectory, known: Evidence, items: Sequence[str]) -> _Array:
        """Return, for each of `items`, how many of the other sampled runs hold it."""
        if not len(self.items) or not items:
            return np.zeros(len(items), np.int64)
        hashes = np.array([hash_item(item) for item in items], np.uint64)
        places = np.minimum(np.searchsorted(self.items, hashes), len(self.items) - 1)
        counts = np.where(self.items[places] == hashes, self.counts[places], 0).astype(np.int64)
        if (run.file, run.id) in self.runs:
            counts -= np.array([item in known.observed for item in items], np.int64)
        return counts


Samples: TypeAlias = dict[str, FormatSample]


def hash_item(item: str) -> int:
    """Return a hash that is the same in every process."""
    return int.from_bytes(blake2b(item.encode(errors="surrogatepass"), digest_size=8).digest(), "big")


def take_sample(
    units: Sequence[Unit], settings: StudySettings, progress: Callable[[int], None] = lambda units: None
) -> bytes:
    """Read the sample's runs, and return it as Parquet.

    Units are read in the order of their hashes until every format found has `SAMPLED_RUNS` runs, or `SAMPLED_UNITS`
    units are read. progress: called with the units read.
    """
    runs: dict[str, list[tuple[str, str]]] = defaultdict(list)
    counts: dict[str, Counter[int]] = defaultdict(Counter)
    for number, unit in enumerate(_shuffle_units(units, "")):
        if number >= SAMPLED_UNITS or (runs and all(len(own) >= SAMPLED_RUNS for own in runs.values())):
            break
        progress(number)
        for run in _take_runs(unit, SAMPLED_RUNS):
            if len(runs[run.format]) < SAMPLED_RUNS:
                runs[run.format].append((run.file, run.id))
                evidence = collect_evidence(add_recorded_head(run, settings.size_run(run)))
                counts[run.format].update(map(hash_item, evidence.observed))
    rows = []
    for reader in sorted(runs):
        items = sorted(counts[reader])
        named = [{"file": file, "trajectory": name} for file, name in runs[reader]]
        rows.append(
            {"reader": reader, "runs": named, "items": items, "counts": [counts[reader][item] for item in items]}
        )
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), buffer, compression="zstd")
    return buffer.getvalue()


def decode_sample(data: bytes) -> Samples:
    """Return the sample by format."""
    table = pq.read_table(io.BytesIO(data))
    found: Samples = {}
    for place in range(table.num_rows):
        row = table.slice(place, 1)
        runs = row["runs"][0].as_py()
        found[row["reader"][0].as_py()] = FormatSample(
            runs=frozenset((run["file"], run["trajectory"]) for run in runs),
            items=row["items"][0].values.to_numpy(),
            counts=row["counts"][0].values.to_numpy(),
        )
    return found


def _shuffle_units(units: Sequence[Unit], seed: str) -> list[Unit]:
    return sorted(units, key=lambda unit: (hash_item(f"{seed}{unit.url}\0{unit.row_group}"), unit.url))


def _take_runs(unit: Unit, most: int) -> Iterator[Trajectory]:
    """Yield at most `most` runs of each format of a unit. What cannot be read is reported by its shard."""
    taken: Counter[str] = Counter()
    for found in read_unit(unit):
        if not isinstance(found, Problem):
            run, _ = found
            taken[run.format] += 1
            if taken[run.format] <= most:
                yield run
            elif all(count > most for count in taken.values()):
                return


def load_tuning_sample(url: str, seed: int) -> tuple[Loaded, str]:
    """Return at most `TUNED_RUNS` runs of the study at `url`, and a sentence on how they were chosen; "" for all.

    Every folder and kind of file gives its share, as every format does within them; the seed decides which runs.
    Raises FormatError where the study has no run.
    """
    units = [unit for shard in decode_manifest(StudyFolder(url).read(MANIFEST_FILE)) for unit in shard.units]
    strata: dict[tuple[str, str], list[Unit]] = defaultdict(list)
    for unit in _shuffle_units(units, f"{seed}\0"):
        folder, _, name = unit.url.rpartition("/")
        strata[folder, name.partition(".")[2]].append(unit)
    chosen = _take_shares(list(strata.values()), TUNED_RUNS)
    generator = random.Random(seed)
    by_format: dict[str, list[Trajectory]] = defaultdict(list)
    problems: list[Problem] = []
    for unit in sorted(chosen, key=lambda unit: (unit.url, unit.row_group)):
        for found in read_unit(unit):
            if isinstance(found, Problem):
                problems.append(found)
                continue
            kept = by_format[found[0].format]
            kept.append(found[0])
            if len(kept) > 2 * TUNED_RUNS:
                by_format[found[0].format] = generator.sample(kept, TUNED_RUNS)
    every = sum(map(len, by_format.values()))
    for own in by_format.values():
        generator.shuffle(own)
    runs = _take_shares(list(by_format.values()), TUNED_RUNS)
    if not runs:
        raise FormatError(f"{url}: no run of the study can be read: " + "; ".join(map(str, problems[:3])))
    told = f"{len(runs):,} runs of {len(chosen):,} of {len(units):,} files and archives"
    text = f"Tuned on a stratified sample: {told}, by folder, kind of file and format, seed {seed}."
    loaded = Loaded(number_duplicates(sorted(runs, key=lambda run: (run.file, run.id))), tuple(problems))
    return loaded, text if len(chosen) < len(units) or len(runs) < every else ""


def _take_shares(groups: Sequence[Sequence[_Item]], most: int) -> list[_Item]:
    """Return at most `most` items, of each group the same share, from its front."""
    placed = [((place + 0.5) / len(own), item) for own in groups for place, item in enumerate(own)]
    return [item for _, item in sorted(placed, key=lambda each: each[0])[:most]]
