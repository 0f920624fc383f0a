"""How evenly several workers share connections, and how many connections end with a worker that is killed.

Clients connect all at once, each sends a small request and keeps its connection, as agents do. No figure is a time.
"""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from pathlib import Path
from typing import Final

import psutil

from benchmarks.door.sides import Side, Sides
from benchmarks.stall import chat_request, get_request

#: Workers and connections.
CASES: Final = ((3, 8), (2, 40), (3, 40), (8, 40), (3, 120))
#: Rounds of each case; the worst counts.
ROUNDS: Final = 5
BAR: Final = 1.5
#: Seconds between two looks at what is not ready yet.
_PAUSE: Final = 0.05


class Client(asyncio.Protocol):
    """A kept connection. answered: resolved with the first bytes of the newest answer, or b"" if it is closed."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    async def ask(self, request: bytes) -> bytes:
        self.answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        if self.transport.is_closing():
            return b""
        self.transport.write(request)
        return await self.answered

    def data_received(self, data: bytes) -> None:
        if not self.answered.done():
            self.answered.set_result(data)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.answered.done():
            self.answered.set_result(b"")


async def connect(side: Side, count: int) -> list[Client]:
    """Return as many connections, opened at once, with a request answered on each."""

    async def open_one(number: int) -> Client:
        _, client = await asyncio.get_running_loop().create_connection(Client, *side.address)
        assert (await client.ask(chat_request(f"spread-{number}"))).startswith(b"HTTP/1.1 200")
        return client

    return list(await asyncio.gather(*map(open_one, range(count))))


def count_connections(side: Side) -> dict[int, int]:
    """Return each worker's connections with clients, by its process."""
    found = {}
    for child in psutil.Process(side.pid).children():
        if "spawn_main" in " ".join(child.cmdline()):
            each = child.net_connections("tcp")
            found[child.pid] = sum(
                one.status == psutil.CONN_ESTABLISHED and one.laddr.port == side.address[1] for one in each
            )
    return found


async def measure_share(side: Side, workers: int, count: int) -> list[int]:
    """Return the workers' connections, ascending; all are closed afterwards."""
    clients = await connect(side, count)
    found = sorted(count_connections(side).values())
    for client in clients:
        client.transport.close()
    while any(count_connections(side).values()):
        await asyncio.sleep(_PAUSE)
    assert len(found) == workers
    return found


async def measure_kill(side: Side, count: int) -> float:
    """Return the part of the connections that end when the worker with the most of them is killed."""
    clients = await connect(side, count)
    counts = count_connections(side)
    os.kill(max(counts, key=lambda worker: counts[worker]), signal.SIGKILL)
    kept = [await client.ask(get_request("/healthz")) for client in clients]
    for client in clients:
        client.transport.close()
    return 1 - sum(map(bool, kept)) / count


async def wait_for_workers(side: Side, workers: int) -> None:
    """Wait until each worker takes connections."""
    while True:
        clients = await connect(side, workers)
        counts = count_connections(side)
        for client in clients:
            client.transport.close()
        if len(counts) == workers and all(counts.values()):
            return
        await asyncio.sleep(_PAUSE)


def main() -> None:
    print(f"most connections of one worker over its share, the worst of {ROUNDS} rounds; bar {BAR} x from 40 on")
    with tempfile.TemporaryDirectory() as folder, Sides(Path(folder)) as sides:
        for workers in sorted({workers for workers, _ in CASES}):
            side = sides.ours(f"{workers} workers", "--workers", str(workers))
            asyncio.run(wait_for_workers(side, workers))
            for _, count in (case for case in CASES if case[0] == workers):
                rounds = [asyncio.run(measure_share(side, workers, count)) for _ in range(ROUNDS)]
                worst = max(rounds, key=max)
                print(f"  {count:>4} connections, {workers} workers: {max(worst) * workers / count:5.2f} x  {worst}")
            if workers == 3:
                print(f"  killing one of 3 workers ends {asyncio.run(measure_kill(side, 120)):.1%} of 120 connections")


if __name__ == "__main__":
    main()
