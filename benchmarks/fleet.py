"""What a request costs a fleet: processor time of gateway and PostgreSQL, transactions, WAL, stored bytes.

What a fleet needs by that is computed. `python -m benchmarks fleet`; ELISION_BENCH_POSTGRES names a PostgreSQL on this
machine, whose user may read its statistics. The recorded runs of `examples/runs` are worked through over one gateway.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import psycopg

from elision.formats.registry import read_runs
from elision.stores.postgres.address import parse_address
from elision.testing.follower import Follower
from elision.testing.playback import Playback
from elision.trajectory.trajectory import Trajectory

FOLDER = Path(__file__).parents[1] / "examples" / "runs"
#: Calls of a run that are made at most, and in the small form.
LONGEST, SMALL = 200, 10
#: Requests a second of the fleets that are computed.
FLEETS = (1_000, 10_000, 100_000)
#: Of a core and of a synced disk, what is planned with: the rest is for peaks.
UTILIZATION = 0.6
#: Commits a second of one PostgreSQL whose disk syncs in groups; bytes of WAL a second of one disk.
COMMITS, WAL_BYTES = 20_000, 500e6
SECONDS_OF_A_MONTH = 30 * 86_400
TABLES = ("log", "texts", "uses", "turns", "words", "summaries", "sessions")


@dataclass(frozen=True)
class Usage:
    """What was used up to now: seconds of processors, transactions, bytes."""

    gateway: float
    server: float
    transactions: float
    wal: float
    stored: dict[str, int]


def main(small: bool = False) -> None:
    address = os.environ.get("ELISION_BENCH_POSTGRES")
    if not address:
        print("fleet: ELISION_BENCH_POSTGRES names no PostgreSQL: NOT measured")
        return
    schema = f"bench_fleet_{os.getpid()}"
    store = f"{address}{'&' if '?' in address else '?'}schema={schema}"
    with (
        psycopg.connect(parse_address(address.partition(":")[2]).libpq, autocommit=True) as admin,
        tempfile.TemporaryDirectory() as folder,
        Playback(list(list_runs())) as provider,
    ):
        command = ["serve", "--port", "0", "--store", store, "--upstream-openai", provider.url, "--log", "none"]
        program = "from elision.cli import main; main()"
        with subprocess.Popen(
            [sys.executable, "-c", program, *command, "-s", "masking"], cwd=folder, stdout=subprocess.PIPE, text=True
        ) as gateway:
            assert gateway.stdout is not None
            url = next(line.split()[-1] for line in gateway.stdout if line.startswith("OpenAI"))
            work(url, next(list_runs()), 3)
            before = read_usage(admin, gateway.pid, schema)
            requests = sum(work(url, run, SMALL if small else LONGEST) for run in list_runs())
            after = read_usage(admin, gateway.pid, schema)
            gateway.terminate()
        admin.execute(psycopg.sql.SQL("drop schema {} cascade").format(psycopg.sql.Identifier(schema)))
    report(requests, before, after)


def list_runs() -> Iterator[Trajectory]:
    for path in sorted(FOLDER.glob("*.gz")):
        yield from (each for each in read_runs(path) if isinstance(each, Trajectory))


def work(url: str, run: Trajectory, longest: int) -> int:
    """Work through a run; return the requests."""
    agent = Follower(run, "openai")
    connection = HTTPConnection(urlsplit(url).netloc, timeout=60)
    count = 0
    while not agent.done and count < longest:
        body = json.dumps({"model": "gpt-5.2", **agent.request})
        headers = {"authorization": "Bearer bench", "content-type": "application/json"}
        connection.request("POST", "/v1/chat/completions", body, headers)
        response = connection.getresponse()
        raw = response.read()
        assert response.status == 200, raw[:300]
        agent.take(json.loads(raw))
        count += 1
    connection.close()
    return count


def read_usage(admin: psycopg.Connection[tuple[object, ...]], gateway: int, schema: str) -> Usage:
    times = psutil.Process(gateway).cpu_times()
    server = psutil.Process(admin.info.backend_pid).parent()
    assert server is not None
    processes = [server.cpu_times(), *(each.cpu_times() for each in server.children())]
    ended = server.cpu_times()
    row = admin.execute(
        "select (select xact_commit from pg_stat_database where datname = current_database())::float8, "
        "pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8"
    ).fetchone()
    assert row is not None
    sizes = admin.execute(
        "select relname, pg_total_relation_size(c.oid) from pg_class c join pg_namespace n on n.oid = relnamespace "
        "where nspname = %s and relkind = 'r'",
        [schema],
    ).fetchall()
    return Usage(
        gateway=times.user + times.system,
        server=sum(each.user + each.system for each in processes) + ended.children_user + ended.children_system,
        transactions=float(str(row[0])),
        wal=float(str(row[1])),
        stored={str(name).removeprefix("agent_context_"): int(str(size)) for name, size in sizes},
    )


def report(requests: int, before: Usage, after: Usage) -> None:
    gateway = (after.gateway - before.gateway) / requests
    server = (after.server - before.server) / requests
    commits = (after.transactions - before.transactions) / requests
    wal = (after.wal - before.wal) / requests
    stored = {name: (after.stored[name] - before.stored[name]) / requests for name in TABLES}
    total = sum(stored.values())
    print(f"fleet, measured over {requests:,} requests, each:")
    print(f"  gateway {gateway * 1e3:.1f} ms of a core, PostgreSQL {server * 1e3:.1f} ms")
    print(f"  {commits:.1f} transactions, {wal / 1e3:.1f} kB of WAL, {total / 1e3:.2f} kB stored")
    shares = ", ".join(f"{name} {size / total:.0%}" for name, size in stored.items() if size / total >= 0.005)
    print(f"  stored in: {shares}")
    print(f"fleets, COMPUTED from that at {UTILIZATION:.0%} of each core:")
    for rate in FLEETS:
        databases = max(rate * commits / COMMITS, rate * wal / WAL_BYTES, rate * server / UTILIZATION / 64)
        cores, server_cores = rate * gateway / UTILIZATION, rate * server / UTILIZATION
        print(
            f"  {rate:>7,} requests/s: {cores:,.0f} gateway cores, {server_cores:,.0f} PostgreSQL cores, "
            f"{rate * commits:,.0f} transactions/s, {rate * wal / 1e6:,.0f} MB/s of WAL, "
            f"{rate * total * SECONDS_OF_A_MONTH / 1e12:,.1f} TB a month; {databases:.2f} times one PostgreSQL"
        )
