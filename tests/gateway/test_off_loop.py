"""What is large is done beside the event loop, by its bytes: whatever is sent, other clients are served meanwhile.

What is watched are the places where bytes become values, are counted, hashed, searched or put together: each says how
much it was given, and in which thread.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from elision.dialects.live import pieces
from elision.gateway import proxy, spans, tap, transcript
from elision.gateway.answering import SPLICED
from elision.gateway.body import RequestBody
from elision.gateway.routes import Api
from elision.gateway.sent import Sent
from elision.manager.history import History
from elision.manager.offload import INLINE_BYTES, LARGE_BYTES, estimate_size
from elision.trajectory.events import Answered
from elision.trajectory.redact import Redaction
from elision.trajectory.tokens import Estimate
from elision.trajectory.usage import Usage
from tests.gateway.conversing import APIS, GAP, LISTED, MODELS, PATHS, Json, body, history, whole
from tests.gateway.providing import JSON, api_of, trial
from tests.gateway.running import Client, Gateway
from tests.gateway.scripted import Asked, Scripted, answer

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

    watch(spans, "fields", len)
    watch(spans, "elements", len)
    watch(spans, "decoded", len)
    watch(transcript, "decoded", len)
    watch(transcript, "digest", lambda given, **_: sum(len(part.text) for piece in given for part in texts(piece)))
    watch(proxy, "decompressed", lambda raw, *_: 8 * len(raw))
    watch(tap, "_decoded", len)
    watch(tap, "_decoded_around_text", len)
    watch(Estimate, "count", lambda self, text: len(text))
    watch(Redaction, "counted", lambda self, text: len(text))
    watch(History, "extend", lambda self, messages: estimate_size(LARGE_BYTES, messages))
    # Most of what these are given they only pass on.
    watch(Sent, "messages", lambda self, view, said: estimate_size(LARGE_BYTES, view) * BOUND // SPLICED)
    watch(RequestBody, "with_changes", lambda self, **_: len(self.raw) * BOUND // SPLICED)
    return found


def texts(piece: pieces.Piece) -> list[Any]:
    parts = piece.words if piece.result is None else piece.result.content
    return [part for part in parts if hasattr(part, "text")]


def request(api: Api, messages: list[Json], **more: object) -> bytes:
    return json.dumps({"model": MODELS[api], "max_tokens": 9, LISTED[api]: messages, **more}).encode()


async def answered(client: Client, api: Api, raw: bytes, *fields: str) -> None:
    got = await client.ask("POST", PATHS[api], raw, *fields)
    assert got.status == 200


@pytest.mark.parametrize("api", APIS)
def test_a_large_message(api: Api, on_loop: Watched) -> None:
    """In a session's first request and in a later one, and what it begins with is not read again."""

    async def what(gateway: Gateway, upstream: Scripted, client: Client) -> None:
        said = [{"role": "user", "content": "word " * (MUCH // 5)}]
        await answered(client, api, request(api, said))
        grown = [*said, *history(api, 1)[1:], {"role": "user", "content": "more " * (MUCH // 5)}]
        await answered(client, api, request(api, grown))
        await answered(client, api, request(api, [*grown, {"role": "assistant", "content": "I see."}]))
        assert len(gateway.worker.door.sessions) == 1

    trial(what)
    assert on_loop == []


@pytest.mark.parametrize(
    ("api", "field"), [("anthropic", "system"), ("openai-responses", "instructions"), ("anthropic", "tools")]
)
def test_a_large_prompt_or_tools(api: Api, field: str, on_loop: Watched) -> None:
    """What stands beside the messages is counted as well; a request that says the same again costs nothing."""
    tool = {"name": "bash", "input_schema": {"type": "object", "description": "word " * (MUCH // 5)}}

    async def what(gateway: Gateway, upstream: Scripted, client: Client) -> None:
        more = {field: [tool] if field == "tools" else "word " * (MUCH // 5)}
        for steps in range(3):
            await answered(client, api, request(api, history(api, steps), **more))

    trial(what)
    assert on_loop == []


@pytest.mark.parametrize("api", APIS)
def test_many_messages(api: Api, on_loop: Watched) -> None:
    """Small ones, together large, of a session that nobody has seen before."""

    async def what(gateway: Gateway, upstream: Scripted, client: Client) -> None:
        await answered(client, api, body(api, 150))
        await answered(client, api, body(api, 151))
        assert GAP in upstream.asked[-1].body

    trial(what)
    assert on_loop == []


@pytest.mark.parametrize("api", APIS)
def test_large_results_in_a_running_session(api: Api, on_loop: Watched) -> None:
    """Each is counted, described and hidden in its turn."""

    async def what(gateway: Gateway, upstream: Scripted, client: Client) -> None:
        for steps in range(6):
            await answered(client, api, body(api, steps, lines=MUCH // 20))
        assert GAP in upstream.asked[-1].body

    trial(what)
    assert on_loop == []


@pytest.mark.parametrize("lines", [60, MUCH // 20])
def test_one_request_of_a_session_at_a_time_is_put_together(lines: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written before is looked up: a small request, on the loop, must not do so beside a large one."""
    locked: list[bool] = []
    put_together = Sent.messages

    async def what(gateway: Gateway, upstream: Scripted, client: Client) -> None:
        def watched(sent: Sent, *given: Any) -> list[bytes]:
            locked.extend(live.lock.locked() for live in gateway.worker.door.sessions if live.sent is sent)
            return put_together(sent, *given)

        monkeypatch.setattr(Sent, "messages", watched)
        for steps in range(6):
            await answered(client, "openai", body("openai", steps, lines=lines))
        assert GAP in upstream.asked[-1].body

    trial(what)
    assert locked
    assert all(locked)


def test_a_compressed_request(on_loop: Watched) -> None:
    """It is decompressed there as well, however small it came."""

    async def what(gateway: Gateway, upstream: Scripted, client: Client) -> None:
        raw = gzip.compress(request("openai", [{"role": "user", "content": "word " * (MUCH // 5)}]))
        await answered(client, "openai", raw, "content-encoding: gzip")

    trial(what)
    assert on_loop == []


@pytest.mark.parametrize("api", APIS)
def test_a_large_answer(api: Api, on_loop: Watched) -> None:
    """What it cost is read of it all the same, recall offered or not."""

    async def provider(asked: Asked, writer: asyncio.StreamWriter) -> None:
        said = whole(api_of(asked)).replace(b"All is done.", b"word " * (MUCH // 5))
        writer.write(answer(said, "200 OK", JSON))
        await writer.drain()

    async def what(gateway: Gateway, upstream: Scripted, client: Client) -> None:
        for steps in (1, 6, 7):
            await answered(client, api, body(api, steps))
        (info,) = gateway.worker.store.sessions()
        found = [event.usage for event in gateway.worker.store.events(info.key) if isinstance(event, Answered)]
        # The newest one's may not be written yet.
        assert found[:2] == [Usage(input=1_000, output=20)] * 2

    trial(what, provider)
    assert on_loop == []


def test_doubled_keys(on_loop: Watched) -> None:
    """A request in which a name stands often is read as any other."""

    async def what(gateway: Gateway, upstream: Scripted, client: Client) -> None:
        raw = request("openai", [{"role": "user", "content": "hi"}], metadata={"x": "x" * MUCH})
        doubled = raw[:-1] + b"," + b",".join(b'"a":%d' % (place % 9) for place in range(500)) + b"}"
        await answered(client, "openai", doubled)
        assert upstream.asked[-1].body == doubled
        assert len(gateway.worker.door.sessions) == 1

    trial(what)
    assert on_loop == []


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("x" * (spans.LONGEST_STRING + 1), id="a long string"),
        pytest.param([[]] * spans.MOST_VALUES, id="many values"),
    ],
)
def test_what_is_more_than_is_read_passes_as_it_came(content: object, on_loop: Watched) -> None:
    """No model takes it; one call of C over it would stop everything else."""

    async def what(gateway: Gateway, upstream: Scripted, client: Client) -> None:
        raw = request("openai", [{"role": "user", "content": content}])
        await answered(client, "openai", raw)
        assert upstream.asked[-1].body == raw
        assert len(gateway.worker.door.sessions) == 0

    trial(what)
    assert on_loop == []
