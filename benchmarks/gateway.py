"""The gateway against a bare pass-through: what it adds to a request, how many it serves, what each costs.

One provider that answers at once, one worker a side, all sides in one run and in turn: request by request with one
client, stretch by stretch with eight. Milliseconds are those of a machine that has other work; the processor time of a
request hardly depends on that, and ratios of what was measured side by side depend on it little.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import Final, TypeAlias

from benchmarks.door.asking import Asked, AskError, Connection, Talk, talk, talks
from benchmarks.door.sides import Side, Sides
from benchmarks.peers import PeerError
from benchmarks.session import Chat, chat

CLIENTS: Final = 8
#: Stretches that the work of eight clients is parted into, sides in turn.
STRETCHES: Final = 6
#: The bar that the issue sets, over the bare pass-through.
BAR: Final = "p50 <= 1.3 x, requests a second >= 0.4 x where a call brings 4 KB that are new, >= 0.5 x for small ones"

#: API key and body.
Request: TypeAlias = tuple[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much is asked. turns, size: of a session, and its bytes. again: calls of a session that is long already, each
    with a small turn more. first: sessions of one small request each. streams: streamed answers of a session."""

    turns: int
    size: int
    again: int
    first: int
    streams: int


#: A megabyte of requests in the end, 4 KB a turn.
WHOLE: Final = Scale(turns=240, size=860_000, again=30, first=200, streams=20)
SMALL: Final = Scale(turns=120, size=430_000, again=15, first=80, streams=8)


@dataclass(frozen=True, slots=True)
class Shape:
    """One kind of work. alone: what one client asks; together: what each of several asks, one after another.

    streams: whether answers are, of which the first byte counts. long: whether others are spared the work of several.
    """

    name: str
    alone: Callable[[], Iterator[Request]]
    together: Sequence[Callable[[], Iterator[Request]]]
    streams: bool = False
    long: bool = False


@dataclass(slots=True)
class Measured:
    """Of one side and shape. asked: by one client. served, seconds: by several. cpu_alone, cpu_together: seconds of the
    processor for each request. failed: why it was left out."""

    asked: list[Asked] = field(default_factory=list)
    served: int = 0
    seconds: float = 0.0
    cpu_alone: float = 0.0
    cpu_together: float = 0.0
    failed: str = ""

    @property
    def rate(self) -> float:
        return self.served / self.seconds if self.seconds else 0.0


# -- what is asked ----------------------------------------------------------------------------------------------------


def growing(one: Talk, calls: range) -> Iterator[Request]:
    """An agent's requests: each a turn longer than the one before."""
    for turns in calls:
        yield one.key, one.body(turns)


def small(all_talks: Sequence[Talk]) -> Iterator[Request]:
    """First requests of as many sessions."""
    for one in all_talks:
        yield one.key, one.body(0)


def streamed(one: Talk, calls: range) -> Iterator[Request]:
    for turns in calls:
        yield one.key, one.body(turns, stream=True)


