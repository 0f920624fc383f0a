"""A proxy between a store and its server that closes the connection at a given word."""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path
from typing import Literal, TypeAlias

Direction: TypeAlias = Literal["asked", "answered"]
_SOCKET = ".s.PGSQL.5432"


class Proxy:
    """Listens in `folder`, and forwards to the server whose socket is in `server_folder`."""

    def __init__(self, folder: Path, server_folder: Path) -> None:
        self.folder = folder
        self.server_folder = server_folder
        self._cut: tuple[Direction, bytes] | None = None
        self.cuts = 0
        self._lines: list[socket.socket] = []
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(folder / _SOCKET))
        self._listening.listen()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def cut_at(self, direction: Direction, word: bytes) -> None:
        """Close the next connection on which `word` is sent in `direction`, without that message."""
        self._cut = (direction, word)

    def close(self) -> None:
        # Closing alone does not wake who waits in accept.
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for line in self._lines:
            _shut_down(line)
        for thread in self._threads:
            thread.join()
        for line in self._lines:
            line.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            far = socket.socket(socket.AF_UNIX)
            self._lines += [near, far]
            try:
                far.connect(str(self.server_folder / _SOCKET))
            except OSError:
                _shut_down(near)
                continue
            for source, sink, direction in ((near, far, "asked"), (far, near, "answered")):
                self._threads.append(threading.Thread(target=self._pass_on, args=(source, sink, direction)))
                self._threads[-1].start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, direction: Direction) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if self._cut and self._cut[0] == direction and self._cut[1] in data:
                    self._cut = None
                    self.cuts += 1
                    break
                sink.sendall(data)
        _shut_down(source)
        _shut_down(sink)


def _shut_down(line: socket.socket) -> None:
    with contextlib.suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)
