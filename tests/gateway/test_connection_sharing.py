"""Each connection goes to the worker with the fewest, and none is lost with a worker that has not taken it."""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from random import Random

import pytest

from elision.gateway.connection_sharing import MAX_UNCONFIRMED, ConnectionBalancer, ConnectionReceiver, WorkerChannel
from elision.gateway.server import bind_socket


class SharedSocket:
    """A listening socket, its balancer, and workers as sockets: what each took is in `taken`."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self.listening = self._stack.enter_context(bind_socket("127.0.0.1", 0))
        self.balancer = ConnectionBalancer(self.listening, 2_048)
        self._stack.callback(self.balancer.close)
        self.channels: list[WorkerChannel] = []
        self.ends: list[socket.socket] = []
        self.taken: list[list[socket.socket]] = []

    def start_worker(self) -> None:
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        self.channels.append(WorkerChannel(ours))
        self.ends.append(self._stack.enter_context(theirs))
        self.taken.append([])
        self.balancer.add(self.channels[-1])

    def connect(self, count: int = 1) -> list[socket.socket]:
        """Return connections of clients; the balancer has given each, or cannot."""
        found = []
        for _ in range(count):
            found.append(self._stack.enter_context(socket.create_connection(self.listening.getsockname())))
            if self.listening in self.balancer.list_sockets():
                # The system may accept it a moment after the client has it.
                select.select([self.listening], [], [])
            self.handle()
        return found

    def handle(self) -> None:
        self.balancer.handle(select.select(self.balancer.list_sockets(), [], [], 0)[0])

    def take(self, worker: int) -> int:
        """Let a worker take what it was given; return how many."""
        count = 0
        while True:
            try:
                data, (descriptor,), _, _ = socket.recv_fds(self.ends[worker], 1, 1)
            except BlockingIOError:
                self.handle()
                return count
            assert data
            self.taken[worker].append(self._stack.enter_context(socket.socket(fileno=descriptor)))
            self.ends[worker].send(b"+")
            count += 1

    def end_connection(self, worker: int) -> None:
        self.taken[worker].pop().close()
        self.ends[worker].send(b"-")
        self.handle()

    def close(self) -> None:
        self._stack.close()


@pytest.fixture
def shared() -> Iterator[SharedSocket]:
    found = SharedSocket()
    yield found
    found.close()


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
def test_no_worker_gets_more_than_its_share(shared: SharedSocket, workers: int) -> None:
    """Forty connections, whether they come at once or one by one: the workers' counts differ by one at most."""
    for _ in range(workers):
        shared.start_worker()
    shared.connect(40)
    counts = [shared.take(worker) for worker in range(workers)]
    assert sum(counts) == 40
    assert max(counts) - min(counts) <= 1


def test_a_worker_that_starts_later_catches_up(shared: SharedSocket) -> None:
    """New connections go to it until it has as many as the others."""
    shared.start_worker()
    shared.connect(10)
    shared.start_worker()
    shared.connect(10)
    assert [shared.take(0), shared.take(1)] == [10, 10]


@pytest.mark.parametrize("seed", range(20))
def test_counts_stay_true(shared: SharedSocket, seed: int) -> None:
    """Whatever opens and closes in whatever order, a new connection goes to a worker with the fewest."""
    chance = Random(seed)
    for _ in range(3):
        shared.start_worker()
    for _ in range(100):
        worker = chance.randrange(3)
        if chance.random() < 0.4 and shared.taken[worker]:
            shared.end_connection(worker)
        else:
            before = [len(each) for each in shared.taken]
            shared.connect()
            (given,) = [each for each in range(3) if shared.take(each)]
            assert before[given] == min(before)
    assert [channel.open_count for channel in shared.channels] == [len(each) for each in shared.taken]


def test_connections_that_a_dead_worker_has_not_taken_go_to_others(shared: SharedSocket) -> None:
    """They stay open, with what their clients sent."""
    shared.start_worker()
    shared.start_worker()
    clients = shared.connect(6)
    for client in clients:
        client.sendall(b"hello")
    shared.ends[0].close()
    shared.handle()
    assert shared.take(1) == 6
    assert [each.recv(5) for each in shared.taken[1]] == [b"hello"] * 6


def test_connections_wait_for_a_worker(shared: SharedSocket) -> None:
    """If the last worker dies, what it has not taken goes to the next; meanwhile the kernel keeps new ones."""
    shared.start_worker()
    shared.connect(2)
    shared.ends[0].close()
    shared.handle()
    shared.connect(3)
    shared.start_worker()
    for _ in range(4):
        shared.handle()
    assert shared.take(1) == 5


def test_a_worker_that_takes_nothing_gets_a_bounded_number(shared: SharedSocket) -> None:
    """Beyond it connections go to others, and none is accepted if there are no others."""
    shared.start_worker()
    shared.connect(MAX_UNCONFIRMED)
    assert shared.listening not in shared.balancer.list_sockets()
    shared.start_worker()
    shared.connect(MAX_UNCONFIRMED)
    assert shared.take(1) == MAX_UNCONFIRMED
    assert shared.listening in shared.balancer.list_sockets()


def test_too_many_open_files_pause_it(shared: SharedSocket, monkeypatch: pytest.MonkeyPatch) -> None:
    """It accepts again later, and does not spin until then."""
    shared.start_worker()

    class Full:
        def __getattr__(self, name: str) -> object:
            return getattr(shared.listening, name)

        def accept(self) -> None:
            raise OSError(24, "Too many open files")

    full = Full()
    monkeypatch.setattr(shared.balancer, "_listening_socket", full)
    shared.balancer.handle([full])
    assert full not in shared.balancer.list_sockets()
    assert shared.balancer.find_pause() is not None
    monkeypatch.setattr(shared.balancer, "_next_accept", 0.0)
    assert full in shared.balancer.list_sockets()


async def test_a_worker_confirms_and_reports(shared: SharedSocket) -> None:
    """A worker serves what it gets, and says when it is closed; after its stop it takes nothing."""

    class Echo(asyncio.Protocol):
        def __init__(self, on_close: Callable[[], None]) -> None:
            self._on_close = on_close

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            assert transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            self._transport = transport

        def data_received(self, data: bytes) -> None:
            self._transport.write(data)

        def connection_lost(self, error: Exception | None) -> None:
            self._on_close()

    shared.start_worker()
    (channel,) = shared.channels
    receiver = ConnectionReceiver(shared.ends[0], Echo)
    loop = asyncio.get_running_loop()
    clients = shared.connect(3)
    for client in clients:
        client.setblocking(False)
        await loop.sock_sendall(client, b"hello")
        assert await loop.sock_recv(client, 5) == b"hello"
    clients[0].close()
    while channel.open_count == 3:
        await asyncio.sleep(0)
        shared.handle()
    assert channel.open_count == 2
    receiver.close()
    shared.handle()
    assert not channel.socket.fileno() >= 0
    for client in clients[1:]:
        client.close()
    while len(asyncio.all_tasks()) > 1:
        await asyncio.sleep(0)
