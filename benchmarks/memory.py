"""The memory of a session, over the bytes of its messages: in the gateway, and in the library beside the client's list.

Counted is what is freed when the session goes (`tracemalloc`), so caches that all sessions share are left out.
"""

from __future__ import annotations

import asyncio
import gc
import json
import tracemalloc
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.apart import apart
from benchmarks.session import Chat, chat
from elision import Advanced, ContextManager
from elision.gateway.identity import derive_namespace, identify_client
from elision.gateway.live_sessions import SessionRegistry
from elision.gateway.request_body import RequestBody
from elision.manager.context_options import Options
from elision.manager.opened_session import OpenedSession
from elision.providers.provider import Api
from elision.trajectory.run_roles import SaidRole
from elision.trajectory.tokens import make_counter

MODEL = "gpt-4.1"
TURN_BYTES = 4_500
#: Calls of one session; each brings an equal part of its turns.
CALLS = 25
#: Sessions that wait for their next call, and their turns.
IDLE_SESSIONS, IDLE_TURNS = 1_000, 10
_SECRET = b"memory"


def main(*, small: bool = False) -> None:
    idle = IDLE_SESSIONS // 5 if small else IDLE_SESSIONS
    print(f"{'':44} {'messages':>9} {'session':>9}")
    for turns in (1_000,) if small else (1_000, 5_000):
        _print(f"gateway, live, {turns:,} turns", *apart(partial(measure_gateway, turns, CALLS, 1)))
    _print(
        f"gateway, {idle:,} idle sessions of {IDLE_TURNS} turns",
        *apart(partial(measure_gateway, IDLE_TURNS, 2, idle)),
    )
    _print("library, 1,000 turns, one growing list", *apart(partial(measure_library, 1_000, parsed_anew=False)))
    _print("library, 1,000 turns, parsed anew each call", *apart(partial(measure_library, 1_000, parsed_anew=True)))


def measure_gateway(turns: int, calls: int, sessions: int, folder: Path) -> tuple[int, int]:
    """Return the bytes of the newest requests of these sessions, and of the memory that goes with the sessions."""
    registry = make_registry(folder)
    asyncio.run(send_requests(registry, chat(3, 3 * TURN_BYTES), 1, "key"))
    found = chat(turns, turns * TURN_BYTES)
    tracemalloc.start()
    size = sum(asyncio.run(send_requests(registry, found, calls, f"key {number}")) for number in range(sessions))
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    asyncio.run(registry.close())
    del registry
    gc.collect()
    return size, held - tracemalloc.get_traced_memory()[0]


def make_registry(folder: Path) -> SessionRegistry:
    def open_session(name: str, family: str, api: Api, model: str, parent: str, role: SaidRole) -> OpenedSession:
        return OpenedSession(
            Options(
                strategy="masking(window=10)",
                model=MODEL,
                store=f"sqlite:///{folder / 'sessions.db'}",
                session=name,
                advanced=Advanced(dialect="openai"),
            )
        )

    return SessionRegistry(open_session, max_sessions=2 * IDLE_SESSIONS, memory_bytes=1 << 40, idle_seconds=1e9)


async def send_requests(registry: SessionRegistry, found: Chat, calls: int, key: str) -> int:
    """Do with a session's requests what the gateway does; return the bytes of the newest.

    key: the client's, so that its sessions are its own.
    """
    size = 0
    headers = {"authorization": f"Bearer {key}"}
    namespace = derive_namespace(headers, b"", _SECRET)
    for raw in write_bodies(found, calls):
        size = len(raw)
        continued = registry.find_continued(namespace, "openai", raw)
        body = RequestBody.parse(raw, "openai", continued.previous_body if continued is not None else None)
        who = identify_client("openai", headers, body, namespace)
        session = registry.claim_session(who, "openai", body, before=continued)
        messages = session.hidden_rounds.expand_messages(session.conversation.copy())
        view = session.context.prepare(messages, tools=body.get_field("tools"), model=MODEL)
        new = session.encoder.list_new(view.messages, messages)
        body.render_changes(messages=session.encoder.encode_messages(view.messages, messages, new))
        session.newest_diagnostics = view.diagnostics
        session.context.record({"prompt_tokens": view.diagnostics.after, "completion_tokens": 100})
        registry.mark_answered(session)
        registry.release_session(session, answered=True, already_marked=True)
    return size


def write_bodies(found: Chat, calls: int) -> Iterator[bytes]:
    """Yield the bodies of a session's requests."""
    messages = list(found.head)
    step = max(1, len(found.turns) // calls)
    for number, turn in enumerate(found.turns, start=1):
        messages.extend(turn)
        if number % step == 0:
            yield json.dumps({"model": MODEL, "messages": messages, "tools": found.tools}).encode()


def measure_library(turns: int, folder: Path, *, parsed_anew: bool) -> tuple[int, int]:
    """Return the bytes of the messages, and of the memory that goes with the context manager."""
    make_counter().count("load the vocabulary")
    found = chat(turns, turns * TURN_BYTES)
    messages = [*found.head, *(message for turn in found.turns for message in turn)]
    written = json.dumps(messages)
    step = turns // CALLS
    tracemalloc.start()
    context = ContextManager("masking(window=10)", model=MODEL, store=f"sqlite:///{folder / 'session.db'}")
    for end in range(len(found.head) + 2 * step, len(messages) + 1, 2 * step):
        context.prepare(json.loads(json.dumps(messages[:end])) if parsed_anew else messages[:end], tools=found.tools)
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    context.close()
    del context
    gc.collect()
    return len(written), held - tracemalloc.get_traced_memory()[0]


def _print(name: str, size: int, held: int) -> None:
    print(f"  {name:42} {size / 1e6:6.1f} MB {held / 1e6:6.1f} MB {held / size:6.2f} x")
