"""The longest that a gateway's event loop is held by one callback, in processor time, for each kind of hostile request.

The gateway runs in a thread of this process; the scripted provider and the clients have processes of their own. A
client in this process would hold the interpreter while it writes a body of 30 MB, and the loop's thread takes 5 to 20
ms of processor time to ask for the interpreter every half millisecond meanwhile. Processor time depends little on
what else the machine does, so this says what `stall`, which measures waits, cannot say on a machine that has other
work.
"""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.door.hostile import CASES, ROOT, Case
from benchmarks.door.sides import Sides, wait_until_ready
from elision.gateway.server import GC_THRESHOLDS, SWITCH_SECONDS, GatewayThread
from elision.gateway.settings import gateway_settings

#: Seconds for which each kind is sent; what is under way then is brought to its end.
SECONDS: Final = 3.0
BAR_MS: Final = 5


def main(only: str = "") -> None:
    print(f"{'kind of request':<40}{'longest callback':>18}{'answered':>10}")
    most = 0.0
    for name, longest, answered in measure_kinds(only):
        most = max(most, longest)
        late = "  over the bar" if longest > BAR_MS else ""
        print(f"{name:<40}{longest:>15.1f} ms{answered:>10}{late}", flush=True)
    print(f"longest of all: {most:.1f} ms")


def measure_kinds(only: str = "") -> Iterator[tuple[str, float, int]]:
    """The name of each kind, the longest callback in ms, and how many requests were answered."""
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.set_threshold(*GC_THRESHOLDS)
    with tempfile.TemporaryDirectory() as folder, Sides(Path(folder)) as sides, timed_callbacks() as longest:
        for name, case in CASES.items():
            if only in name:
                yield name, *send_requests(sides.upstream, case, longest)


def send_requests(upstream: str, case: Case, longest: list[float]) -> tuple[float, int]:
    """The longest callback from when the gateway was ready until its clients ended, and how many requests it answered.

    To start and to end a gateway takes longer, and nobody waits then.
    """
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
            command = [sys.executable, "-m", "benchmarks.door.hostile", str(port), case.name, str(SECONDS)]
            answered = int(subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout)
            return max(longest), answered


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

    asyncio.events.Handle._run = timed  # type: ignore[assignment, method-assign]
    try:
        yield found
    finally:
        asyncio.events.Handle._run = run  # type: ignore[method-assign]
