"""Agents that start agents: each has a session of its own below the one that started it, and a role in the metrics."""

from __future__ import annotations

from collections import Counter

import pytest

from elision.formats.elision_export import load_stored_session
from elision.gateway.dashboard.session_cache import SessionCache
from elision.stores.store import SessionInfo
from tests.gateway.conversation_bytes import PATHS, make_body
from tests.gateway.gateway_trial import JSON_HEADER, open_trial
from tests.gateway.test_metrics_and_log import value

#: What a main agent sends, and its sub-agent.
CLIENTS = {
    "claude-code": (
        ["x-claude-code-session-id: s1"],
        ["x-claude-code-session-id: s1", "x-claude-code-agent-id: a1"],
    ),
    "codex": (
        ["user-agent: codex_cli_rs/0.169", "session-id: s1", "thread-id: s1"],
        [
            *("user-agent: codex_cli_rs/0.169", "session-id: s1", "thread-id: s2"),
            *("x-codex-parent-thread-id: s1", "x-openai-subagent: collab_spawn"),
        ],
    ),
    # Frameworks that send no ids of their own: OpenAI Agents, LangGraph.
    "by our headers": (
        ["x-elision-session: s1"],
        ["x-elision-session: s1/helper", "x-elision-parent: s1"],
    ),
    "opencode": (
        ["x-session-id: ses_1"],
        ["x-session-id: ses_2", "x-parent-session-id: ses_1"],
    ),
}


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_sub_agent_is_below_its_parent(client: str) -> None:
    found: list[SessionInfo] = []
    roles: Counter[str] = Counter()

    async with open_trial() as (gateway, _, http):
        for steps in range(1, 3):
            for fields, lines in zip(CLIENTS[client], (60, 50), strict=True):
                body = make_body("openai", steps, lines=lines)
                got = await http.request("POST", PATHS["openai"], body, JSON_HEADER, *fields)
                assert got.status == 200
        await gateway.wait_until_stored()
        store = gateway.worker.store
        found.extend(store.sessions())
        # Those who read the store later know the roles as well.
        roles.update(load_stored_session(store, info.key).role for info in found)
        page = (await http.request("GET", "/metrics")).body
        assert value(page, "gateway_role_requests_total", role="main") == 2
        assert value(page, "gateway_role_requests_total", role="sub-agent") == 2
    assert roles == {"main": 1, "sub-agent": 1}
    (parent,) = (each for each in found if not each.relation)
    (child,) = (each for each in found if each.relation)
    assert (child.parent, child.relation) == (parent.key, "sub-agent")
    assert (parent.turns, child.turns) == (2, 2)


async def test_a_role_is_stored_with_its_session() -> None:
    """A side call that only its header tells from a task is one in the dashboard and for an audit, too."""
    roles: list[str] = []

    async with open_trial() as (gateway, _, http):
        fields = (JSON_HEADER, "x-elision-session: s1", "x-elision-role: side")
        for steps in range(1, 4):
            await http.request("POST", PATHS["openai"], make_body("openai", steps), *fields)
        await gateway.wait_until_stored()
        store = gateway.worker.store
        (info,) = store.sessions()
        roles.append(load_stored_session(store, info.key).role)
        roles.extend(row.role for row in SessionCache(store).iterate_rows([info], 60) if row is not None)
        page = (await http.request("GET", "/metrics")).body
        assert value(page, "gateway_role_requests_total", role="side") == 3
    assert roles == ["side", "side"]
