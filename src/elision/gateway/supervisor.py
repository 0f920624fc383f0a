"""Run several workers that share one socket. A dead one is replaced; all stop together and finish their work."""

from __future__ import annotations

import logging
import multiprocessing
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, Final

from elision.errors import ElisionError
from elision.gateway.connection_sharing import ConnectionBalancer, WorkerChannel
from elision.gateway.request_record import choose_form, log_to_stderr
from elision.gateway.server import BACKLOG, serve_worker
from elision.gateway.settings import GatewaySettings

_log: Final = logging.getLogger("elision.gateway")

#: Workers in a row that may die before they serve; then it is no accident, and where nobody serves, the end.
MAX_EARLY_DEATHS: Final = 3
#: Seconds before the first of them is replaced, doubled for each further one; at most.
PAUSE_SECONDS: Final = 0.2
MAX_PAUSE_SECONDS: Final = 30.0
#: Seconds beyond the time for answers that a worker has to end.
GRACE_SECONDS: Final = 5.0
#: How a worker ends that cannot be what the settings ask for.
EXIT_REFUSED: Final = 3
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
#: The folder in which workers share their metrics; prometheus_client reads it when it is imported.
_METRICS_VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"


def supervise(
    settings: GatewaySettings, listening_socket: socket.socket, on_serving: Callable[[], None] = lambda: None
) -> int:
    """Run `settings.workers` processes until SIGTERM or SIGINT; return the exit code.

    listening_socket: closed when they stop. on_serving: called when the first worker serves. Raises ElisionError where
    no worker starts, and where the system cannot give connections to other processes.
    """
    if not hasattr(socket, "send_fds"):
        raise ElisionError("several workers need Unix sockets, which this system does not have: use --workers 1")
    with _share_metrics_folder() as folder, _watch_signals() as told:
        # What is only displayed cannot be sent to another process.
        sent = replace(settings, library=replace(settings.library, entries=()))
        crew = _WorkerPool(sent, listening_socket, folder, on_serving)
        try:
            crew.run(settings.workers, told)
        finally:
            # A socket left open here would accept connections that no worker serves.
            listening_socket.close()
            crew.stop_all(settings.drain_seconds + GRACE_SECONDS)
    return 0


@dataclass(slots=True)
class _WorkerProcess:
    """pipe: on which the worker reports that it serves; None after that, or when it will not."""

    process: SpawnProcess
    channel: WorkerChannel
    pipe: Connection | None
    is_serving: bool = False

    def close_pipe(self) -> None:
        if self.pipe is not None:
            self.pipe.close()
            self.pipe = None


