"""A study on a Ray cluster of two nodes here, one of which is killed: `python -m tests.study.ray_trial STUDY [SIZE]`.

The study is prepared, with its runs in `runs` beside it. SIZE: of shards; then it is one of `benchmarks scale`. Prints
what became of its shards as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import deque
from pathlib import Path

import psutil
import ray
import ray._private.services as services
from benchmarks.scale import SETTINGS
from ray.cluster_utils import Cluster

from elision.study.shard_runner import run_on_ray
from tests.study.made_runs import SETTINGS as SMALL_SETTINGS
from tests.study.made_runs import make_task, prepare, split_shards


def main(study: Path, size: int = 0) -> None:
    plan, shards = prepare(study.parent / "runs", study, SETTINGS if size else SMALL_SETTINGS)
    shards = split_shards(shards, size or 2)
    task = make_task(study, plan, SETTINGS if size else SMALL_SETTINGS)
    # The address that a machine has for others may not lead to itself; both nodes are here.
    services.resolve_ip_for_localhost = lambda host: host
    services.get_node_ip_address = lambda *_, **__: "127.0.0.1"
    small = {"num_cpus": 1, "object_store_memory": 100 * 2**20, "node_ip_address": "127.0.0.1"}
    cluster = Cluster(initialize_head=True, head_node_args={**small, "include_dashboard": False})
    second = cluster.add_node(**small)
    ray.init(address=cluster.address, _node_ip_address="127.0.0.1", log_to_driver=False)
    nodes = sum(node["Alive"] for node in ray.nodes())
    done: list[int] = []
    failed: dict[int, str] = {}
    killed = 0
    queue = deque(shards)
    for event in run_on_ray(queue, task, None):
        if len(done) >= 4 and not killed:
            killed = kill_workers()
        if event is None:
            continue
        shard, result, reason = event
        if result is None:
            failed[shard.number] = reason
            queue.append(shard)
            continue
        done.append(shard.number)
        if len(done) == 2:
            cluster.remove_node(second, allow_graceful=False)
    # The cluster gives a silent node 15 seconds before it counts as dead.
    until = time.monotonic() + 120
    while (left := sum(node["Alive"] for node in ray.nodes())) == nodes and time.monotonic() < until:
        time.sleep(0.5)
    print(json.dumps({"nodes": nodes, "left": left, "done": sorted(done), "failed": failed, "killed": killed}))
    ray.shutdown()
    cluster.shutdown()


def kill_workers() -> int:
    """Kill what computes a shard; return how many. Ray's agents are processes `ray::` too: a node dies with them."""
    workers = [
        process
        for process in psutil.Process().children(recursive=True)
        if "ray::_run_task" in " ".join(process.cmdline())
    ]
    for worker in workers:
        worker.kill()
    return len(workers)


if __name__ == "__main__":
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
