"""What breaks in other gateways, held against this one over real sockets; `test_table.py` has the list."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from elision.gateway.request_record import _LineFormatter
from elision.providers.provider import Api
from tests.gateway.conversation_bytes import (
    APIS,
    EAGER,
    HIDING_STEPS,
    PATHS,
    PLACEHOLDER_PART,
    make_body,
    make_reply,
    make_result,
    render_frames,
    render_whole,
)
from tests.gateway.loopback_gateway import HttpClient, HttpResponse, RunningGateway, make_settings, run_gateway
from tests.gateway.scripted_upstream import ReceivedRequest, Script, render_response, run_scripted_upstream

JSON, EVENTS = "content-type: application/json", "content-type: text/event-stream"
KEY = "sk-proj-A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6"
#: What a client says that nobody here knows of, credentials and codings that cannot be read among it.
FIELDS = (
    JSON,
    f"authorization: Bearer {KEY}",
    "accept: */*",
    "accept-encoding: br;q=1.0, gzip",
    "x-stainless-lang: js",
    "x-unknown: one",
    "x-unknown: two",
    "anthropic-beta: a-2025-01-01",
)


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(test())  # type: ignore[arg-type]


def provider(api: Api) -> Script:
    async def script(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        if b'"stream"' in asked.body:
            writer.write(render_response(b"".join(render_frames(api)), "200 OK", EVENTS, "request-id: req_1"))
        else:
            writer.write(render_response(render_whole(api), "200 OK", JSON, "request-id: req_1"))

    return script


async def ask(url: RunningGateway | str, api: Api, raw: bytes, *fields: str) -> HttpResponse:
    """Through a gateway, or straight."""
    if isinstance(url, str):
        host, port = url.removeprefix("http://").split(":")
        client = HttpClient(*await asyncio.open_connection(host, int(port)))
    else:
        client = await url.connect()
    try:
        return await client.request("POST", PATHS[api], raw, *fields)
    finally:
        client.close()


def fields_of(asked: ReceivedRequest, *without: str) -> list[tuple[str, str]]:
    return sorted((name.lower(), value) for name, value in asked.headers if name.lower() not in ("host", *without))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("switch", ["header", "setting"])
@pytest.mark.parametrize("api", APIS)
def test_off_is_really_off(api: Api, switch: str, packed: bool) -> None:
    """With the switch off, method, path, headers and body are those of a client without a gateway, and so is the
    answer; nothing is kept of it."""

    async def test() -> None:
        off = ("x-elision: off",) if switch == "header" else ()
        coded = ("content-encoding: gzip",) if packed else ()
        async with run_scripted_upstream(provider(api)) as upstream:
            given: dict[str, Any] = {"gateway_off": switch == "setting", "strategy": EAGER}
            async with run_gateway(make_settings(upstream.url, **given)) as gateway:
                for stream in (False, True):
                    raw = make_body(api, HIDING_STEPS, stream=stream)
                    raw = gzip.compress(raw) if packed else raw
                    straight = await ask(upstream.url, api, raw, *FIELDS, *coded)
                    through = await ask(gateway, api, raw, *FIELDS, *coded, *off)
                    one, other = upstream.requests[-2:]
                    assert (one.line, one.body, fields_of(one)) == (other.line, other.body, fields_of(other))
                    assert (straight.status, straight.body) == (through.status, through.body)
                    assert straight.headers == through.headers
                assert gateway.worker.store.sessions() == []

    run(test)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("api", APIS)
def test_a_preview_changes_nothing(api: Api, packed: bool) -> None:
    """Shadow mode sends what came, headers and body, and says what it would have hidden. Only answers are asked for in
    codings that can be read."""

    async def test() -> None:
        coded = ("content-encoding: gzip",) if packed else ()
        given: dict[str, Any] = {"gateway_off": False, "gateway_shadow": True, "strategy": EAGER}
        async with (
            run_scripted_upstream(provider(api)) as upstream,
            run_gateway(make_settings(upstream.url, **given)) as gateway,
        ):
            for steps in range(1, HIDING_STEPS + 1):
                raw = make_body(api, steps, stream=bool(steps % 2))
                raw = gzip.compress(raw) if packed else raw
                straight = await ask(upstream.url, api, raw, *FIELDS, *coded)
                through = await ask(gateway, api, raw, *FIELDS, *coded)
                one, other = upstream.requests[-2:]
                assert (one.line, one.body) == (other.line, other.body)
                assert fields_of(one, "accept-encoding") == fields_of(other, "accept-encoding")
                assert dict(fields_of(other))["accept-encoding"] == "gzip"
                assert straight.body == through.body
            (live,) = gateway.worker.gateway.sessions
        # Shadow mode decides while the provider works; the end of the gateway waits for that.
        assert live.newest_diagnostics is not None
        assert live.newest_diagnostics.after < live.newest_diagnostics.raw

    run(test)


@pytest.mark.parametrize("api", APIS)
def test_markers_expand_long_after(api: Api) -> None:
    """What was hidden is read again behind any pause: when its session has left memory, word for word."""
    calls, again = [("r1", "elision_recall", {"handle": "t1.1"})], asyncio.Event()

    async def script(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        wants = again.is_set() and b"r1" not in asked.body
        writer.write(render_response(render_whole(api, make_reply("", calls) if wants else None), "200 OK", JSON))

    async def test() -> None:
        given: dict[str, Any] = {"gateway_off": False, "gateway_max_sessions": 1, "strategy": EAGER}
        async with (
            run_scripted_upstream(script) as upstream,
            run_gateway(make_settings(upstream.url, **given)) as gateway,
        ):
            for steps in range(1, HIDING_STEPS):
                await ask(gateway, api, make_body(api, steps), JSON)
            (before,) = gateway.worker.gateway.sessions
            while before.is_busy:
                # Its log is written behind the answer.
                await asyncio.sleep(0)
            await ask(gateway, api, make_body(api, 1, task="Another's.", word="other"), JSON)
            assert before not in list(gateway.worker.gateway.sessions)
            again.set()
            got = await ask(gateway, api, make_body(api, HIDING_STEPS), JSON)
            assert got.status == 200
            assert b"elision_recall" not in got.body
            told = upstream.requests[-1].body.decode()
            assert json.dumps(make_result(1))[1:-1] in told
            assert json.dumps(make_result(1))[1:-1] not in upstream.requests[-2].body.decode()

    run(test)


@pytest.mark.parametrize("api", APIS)
def test_usage_is_the_provider_s(api: Api) -> None:
    """Where something is hidden the client still reads the counts that the provider sent, byte for byte."""

    async def test() -> None:
        given: dict[str, Any] = {"gateway_off": False, "strategy": EAGER}
        async with (
            run_scripted_upstream(provider(api)) as upstream,
            run_gateway(make_settings(upstream.url, **given)) as gateway,
        ):
            for stream, sent in ((False, render_whole(api)), (True, b"".join(render_frames(api)))):
                got = await ask(gateway, api, make_body(api, HIDING_STEPS, stream=stream, task=f"As {stream}."), JSON)
                assert PLACEHOLDER_PART in upstream.requests[-1].body
                assert got.body == sent

    run(test)


def test_keys_are_nowhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An API key is in no log line, no metric, no page and no file, also where we fail with it at hand."""
    caplog.set_level(logging.DEBUG, "elision")
    lines = io.StringIO()
    handler = logging.StreamHandler(lines)
    handler.setFormatter(_LineFormatter("json"))
    logging.getLogger("elision").addHandler(handler)

    async def test() -> None:
        given: dict[str, Any] = {"gateway_off": False, "strategy": EAGER, "gateway_log": "json"}
        given["store"] = f"sqlite:///{tmp_path}/s.db"
        async with (
            run_scripted_upstream(provider("openai")) as upstream,
            run_gateway(make_settings(upstream.url, **given)) as gateway,
        ):
            for steps in range(1, HIDING_STEPS + 1):
                await ask(gateway, "openai", make_body("openai", steps), *FIELDS)
            sessions = gateway.worker.gateway.sessions

            def broken(*given: Any, **named: Any) -> Any:
                raise RuntimeError(f"Bearer {KEY}")

            sessions.claim_session = broken  # type: ignore[method-assign]
            assert (await ask(gateway, "openai", make_body("openai", 1), *FIELDS)).status == 200
            client = await gateway.connect()
            for path in ("/", "/metrics", "/elision/api/sessions", "/elision/api/totals", "/readyz"):
                assert KEY not in (await client.request("GET", path)).body.decode()
            client.close()

    try:
        run(test)
    finally:
        logging.getLogger("elision").removeHandler(handler)
    assert "RuntimeError" in lines.getvalue()
    assert KEY not in lines.getvalue()
    for file in tmp_path.iterdir():
        assert KEY.encode() not in file.read_bytes()
