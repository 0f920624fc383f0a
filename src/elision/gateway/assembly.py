"""Put a gateway together: one store, one pool of connections, a context manager for each session.

`serve_sample_requests` warms it up, so that the first real request imports, loads and compiles nothing: a gateway with
the worker's settings asks a provider on loopback for a small session of each API, and once with a large request. Its
store is in memory, and it has no log and no metrics, so nothing is stored, billed or counted.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any, Final

from elision.errors import StoreError
from elision.gateway.budgets import SHADOW_PREFIX, Budgets
from elision.gateway.live_sessions import SessionFactory, SessionRegistry
from elision.gateway.proxy import Proxy
from elision.gateway.request_record import RequestListener
from elision.gateway.settings import GatewaySettings
from elision.gateway.upstream import Upstream
from elision.gateway.websocket_relay import WebSocketRelays
from elision.gateway.wire import ClientReply, ClientRequest
from elision.manager.advanced_options import gather_options
from elision.manager.context_options import Options
from elision.manager.opened_session import OpenedSession
from elision.manager.think_time import LARGE_BYTES
from elision.providers.provider import Api
from elision.providers.provider_table import HOSTS, PROVIDERS
from elision.stores.memory import MemoryStore
from elision.stores.store import KeepsSecret, Store
from elision.stores.store_urls import FILE_SCHEMES, parse_path
from elision.summarizers.factory import make_summarizer
from elision.trajectory.events import HeadSet, TurnAdded
from elision.trajectory.run_roles import SaidRole
from elision.trajectory.state import State
from elision.trajectory.tokens import EstimatingCounter, Sizer
from elision.trajectory.turn import Action, Head, Message, Observation, Turn, make_content

#: APIs with models whose checked options are kept. Clients may name any model.
MAX_CACHED_OPTIONS: Final = 64
#: Bytes of a secret.
_SECRET_BYTES: Final = 32


def make_session_factory(settings: GatewaySettings, store: Store) -> SessionFactory:
    """Return a function that opens sessions over `store`, as the settings say."""
    library = settings.library

    @lru_cache(MAX_CACHED_OPTIONS)
    def check_options(api: Api, model: str) -> Options:
        """Return what the sessions of one API and model have in common: their strategy is built once."""
        flat: dict[str, Any] = {
            **library.options(),
            "summarizer": None,
            "redaction": library.redaction,
            "store": store,
            "dialect": api,
            "model": model or library.model or "",
            "write_behind": True,
            "background": True,
            "shadow": settings.shadow,
            "over_budget": "send",
            # A request from which nothing is hidden is sent unchanged.
            "cache_control": "gaps" if library.cache_control == "auto" else "client",
        }
        return Options(**gather_options(flat))

    def open_session(name: str, family: str, api: Api, model: str, parent: str, role: SaidRole) -> OpenedSession:
        writer = make_summarizer(library.summarizer, environment=os.environ, **library.summarizer_options())
        # What is only tried is never gone on with by what is done.
        family = f"{SHADOW_PREFIX}{family}" if settings.shadow else family
        return OpenedSession(check_options(api, model).for_session(name, family, writer, parent, role))

    return open_session


@dataclass(frozen=True, slots=True)
class Gateway:
    """A gateway without its sockets."""

    proxy: Proxy
    sessions: SessionRegistry
    upstream: Upstream
    sockets: WebSocketRelays

    async def close(self) -> None:
        """Write pending events, and close the connections."""
        await self.sessions.close()
        await self.proxy.budgets.close()
        await self.upstream.close()


def build_gateway(
    settings: GatewaySettings,
    store: Store,
    listener: RequestListener,
    on_lease_failure: Callable[[], None] = lambda: None,
) -> Gateway:
    """Build the gateway that `settings` describe over `store`, which stays the caller's. Raises StoreError.

    on_lease_failure: called each time when what keys spend can be counted no more.
    """
    upstream = Upstream(
        connect_seconds=settings.connect_seconds, read_seconds=settings.read_seconds, proxy_env=settings.proxy_env
    )
    sessions = SessionRegistry(
        make_session_factory(settings, store),
        max_sessions=settings.max_sessions,
        memory_bytes=settings.session_memory_bytes,
        idle_seconds=settings.session_idle_seconds,
    )
    budgets = Budgets(settings, store, on_lease_failure=on_lease_failure)
    secret = load_gateway_secret(settings, store)
    proxy = Proxy(settings, secret, sessions, upstream, budgets, listener)
    sockets = WebSocketRelays(settings, secret, upstream, budgets, listener)
    return Gateway(proxy, sessions, upstream, sockets)


def load_gateway_secret(settings: GatewaySettings, store: Store) -> bytes:
    """Return the setting `gateway_secret`, or a random secret that is made once.

    It is kept beside a store in files, or in a database; for a store in memory it is not kept. Raises StoreError where
    it cannot be kept.
    """
    if settings.secret is not None:
        return settings.secret.encode()
    fresh = secrets.token_bytes(_SECRET_BYTES)
    scheme, _, rest = settings.library.store.partition(":")
    if settings.off:
        return fresh
    if scheme in FILE_SCHEMES:
        return keep_in_file(Path(f"{parse_path(rest, scheme).rstrip('/')}.secret"), fresh)
    if isinstance(store, KeepsSecret):
        return store.keep_secret(fresh)
    return fresh


def keep_in_file(path: Path, fresh: bytes) -> bytes:
    """Store `fresh` at `path` for its owner alone; return it, or what is there already. Raises StoreError."""
    try:
        if not path.exists():
            _write_once(path, fresh)
        found = bytes.fromhex(path.read_text(encoding="ascii").strip())
    except OSError as error:
        raise StoreError(
            f"{path}: the secret that API keys are hashed with cannot be kept here ({error.strerror}); make the folder "
            "writable, or give one: ELISION_GATEWAY_SECRET"
        ) from error
    except ValueError:
        found = b""
    if len(found) < _SECRET_BYTES:
        raise StoreError(
            f"{path}: holds no secret ({2 * _SECRET_BYTES} hex digits); restore the file, or delete it: then the "
            "sessions of every client start again"
        )
    return found


def _write_once(path: Path, fresh: bytes) -> None:
    """Write the whole file or nothing, and never over another's."""
    beside = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(file, "wb") as out:
            out.write(fresh.hex().encode() + b"\n")
            out.flush()
            os.fsync(out.fileno())
        os.link(beside, path)
    except FileExistsError:
        # Another gateway was first.
        pass
    finally:
        beside.unlink()


