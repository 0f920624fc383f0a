"""A store with damaged records behind the gateway: requests go out, responses come back, and sessions continue."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from elision.stores.store_urls import open_store
from tests.gateway.conversation_bytes import APIS, HIDING_STEPS, PATHS, PLACEHOLDER_PART, make_body, render_whole
from tests.gateway.gateway_trial import open_trial
from tests.gateway.loopback_gateway import HttpClient
from tests.gateway.scripted_upstream import ScriptedUpstream


def damage_last_record(file: Path) -> None:
    """Change the newest record of each session."""
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(
            "UPDATE records SET body = x'01' || body WHERE id IN (SELECT max(id) FROM records GROUP BY id / 4294967296)"
        )


def damage_counts(file: Path) -> None:
    """Let each session say that it has more records."""
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE sessions SET records = records + 512")


def damage_header(file: Path) -> None:
    """Write over the pages of every table."""
    whole = file.read_bytes()
    file.write_bytes(whole[:4096] + bytes(len(whole) - 4096))


@pytest.mark.parametrize("damage", [damage_last_record, damage_counts])
async def test_sessions_continue_after_damage(damage: object, tmp_path: Path) -> None:
    """On each API the damaged session continues as another one, which hides what the first did and is durable."""
    file = tmp_path / "elision.db"
    store = f"sqlite:///{file}"
    sent: dict[str, bytes] = {}

    async def ask_all(steps: int, client: HttpClient, upstream: ScriptedUpstream) -> None:
        for api in APIS:
            answer = await client.request("POST", PATHS[api], make_body(api, steps, task=api, word=api))
            assert (answer.status, answer.body) == (200, render_whole(api))
            sent[api] = upstream.requests[-1].body

    async with open_trial(store=store) as (_, upstream, client):
        for steps in range(HIDING_STEPS):
            await ask_all(steps, client, upstream)
    assert callable(damage)
    damage(file)
    async with open_trial(store=store) as (_, upstream, client):
        for steps in range(HIDING_STEPS, HIDING_STEPS + 3):
            await ask_all(steps, client, upstream)
            for api in APIS:
                assert sent[api].count(PLACEHOLDER_PART) == steps - 2, api
    with closing(open_store(store)) as opened:
        whole = [info.key for info in opened.sessions() if info.turns == HIDING_STEPS + 2]
        assert len(whole) == len(APIS)
        for key in whole:
            assert [turn.index for turn in opened.turns(key)] == list(range(1, HIDING_STEPS + 3))


async def test_damage_while_the_gateway_serves(tmp_path: Path) -> None:
    """Pages are overwritten under a running gateway: requests go out, and every response comes back."""
    file = tmp_path / "elision.db"

    async with open_trial(store=f"sqlite:///{file}") as (*_, client):
        for steps in range(HIDING_STEPS + 3):
            if steps == HIDING_STEPS:
                damage_header(file)
            answer = await client.request("POST", PATHS["openai"], make_body("openai", steps))
            assert (answer.status, answer.body) == (200, render_whole("openai"))


async def test_a_gateway_starts_beside_a_file_that_cannot_be_opened(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It serves, durably, and its log says what became of the file."""
    file = tmp_path / "elision.db"
    for _ in range(2):
        async with open_trial(store=f"sqlite:///{file}") as (*_, client):
            for steps in range(HIDING_STEPS):
                answer = await client.request("POST", PATHS["openai"], make_body("openai", steps))
                assert (answer.status, answer.body) == (200, render_whole("openai"))
        if not (damaged := file.with_name("elision.db.damaged")).exists():
            whole = file.read_bytes()
            file.write_bytes(whole[:100] + bytes(len(whole) - 100))
    assert damaged.exists()
    assert "kept as elision.db.damaged" in caplog.text
    with closing(open_store(f"sqlite:///{file}")) as store:
        assert [info.turns for info in store.sessions()] == [HIDING_STEPS - 1]
