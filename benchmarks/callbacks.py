"""The longest that a gateway's event loop is held by one callback, in processor time, for each kind of hostile request.

The gateway runs in a thread of this process, behind it the scripted provider. Processor time of the loop's own thread
depends little on what else the machine does, so this says what `stall`, which measures waits, cannot say on a machine
that has other work.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Final

from benchmarks.door.hostile import CASES, PATH, PATIENCE, Case
from benchmarks.door.sides import Sides, wait_until_ready
from elision.gateway.gateway_thread import GatewayThread
from elision.gateway.server import GC_THRESHOLDS, SWITCH_SECONDS
from elision.gateway.settings import gateway_settings

#: Requests of each kind.
REQUESTS: Final = 4
BAR_MS: Final = 5


def main(only: str = "") -> None:
    print(f"{'kind of request':<40}{'longest callback':>18}{'seconds for ' + str(REQUESTS):>16}")
    most = 0.0
    for name, longest, seconds in measure_kinds(only):
        most = max(most, longest)
        late = "  over the bar" if longest > BAR_MS else ""
        print(f"{name:<40}{longest:>15.1f} ms{seconds:>16.1f}{late}", flush=True)
    print(f"longest of all: {most:.1f} ms")


def measure_kinds(only: str = "") -> Iterator[tuple[str, float, float]]:
    """The name of each kind, the longest callback in ms, and the seconds that its requests took."""
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.set_threshold(*GC_THRESHOLDS)
    with tempfile.TemporaryDirectory() as folder, Sides(Path(folder)) as sides, timed_callbacks() as longest:
        for name, case in CASES.items():
            if only in name:
                seconds = send_requests(sides.upstream, case, longest)
                yield name, max(longest), seconds


def send_requests(upstream: str, case: Case, longest: list[float]) -> float:
    """Seconds that the requests of a case took; `longest` has the callbacks after the gateway was ready."""
    with tempfile.TemporaryDirectory() as folder:
        options = dict(zip(case.options[::2], case.options[1::2], strict=True))
        given = {name.removeprefix("--"): value for name, value in options.items()}
        found = gateway_settings(
            {},
            Path(folder),
            gateway_port=0,
            gateway_log="none",
            gateway_upstream_openai=upstream,
            store=f"sqlite:///{folder}/kept.db",
            **given,
        )
        with GatewayThread(found) as gateway:
            port = int(gateway.url.rpartition(":")[2])
            wait_until_ready(port)
            # As `elision serve` does when it is warm: what was loaded is not looked through again.
            gc.freeze()
            longest[:] = [0.0]
            connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
            headers = {"content-type": "application/json", "authorization": "Bearer sk-1", **dict(case.headers)}
            bodies, began = case.bodies(0), time.perf_counter()
            for _ in range(REQUESTS):
                connection.request("POST", PATH, next(bodies), headers)
                connection.getresponse().read()
            seconds = time.perf_counter() - began
            connection.close()
            return seconds


@contextmanager
def timed_callbacks() -> Iterator[list[float]]:
    """Milliseconds of processor time of each callback of any event loop but the main thread's."""
    found = [0.0]
    run = asyncio.events.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        began = time.thread_time()
        run(handle)
        if threading.current_thread() is not threading.main_thread():
            found.append(1e3 * (time.thread_time() - began))

    asyncio.events.Handle._run = timed  # type: ignore[method-assign]
    try:
        yield found
    finally:
        asyncio.events.Handle._run = run  # type: ignore[method-assign]
