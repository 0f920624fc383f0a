"""Start a gateway inside this process: `import elision.auto` before clients are made.

It listens at a free port of the loopback interface, and the variables that the usual clients read lead to it. Where
they led before is where it forwards requests to. It ends with the process, after the last record is stored. Inside
`elision wrap`, and wherever these variables lead to a gateway on this machine already, that one is used.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from typing import Any

from elision.config import load_settings
from elision.gateway.gateway_thread import GatewayThread
from elision.gateway.settings import gateway_settings
from elision.wrap.agent_table import make_command_agent
from elision.wrap.gateway_finder import find_gateway_in_use, read_upstreams
from elision.wrap.launch_plan import fill_variables


def start_gateway() -> str:
    """Start the gateway, set the clients' variables in `os.environ`, and return its address.

    Settings are read as `elision serve` reads them, but for the port, and no request is logged. Raises SettingError,
    StoreError, and MissingExtra without the extra `gateway`.
    """
    url = find_gateway_in_use(os.environ)
    if url is None:
        options: dict[str, Any] = read_upstreams(load_settings(), os.environ)
        thread = GatewayThread(gateway_settings(**{**options, "gateway_port": 0, "gateway_log": "none"}))
        thread.start()
        _call_at_exit(_make_stop(thread))
        url = thread.url
    os.environ.update(fill_variables(make_command_agent("").environment, url, "", os.environ))
    return url


def _make_stop(thread: GatewayThread) -> Callable[[], None]:
    owner = os.getpid()

    def stop() -> None:
        # A forked process has the callback, but not the thread.
        if os.getpid() == owner:
            thread.stop()

    return stop


def _call_at_exit(stop: Callable[[], None]) -> None:
    """Call `stop` when the main thread has ended, while executors still take work: records are written by them.

    `atexit` is too late for that. The interpreter has no public place before it; executors use the same one, and what
    was registered last is called first.
    """
    register: Callable[..., Any] = getattr(threading, "_register_atexit", atexit.register)
    register(stop)


start_gateway()
