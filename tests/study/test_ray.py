"""Studies on Ray: a real cluster of two nodes, one of which dies; and what is said without Ray."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from elision.errors import MissingExtra
from elision.study.shard_runner import make_engine
from tests.processes import start_process
from tests.study.made_runs import hash_rows, make_task, prepare, split_shards, write_runs

#: Without Ray nothing of this file is tried, and the summary of the run says so.
HAS_RAY = importlib.util.find_spec("ray") is not None
ROOT = Path(__file__).parents[2]


@pytest.mark.soak
@pytest.mark.skipif(not HAS_RAY, reason="ray is not installed (pip install 'elision[ray]'): no cluster is tried")
def test_a_cluster_that_loses_a_node(tmp_path: Path) -> None:
    """With one of two nodes and a worker killed, every shard is done once and the rows are those of one process."""
    write_runs(tmp_path / "runs", 40)
    prepare(tmp_path / "runs", tmp_path / "study")
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    }
    command = [sys.executable, "-m", "tests.study.ray_trial", str(tmp_path / "study")]
    with start_process(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        output, _ = process.communicate(timeout=900)
    assert process.returncode == 0
    found = json.loads(output.splitlines()[-1])
    assert (found["nodes"], found["left"]) == (2, 1)
    assert found["killed"] >= 1
    assert found["done"] == list(range(20))
    plan, shards = prepare(tmp_path / "runs", tmp_path / "alone")
    for shard in split_shards(shards, 2):
        make_task(tmp_path / "alone", plan)(shard)
    assert hash_rows(tmp_path / "study") == hash_rows(tmp_path / "alone")


@pytest.mark.skipif(HAS_RAY, reason="ray is installed: what is said without it is not tried")
def test_without_ray() -> None:
    """The extra is named."""
    with pytest.raises(MissingExtra, match=r"\[ray\]"):
        make_engine("ray", 1)
