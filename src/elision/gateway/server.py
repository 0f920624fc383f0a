"""The sockets of one worker: uvicorn, with time limits for slow clients, and a graceful stop.

`GatewayThread` is a gateway in a thread of this process: for notebooks, demonstrations, and tests that want a real one.

with GatewayThread(gateway_settings(gateway_port=0, store="memory:")) as gateway:
    client = openai.OpenAI(base_url=f"{gateway.url}/v1")
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from multiprocessing import parent_process
from types import TracebackType
from typing import Final

from elision.errors import ElisionError, MissingExtra, describe_error
from elision.gateway.connection_sharing import ConnectionReceiver
from elision.gateway.http_protocol import KEEP_ALIVE_SECONDS, HttpProtocol
from elision.gateway.request_record import RequestListener
from elision.gateway.settings import GatewaySettings
from elision.gateway.worker import Worker

try:
    import uvicorn
    from uvicorn.server import ServerState
except ImportError as error:
    raise MissingExtra("the gateway", "gateway") from error

_log: Final = logging.getLogger("elision.gateway")

#: New objects between two looks for garbage among the newest, how many of these lie between two at older ones, and how
#: many of those between two at everything. Nobody is served during a look: 1 ms at the newest, 4-8 ms at older ones,
#: 100-300 ms at everything where a thousand sessions are kept. So the last kind is rare: what a request leaves is found
#: by the first two, and a session that is let go needs none (tests/manager/test_references.py).
GC_THRESHOLDS: Final = (3_000, 3, 500)
#: Seconds that a thread which computes may hold the interpreter while the event loop waits for it: at each of some ten
#: calls to the system of one request. Python's own 5 ms are for programs in which nobody waits.
SWITCH_SECONDS: Final = 0.0005
#: Connections that may wait to be taken.
BACKLOG: Final = 2_048
#: Seconds from one look at how things stand to the next.
TICK_SECONDS: Final = 1.0
#: Seconds in which a gateway in a thread must be up.
START_SECONDS: Final = 10.0


def bind_socket(host: str, port: int) -> socket.socket:
    """Return a socket at that address. Raises ElisionError where it cannot be bound."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except OSError as error:
        raise ElisionError(
            f"cannot listen at {host}: {error.strerror or error}; give an address of this machine with --host"
        ) from error
    # asyncio turns off the delay of small packets only where the protocol is named: 40 ms an answer otherwise.
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind(address)
    except OSError as error:
        found.close()
        if error.errno == errno.EADDRINUSE:
            mend = "; is another gateway running? Choose another --port"
        else:
            mend = "; choose another --host or --port"
        raise ElisionError(f"cannot listen at {host}:{port}: {error.strerror}{mend}") from error
    return found


