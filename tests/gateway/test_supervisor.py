"""Several workers: the port closes with the stop, and those who serve go on while others do not come up."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import psutil
import pytest

from elision.errors import ElisionError
from elision.gateway import supervisor
from elision.gateway.server import bind_socket
from elision.gateway.supervisor import _WorkerPool
from tests.gateway.loopback_gateway import HttpClient, connect, make_settings
from tests.gateway.scripted_upstream import ReceivedRequest, render_chunk, run_scripted_upstream
from tests.gateway.serve_process import TIMEOUT_SECONDS, ServeProcess, start_serve

CHAT = "/v1/chat/completions"
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


async def refused(url: str) -> None:
    """Connect again and again, until nobody listens."""
    until = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < until:
        try:
            client = await connect(url)
        except ConnectionRefusedError:
            return
        except ConnectionError:
            # It was taken by the system just before the port closed.
            continue
        client.close()
    raise AssertionError("somebody still listens")


async def test_workers_share_connections_and_a_port(tmp_path: Path) -> None:
    """Two workers have half of 28 connections each, and one that is killed takes no more than these with it. When it
    stops, whoever connects is refused at once, while a stream under way comes to its end."""
    go_on = asyncio.Event()

    async def script(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM + render_chunk(b"data: 1\n\n"))
        await go_on.wait()
        writer.write(render_chunk(b"data: 2\n\n") + render_chunk(b""))

    async with run_scripted_upstream(script) as upstream:
        options = ["--off", "--upstream-openai", upstream.url, "--upstream-anthropic", "none"]
        options += ["--upstream-gemini", "none", "--workers", "2"]
        with start_serve(tmp_path, *options, AGENT_CONTEXT_GATEWAY_DRAIN_SECONDS="20") as gateway:
            await wait_for_workers(gateway, 2)
            clients = [await connect(gateway.url) for _ in range(28)]
            for client in clients:
                assert (await client.request("GET", "/healthz")).status == 200
            counts = {worker: count_connections(worker, gateway.url) for worker in gateway.list_workers()}
            assert list(counts.values()) == [14, 14]
            os.kill(min(counts), signal.SIGKILL)
            answered = [await is_answered(client) for client in clients]
            assert answered.count(True) == 14
            client = clients[answered.index(True)]
            client.send_request("POST", CHAT, b"{}")
            await client.read_head()
            assert await client.read_chunk() == b"data: 1\n\n"
            gateway.popen.send_signal(signal.SIGTERM)
            await refused(gateway.url)
            assert gateway.popen.poll() is None
            go_on.set()
            assert [await client.read_chunk(), await client.read_chunk()] == [b"data: 2\n\n", b""]
            for client in clients:
                client.close()
            assert await asyncio.to_thread(gateway.popen.wait, TIMEOUT_SECONDS) == 0


async def wait_for_workers(gateway: ServeProcess, count: int) -> None:
    """Wait until so many workers serve: connections that come one by one go to each of them."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        clients = [await connect(gateway.url) for _ in range(count)]
        for client in clients:
            assert (await client.request("GET", "/healthz")).status == 200
        counts = [count_connections(worker, gateway.url) for worker in gateway.list_workers()]
        for client in clients:
            client.close()
        while any(count_connections(worker, gateway.url) for worker in gateway.list_workers()):
            await asyncio.sleep(0.01)
        if counts == [1] * count:
            return
        assert time.monotonic() < deadline


def count_connections(worker: int, url: str) -> int:
    """Return how many connections of clients a worker has."""
    port = int(url.rpartition(":")[2])
    found = psutil.Process(worker).net_connections("tcp")
    return sum(each.status == psutil.CONN_ESTABLISHED and each.laddr.port == port for each in found)


async def is_answered(client: HttpClient) -> bool:
    try:
        return (await client.request("GET", "/healthz")).status == 200
    except (asyncio.IncompleteReadError, ConnectionError):
        return False


# -- workers that do not come up, played ------------------------------------------------------------------------------