# -- sample requests --------------------------------------------------------------------------------------------------

#: Turns of the sample session, and lines of a result: enough that the default strategy hides some.
_TURNS: Final = 12
_LINES: Final = 25
_TOOL: Final = {
    "name": "bash",
    "description": "Run a command.",
    "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}},
}


@dataclass(frozen=True, slots=True)
class _ApiSample:
    """The requests of one API: path, model, and what the sample provider answers, plain and as a stream."""

    path: str
    model: str
    answer: Mapping[str, Any]
    events: tuple[Mapping[str, Any], ...]
    stream_path: str = ""


_CHAT: Final = {"id": "1", "object": "chat.completion", "model": "gpt-5.2"}
_TEXT: Final = {"type": "text", "text": "Done."}
_MESSAGE: Final = {
    "id": "1",
    "type": "message",
    "role": "assistant",
    "model": "claude-sonnet-4-5",
    "content": [_TEXT],
    "stop_reason": "end_turn",
}
_ITEM: Final = {
    "id": "1",
    "type": "message",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "Done.", "annotations": []}],
}
_RESPONSE: Final = {
    "id": "1",
    "object": "response",
    "model": "gpt-5.2",
    "status": "completed",
    "output": [_ITEM],
}
_CANDIDATES: Final = {
    "candidates": [{"content": {"role": "model", "parts": [{"text": "Done."}]}, "finishReason": "STOP", "index": 0}],
    "modelVersion": "gemini-2.5-pro",
}
_SAMPLES: Final[Mapping[Api, _ApiSample]] = {
    "openai": _ApiSample(
        "/v1/chat/completions",
        "gpt-5.2",
        _CHAT
        | {"choices": [{"index": 0, "message": {"role": "assistant", "content": "Done."}, "finish_reason": "stop"}]},
        (
            _CHAT | {"choices": [{"index": 0, "delta": {"role": "assistant", "content": "Done."}}]},
            _CHAT | {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        ),
    ),
    "openai-responses": _ApiSample(
        "/v1/responses",
        "gpt-5.2",
        _RESPONSE,
        (
            {"type": "response.created", "sequence_number": 0, "response": _RESPONSE | {"output": []}},
            {"type": "response.output_item.added", "sequence_number": 1, "output_index": 0, "item": _ITEM},
            {"type": "response.output_item.done", "sequence_number": 2, "output_index": 0, "item": _ITEM},
            {"type": "response.completed", "sequence_number": 3, "response": _RESPONSE},
        ),
    ),
    "anthropic": _ApiSample(
        "/v1/messages",
        "claude-sonnet-4-5",
        _MESSAGE,
        (
            {"type": "message_start", "message": _MESSAGE | {"content": [], "stop_reason": None}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Done."}},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
            {"type": "message_stop"},
        ),
    ),
    "gemini": _ApiSample(
        "/v1beta/models/gemini-2.5-pro:generateContent",
        "gemini-2.5-pro",
        _CANDIDATES,
        (_CANDIDATES,),
        "/v1beta/models/gemini-2.5-pro:streamGenerateContent",
    ),
}


_lock: Final = Lock()
_is_done = False


def serve_sample_requests(settings: GatewaySettings) -> None:
    """Serve the sample requests with `settings`, once in this process. Call it in a thread without an event loop."""
    global _is_done
    with _lock:
        if not _is_done:
            asyncio.run(_serve_all(settings))
            _is_done = True


async def _serve_all(settings: GatewaySettings) -> None:
    connections: list[asyncio.Task[None]] = []

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(asyncio.ensure_future(_answer_requests(reader, writer)))

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as provider:
        port = provider.sockets[0].getsockname()[1]
        # A name: to look one up loads more than an address does.
        gateway = build_gateway(
            _make_sample_settings(settings, f"http://localhost:{port}"), MemoryStore(), lambda _: None
        )
        try:
            for api, sample in _SAMPLES.items():
                for turns, is_stream in ((0, False), (_TURNS, True), (_TURNS + 1, False)):
                    body = _encode_body(api, sample, turns, stream=is_stream)
                    await _serve_request(gateway.proxy, sample, body, is_stream=is_stream)
            large = _encode_body("openai", _SAMPLES["openai"], 1, lines=LARGE_BYTES // 40)
            await _serve_request(gateway.proxy, _SAMPLES["openai"], large, is_stream=False)
        finally:
            await gateway.close()
            await asyncio.gather(*connections)


def _make_sample_settings(settings: GatewaySettings, upstream: str) -> GatewaySettings:
    """Return the worker's settings without all that reaches out: other providers, a model's summaries, log, metrics."""
    library = replace(
        settings.library,
        summarizer="digest",
        summarizer_base_url=None,
        store="memory:",
        log="none",
        metrics="none",
    )
    return replace(
        settings,
        library=library,
        workers=1,
        secret="sample",
        log="none",
        proxy_env=False,
        upstreams=dict.fromkeys(HOSTS, upstream),
        session_max_cost_usd=None,
        session_max_turns=None,
        key_max_cost_usd=None,
        key_max_turns=None,
        key_requests_per_minute=None,
    )


async def _serve_request(proxy: Proxy, sample: _ApiSample, body: bytes, *, is_stream: bool) -> None:
    path = (is_stream and sample.stream_path) or sample.path
    request = ClientRequest(
        method="POST",
        raw_path=path.encode(),
        query=b"alt=sse" if is_stream and sample.stream_path else b"",
        headers=[(b"content-type", b"application/json"), (b"authorization", b"Bearer sample")],
        body=body,
    )
    await proxy.serve(request, ClientReply(_drop_message))


async def _drop_message(message: Any) -> None:
    """Take an ASGI message for a client that there is not."""


def _encode_body(api: Api, sample: _ApiSample, turns: int, *, lines: int = _LINES, stream: bool = False) -> bytes:
    provider = PROVIDERS[api]
    head = Head(messages=(Message(role="user", content=make_content(f"Mend the parser in {lines} lines.")),))
    state = State(Sizer(EstimatingCounter()))
    state = state.fold_events([HeadSet(head), *(TurnAdded(_make_turn(index + 1, lines)) for index in range(turns))])
    body: dict[str, Any] = {
        provider.list_field: provider.make_renderer().render_messages(state.make_raw_view()),
        "tools": [provider.render_tool(_TOOL)],
    }
    if not sample.stream_path:
        body |= {"model": sample.model, "stream": stream}
    return json.dumps(body).encode()


def _make_turn(index: int, lines: int) -> Turn:
    text = "\n".join(f"src/part_{index}.py:{line}: value_{line} = {index * line}" for line in range(lines))
    name = f"call_{index}"
    return Turn(
        index=index,
        content=make_content(f"Step {index}."),
        actions=(Action(id=name, name="bash", arguments=json.dumps({"command": f"cat src/part_{index}.py"})),),
        observations=(Observation(action_id=name, tool="bash", content=make_content(text)),),
    )


async def _answer_requests(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the requests of one connection until it is closed."""
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            body = json.loads(await reader.readexactly(int(head.partition("content-length:")[2].split()[0])))
            path = head.split()[1].partition("?")[0]
            sample = next(each for each in _SAMPLES.values() if path in (each.path.lower(), each.stream_path.lower()))
            if body.get("stream") or path == sample.stream_path.lower():
                events = (
                    f"event: {each.get('type', 'message')}\ndata: {json.dumps(each)}\n\n" for each in sample.events
                )
                kind, answer = "text/event-stream", "".join(events).encode()
            else:
                kind, answer = "application/json", json.dumps(sample.answer).encode()
            fields = f"content-type: {kind}\r\ncontent-length: {len(answer)}"
            writer.write(f"HTTP/1.1 200 OK\r\n{fields}\r\n\r\n".encode() + answer)
            await writer.drain()
    writer.close()
    await writer.wait_closed()