def format_url(listening_socket: socket.socket) -> str:
    """Return http://HOST:PORT."""
    host, port = listening_socket.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class GatewayServer:
    """Serves one worker until SIGTERM, SIGINT or `begin_stop`: uvicorn's protocol on sockets that are its own.

    on_listening: called when it listens. on_warm: called when what the first requests need is loaded.
    channel: over which a supervisor gives it connections, if there is one.
    A second signal ends it at once.
    """

    def __init__(
        self,
        worker: Worker,
        settings: GatewaySettings,
        on_listening: Callable[[], None] = lambda: None,
        on_warm: Callable[[], None] = lambda: None,
        channel: socket.socket | None = None,
    ) -> None:
        self._config = uvicorn.Config(
            worker.app,
            http=HttpProtocol,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="critical",
            access_log=False,
            proxy_headers=False,
            # A client that waits for its own tools does not read, and so does not answer pings.
            ws_ping_interval=None,
            ws_per_message_deflate=False,
            ws_max_size=settings.max_body_bytes,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
        )
        self._connections = ServerState()
        self._worker = worker
        self._settings = settings
        self._on_listening = on_listening
        self._on_warm = on_warm
        self._channel = channel
        self._receiver: ConnectionReceiver | None = None
        self._stop_requested = asyncio.Event()
        self._hurry_requested = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def begin_stop(self) -> None:
        """Stop gracefully; from any thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._handle_stop)

    def _handle_stop(self) -> None:
        (self._hurry_requested if self._stop_requested.is_set() else self._stop_requested).set()

    async def serve(self, sockets: list[socket.socket]) -> None:
        """Serve on these sockets, and on what comes over the channel, until it is stopped; close the sockets then."""
        loop = self._loop = asyncio.get_running_loop()
        with self._handle_signals(loop):
            self._config.load()
            servers = [await loop.create_server(self._make_protocol, sock=each, backlog=BACKLOG) for each in sockets]
            if self._channel is not None:
                self._receiver = ConnectionReceiver(self._channel, self._make_protocol)
            self._on_listening()
            self._warm_up = loop.run_in_executor(None, self._worker.warm_up)
            self._warm_up.add_done_callback(self._note_warm)
            while not self._stop_requested.is_set():
                self._worker.update_gauges()
                self._worker.monitor.look_if_due()
                self._worker.gateway.proxy.budgets.give_back_idle()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(TICK_SECONDS):
                        await self._stop_requested.wait()
            for server in servers:
                server.close()
            await self._shut_down()

    @contextlib.contextmanager
    def _handle_signals(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """Stop by a signal, or when the process ends that started this one."""
        signals: tuple[signal.Signals, ...] = (signal.SIGTERM, signal.SIGINT)
        try:
            for each in signals:
                loop.add_signal_handler(each, self._handle_stop)
        except (ValueError, RuntimeError, NotImplementedError):
            # Not the main thread: whoever runs it says when to stop.
            signals = ()
        if (parent := parent_process()) is not None:
            loop.add_reader(parent.sentinel, self._handle_parent_exit, parent.sentinel)
        try:
            yield
        finally:
            for each in signals:
                loop.remove_signal_handler(each)

    def _handle_parent_exit(self, sentinel: int) -> None:
        asyncio.get_running_loop().remove_reader(sentinel)
        self._handle_stop()

    def _make_protocol(self, on_close: Callable[[], None] = lambda: None) -> HttpProtocol:
        return HttpProtocol(config=self._config, server_state=self._connections, app_state={}, on_close=on_close)

    def _note_warm(self, ended: asyncio.Future[None]) -> None:
        if not ended.cancelled() and (error := ended.exception()) is not None:
            # A request that needs it tries again, and passes unchanged where that fails as well.
            _log.error("what the first requests need could not be loaded: %s", describe_error(error))
        self._on_warm()

    async def _shut_down(self) -> None:
        """Take no connections; open responses are completed, or cut with an error when time is over."""
        app = self._worker.app
        app.is_draining = True
        if self._receiver is not None:
            self._receiver.close()
        for connection in list(self._connections.connections):
            # A WebSocket ends with the response that is under way in it.
            if isinstance(connection, HttpProtocol):
                connection.shutdown()
        if app.in_flight:
            given = self._settings.drain_seconds
            _log.info(
                "answers under way: %d; they have %g seconds, a second signal waits for none", app.in_flight, given
            )
        draining = asyncio.ensure_future(app.drain(self._settings.drain_seconds))
        hurry = asyncio.ensure_future(self._hurry_requested.wait())
        await asyncio.wait({draining, hurry}, return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        if not draining.done():
            draining.cancel()
            await asyncio.wait({draining})
            await app.drain(0)
        elif count := draining.result():
            _log.warning("answers cut because they were not complete in time: %d", count)
        for connection in list(self._connections.connections):
            connection.transport.close()
        await self._worker.close()


def serve_worker(
    settings: GatewaySettings,
    on_listening: Callable[[], None],
    *,
    listening_socket: socket.socket | None = None,
    channel: socket.socket | None = None,
) -> None:
    """Run a worker in this process until it is stopped.

    listening_socket: of the only worker. channel: over which one of several gets its connections.
    """

    async def serve() -> None:
        worker = Worker(settings)
        gc.set_threshold(*GC_THRESHOLDS)
        sys.setswitchinterval(SWITCH_SECONDS)
        # What is there by then stays, and need not be looked through for garbage again and again.
        server = GatewayServer(worker, settings, on_listening, on_warm=gc.freeze, channel=channel)
        await server.serve([] if listening_socket is None else [listening_socket])

    asyncio.run(serve())


class GatewayThread:
    """One worker in a thread, whatever number the settings have. `url` is its address, `worker` its parts.

    listener: gets every request when it is over, in that thread.
    """

    worker: Worker

    def __init__(self, settings: GatewaySettings, listener: RequestListener | None = None) -> None:
        self._settings = settings
        self._listener = listener
        self._is_up = threading.Event()
        self._server: GatewayServer | None = None
        self._start_error: BaseException | None = None
        self._thread: threading.Thread | None = None
        self.url = ""

    def start(self) -> None:
        """Start serving. Raises ElisionError where it cannot listen, and what a Worker raises."""
        self._listening_socket = bind_socket(self._settings.host, self._settings.port)
        self.url = format_url(self._listening_socket)
        self._thread = threading.Thread(target=self._run, name="elision-gateway", daemon=True)
        self._thread.start()
        if not self._is_up.wait(START_SECONDS):
            raise ElisionError(f"the gateway did not start within {START_SECONDS:g} seconds")
        if self._start_error is not None:
            self._thread.join()
            raise self._start_error

    def begin_stop(self) -> None:
        """Begin to stop, without waiting."""
        if self._server is not None:
            self._server.begin_stop()

    def stop(self) -> None:
        """Stop gracefully: open responses are completed, or cut when their time is over."""
        self.begin_stop()
        if self._thread is not None:
            self._thread.join(self._settings.drain_seconds + START_SECONDS)

    def __enter__(self) -> GatewayThread:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - told to whoever started it
            self._start_error = error
        finally:
            self._listening_socket.close()
            self._is_up.set()

    async def _serve(self) -> None:
        self.worker = Worker(self._settings, self._listener)
        self._server = GatewayServer(self.worker, self._settings, self._is_up.set)
        await self._server.serve([self._listening_socket])