def shapes(scale: Scale) -> list[Shape]:
    """The same at every run. Sessions of the first go on in the second and in the last."""
    many = CLIENTS + 1
    agents = talks(chat(many * scale.turns, many * scale.size), many, "agent")
    turns, more = scale.turns, scale.again + scale.streams
    short = chat(many * more, many * more * 250)
    grown = [_grown(one, other) for one, other in zip(agents, talks(short, many, "more"), strict=True)]
    begun = _small(short, 2 * scale.first)
    again, last = range(turns + 1, turns + scale.again + 1), range(turns + scale.again + 1, turns + more + 1)
    length = f"{scale.size / 860_000:g} MB"
    return [
        Shape(
            f"growing to {length} by a turn of 4 KB a call ({turns} calls a session)",
            partial(growing, grown[0], range(turns + 1)),
            [partial(growing, each, range(turns + 1)) for each in grown[1:]],
            long=True,
        ),
        Shape(
            f"{length}, a small turn more each call ({scale.again} calls a session)",
            partial(growing, grown[0], again),
            [partial(growing, each, again) for each in grown[1:]],
            long=True,
        ),
        Shape(
            f"2 KB, each a session of its own ({scale.first} sessions)",
            partial(small, begun[: scale.first]),
            [partial(small, begun[scale.first + number :: CLIENTS]) for number in range(CLIENTS)],
        ),
        Shape(
            f"{length}, answered by a stream of 200 events ({scale.streams} calls a session)",
            partial(streamed, grown[0], last),
            [partial(streamed, each, last) for each in grown[1:]],
            streams=True,
            long=True,
        ),
        Shape(
            f"2 KB and growing, answered by a stream of 200 events ({scale.streams} calls a session)",
            partial(streamed, _brief(short, 0, scale), range(scale.streams)),
            [partial(streamed, _brief(short, number, scale), range(scale.streams)) for number in range(1, CLIENTS + 1)],
            streams=True,
        ),
    ]


def _grown(one: Talk, short: Talk) -> Talk:
    """The session with small turns behind its own."""
    return Talk(one.key, one.head, [*one.turns, *short.turns], one.tools)


def _small(found: Chat, count: int) -> list[Talk]:
    heads = [[{**found.head[0], "content": "You mend code."}, _task(found, number)] for number in range(count)]
    return [talk(f"small-{number}", head, [], found.tools) for number, head in enumerate(heads)]


def _task(found: Chat, number: int) -> dict[str, object]:
    text = "\n".join(str(turn[1]["content"]) for turn in found.turns[number : number + 12])
    return {"role": "user", "content": f"{number}: {found.head[1]['content']}\n{text[:1_200]}"}


def _brief(found: Chat, number: int, scale: Scale) -> Talk:
    turns = found.turns[number * scale.streams : (number + 1) * scale.streams]
    return talk(f"brief-{number}", found.head, turns, found.tools)


# -- measuring --------------------------------------------------------------------------------------------------------


async def alone(sides: Sequence[Side], shape: Shape, into: dict[str, Measured]) -> None:
    """One client: each request to every side, one right after another, who is first in turn."""
    connections = {side.name: Connection(side.address) for side in sides}
    before = {side.name: side.cpu() for side in sides}
    for number, (key, body) in enumerate(shape.alone()):
        first = number % len(sides)
        for side in (*sides[first:], *sides[:first]):
            found = into[side.name]
            if not found.failed:
                await _one(connections[side.name], key, body, found)
    await asyncio.sleep(0.5)
    for side in sides:
        found = into[side.name]
        found.cpu_alone = (side.cpu() - before[side.name]) / max(1, len(found.asked))
        connections[side.name].close()


async def _one(connection: Connection, key: str, body: bytes, found: Measured) -> None:
    try:
        found.asked.append(await connection.ask(key, body))
    except AskError as error:
        found.failed = str(error)


async def together(sides: Sequence[Side], shape: Shape, into: dict[str, Measured]) -> None:
    """Several clients at one side, then at the next, stretch by stretch."""
    length = max(sum(1 for _ in each()) for each in shape.together)
    edges = [round(length * number / STRETCHES) for number in range(STRETCHES + 1)]
    connections = {side.name: [Connection(side.address) for _ in shape.together] for side in sides}
    running = {side.name: [each() for each in shape.together] for side in sides}
    before = {side.name: side.cpu() for side in sides}
    for number, (start, end) in enumerate(pairwise(edges)):
        first = number % len(sides)
        for side in (*sides[first:], *sides[:first]):
            if not into[side.name].failed:
                await _stretch(connections[side.name], running[side.name], end - start, into[side.name])
    await asyncio.sleep(0.5)
    for side in sides:
        found = into[side.name]
        found.cpu_together = (side.cpu() - before[side.name]) / max(1, found.served)
        for connection in connections[side.name]:
            connection.close()


