"""Workers that are killed in the midst of a stream: the client sees a cut, tries again, and its session goes on."""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
from pathlib import Path

import psutil

from elision.providers.provider import Api
from elision.stores.store_urls import open_store
from tests.figures import ReportFigures
from tests.gateway.conversation_bytes import APIS, EAGER, PATHS, make_body, render_frames
from tests.gateway.gateway_trial import find_api, open_trial
from tests.gateway.loopback_gateway import HttpClient, connect
from tests.gateway.scripted_upstream import ReceivedRequest, render_chunk, run_scripted_upstream
from tests.gateway.serve_process import ServeProcess, start_serve
from tests.soak import SOAK

#: Kills; each costs the start of a worker, which is why so few are in every test run.
KILLS = int(os.environ.get("ELISION_KILLS", "500" if SOAK else "1"))
#: Calls of one session.
CALLS = 12 if SOAK else 8
#: Seconds until a killed worker is replaced, at most.
PATIENCE = 60.0
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_MARK = b',"cache_control":{"type":"ephemeral"}'


def said(api: Api, session: int, steps: int) -> bytes:
    name = f"agent {session} of {api}"
    return make_body(api, steps, stream=True, task=name, word=name, lines=20)


async def undisturbed(calls: list[tuple[Api, int]]) -> dict[tuple[Api, int, int], bytes]:
    """What the provider gets at each call where nobody is killed."""

    found = {}
    async with open_trial() as (_, upstream, client):
        for api, session in calls:
            for steps in range(CALLS):
                assert (await client.request("POST", PATHS[api], said(api, session, steps))).status == 200
                found[api, session, steps] = upstream.requests[-1].body.replace(_MARK, b"")
    return found


class Held:
    """A provider whose streams stop behind two events until `go_on` is set."""

    def __init__(self) -> None:
        self.go_on, self.begun = asyncio.Event(), asyncio.Event()
        self.go_on.set()

    async def __call__(self, asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        parts = render_frames(find_api(asked))
        writer.write(STREAM + b"".join(map(render_chunk, parts[:2])))
        await writer.drain()
        self.begun.set()
        await self.go_on.wait()
        writer.write(b"".join(map(render_chunk, parts[2:])) + render_chunk(b""))


def worker_of(client: HttpClient, gateway: ServeProcess) -> int:
    """The process at the other end of a connection."""
    port = client.writer.get_extra_info("sockname")[1]
    for pid in gateway.list_workers():
        if any(each.raddr and each.raddr.port == port for each in psutil.Process(pid).net_connections("tcp")):
            return pid
    raise AssertionError("no worker has it")


async def work(gateway: ServeProcess, held: Held, calls: list[tuple[Api, int]], kills: int) -> int:
    """Every session to its end, workers killed in the midst of some answers; how many were."""
    chance, killed = random.Random(1), 0
    for api, session in calls:
        for steps in range(CALLS):
            due = killed < kills and chance.random() < 0.75
            while due:
                due = not await _killed(gateway, held, api, session, steps)
                killed += not due
            client = await connect(gateway.url)
            client.send_request("POST", PATHS[api], said(api, session, steps))
            got = await client.read_response()
            client.close()
            assert (got.status, got.body) == (200, b"".join(render_frames(api))), "the next try is answered"
    return killed


async def _killed(gateway: ServeProcess, held: Held, api: Api, session: int, steps: int) -> bool:
    """Ask, and have the worker killed that answers; whether it was."""
    held.go_on.clear()
    held.begun.clear()
    client = await connect(gateway.url)
    client.send_request("POST", PATHS[api], said(api, session, steps))
    await asyncio.wait_for(held.begun.wait(), PATIENCE)
    os.kill(worker_of(client, gateway), signal.SIGKILL)
    got = b""
    try:
        while part := await asyncio.wait_for(client.reader.read(1 << 16), PATIENCE):
            got += part
    except ConnectionResetError:
        pass
    client.close()
    held.go_on.set()
    assert not got.endswith(b"0\r\n\r\n"), "it is cut, and seen to be"
    return True


def test_no_kill_loses_a_session(tmp_path: Path, report_figures: ReportFigures) -> None:
    """The provider gets at every call the very bytes that it would have got, and the store holds every turn once."""
    count = max(len(APIS), -(-KILLS // 8))
    calls = [(APIS[session % len(APIS)], session) for session in range(count)]
    held = Held()

    async def run() -> tuple[int, list[tuple[Api, bytes]]]:
        async with run_scripted_upstream(held) as upstream:
            options = ["--upstream-openai", upstream.url, "--upstream-anthropic", upstream.url, "--workers", "2"]
            options += ["--store", f"sqlite:///{tmp_path}/killed.db", "-s", EAGER]
            with start_serve(tmp_path, *options) as gateway:
                # Both workers are up, so that one of them always serves.
                await asyncio.to_thread(gateway.wait_for_workers, 2)
                killed = await work(gateway, held, calls, KILLS)
                assert await asyncio.to_thread(gateway.end_process) == 0
                assert "Traceback" not in gateway.log
            return killed, [(find_api(asked), asked.body.replace(_MARK, b"")) for asked in upstream.requests]

    killed, asked = asyncio.run(run())
    expected = asyncio.run(undisturbed(calls))
    report_figures(f"gateway: {killed} kills of a worker in {len(asked):,} requests of {len(calls)} sessions")
    assert killed == KILLS
    assert len(asked) == len(calls) * CALLS + killed
    wanted = {(api, raw) for (api, _, _), raw in expected.items()}
    assert [raw[-300:] for api, raw in asked if (api, raw) not in wanted] == []
    store = open_store(f"sqlite:///{tmp_path}/killed.db")
    try:
        whole = list[str]()
        for info in store.sessions():
            turns = list(store.turns(info.key))
            words = {re.search(r"agent \d+ of [\w-]+", turn.observations[0].text)[0] for turn in turns}  # type: ignore[index]
            assert len(words) <= 1, "nobody has another's turns"
            # A first or second request whose worker was killed may be nobody's: its next try goes on elsewhere.
            assert len(turns) in (0, 1, CALLS - 1)
            whole += words if len(turns) > 1 else ()
        assert sorted(whole) == sorted(f"agent {session} of {api}" for api, session in calls)
        assert store.check() == []
    finally:
        store.close()
