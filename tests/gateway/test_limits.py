"""Room for so much at once: never more is taken than there is, nobody is passed by, and nothing is lost on the way."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.gateway.body_reader import ClientDisconnected, RequestBodyReader
from elision.gateway.limits import AdmissionLimits, CapacityGate, RequestRefused
from tests.gateway.loopback_gateway import make_settings


async def test_first_come_first_served() -> None:
    """A small request does not pass by a large one that waits."""

    gate, order = CapacityGate(10, max_waiting=9, seconds=5), []

    async def one(name: str, amount: int) -> None:
        await gate.acquire(amount)
        order.append(name)

    await gate.acquire(8)
    tasks = [asyncio.ensure_future(one(*each)) for each in (("large", 7), ("small", 1), ("other", 2))]
    await asyncio.sleep(0)
    assert (gate.waiting, order) == (3, [])
    gate.release(8)
    await asyncio.gather(*tasks)
    assert order == ["large", "small", "other"]


async def test_more_than_there_is() -> None:
    """Whoever wants more room than there is gets all of it."""
    gate = CapacityGate(10, max_waiting=1, seconds=1)
    assert await gate.acquire(99) == 10
    gate.release(10)
    assert gate.in_use == 0


@given(
    st.lists(st.tuples(st.integers(1, 12), st.integers(0, 3), st.booleans()), max_size=12),
    st.integers(1, 10),
    st.integers(0, 12),
)
def test_any_crowd(crowd: list[tuple[int, int, bool]], room: int, waiting: int) -> None:
    """Whoever comes, stays or is cancelled: what is taken never exceeds the room, and all is given back."""

    async def run() -> None:
        gate = CapacityGate(room, max_waiting=waiting, seconds=5)

        async def one(amount: int, stay: int) -> None:
            try:
                taken = await gate.acquire(amount)
            except RequestRefused:
                return
            assert 0 < gate.in_use <= room
            try:
                for _ in range(stay):
                    await asyncio.sleep(0)
            finally:
                gate.release(taken)

        tasks = [asyncio.ensure_future(one(amount, stay)) for amount, stay, _ in crowd]
        await asyncio.sleep(0)
        for task, (_, _, goes) in zip(tasks, crowd, strict=True):
            if goes:
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert (gate.in_use, gate.waiting) == (0, 0)

    asyncio.run(run())


def arriving(
    messages: list[dict[str, Any]], headers: dict[bytes, bytes], **given: Any
) -> tuple[RequestBodyReader, AdmissionLimits]:
    limits = AdmissionLimits(make_settings(**given))
    queue = iter(messages)

    async def receive() -> dict[str, Any]:
        return next(queue)

    return RequestBodyReader(receive, limits, headers), limits


def part(data: bytes, more: bool = True) -> dict[str, Any]:
    return {"type": "http.request", "body": data, "more_body": more}


async def test_room_is_held_while_a_body_is() -> None:
    """What a client says it sends is held from the start, what it did not say as it comes; all of it is given back."""
    body, limits = arriving([part(b"abc"), part(b"de", more=False)], {b"content-length": b"5"})
    assert await body.read() == b"abcde"
    assert limits.memory_gate.in_use == 5
    body.close()
    body.close()
    assert limits.memory_gate.in_use == 0

    body, limits = arriving([part(b"abc"), part(b"de", more=False)], {})
    assert await body.read() == b"abcde"
    assert limits.memory_gate.in_use == 5
    body.close()


async def test_memory_for_a_decompressed_body_is_reserved_and_released() -> None:
    """It may take three quarters of the memory, does not wait, and is released with the body."""
    found = {"gateway_memory_bytes": 100, "gateway_max_read_bytes": 100}
    body, limits = arriving([part(b"abcde", more=False)], {b"content-length": b"5"}, **found)
    await body.read()
    assert body.reserve_decompressed(40)
    assert not body.reserve_decompressed(31)
    assert body.reserve_decompressed(30)
    assert limits.memory_gate.in_use == 75
    assert body.reserve_decompressed(-60)
    assert limits.memory_gate.in_use == 15
    body.close()
    assert limits.memory_gate.in_use == 0


async def test_a_client_that_leaves() -> None:
    """In the midst of its body: there is nobody to answer."""
    body, limits = arriving([part(b"abc"), {"type": "http.disconnect"}], {})
    with pytest.raises(ClientDisconnected):
        await body.read()
    body.close()
    assert limits.memory_gate.in_use == 0


async def test_no_room_for_what_comes() -> None:
    """Where bodies of unknown length fill the room, one of them is refused rather than all stuck."""
    found = {"gateway_memory_bytes": 10, "gateway_max_read_bytes": 10, "gateway_wait_seconds": 0.02}
    first, limits = arriving([part(b"x" * 6), part(b"x" * 4, more=False)], {}, **found)
    queue = iter([part(b"y" * 6), part(b"y" * 4, more=False)])

    async def receive() -> dict[str, Any]:
        return next(queue)

    second = RequestBodyReader(receive, limits, {})
    results = await asyncio.gather(first.read(), second.read(), return_exceptions=True)
    assert sorted(type(each).__name__ for each in results) == ["RequestRefused", "bytes"]
    first.close(), second.close()
    assert limits.memory_gate.in_use == 0


async def test_uploads_of_no_stated_length_do_not_wait_for_each_other() -> None:
    """One that has room and needs more takes what is there, or is read no further: it then passes as it came."""

    async def upload(limits: AdmissionLimits, turn: asyncio.Event) -> tuple[int, bool, int]:
        left = [b"x" * 20] * 3

        async def receive() -> Any:
            # All of them have begun before one goes on.
            await turn.wait()
            return {"type": "http.request", "body": left.pop(), "more_body": bool(left)}

        body = RequestBodyReader(receive, limits, {})
        raw, waiting = await body.read(), limits.memory_gate.waiting
        rest = [chunk async for chunk in body.iterate_rest()]
        body.close()
        return len(raw) + sum(map(len, rest)), not rest, waiting

    limits = AdmissionLimits(make_settings(gateway_memory_bytes=100, gateway_max_read_bytes=100))
    turn = asyncio.Event()
    uploads = [asyncio.ensure_future(upload(limits, turn)) for _ in range(3)]
    turn.set()
    found = await asyncio.gather(*uploads)
    assert [size for size, _, _ in found] == [60, 60, 60]
    assert any(whole for _, whole, _ in found)
    assert {waiting for _, _, waiting in found} == {0}
    assert limits.memory_gate.in_use == 0


async def test_a_message_that_announces_no_other_is_the_last() -> None:
    """A server may leave `more_body` out, and ends the body with that (ASGI)."""
    body, _ = arriving([{"type": "http.request", "body": b"{}"}], {})
    assert await body.read() == b"{}"
    assert body.is_complete