async def _stretch(
    connections: Sequence[Connection], running: Sequence[Iterator[Request]], count: int, found: Measured
) -> None:
    async def client(connection: Connection, requests: Iterator[Request]) -> None:
        for _, (key, body) in zip(range(count), requests, strict=False):
            await connection.ask(key, body)
            found.served += 1

    began = perf_counter()
    try:
        await asyncio.gather(*map(client, connections, running))
    except AskError as error:
        found.failed = str(error)
    found.seconds += perf_counter() - began


# -- telling ----------------------------------------------------------------------------------------------------------


def _print(shape: Shape, sides: Sequence[Side], into: dict[str, Measured]) -> None:
    print(f"\n{shape.name}")
    told = "first byte" if shape.streams else "answered"
    several = f"{CLIENTS} clients: a second"
    print(
        f"  {'one client':20} {told + ', p50, p95':>24} {'added':>14} {'CPU each':>13} {several:>21} {'CPU each':>15}"
    )
    base = into[sides[0].name]
    for side in sides:
        found = into[side.name]
        if found.failed or not found.asked:
            print(f"  {side.name:20} LEFT OUT: {found.failed[:120]}")
            continue
        print(f"  {side.name:20} {_row(found, base, streams=shape.streams)}", flush=True)


def _row(found: Measured, base: Measured, *, streams: bool) -> str:
    own, other = _times(found, streams=streams), _times(base, streams=streams)
    high = quantiles(own, n=20)[-1]
    row = (
        f"{median(own) * 1e3:6.1f} {high * 1e3:6.1f} ms {median(own) / median(other):5.2f} x"
        f" {(median(own) - median(other)) * 1e3:+5.1f} ms"
        f" {found.cpu_alone * 1e3:6.2f} ms {found.cpu_alone / base.cpu_alone:5.2f} x"
    )
    if not found.served:
        return row
    return (
        f"{row} {found.rate:6,.0f}/s {found.rate / base.rate:5.2f} x"
        f" {found.cpu_together * 1e3:6.2f} ms {found.cpu_together / base.cpu_together:5.2f} x"
    )


def _times(found: Measured, *, streams: bool) -> list[float]:
    return [each.first if streams else each.whole for each in found.asked]


async def measure(sides: Sequence[Side], others: Sequence[Side], scale: Scale) -> None:
    everybody = [*sides, *others]
    for side in everybody:
        await _warm(side)
    for shape in shapes(scale):
        into = {side.name: Measured() for side in everybody}
        await alone(everybody, shape, into)
        await together(sides if shape.long else everybody, shape, into)
        _print(shape, everybody, into)


async def _warm(side: Side) -> None:
    """What a process does once is no request's cost."""
    connection = Connection(side.address)
    for number, one in enumerate(_small(chat(12, 12_000), 20)):
        await connection.ask(f"warm-{one.key}", one.body(0))
        if number == 0:
            print(f"  {side.name:20} first answer after {side.cpu():.2f} s of processor time", flush=True)
    connection.close()


def _others(sides: Sides) -> Iterator[Side]:
    for start in (sides.litellm, sides.headroom):
        try:
            yield start()
        except PeerError as why:
            print(f"LEFT OUT: {start.__name__}: {why}", flush=True)


def main(*, peers: bool = False, small: bool = False) -> None:
    print(f"One worker a side, a provider that answers at once. Times over the bare pass-through's; bar: {BAR}.")
    with tempfile.TemporaryDirectory(prefix="elision-bench-") as folder, Sides(Path(folder)) as sides:
        measured = [sides.bare(), sides.ours("elision serve")]
        if not small:
            measured[1:1] = [
                sides.ours("elision serve --off", "--off"),
                sides.ours("elision serve -s raw", "-s", "raw"),
            ]
        asyncio.run(measure(measured, list(_others(sides)) if peers else (), SMALL if small else WHOLE))


if __name__ == "__main__":
    main()
