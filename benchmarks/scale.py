"""Studies of many runs: one result whoever computes it, memory, speed, overhead, and the report of a million runs.

The runs are made up, chats of 22 calls that read files. The small form has fewer runs and rows.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import psutil
import pyarrow.parquet as pq

from benchmarks.recordings import ROOT
from benchmarks.synthetic_study import write_synthetic_study
from elision.lab.run_loading import load_runs
from elision.lab.study import run_study
from elision.lab.study_settings import StudySettings, parse_candidates
from elision.study import manifest
from elision.study.manifest import Shard
from elision.study.run_sample import describe_settings, prepare_study
from elision.study.shard_runner import ReplayWork, ShardTask, run_locally, run_shards
from elision.study.study_folder import StudyFolder, StudyPlan
from elision.trajectory.price_lookup import find_price_set

STRATEGIES: Final = ("raw", "masking", "hybrid")
CALLS: Final = 22
#: Shards of the runs that are compared.
SHARDS: Final = 8
SETTINGS: Final = StudySettings(
    prices=find_price_set("anthropic"),
    candidates=parse_candidates(STRATEGIES, hindsight=False),
    hindsight=False,
)
_REPORT: Final = "import sys; from elision.cli.studies import load_replay_study; load_replay_study(sys.argv[1])"
_SUMMARY: Final = "import sys; from elision.study.study_tables import summarize_batches; summarize_batches(sys.argv[1])"


def main(small: bool = False) -> None:
    compared, few, many, timed = (40, 100, 400, 60) if small else (200, 400, 4_000, 200)
    rows = 800_000 if small else 8_000_000
    with tempfile.TemporaryDirectory(prefix="elision-scale-") as name:
        folder = Path(name)
        _compare_ways(folder, compared)
        _measure_memory(folder, few, many)
        _measure_overhead(folder, timed)
        _measure_report(folder, rows)


def write_made_runs(folder: Path, count: int) -> None:
    """Write `count` chats of `CALLS` calls, each with files of its own."""
    folder.mkdir()
    for number in range(count):
        chance = random.Random(number)
        names = [f"src/part_{chance.randrange(10**6)}/module_{chance.randrange(10**6)}.py" for _ in range(CALLS)]
        messages: list[dict[str, Any]] = [
            {"role": "user", "content": f"Find what breaks build {number}. Begin with {names[0]}."}
        ]
        for call, file in enumerate(names[1:]):
            tool = {"name": "read", "arguments": json.dumps({"path": names[call]})}
            action = {"id": f"call_{call}", "type": "function", "function": tool}
            text = "\n".join(
                f"    value_{chance.randrange(10**6)} = compute(item_{chance.randrange(10**4)}, {line})"
                for line in range(chance.randrange(10, 90))
            )
            messages.append({"role": "assistant", "content": f"I read {names[call]}.", "tool_calls": [action]})
            messages.append({"role": "tool", "tool_call_id": f"call_{call}", "content": f"import {file}\n{text}"})
        messages.append({"role": "assistant", "content": f"It is {names[-1]}."})
        value = {"model": "claude-sonnet-4-5", "messages": messages}
        (folder / f"run-{number:05}.json").write_text(json.dumps(value))


def _prepare(runs: Path, study: Path) -> tuple[StudyPlan, list[Shard], ShardTask]:
    options = describe_settings(SETTINGS, {"model": None, "price": None, "price_set": "anthropic"}, calls=False)
    plan, shards = prepare_study(StudyFolder(str(study)), [str(runs)], SETTINGS, options)
    return plan, shards, ShardTask(str(study), plan.digest, ReplayWork(SETTINGS))


def _compare_ways(folder: Path, count: int) -> None:
    """Print the hash over all columns of all rows for each way in which the same runs are replayed."""
    print(f"{count} runs of {CALLS} calls in {SHARDS} shards, under {len(STRATEGIES)} strategies:", flush=True)
    runs = folder / "runs"
    write_made_runs(runs, count)
    hashes = set()

    def show(how: str, study: Path) -> None:
        found = hash_rows(study)
        hashes.add(found)
        print(f"  {how:44} {found}", flush=True)

    with patch.object(manifest, "SHARD_UNITS", count // SHARDS):
        studies = {name: _prepare(runs, folder / name) for name in ("1", "4", "shuffled", "killed", "ray")}
    for workers in (1, 4):
        _, shards, task = studies[str(workers)]
        run_shards(shards, task, partial(run_locally, workers=workers), lambda _: None)
        show(f"--workers {workers}", folder / str(workers))
    _, shards, task = studies["shuffled"]
    random.Random(3).shuffle(shards)
    for shard in shards:
        task(shard)
    show("shards in random order, one process", folder / "shuffled")
    show(f"{_kill_and_resume(runs, folder / 'killed')} processes killed, then resumed", folder / "killed")
    try:
        import ray  # noqa: F401
    except ImportError:
        print("  (ray is not installed: no cluster)")
    else:
        show(_run_on_ray(folder / "ray", count // SHARDS), folder / "ray")
    print(f"  different results: {len(hashes)}", flush=True)


def _run_on_ray(study: Path, size: int) -> str:
    """Do the study in shards of `size` runs on two nodes of which one is killed; return what happened."""
    command = [sys.executable, "-m", "tests.study.ray_trial", str(study), str(size)]
    environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}
    # Its workers import the trial as well.
    environment["PYTHONPATH"] = f"{ROOT / 'src'}:{ROOT}"
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    ended = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {"nodes": 0, "left": 0}
    return f"Ray, {ended['nodes']} nodes, {ended['nodes'] - ended['left']} killed"


def _kill_and_resume(runs: Path, study: Path) -> int:
    """Kill the head of a study, and before that its workers, each after a shard was finished; then finish it."""
    command = [sys.executable, "-m", "elision", "replay", str(runs), "--out", str(study), "--workers", "2"]
    command += ["--prices", "anthropic", "--no-hindsight", *(word for each in STRATEGIES for word in ("-s", each))]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("1 of "):
                break
        workers = [each for each in psutil.Process(process.pid).children() if "spawn_main" in " ".join(each.cmdline())]
        for each in workers:
            each.send_signal(signal.SIGKILL)
        process.kill()
    subprocess.run(command, capture_output=True, check=True)
    return len(workers) + 1


def hash_rows(study: Path) -> str:
    """Return a hash over all columns of all rows."""
    rows = [row for part in sorted((study / "rows").glob("part-*")) for row in pq.read_table(part).to_pylist()]
    rows.sort(key=lambda row: (row["file"], row["trajectory"], row["strategy"]))
    return hashlib.sha256(repr(rows).encode()).hexdigest()[:16]


def _measure_memory(folder: Path, few: int, many: int) -> None:
    """Print the memory of one worker after few and after many runs, and the runs per CPU second."""
    peaks = []
    for count in (few, many):
        runs = folder / f"runs-{count}"
        write_made_runs(runs, count)
        program = (
            "import sys, json, resource; from pathlib import Path; from benchmarks.scale import _prepare;"
            "from elision.study.shard_runner import run_locally, run_shards\n"
            "if __name__ == '__main__':\n"
            "    _, shards, task = _prepare(Path(sys.argv[1]), Path(sys.argv[2]))\n"
            "    done = run_shards(shards, task, lambda queue, work: run_locally(queue, work, 1), lambda _: None)\n"
            "    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024\n"
            "    print(json.dumps([peak, done.runs / done.seconds]))\n"
        )
        command = [sys.executable, "-c", program, str(runs), str(folder / f"memory-{count}")]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        peak, rate = json.loads(done.stdout)
        peaks.append(peak)
        print(f"One worker, {count} runs: {peak:.0f} MB at most, {rate:.1f} runs a CPU second", flush=True)
    print(f"  memory for {many} runs: {peaks[1] / peaks[0]:.3f} x that for {few}")
    hours = 1_000_000 / rate / 3600
    print(f"  a million runs: {hours:.0f} core hours")


def _measure_overhead(folder: Path, count: int) -> None:
    """Print the CPU time of shards as a multiple of a replay in memory, one process each, the better of three."""
    runs = folder / "timed"
    write_made_runs(runs, count)
    _, shards, task = _prepare(runs, folder / "overhead")
    times: tuple[list[float], list[float]] = [], []
    for _ in range(3):
        began = time.process_time()
        run_study(load_runs([runs]), SETTINGS)
        times[0].append(time.process_time() - began)
        shutil.rmtree(folder / "overhead" / "rows", ignore_errors=True)
        began = time.process_time()
        for shard in shards:
            task(shard)
        times[1].append(time.process_time() - began)
    memory, sharded = map(min, times)
    print(f"Shards: {sharded:.2f} s of CPU for {count} runs, {memory:.2f} s in memory: {sharded / memory:.3f} x")


def _measure_report(folder: Path, rows: int) -> None:
    """Print what a report of so many made-up rows costs, with some of the shards missing and with all."""
    study = folder / "synthetic"
    write_synthetic_study(study, rows // 8)
    parts = sorted((study / "rows").iterdir())
    size = sum(part.stat().st_size for part in parts)
    print(f"A report of {rows} rows, {size / 1e6:.0f} MB in {len(parts)} parts:", flush=True)
    late = parts[len(parts) * 7 // 10 :]
    for part in late:
        part.rename(folder / part.name)
    for when in (f"{len(parts) - len(late)} parts", "all parts"):
        for what, program in (("sums kept, once", _SUMMARY), ("report", _REPORT)):
            seconds, memory = run_measured([sys.executable, "-c", program, str(study)])
            print(f"  {when}, {what:16} {seconds:5.1f} s of CPU, {memory:.0f} MB", flush=True)
        for part in late if not late[0].exists() else ():
            (folder / part.name).rename(part)


def run_measured(command: Sequence[str]) -> tuple[float, float]:
    """Run a command; return its CPU seconds and the most memory that it used, MB."""
    program = (
        "import json, resource, subprocess, sys\n"
        "subprocess.run(sys.argv[1:], check=True)\n"
        "used = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "print(json.dumps([used.ru_utime + used.ru_stime, used.ru_maxrss / 1024]))\n"
    )
    whole = [sys.executable, "-c", program, *command]
    done = subprocess.run(whole, cwd=ROOT, capture_output=True, text=True, check=True)
    seconds, memory = json.loads(done.stdout.splitlines()[-1])
    return seconds, memory
