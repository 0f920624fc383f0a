"""Start a gateway inside this process: `import elision.auto` before clients are made.

It listens at a free port of the loopback interface, and the variables that the usual clients read lead to it. Where
they led before is where it forwards requests to. It ends with the process, after the last record is stored. Inside
`elision wrap`, and wherever these variables lead to a gateway on this machine already, that one is used.

Two lines on standard error show that it works: after the first request where sessions are kept, and at the end what was
saved. The setting `gateway_log = "none"` leaves them out.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from elision.config import load_settings
from elision.config.setting_readers import conceal_password
from elision.gateway.request_record import RequestRecord
from elision.gateway.server import GatewayThread
from elision.gateway.settings import gateway_settings
from elision.lab.report.figures import format_plural, format_tokens, format_usd
from elision.stores.store_urls import locate_store
from elision.wrap.agent_table import make_command_agent
from elision.wrap.findings import find_gateway_in_use, read_upstreams
from elision.wrap.launch_plan import fill_variables


@dataclass(slots=True)
class _SavingsNotes:
    """Prints where sessions are kept after the first call, and what was saved at the end. store: its address."""

    store: str
    calls: int = 0
    sent_tokens: int = 0
    raw_tokens: int = 0
    #: What hiding saved in each session up to its newest call, in USD.
    saved_usd: dict[str, float] = field(default_factory=dict)

    def add_request(self, record: RequestRecord) -> None:
        """Count a request that is over, in the gateway's thread."""
        if record.diagnostics is None:
            return
        if not self.calls:
            place = "in memory" if self.store.startswith("memory:") else f"in {conceal_password(self.store)}"
            _print_note(f"model requests of this program go through Elision; conversations are kept {place}")
        self.calls += len(record.step_diagnostics)
        self.sent_tokens += sum(each.after for each in record.step_diagnostics)
        self.raw_tokens += sum(each.raw for each in record.step_diagnostics)
        self.saved_usd[record.session] = record.diagnostics.costs.hiding

    def print_savings(self) -> None:
        """Print one line at the end of the process."""
        if not self.calls:
            _print_note("no model request came through; `import elision.auto` must come before clients are made")
            return
        saved = sum(self.saved_usd.values())
        effect = f"saved {format_usd(saved)}" if saved >= 0 else f"cost {format_usd(-saved)} more"
        tokens = f"{format_tokens(self.sent_tokens)} of {format_tokens(self.raw_tokens)} tokens sent"
        look = "" if self.store.startswith("memory:") else ": elision sessions"
        _print_note(f"{format_plural(self.calls, 'call')}, {tokens}, hiding {effect}{look}")


def _print_note(text: str) -> None:
    # Standard error may be closed, or missing altogether.
    with suppress(OSError, ValueError, AttributeError):
        print(f"elision: {text}", file=sys.stderr, flush=True)


def start_gateway() -> str:
    """Start the gateway, set the clients' variables in `os.environ`, and return its address.

    Settings are read as `elision serve` reads them, but for the port, and no request is logged. Raises SettingError,
    StoreError, and MissingExtra without the extra `gateway`.
    """
    url = find_gateway_in_use(os.environ)
    if url is None:
        found = load_settings()
        options: dict[str, Any] = read_upstreams(found, os.environ)
        settings = gateway_settings(**{**options, "gateway_port": 0})
        notes = _SavingsNotes(locate_store(found.store)) if settings.log != "none" else None
        thread = GatewayThread(replace(settings, log="none"), notes.add_request if notes else None)
        thread.start()
        # It stops when the main thread has ended, while executors still take work: records are written by them.
        # `atexit` is too late for that. The interpreter has no public place before it; executors use the same one, and
        # what was registered last is called first.
        register: Callable[..., Any] = getattr(threading, "_register_atexit", atexit.register)
        register(_make_stop(thread, notes))
        url = thread.url
    os.environ.update(fill_variables(make_command_agent("").environment, url, "", os.environ))
    return url


def _make_stop(thread: GatewayThread, notes: _SavingsNotes | None) -> Callable[[], None]:
    owner = os.getpid()

    def stop() -> None:
        # A forked process has the callback, but not the thread.
        if os.getpid() == owner:
            thread.stop()
            if notes is not None:
                notes.print_savings()

    return stop


start_gateway()
