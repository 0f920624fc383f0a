"""A study of made-up rows, as many as a million runs have: what a report of it costs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import duckdb

from elision.lab.study_settings import StudySettings, parse_candidates
from elision.study.manifest import Shard, Unit, encode_manifest
from elision.study.row_schema import COLUMNS
from elision.study.run_sample import describe_settings
from elision.study.study_folder import StudyFolder, StudyPlan
from elision.trajectory.price_lookup import find_price_set

#: With "as recorded", eight rows a run.
STRATEGIES: Final = (
    "raw",
    "paper-masking",
    "masking",
    "masking(window=20)",
    "summarization",
    "hybrid",
    "two-tier",
)
#: Runs of a shard: its 200 files have one each.
RUNS_OF_PART: Final = 200
SETTINGS: Final = StudySettings(
    prices=find_price_set("anthropic"),
    candidates=parse_candidates(STRATEGIES, hindsight=False),
    hindsight=False,
    elongation="none",
)
#: Column -> how it is made up, where that is not any small number: i numbers the rows, r the runs, s the strategies.
_VALUES: Final = {
    "run": "hash(r)",
    "file": "'s3://bucket/runs/team-' || (r % 12) || '/' || md5(r::varchar) || '.jsonl'",
    "trajectory": "'main'",
    "reader": "['claude-code', 'codex', 'swe-agent', 'opencode', 'tau2'][1 + r % 5]",
    "strategy": f"[{', '.join(repr(name) for name in ('as recorded', *STRATEGIES))}][1 + s]",
    "model": "['claude-opus-4-5', 'claude-sonnet-4-5', 'gpt-5'][1 + r % 3]",
    "priced_as": "'anthropic'",
    "day": "'2026-11-' || lpad((1 + r % 28)::varchar, 2, '0')",
    "tag": "'team-' || (r % 12)",
    "turns": "10 + hash(r) % 300",
    "tool_turns": "9 + hash(r) % 300",
    "calls": "10 + hash(r) % 300",
    "usd": "0.5 + random()",
    "raw_usd": "1 + (hash(r) % 1000) / 1000.0",
    "recorded_usd": "1 + (hash(r) % 1000) / 1000.0",
    "hindsight_usd": "null",
    "least_turns_usd": "null",
    "most_turns_usd": "null",
    "context_10": "8000 + r % 3000",
    "context_50": "case when r % 2 = 0 then 30000 + r % 9000 end",
    "context_100": "case when r % 4 = 0 then 60000 + r % 9000 end",
    "context_200": "null",
    "context_500": "null",
    "context_1000": "null",
    "cuts": "0",
    "is_cheapest": "((case hash(r) % 7 when 0 then 0 else hash(r) % 7 + 1 end) = s)::bigint",
    **dict.fromkeys(("condensed_runs", "billed_runs", "silent_runs", "partial_runs", "unpriced_runs"), "0"),
    "own_prices": "1",
    "noise": "random() / 10",
    "noise_filtered": "random() / 20",
    "floor_window": "null",
    "floor_items": "null",
    "floor_found": "null",
}
_TYPES: Final = {
    "hash": "ubigint",
    "text": "varchar",
    "word": "varchar",
    "count": "bigint",
    "usd": "double",
    "share": "double",
}


def write_synthetic_study(folder: Path, runs: int, runs_of_part: int = RUNS_OF_PART) -> None:
    """Write a study of `runs` runs, with eight rows each, in shards of `runs_of_part`."""
    store = StudyFolder(str(folder))
    plan = StudyPlan(
        version="0",
        paths=("s3://bucket/runs",),
        prices="anthropic",
        price_list="",
        sample="",
        options=describe_settings(SETTINGS, {"model": None, "price": None, "price_set": "anthropic"}, calls=False),
    )
    shards = [
        Shard(number, tuple(Unit(f"s3://bucket/runs/{number}/{place}.jsonl", 1, "") for place in range(runs_of_part)))
        for number in range(runs // runs_of_part)
    ]
    store.write("manifest.parquet", encode_manifest(shards))
    store.write("study.json", json.dumps({name: getattr(plan, name) for name in plan.__struct_fields__}).encode())
    (folder / "rows").mkdir()
    listed = ", ".join(
        f"({_VALUES.get(name, '(random() * 100)')})::{_TYPES[kind]} as {name}" for name, kind, _ in COLUMNS
    )
    with duckdb.connect(config={"memory_limit": "2GB", "threads": "2"}) as database:
        for shard in shards:
            first, last = (number * runs_of_part * 8 for number in (shard.number, shard.number + 1))
            target = folder / "rows" / shard.name_part(plan.digest)
            database.execute(
                f"copy (select {listed} from (select i, i // 8 as r, i % 8 as s from range({first}, {last}) t(i)))"
                f" to '{target}' (format parquet, compression zstd)"
            )
