"""The start of a study: its manifest, its sample and its settings, which are written once and found again.

The sample has runs, chosen by hash, that say what is common property of a format and how far chance explains recall.
A row of a study depends on its own run and on the sample, never on the rest of the corpus. Of a small corpus the
sample is the whole, and the figures are those of a replay in memory.
"""

from __future__ import annotations

import io
import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from elision.errors import FormatError, SpecError
from elision.lab.evidence import COMMON, FEWEST_RUNS, Evidence, collect_evidence
from elision.lab.results import prices_json
from elision.lab.run_as_recorded import add_recorded_head
from elision.lab.run_loading import Candidate, Loaded, StudySettings, number_duplicates, parse_candidates
from elision.strategies.spec import describe_strategy, parse_strategy
from elision.study.manifest import Shard, Unit, cut_shards, decode_manifest, encode_manifest, list_units, read_unit
from elision.study.study_folder import (
    MANIFEST_FILE,
    SAMPLE_FILE,
    SETTINGS_FILE,
    StudyFolder,
    StudyPlan,
    digest_bytes,
    open_url,
)
from elision.trajectory.prices import Prices
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


def prepare_study(
    folder: StudyFolder,
    paths: Sequence[str],
    settings: StudySettings,
    options: Mapping[str, Any],
    progress: Callable[[str], None] = lambda what: None,
) -> tuple[StudyPlan, list[Shard]]:
    """Return the study's settings and shards; of a study that is there already, as it has them.

    options: what else its rows depend on, as JSON; its `kind` is "replay" or "audit".

    Raises SpecError for a study with other settings, FormatError for
    paths without recordings, and OutputError for a folder that cannot be written.
    """
    listed = tuple(_make_absolute(path) for path in paths)
    for path in listed:
        if f"{_make_absolute(folder.url)}/".startswith(f"{path.rstrip('/')}/"):
            raise SpecError(f"--out {folder.url}: is in {path}, and would be read as a recording; name another folder")
    plan = StudyPlan(
        version=version("elision"),
        paths=listed,
        prices=settings.prices.name if settings.prices else "",
        price_list=digest_prices(settings.prices),
        sample="",
        options=dict(options),
    )
    found = folder.load_plan()
    if found is not None:
        folder.check_plan(msgspec.structs.replace(plan, sample=found.sample))
        sample = folder.read(SAMPLE_FILE)
        if digest_bytes(sample) != found.sample:
            raise SpecError(
                f"{folder.locate(SAMPLE_FILE)}: is not the sample that the study was made with ({found.sample} in"
                f" {SETTINGS_FILE} / {digest_bytes(sample)} here); put that one back, or begin another study"
            )
        return found, decode_manifest(folder.read(MANIFEST_FILE))
    progress("listing")
    shards = cut_shards(list_units(listed))
    folder.write(MANIFEST_FILE, encode_manifest(shards))
    # Of a call's bill, nothing depends on other runs.
    units = [unit for shard in shards for unit in shard.units] if options["kind"] == "replay" else []
    sample = take_sample(units, settings, lambda read: progress(f"reading the sample: {read} files"))
    folder.write(SAMPLE_FILE, sample)
    plan = msgspec.structs.replace(plan, sample=digest_bytes(sample))
    folder.write(SETTINGS_FILE, msgspec.json.format(msgspec.json.encode(plan), indent=1))
    # Another process may have begun at the same moment: what is stored counts for all.
    stored = folder.load_plan()
    return stored or plan, decode_manifest(folder.read(MANIFEST_FILE))


def _make_absolute(path: str) -> str:
    """Return an address that means the same in every process, wherever it is started."""
    system, root = open_url(path)
    return root if StudyFolder(path).is_local else str(system.unstrip_protocol(root))


def digest_prices(prices: Prices | None) -> str:
    """Return the digest of a price list; of all of ours, for runs that are billed at their own models' prices."""
    if prices is not None:
        return digest_bytes(json.dumps(prices_json(prices), sort_keys=True, default=str).encode())
    try:
        others = version("genai-prices")
    except PackageNotFoundError:
        others = ""
    return digest_bytes(files("elision.trajectory").joinpath("prices.toml").read_bytes() + others.encode())


#: Settings that a plan keeps as they are.
_KEPT: Final = ("tokens", "dialect", "hindsight", "elongation")


def describe_settings(settings: StudySettings, given: Mapping[str, str | None], *, calls: bool) -> dict[str, Any]:
    """Return the options of a replay as a plan keeps them. given: the texts of its price options."""
    return {
        "kind": "replay",
        "strategies": [[each.label, describe_strategy(each.strategy)] for each in settings.candidates],
        **{name: getattr(settings, name) for name in _KEPT},
        "calls": calls,
        "price_options": dict(given),
    }


def restore_settings(plan: StudyPlan, prices: Prices | None) -> StudySettings:
    """Return the settings of a replay out of its plan. prices: what its price options name."""
    options = plan.options
    candidates = tuple(Candidate(label, parse_strategy(text)) for label, text in options["strategies"])
    return StudySettings(
        prices=prices,
        candidates=candidates or parse_candidates([], hindsight=options["hindsight"]),
        **{name: options[name] for name in _KEPT},
    )
