"""Small recorded runs, made up: chats of an agent that reads files, each of other files than the rest."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from elision.lab.study_settings import StudySettings, parse_candidates
from elision.study.manifest import Shard
from elision.study.run_sample import describe_settings, prepare_study
from elision.study.shard_runner import ReplayWork, ShardTask
from elision.study.study_folder import StudyFolder, StudyPlan
from elision.trajectory.price_lookup import find_price_set

STRATEGIES = ("raw", "masking(window=2, schedule=every-turn)", "summarization(every=6, tail=2)")
SETTINGS = StudySettings(
    prices=find_price_set("anthropic"),
    candidates=parse_candidates(STRATEGIES, hindsight=False),
    tokens="estimate",
    hindsight=False,
)


def make_messages(seed: int, turns: int = 9) -> list[dict[str, Any]]:
    """Return a chat: each call reads a file whose content names the next one."""
    chance = random.Random(seed)
    names = [f"src/part_{chance.randrange(10**6)}/module_{chance.randrange(10**6)}.py" for _ in range(turns + 1)]
    messages: list[dict[str, Any]] = [{"role": "user", "content": f"Find what breaks build {seed}. Begin: {names[0]}"}]
    for number in range(turns):
        call = {"name": "read", "arguments": json.dumps({"path": names[number]})}
        messages.append(
            {
                "role": "assistant",
                "content": f"I read {names[number]}.",
                "tool_calls": [{"id": f"call_{number}", "type": "function", "function": call}],
            }
        )
        text = "\n".join(f"value_{chance.randrange(10**6)} = {line}" for line in range(40))
        answer = f"import src/shared_77/library_4711.py\nimport {names[number + 1]}\n{text}"
        messages.append({"role": "tool", "tool_call_id": f"call_{number}", "content": answer})
    messages.append({"role": "assistant", "content": f"It is {names[turns]}, not src/shared_77/library_4711.py."})
    return messages


def write_runs(folder: Path, count: int, *, turns: int = 9, first: int = 0) -> Path:
    """Write `count` runs, a file each; return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(first, first + count):
        value = {"model": "claude-sonnet-4-5", "messages": make_messages(number, turns)}
        (folder / f"run-{number:05}.json").write_text(json.dumps(value))
    return folder


def prepare(runs: Path | str, study: Path | str, settings: StudySettings = SETTINGS) -> tuple[StudyPlan, list[Shard]]:
    """Prepare a study of `runs`."""
    options = describe_settings(settings, {"model": None, "price": None, "price_set": "anthropic"}, calls=False)
    return prepare_study(StudyFolder(str(study)), [str(runs)], settings, options)


def make_task(study: Path | str, plan: StudyPlan, settings: StudySettings = SETTINGS) -> ShardTask:
    return ShardTask(str(study), plan.digest, ReplayWork(settings))


def read_rows(study: Path) -> list[dict[str, Any]]:
    """Return all rows of a study, sorted."""
    rows = [row for part in sorted((study / "rows").glob("part-*")) for row in pq.read_table(part).to_pylist()]
    return sorted(rows, key=lambda row: (row["file"], row["trajectory"], row["strategy"]))


def hash_rows(study: Path) -> str:
    """Return one hash over all columns of all rows."""
    return hashlib.sha256(repr(read_rows(study)).encode()).hexdigest()


def split_shards(shards: Sequence[Shard], size: int) -> list[Shard]:
    """Return the units of `shards` in shards of `size`: small ones, for tests with few runs."""
    units = [unit for shard in shards for unit in shard.units]
    return [Shard(place // size, tuple(units[place : place + size])) for place in range(0, len(units), size)]
