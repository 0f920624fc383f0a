"""What is large is done beside the event loop, by its bytes: whatever is sent, other clients are served meanwhile.

What is watched are the places where bytes become values, are counted, hashed, searched or put together: each says how
much it was given, and in which thread.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from elision.gateway import body_reader, incoming_messages, json_bytes, request_body, response_observer
from elision.gateway.body_reader import BodyDecompressor
from elision.gateway.request_body import MessageEncoder, RequestBody
from elision.gateway.request_handler import MAX_INLINE_BYTES
from elision.manager import prepared_calls, think_time
from elision.manager.history import History
from elision.manager.think_time import INLINE_BYTES, LARGE_BYTES, estimate_size
from elision.providers.live import client_messages
from elision.providers.provider import Api
from elision.trajectory.events import UsageReported
from elision.trajectory.redact import Redaction
from elision.trajectory.tokens import EstimatingCounter
from elision.trajectory.usage import Usage
from tests.gateway.conversation_bytes import (
    APIS,
    LIST_FIELDS,
    MODELS,
    PATHS,
    PLACEHOLDER_PART,
    Json,
    make_body,
    make_history,
    render_whole,
)
from tests.gateway.gateway_trial import JSON_HEADER, open_trial
from tests.gateway.loopback_gateway import HttpClient, wait_until
from tests.gateway.scripted_upstream import answer_always, render_response
from tests.soak import sample_cases

#: Characters of a text that takes a while, whatever is done with it.
MUCH = 300_000
#: Bytes from which on something is not the event loop's to do.
BOUND = 2 * INLINE_BYTES

Watched = list[tuple[str, int]]


@pytest.fixture
def on_loop(monkeypatch: pytest.MonkeyPatch) -> Watched:
    """What was done with more than `BOUND` bytes in the thread of the test's event loop."""
    found: Watched = []
    loop = threading.get_ident()

    def watch(owner: Any, name: str, size: Callable[..., int]) -> None:
        plain = getattr(owner, name)

        def watched(*given: Any, **named: Any) -> Any:
            if threading.get_ident() == loop and (bytes_given := size(*given)) > BOUND:
                found.append((name, bytes_given))
            return plain(*given, **named)

        monkeypatch.setattr(owner, name, watched)

    watch(RequestBody, "_parse_whole", lambda self: len(self.raw))
    watch(request_body, "_split_list", len)
    watch(request_body, "decode_json", len)
    watch(incoming_messages, "decode_message", len)
    watch(
        client_messages,
        "digest_pieces",
        lambda given, **_: sum(sum(len(part.text) for part in texts(p)) for p in given),
    )
    # Up to `LARGE_BYTES` are copied there: that takes less than a change of threads.
    watch(body_reader, "join_pieces", lambda parts: sum(map(len, parts)) * BOUND // LARGE_BYTES)
    watch(BodyDecompressor, "make_more", lambda self, size: size)
    monkeypatch.setattr(request_body, "_FIELD_NAME", SearchedPattern(request_body._FIELD_NAME))
    watch(SearchedPattern, "search", lambda self, raw, start, end: min(end, len(raw)) - start)
    watch(response_observer, "shorten_strings", len)
    watch(response_observer, "parse_object", len)
    watch(response_observer, "_decode_without_text", len)
    watch(EstimatingCounter, "count", lambda self, text: len(text))
    watch(Redaction, "redact_and_count", lambda self, text: len(text))
    watch(History, "extend", lambda self, messages: estimate_size(LARGE_BYTES, messages))
    # Most of what these are given they only pass on.
    watch(
        MessageEncoder,
        "encode_messages",
        lambda self, view, said, new: estimate_size(LARGE_BYTES, view) * BOUND // MAX_INLINE_BYTES,
    )
    watch(think_time._Job, "finish", lambda self: BOUND + 1 if self.is_under_way else 0)
    watch(RequestBody, "render_changes", lambda self, **_: len(self.raw) * BOUND // MAX_INLINE_BYTES)
    return found


class SearchedPattern:
    """A compiled expression whose searches can be watched."""

    def __init__(self, plain: re.Pattern[bytes]) -> None:
        self._plain = plain

    def search(self, raw: bytes, start: int = 0, end: int = sys.maxsize) -> re.Match[bytes] | None:
        return self._plain.search(raw, start, end)


def texts(piece: client_messages.Piece) -> list[Any]:
    parts = piece.words if piece.result is None else piece.result.content
    return [part for part in parts if hasattr(part, "text")]


def request(api: Api, messages: list[Json], **more: object) -> bytes:
    return json.dumps({"model": MODELS[api], "max_tokens": 9, LIST_FIELDS[api]: messages, **more}).encode()


async def answered(client: HttpClient, api: Api, raw: bytes, *fields: str) -> None:
    got = await client.request("POST", PATHS[api], raw, *fields)
    assert got.status == 200


@pytest.mark.parametrize("api", APIS)
async def test_a_large_message(api: Api, on_loop: Watched) -> None:
    """In a session's first request and in a later one, and what it begins with is not read again."""
    async with open_trial() as (gateway, _, client):
        said = [{"role": "user", "content": "word " * (MUCH // 5)}]
        await answered(client, api, request(api, said))
        grown = [*said, *make_history(api, 1)[1:], {"role": "user", "content": "more " * (MUCH // 5)}]
        await answered(client, api, request(api, grown))
        await answered(client, api, request(api, [*grown, {"role": "assistant", "content": "I see."}]))
        assert len(gateway.worker.gateway.sessions) == 1
    assert on_loop == []


@pytest.mark.parametrize("api", APIS)
async def test_a_large_request_that_comes_again(api: Api, on_loop: Watched) -> None:
    """As two agents with the same task send it: the second has a session of its own, and nothing is read twice."""
    async with open_trial() as (gateway, _, client):
        raw = request(api, [{"role": "user", "content": "word " * (MUCH // 5)}])
        for _ in range(3):
            await answered(client, api, raw)
        assert len(gateway.worker.gateway.sessions) == 3
    assert on_loop == []


@pytest.mark.parametrize(
    ("api", "field"), [("anthropic", "system"), ("openai-responses", "instructions"), ("anthropic", "tools")]
)
async def test_a_large_prompt_or_tools(api: Api, field: str, on_loop: Watched) -> None:
    """What stands beside the messages is counted as well; a request that says the same again costs nothing."""
    tool = {"name": "bash", "input_schema": {"type": "object", "description": "word " * (MUCH // 5)}}

    async with open_trial() as (*_, client):
        more = {field: [tool] if field == "tools" else "word " * (MUCH // 5)}
        for steps in range(3):
            await answered(client, api, request(api, make_history(api, steps), **more))
    assert on_loop == []


@pytest.mark.parametrize("api", sample_cases(reversed(APIS), len(APIS)))
async def test_many_messages(api: Api, on_loop: Watched) -> None:
    """Small ones, together large, of a session that nobody has seen before."""
    async with open_trial() as (_, upstream, client):
        await answered(client, api, make_body(api, 150))
        await answered(client, api, make_body(api, 151))
        assert PLACEHOLDER_PART in upstream.requests[-1].body
    assert on_loop == []


@pytest.mark.parametrize("api", sample_cases(APIS, len(APIS)))
async def test_large_results_in_a_running_session(api: Api, on_loop: Watched) -> None:
    """Each is counted, described and hidden in its turn."""
    async with open_trial() as (_, upstream, client):
        for steps in range(4):
            await answered(client, api, make_body(api, steps, lines=MUCH // 20))
        assert PLACEHOLDER_PART in upstream.requests[-1].body
    assert on_loop == []


async def test_work_that_goes_on_after_a_response_is_not_waited_for(
    on_loop: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its usage is recorded beside that."""
    answers = threading.Semaphore(0)

    def wait_in_think_time(*_: object) -> Iterator[None]:
        yield
        assert answers.acquire(timeout=20)
        yield

    monkeypatch.setattr(prepared_calls, "_look_ahead", wait_in_think_time)

    async with open_trial() as (gateway, _, client):
        for steps in range(4):
            await answered(client, "openai", make_body("openai", steps))
            answers.release()
        await gateway.wait_until_stored()
        for live in gateway.worker.gateway.sessions:
            branch = live.opened.preparer.branch
            assert branch is not None
            assert [event.call for event in branch.log.events if isinstance(event, UsageReported)] == [1, 2, 3, 4]
    assert on_loop == []


async def test_diagnostics_of_another_session_are_not_waited_for() -> None:
    """While they are computed, which takes long for a large one, the loop serves others."""
    held, free = threading.Event(), threading.Event()
    freed: list[bool] = []

    def hold() -> None:
        with think_time._value_lock:
            held.set()
            freed.append(free.wait(20))

    async with open_trial() as (gateway, _, client):
        await answered(client, "openai", make_body("openai", 1))
        thread = threading.Thread(target=hold)
        thread.start()
        assert await asyncio.to_thread(held.wait, 20)
        small = asyncio.ensure_future(answered(client, "openai", make_body("openai", 2)))
        await wait_until(lambda: any(live.lock.locked() for live in gateway.worker.gateway.sessions))
        other = await gateway.connect()
        assert (await other.request("GET", "/healthz")).status == 200
        other.close()
        free.set()
        await small
        thread.join()
    assert freed == [True]


@pytest.mark.parametrize("lines", [60, MUCH // 20])
async def test_one_request_of_a_session_at_a_time_is_put_together(lines: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written before is looked up: a small request, on the loop, must not do so beside a large one."""
    locked: list[bool] = []
    put_together = MessageEncoder.encode_messages

    async with open_trial() as (gateway, upstream, client):

        def watched(sent: MessageEncoder, *given: Any) -> list[bytes]:
            locked.extend(live.lock.locked() for live in gateway.worker.gateway.sessions if live.encoder is sent)
            return put_together(sent, *given)

        monkeypatch.setattr(MessageEncoder, "encode_messages", watched)
        for steps in range(4):
            await answered(client, "openai", make_body("openai", steps, lines=lines))
        assert PLACEHOLDER_PART in upstream.requests[-1].body
    assert locked
    assert all(locked)


async def test_a_compressed_request(on_loop: Watched) -> None:
    """It is decompressed there as well, however small it came."""
    async with open_trial() as (*_, client):
        raw = gzip.compress(request("openai", [{"role": "user", "content": "word " * (MUCH // 5)}]))
        await answered(client, "openai", raw, "content-encoding: gzip")
    assert on_loop == []


@pytest.mark.parametrize("api", APIS)
async def test_a_large_answer(api: Api, on_loop: Watched) -> None:
    """What it cost is read of it all the same, recall offered or not."""
    said = render_whole(api).replace(b"All is done.", b"word " * (MUCH // 5))
    async with open_trial(answer_always(render_response(said, "200 OK", JSON_HEADER))) as (gateway, _, client):
        for steps in (1, 6, 7):
            await answered(client, api, make_body(api, steps))
        await gateway.wait_until_stored()
        (info,) = gateway.worker.store.sessions()
        found = [event.usage for event in gateway.worker.store.events(info.key) if isinstance(event, UsageReported)]
        assert found == [Usage(input=1_000, output=20)] * 3
    assert on_loop == []


async def test_doubled_keys(on_loop: Watched) -> None:
    """A request in which a name stands often is read as any other."""
    async with open_trial() as (gateway, upstream, client):
        raw = request("openai", [{"role": "user", "content": "hi"}], metadata={"x": "x" * MUCH})
        doubled = raw[:-1] + b"," + b",".join(b'"a":%d' % (place % 9) for place in range(500)) + b"}"
        await answered(client, "openai", doubled)
        assert upstream.requests[-1].body == doubled
        assert len(gateway.worker.gateway.sessions) == 1
    assert on_loop == []


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("x" * (json_bytes.MAX_STRING_BYTES + 1), id="a long string"),
        pytest.param([[]] * json_bytes.MAX_VALUES, id="many values"),
    ],
)
async def test_what_is_more_than_is_read_passes_as_it_came(content: object, on_loop: Watched) -> None:
    """No model takes it; one call of C over it would stop everything else."""
    async with open_trial() as (gateway, upstream, client):
        raw = request("openai", [{"role": "user", "content": content}])
        await answered(client, "openai", raw)
        assert upstream.requests[-1].body == raw
        assert len(gateway.worker.gateway.sessions) == 0
    assert on_loop == []
