"""Threads for work that would hold up an event loop."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

#: Both threads do some work; then a forked child has them do the same.
FORKS = """
import asyncio, os
from elision.manager.drivers import run_off_loop
from elision.manager.think_time import LARGE_BYTES, choose_executor

async def ask_both():
    return [await run_off_loop(os.getpid, choose_executor(size)) for size in (0, LARGE_BYTES)]

assert asyncio.run(ask_both()) == [os.getpid()] * 2
child = os.fork()
if child == 0:
    os._exit(0 if asyncio.run(ask_both()) == [os.getpid()] * 2 else 1)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_process_has_threads_of_its_own() -> None:
    """A server that forks its workers after the first call: threads do not come along, and work must not wait for
    them."""
    # Newer Pythons warn of every fork beside threads; that is what is tried here.
    ended = subprocess.run([sys.executable, "-W", "ignore", "-c", FORKS], timeout=60, check=False)
    assert ended.returncode == 0