class Played:
    """A worker's process that does nothing: it serves, or has died, when its part says so."""

    def __init__(self, stage: Stage, pipe: Connection) -> None:
        self._stage, self.pipe = stage, pipe
        self.sentinel, self._end = os.pipe()
        self.pid, self.exitcode = 0, -9

    def start(self) -> None:
        self._stage.started.append(self)
        self._stage.parts[len(self._stage.started) - 1](self)

    def serve(self) -> None:
        self.pipe.send(True)

    def die(self) -> None:
        os.close(self._end)
        self._end = -1

    def terminate(self) -> None:
        if self._end >= 0:
            self.die()

    def join(self, seconds: float = 0) -> None:
        self.terminate()

    def is_alive(self) -> bool:
        return self._end >= 0


class Stage:
    """Stands for multiprocessing. parts: what the workers do when they start, one after the other."""

    def __init__(self, folder: Path, *parts: Callable[[Played], None]) -> None:
        self.parts, self.started = parts, list[Played]()
        self.ours, self.theirs = socket.socketpair()
        self.listening = bind_socket("127.0.0.1", 0)
        self.crew = _WorkerPool(make_settings(), self.listening, str(folder), lambda: None)
        self.crew._context = self  # type: ignore[assignment]

    Pipe = staticmethod(multiprocessing.Pipe)

    def Process(self, *, target: object, args: tuple[object, object, Connection], name: str) -> Played:  # noqa: N802
        return Played(self, args[2])

    def run(self, count: int = 2) -> None:
        try:
            self.crew.run(count, self.ours)
        finally:
            self.crew.stop_all(0)
            self.ours.close(), self.theirs.close(), self.listening.close()
            for each in self.started:
                os.close(each.sentinel)

    def end(self, last: Played) -> None:
        """The part of a last worker: a signal comes."""
        self.theirs.send(b"x")


def test_those_who_serve_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often others die before they serve, there is a gateway as long as one does."""
    monkeypatch.setattr(supervisor, "PAUSE_SECONDS", 0.0)
    stage = Stage(tmp_path, Played.serve, *[Played.die] * 20, lambda last: stage.end(last))
    stage.run()
    assert len(stage.started) == 22


def test_a_worker_that_served_is_tried_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the last one that serves dies, that others could not come up before is no reason to give up."""
    monkeypatch.setattr(supervisor, "PAUSE_SECONDS", 0.0)

    def both(last: Played) -> None:
        stage.started[0].die()
        last.die()

    stage = Stage(tmp_path, Played.serve, *[Played.die] * 9, both, Played.serve, lambda last: stage.end(last))
    stage.run()
    assert len(stage.started) == 13


def test_nobody_comes_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where none ever serves it is the end, after a few tries."""
    monkeypatch.setattr(supervisor, "PAUSE_SECONDS", 0.0)
    stage = Stage(tmp_path, *[Played.die] * 9)
    with pytest.raises(ElisionError, match="no worker starts"):
        stage.run(1)
    assert len(stage.started) == supervisor.MAX_EARLY_DEATHS + 1


def test_no_process_to_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that starts no further process is one more reason to try again later."""
    monkeypatch.setattr(supervisor, "PAUSE_SECONDS", 0.0)

    def none(last: Played) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    stage = Stage(tmp_path, Played.serve, *[none] * 9, lambda last: stage.end(last))
    stage.run()
    assert len(stage.started) == 11


def test_a_word_to_stop_between_tries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is heard at once, however long the next try is away."""
    monkeypatch.setattr(supervisor, "PAUSE_SECONDS", 3600.0)
    monkeypatch.setattr(supervisor, "MAX_PAUSE_SECONDS", 3600.0)

    def last(worker: Played) -> None:
        worker.die()
        threading.Timer(0.05, stage.theirs.send, [b"x"]).start()

    stage = Stage(tmp_path, Played.serve, Played.die, last)
    stage.run()
    assert len(stage.started) == 3


def test_a_folder_that_was_tidied_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of metrics is there when a worker starts, whoever has removed it since the one before."""
    folder, there = tmp_path / "elision-metrics-x", list[bool]()

    def look(worker: Played) -> None:
        there.append(folder.is_dir())
        folder.rmdir()
        worker.serve() if len(there) == 1 else stage.end(worker)

    stage = Stage(folder, look, look)
    stage.run()
    assert there == [True, True]


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    """Is no reason not to start a worker."""
    (tmp_path / "file").touch()
    stage = Stage(tmp_path / "file" / "folder", Played.serve, lambda last: stage.end(last))
    stage.run()
    assert len(stage.started) == 2
