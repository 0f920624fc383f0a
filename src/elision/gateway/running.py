"""A gateway in a thread of this process: for notebooks, demonstrations, and tests that want a real one.

with Running(gateway_settings(gateway_port=0, store="memory:")) as gateway:
    client = openai.OpenAI(base_url=f"{gateway.url}/v1")
"""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType
from typing import Final

from elision.errors import ElisionError
from elision.gateway.server import Server, address_of, bound
from elision.gateway.settings import GatewaySettings
from elision.gateway.worker import Worker

#: Seconds in which it must be up.
PATIENCE: Final = 10.0


class Running:
    """One worker, whatever the settings say of several. `url` is its address, `worker` what it is made of."""

    worker: Worker

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self._up = threading.Event()
        self._server: Server | None = None
        self._failed: BaseException | None = None
        self._thread: threading.Thread | None = None
        self.url = ""

    def start(self) -> None:
        """Serve. Raises ElisionError where it cannot listen, and what a Worker raises."""
        self._listening = bound(self._settings.host, self._settings.port)
        self.url = address_of(self._listening)
        self._thread = threading.Thread(target=self._run, name="elision-gateway", daemon=True)
        self._thread.start()
        if not self._up.wait(PATIENCE):
            raise ElisionError(f"the gateway did not start within {PATIENCE:g} seconds")
        if self._failed is not None:
            self._thread.join()
            raise self._failed

    def leave(self) -> None:
        """Begin to stop, and wait for nothing."""
        if self._server is not None:
            self._server.leave()

    def stop(self) -> None:
        """Stop gracefully: answers under way come to their end, or are cut when their time is up."""
        self.leave()
        if self._thread is not None:
            self._thread.join(self._settings.drain_seconds + PATIENCE)

    def __enter__(self) -> Running:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - told to whoever started it
            self._failed = error
        finally:
            self._listening.close()
            self._up.set()

    async def _serve(self) -> None:
        self.worker = Worker(self._settings)
        self._server = Server(self.worker, self._settings, self._up.set)
        await self._server.serve([self._listening])
