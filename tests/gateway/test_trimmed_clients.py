"""A client that trims its own history has one session behind the gateway, too."""

from __future__ import annotations

import json
from typing import Any

from elision.gateway.identity import ClientIdentity
from elision.gateway.live_sessions import SessionRegistry
from elision.gateway.request_body import RequestBody
from elision.manager.opened_session import OpenedSession
from elision.stores.memory import MemoryStore
from tests.flat_options import open_session

TASK = {"role": "user", "content": "Fix the parser."}


def call(number: int) -> list[dict[str, Any]]:
    """Return one turn: a call, and its result."""
    function = {"name": "bash", "arguments": json.dumps({"command": f"step {number}"})}
    return [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": f"c{number}", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": f"c{number}", "content": f"result {number}\n" * 300},
    ]


async def test_each_request_continues_the_session_before() -> None:
    """No session diverges, every call is in one log, and the view has the messages of the request alone."""
    store = MemoryStore()

    def make(name: str, family: str, api: str, model: str, parent: str, role: str) -> OpenedSession:
        options: dict[str, Any] = {"session": name, "family": family, "dialect": api, "write_behind": True}
        return open_session("masking(window=2, schedule=every-turn)", store=store, **options)

    known = SessionRegistry(make, max_sessions=9, memory_bytes=1 << 30, idle_seconds=1e9)
    history = [TASK]
    sessions = set()
    for step in range(30):
        window = [TASK, *history[1:][-10:]]
        body = RequestBody.parse(json.dumps({"model": "m", "messages": window}).encode(), "openai")
        live = known.claim_session(ClientIdentity(namespace="k", session=""), "openai", body)
        view = live.context.prepare(live.conversation.messages, tools=[])
        known.release_session(live, answered=True)
        sessions.add(live.name)
        assert len(view.messages) == len(window)
        assert view.diagnostics.call == step + 1
        assert live.divergences == 0
        history += call(step + 1)
    assert len(sessions) == 1
    await known.close()
    assert len(store.sessions()) == 1
    assert store.info(store.sessions()[0].key).turns == 29