class _WorkerPool:
    """The workers of one supervisor."""

    def __init__(
        self,
        settings: GatewaySettings,
        listening_socket: socket.socket,
        metrics_folder: str,
        on_serving: Callable[[], None],
    ) -> None:
        # Not forked: threads and event loops do not survive that.
        self._context = multiprocessing.get_context("spawn")
        self._settings = settings
        self._balancer = ConnectionBalancer(listening_socket, BACKLOG)
        self._metrics_folder = metrics_folder
        self._on_serving = on_serving
        self._workers: list[_WorkerProcess] = []
        self._failures = 0
        self._has_served = False
        #: Before when none is started, monotonic seconds.
        self._next_start = 0.0

    def run(self, count: int, stop_signal: socket.socket) -> None:
        """Keep `count` workers alive until a byte can be read from `stop_signal`."""
        while True:
            if len(self._workers) < count and time.monotonic() >= self._next_start:
                try:
                    self._start_worker()
                except OSError as error:
                    self._schedule_restart(f"a worker could not be started: {error}")
            # Not slept through: those who serve are looked after, and a word to stop is heard.
            pause = self._balancer.find_pause()
            if len(self._workers) < count:
                pause = min(max(0.0, self._next_start - time.monotonic()), pause or MAX_PAUSE_SECONDS)
            found = self._wait_for_news(stop_signal, pause)
            if stop_signal in found:
                return
            self._balancer.handle(found)
            # Who serves is known before it is asked whether anybody does.
            for worker in [each for each in self._workers if each.pipe in found]:
                self._handle_message(worker)
            for worker in [each for each in self._workers if each.process.sentinel in found]:
                self._handle_exit(worker)

    def _wait_for_news(self, stop_signal: socket.socket, pause: float | None) -> list[Any]:
        """Wait, at most `pause` seconds, and return what there is news of: pipes, processes and sockets."""
        watched: list[Any] = [stop_signal, *self._balancer.list_sockets()]
        for worker in self._workers:
            watched.append(worker.process.sentinel)
            if worker.pipe is not None:
                watched.append(worker.pipe)
        return wait(watched, pause)

    def stop_all(self, seconds: float) -> None:
        """Stop all workers; kill those that have not stopped in time."""
        self._balancer.close()
        for worker in self._workers:
            worker.close_pipe()
            worker.channel.close()
            worker.process.terminate()
        deadline = time.monotonic() + seconds
        for process in (worker.process for worker in self._workers):
            process.join(max(0.0, deadline - time.monotonic()))
            if process.is_alive():
                _log.error("worker %s did not end in time and is killed", process.pid)
                process.kill()
                process.join()

    def _start_worker(self) -> None:
        try:
            # Where it was removed it is made again; workers can do without it.
            os.makedirs(self._metrics_folder, mode=0o700, exist_ok=True)
        except OSError as error:
            _log.error("workers share no metrics: %s", error)
        ours, theirs = self._context.Pipe(duplex=False)
        channel, their_channel = socket.socketpair()
        arguments = (self._settings, their_channel, theirs)
        process = self._context.Process(target=_run_worker, args=arguments, name="elision-gateway-worker")
        with theirs, their_channel:
            try:
                process.start()
            except OSError:
                channel.close()
                raise
        self._workers.append(_WorkerProcess(process, WorkerChannel(channel), ours))

    def _handle_message(self, worker: _WorkerProcess) -> None:
        assert worker.pipe is not None
        try:
            worker.pipe.recv()
        except EOFError:
            # It ends before it serves; its process says so too.
            worker.close_pipe()
            return
        worker.close_pipe()
        worker.is_serving = True
        self._balancer.add(worker.channel)
        self._failures = 0
        if not self._has_served:
            self._has_served = True
            self._on_serving()

    def _handle_exit(self, worker: _WorkerProcess) -> None:
        worker.close_pipe()
        self._balancer.remove(worker.channel)
        worker.channel.close()
        self._workers.remove(worker)
        process = worker.process
        process.join()
        with suppress(ImportError, OSError):
            from prometheus_client.multiprocess import mark_process_dead

            # Its gauges are dropped; its counters stay.
            mark_process_dead(process.pid, self._metrics_folder)  # type: ignore[no-untyped-call]
        if worker.is_serving:
            # What others died of, before they served, is not what ended this one.
            self._failures = 0
        refused = process.exitcode == EXIT_REFUSED and not self._has_served
        self._schedule_restart(
            f"worker {process.pid} died (exit code {process.exitcode}) and is replaced", last=refused
        )

    def _schedule_restart(self, how: str, *, last: bool = False) -> None:
        """Schedule another worker. last: whether that is known to be useless."""
        self._failures += 1
        # As long as one serves there is a gateway, and what keeps others from it may pass.
        serving = any(each.is_serving for each in self._workers)
        _log.error("%s", how)
        if last or (self._failures > MAX_EARLY_DEATHS and not serving):
            raise ElisionError("no worker starts; the lines above show why")
        doubled = PAUSE_SECONDS * 2 ** min(self._failures, 16)
        self._next_start = time.monotonic() + (min(doubled, MAX_PAUSE_SECONDS) if self._failures > 1 else 0.0)


def _run_worker(settings: GatewaySettings, channel: socket.socket, pipe: Connection) -> None:
    """Run in a worker's process."""

    def up() -> None:
        pipe.send(True)
        pipe.close()

    log_to_stderr(choose_form(settings.log))
    try:
        serve_worker(settings, up, channel=channel)
    except ElisionError as error:
        print(f"elision: {error}", file=sys.stderr)
        raise SystemExit(EXIT_REFUSED) from None


@contextmanager
def _share_metrics_folder() -> Iterator[str]:
    """Make a folder for the workers' metrics; remove it at the end."""
    folder = tempfile.mkdtemp(prefix="elision-metrics-")
    before = os.environ.get(_METRICS_VARIABLE)
    os.environ[_METRICS_VARIABLE] = folder
    try:
        yield folder
    finally:
        if before is None:
            del os.environ[_METRICS_VARIABLE]
        else:
            os.environ[_METRICS_VARIABLE] = before
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _watch_signals() -> Iterator[socket.socket]:
    """Return a socket that has a byte to read after a signal that ends this process."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    with ours, theirs:
        woken = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        # The byte on the socket is the message. Without a handler the process would end.
        before = [(each, signal.signal(each, lambda *_: None)) for each in _SIGNALS]
        try:
            yield ours
        finally:
            for each, handler in before:
                signal.signal(each, handler)
            signal.set_wakeup_fd(woken)
