"""What many compressed requests at once take: memory, and what others wait meanwhile.

Each request has some KB and becomes 56 MB. All are sent at once, and the provider leaves them unanswered until the
measuring is over, so what a gateway holds for them it holds at the same time.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import threading
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Final

from benchmarks.door.hostile import MODEL, PATH
from benchmarks.door.instant import HOLD
from benchmarks.door.sides import Side, Sides
from benchmarks.stall import Exchange, figures, measure, percentile
from elision import zstd

#: Requests, and bytes that each becomes.
BOMBS: Final = 150
SIZE: Final = 56_000_000
#: Seconds for which others are asked, and before the requests are sent.
SECONDS: Final = 20.0
BEFORE: Final = 4.0
MIB: Final = 1024 * 1024
#: The default of `memory_bytes`, and how much more a process may have, in MiB.
MEMORY: Final = 512
BAR_MIB: Final = 150
BAR_MS: Final = 100
#: Bytes of one result in them.
_RESULT: Final = 7_000_000
_PAUSE: Final = 0.05


def make_bombs() -> list[bytes]:
    """Return requests, compressed, each of a session of its own. Their large part is one frame that all share."""
    messages: list[dict[str, object]] = []
    for index in range(SIZE // _RESULT):
        called = {"id": f"c{index}", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
        messages.append({"role": "assistant", "content": "", "tool_calls": [called]})
        messages.append({"role": "tool", "tool_call_id": f"c{index}", "content": "0" * _RESULT})
    shared = zstd.compress(json.dumps(messages).encode()[1:] + b"}")
    return [make_bomb(number, shared) for number in range(BOMBS)]


def make_bomb(number: int, shared: bytes) -> bytes:
    start = f'{{"model": "{MODEL}", "messages": [{{"role": "user", "content": "task {number}"}}, '
    body = zstd.compress(start.encode()) + shared
    head = f"POST {PATH}{HOLD} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer sk-bomb-{number}\r\n"
    fields = f"content-type: application/json\r\ncontent-encoding: zstd\r\ncontent-length: {len(body)}\r\n\r\n"
    return (head + fields).encode() + body


def read_memory(side: Side, name: str) -> int:
    """Return a process's memory in MiB: `VmRSS` now, or `VmHWM`, the most so far."""
    lines = Path(f"/proc/{side.pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"{name}:")).split()[1]) // 1024


def send_bombs(side: Side, bombs: list[bytes], is_over: threading.Event) -> None:
    """Send them all at once, in a thread of their own, and keep the connections until it is over."""

    async def send() -> None:
        loop = asyncio.get_running_loop()
        opened = [await loop.create_connection(partial(Exchange, raw), *side.address) for raw in bombs]
        await asyncio.to_thread(is_over.wait)
        for transport, exchange in opened:
            transport.close()
            await asyncio.wait({exchange.done})
            exchange.done.exception()

    asyncio.run(send())


def main() -> None:
    bombs = make_bombs()
    print(
        f"{BOMBS} requests of {len(bombs[0]):,} bytes that become {SIZE / 1e6:.0f} MB, memory_bytes {MEMORY} MiB",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as folder, Sides(Path(folder)) as sides:
        control, side = sides.control(), sides.ours("gateway")
        end = perf_counter() + BEFORE
        before = asyncio.run(measure(side, control, lambda: perf_counter() >= end, "before"))
        start, is_over, cpu = read_memory(side, "VmRSS"), threading.Event(), side.cpu()
        sender = threading.Thread(target=send_bombs, args=(side, bombs, is_over))
        sender.start()
        until = perf_counter() + SECONDS
        waits = asyncio.run(measure(side, control, lambda: perf_counter() >= until, "during"))
        most = read_memory(side, "VmHWM")
        cpu = side.cpu() - cpu
        is_over.set()
        sender.join()
    over = "  over the bar" if most > MEMORY + BAR_MIB else ""
    print(f"  memory in MiB: before {start}, most {most}, bar {MEMORY + BAR_MIB}{over}")
    print(f"  waits in ms, p50 / p99 / most; bar {BAR_MS} at p99{'before':>22}{'during':>24}")
    for name, one, other in (
        ("/healthz", before.health, waits.health),
        ("small chat", before.chat, waits.chat),
        ("bare server", before.control, waits.control),
    ):
        late = "  over the bar" if name != "bare server" and percentile(other) > BAR_MS else ""
        print(f"  {name:<48}{figures(one):>24}{figures(other):>24}{late}")
    print(f"  processor time of the gateway: {cpu:.1f} s in {SECONDS:g}")
    print(f"  requests of others that failed: {waits.failed}")


if __name__ == "__main__":
    main()
