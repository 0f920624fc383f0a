"""How long others wait while one client asks too much of a gateway: `/healthz`, and a small chat request.

One gateway process with one worker, a scripted provider behind it, hostile clients in a process of their own, all on
loopback. Requests are sent at a fixed rate, whether earlier ones were answered or not, so a standstill of a second
counts in every request that falls into it. A bare asyncio server is asked at the same rate in the same moments: what it
waits is the machine's doing and that of the process that measures.
"""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from statistics import quantiles
from time import perf_counter
from typing import Any, Final

import httptools

from benchmarks.door.hostile import CASES, MODEL, PATH, ROOT, SLOW_UPLOADS, Case
from benchmarks.door.sides import Side, Sides

#: Seconds for which each kind of hostile request is sent, also in the small form, and between two requests of one kind
#: that are measured.
SECONDS: Final = 8.0
SMALL_SECONDS: Final = 5.0
PACE: Final = 0.04
#: Seconds after which a measured request counts as not answered.
PATIENCE: Final = 60.0
BAR_MS: Final = 50
IDLE: Final = "nothing else"


class Exchange(asyncio.Protocol):
    """One request over a connection of its own; `done` is resolved with its answer's status."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._parser = httptools.HttpResponseParser(self)
        self.done: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        self._transport.close()
        if not self.done.done():
            self.done.set_result(self._parser.get_status_code())

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(exc or ConnectionResetError("closed without an answer"))


class Waits:
    """What requests of three kinds waited, in milliseconds."""

    def __init__(self) -> None:
        self.health: list[float] = []
        self.chat: list[float] = []
        self.control: list[float] = []
        self.failed = 0


async def measure(side: Side, control: Side, is_over: Callable[[], bool], key: str) -> Waits:
    """Ask both at a fixed rate until `is_over`, and wait for what is under way then."""
    waits, tasks = Waits(), set[asyncio.Task[None]]()

    async def ask(address: tuple[str, int], request: bytes, into: list[float]) -> None:
        began = perf_counter()
        try:
            async with asyncio.timeout(PATIENCE):
                _, exchange = await asyncio.get_running_loop().create_connection(lambda: Exchange(request), *address)
                if await exchange.done != 200:
                    waits.failed += 1
        except (OSError, TimeoutError):
            waits.failed += 1
        into.append(1e3 * (perf_counter() - began))

    def begin(work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    number, start = 0, perf_counter()
    while not is_over():
        begin(ask(side.address, get_request("/healthz"), waits.health))
        begin(ask(side.address, chat_request(f"{key}-{number}"), waits.chat))
        begin(ask(control.address, get_request("/healthz"), waits.control))
        number += 1
        await asyncio.sleep(max(0.0, start + number * PACE - perf_counter()))
    await asyncio.gather(*tasks)
    return waits


def get_request(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode()


def chat_request(key: str) -> bytes:
    """The first request of a small session, each under a key of its own."""
    body = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "What is in this folder?"}]}).encode()
    head = f"POST {PATH} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer sk-{key}\r\n"
    return f"{head}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


def main(only: str = "", *, small: bool = False) -> None:
    seconds = SMALL_SECONDS if small else SECONDS
    # This process would wait for itself: it has what all benchmarks import, and looks through it for 50 ms.
    gc.freeze()
    print(f"requests each {1e3 * PACE:g} ms for {seconds:g} s of each kind; waits in ms, p50 / p99 / most")
    print(f"{'while others send':<40}{'/healthz':>24}{'small chat':>24}{'bare server':>24}  answered")
    most = 0.0
    for name, waits, answered in measure_kinds(only, seconds):
        print(told(name, waits, answered), flush=True)
        most = max(most, percentile(waits.health), percentile(waits.chat))
    print(f"longest of all at p99: {most:.0f} ms")


def measure_kinds(only: str = "", seconds: float = SECONDS) -> Iterator[tuple[str, Waits, str]]:
    """The name of each kind, what was waited while others sent it, and how many of those were answered."""
    with tempfile.TemporaryDirectory() as folder, Sides(Path(folder)) as sides:
        control = sides.control()
        plain = sides.ours("gateway")
        yield IDLE, run_idle(plain, control, seconds), ""
        for name in [*CASES, SLOW_UPLOADS]:
            if only in name:
                case = CASES.get(name)
                side = sides.ours(name.replace(",", ""), *case.options) if case and case.options else plain
                yield name, *run_case(side, control, name, case, seconds)
        yield f"{IDLE}, afterwards", run_idle(plain, control, seconds), ""


def run_idle(side: Side, control: Side, seconds: float) -> Waits:
    end = perf_counter() + seconds
    return asyncio.run(measure(side, control, lambda: perf_counter() >= end, "idle"))


def run_case(side: Side, control: Side, name: str, case: Case | None, seconds: float) -> tuple[Waits, str]:
    command = [sys.executable, "-m", "benchmarks.door.hostile", str(side.address[1]), name, str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as hostile:
        waits = asyncio.run(measure(side, control, lambda: hostile.poll() is not None, name.encode().hex()))
        assert hostile.stdout is not None
        return waits, hostile.stdout.read().strip()


def told(name: str, waits: Waits, answered: str = "") -> str:
    failed = f", {waits.failed} measured requests failed" if waits.failed else ""
    kinds = "".join(f"{figures(each):>24}" for each in (waits.health, waits.chat, waits.control))
    late = "  over the bar" if max(percentile(waits.health), percentile(waits.chat)) > BAR_MS else ""
    return f"{name:<40}{kinds}  {answered}{failed}{late}"


def figures(found: list[float]) -> str:
    cuts = quantiles(found, n=100)
    return f"{cuts[49]:,.0f} / {cuts[98]:,.0f} / {max(found):,.0f}"


def percentile(found: list[float]) -> float:
    return quantiles(found, n=100)[98]
