"""Share the connections of one listening socket among worker processes: each goes to the worker that has the fewest.

    supervisor: accept -> WorkerChannel.give ->  (Unix socket)  -> ConnectionReceiver -> HTTP, in a worker
                          open_count         <-  taken, closed  <-

Where every worker accepts for itself, one that wakes first takes all that wait: agents keep their connections for
hours, so the load would stay there. The kernel's own spreading (SO_REUSEPORT) hashes addresses: with 40 connections on
8 workers, one mostly has more than 1.5 times its share.

A connection stays open here until its worker confirms it. If a worker dies, those that it has not taken go to others.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections import deque
from collections.abc import Callable, Collection
from typing import Any, Final

_log: Final = logging.getLogger("elision.gateway")

#: Connections that may wait for a worker to take them; with as many at each, others stay in the kernel's queue.
MAX_UNCONFIRMED: Final = 64
#: Seconds without accepting where the system has no more open files to give.
PAUSE_SECONDS: Final = 1.0
#: What a worker reports of a connection.
_TAKEN: Final = b"+"
_CLOSED: Final = b"-"


class WorkerChannel:
    """The supervisor's end of the channel to one worker. open_count: the connections that the worker has."""

    def __init__(self, channel: socket.socket) -> None:
        channel.setblocking(False)
        self.socket = channel
        self.open_count = 0
        #: Grows with each connection given to any worker: those with as many connections take turns.
        self.given_at = 0
        self._unconfirmed: deque[socket.socket] = deque()

    @property
    def is_full(self) -> bool:
        return len(self._unconfirmed) >= MAX_UNCONFIRMED

    def give(self, connection: socket.socket) -> None:
        """Give the worker a connection. Raises OSError where it takes none."""
        socket.send_fds(self.socket, [b"c"], [connection.fileno()])
        self._unconfirmed.append(connection)
        self.open_count += 1

    def read_reports(self) -> None:
        """Read what the worker reports. Raises OSError where it takes no more connections."""
        while True:
            try:
                reports = self.socket.recv(4_096)
            except BlockingIOError:
                return
            if not reports:
                raise ConnectionResetError("the worker closed its channel")
            for _ in range(reports.count(_TAKEN)):
                self._unconfirmed.popleft().close()
            self.open_count -= reports.count(_CLOSED)

    def close(self) -> list[socket.socket]:
        """Close the channel; return the connections that the worker has not taken."""
        self.socket.close()
        left = list(self._unconfirmed)
        self._unconfirmed.clear()
        return left


