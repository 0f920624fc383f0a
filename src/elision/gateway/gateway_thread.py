"""A gateway in a thread of this process: for notebooks, demonstrations, and tests that want a real one.

with GatewayThread(gateway_settings(gateway_port=0, store="memory:")) as gateway:
    client = openai.OpenAI(base_url=f"{gateway.url}/v1")
"""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType
from typing import Final

from elision.errors import ElisionError
from elision.gateway.request_record import RequestListener
from elision.gateway.server import GatewayServer, bind_socket, format_url
from elision.gateway.settings import GatewaySettings
from elision.gateway.worker import Worker

#: Seconds in which it must be up.
START_SECONDS: Final = 10.0


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