class ConnectionBalancer:
    """Accepts connections and gives each to the worker with the fewest."""

    def __init__(self, listening_socket: socket.socket, backlog: int) -> None:
        self._listening_socket = listening_socket
        self._backlog = backlog
        self._channels: list[WorkerChannel] = []
        #: Accepted, and no worker can take them.
        self._waiting: deque[socket.socket] = deque()
        self._given = 0
        #: Before when none is accepted, monotonic seconds.
        self._next_accept = 0.0

    def add(self, channel: WorkerChannel) -> None:
        """Give connections to a worker, too. With the first one the socket listens."""
        if not self._given and not self._channels:
            self._listening_socket.setblocking(False)
            self._listening_socket.listen(self._backlog)
        self._channels.append(channel)
        self._give_waiting()

    def remove(self, channel: WorkerChannel) -> None:
        """Give what the worker has not taken to others. Does nothing for a worker that was removed."""
        if channel in self._channels:
            self._channels.remove(channel)
            self._waiting.extend(channel.close())
            self._give_waiting()

    def list_sockets(self) -> list[socket.socket]:
        """Return the sockets to wait for: channels, and the listening one if a connection could be given."""
        found = [channel.socket for channel in self._channels]
        if self._can_accept():
            found.append(self._listening_socket)
        return found

    def find_pause(self) -> float | None:
        """Return the seconds after which it may accept again; None where that is not known."""
        if time.monotonic() < self._next_accept:
            return self._next_accept - time.monotonic()
        return None

    def handle(self, ready: Collection[Any]) -> None:
        """Read reports and accept connections. ready: the sockets that can be read, among other objects."""
        for channel in [each for each in self._channels if each.socket in ready]:
            try:
                channel.read_reports()
            except OSError:
                self.remove(channel)
        self._give_waiting()
        if self._listening_socket in ready:
            self._accept()

    def close(self) -> None:
        """Close the channels and what no worker has taken."""
        for channel in self._channels:
            self._waiting.extend(channel.close())
        self._channels.clear()
        for connection in self._waiting:
            connection.close()
        self._waiting.clear()

    def _can_accept(self) -> bool:
        has_room = not self._waiting and any(not channel.is_full for channel in self._channels)
        return has_room and time.monotonic() >= self._next_accept

    def _accept(self) -> None:
        # Reports are read between two calls, so that the counts are true.
        for _ in range(MAX_UNCONFIRMED):
            if not self._can_accept():
                return
            try:
                connection, _ = self._listening_socket.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                _log.error("no connection can be accepted: %s", error.strerror or error)
                self._next_accept = time.monotonic() + PAUSE_SECONDS
                return
            self._waiting.append(connection)
            self._give_waiting()

    def _give_waiting(self) -> None:
        while self._waiting and (free := [each for each in self._channels if not each.is_full]):
            channel = min(free, key=lambda each: (each.open_count, each.given_at))
            try:
                channel.give(self._waiting[0])
            except OSError:
                # It has died, or stopped reading.
                self.remove(channel)
                continue
            self._given += 1
            channel.given_at = self._given
            self._waiting.popleft()


class ConnectionReceiver:
    """A worker's end of its channel.

    make_protocol: makes the protocol of one connection; it calls its argument when the connection is closed.
    """

    def __init__(self, channel: socket.socket, make_protocol: Callable[[Callable[[], None]], asyncio.Protocol]) -> None:
        channel.setblocking(False)
        self._channel = channel
        self._make_protocol = make_protocol
        self._loop = asyncio.get_running_loop()
        self._reports = bytearray()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop.add_reader(channel, self._receive)

    def close(self) -> None:
        """Take no more connections: the supervisor gives those that wait here to others."""
        if self._channel.fileno() >= 0:
            self._loop.remove_reader(self._channel)
            self._loop.remove_writer(self._channel)
            self._channel.close()

    def _receive(self) -> None:
        for _ in range(MAX_UNCONFIRMED):
            try:
                data, descriptors, _, _ = socket.recv_fds(self._channel, 1, 1)
            except BlockingIOError:
                return
            except OSError:
                data, descriptors = b"", []
            if not data:
                # The supervisor stops, or has died.
                self.close()
                return
            if descriptors:
                os.set_inheritable(descriptors[0], False)
                self._report(_TAKEN)
                self._serve(socket.socket(fileno=descriptors[0]))
            else:
                _log.error("a connection could not be taken: this worker has too many open files")
                self._report(_TAKEN + _CLOSED)

    def _serve(self, connection: socket.socket) -> None:
        task = self._loop.create_task(self._connect(connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, connection: socket.socket) -> None:
        protocol = self._make_protocol(lambda: self._report(_CLOSED))
        try:
            connection.setblocking(False)
            # asyncio knows a socket's protocol only where the system says it.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.connect_accepted_socket(lambda: protocol, connection)
        except OSError:
            # Its client has left.
            connection.close()
            self._report(_CLOSED)

    def _report(self, what: bytes) -> None:
        self._reports += what
        self._send_reports()

    def _send_reports(self) -> None:
        if self._channel.fileno() < 0:
            return
        try:
            del self._reports[: self._channel.send(self._reports)]
        except BlockingIOError:
            self._loop.add_writer(self._channel, self._send_reports)
            return
        except OSError:
            self.close()
            return
        if not self._reports:
            self._loop.remove_writer(self._channel)
