"""`elision demo --gateway`, as it runs where nobody watches, and ended from outside."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest

from elision.cli import gateway_demo
from elision.stores.store_urls import open_store
from tests.processes import start_process
from tests.soak import sample_cases


@contextmanager
def demo(folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-W", "error", "-m", "elision", "demo", "--gateway", "--store", str(folder), *options]
    with start_process(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        yield process


def is_served(url: str) -> bool:
    try:
        with urllib.request.urlopen(url) as answer:
            return bool(answer.status == 200)
    except URLError:
        return False


def test_it_ends_by_itself(tmp_path: Path) -> None:
    """It opens with the dashboard's address, works through the run, says what was saved, and leaves the session."""
    with demo(tmp_path) as process:
        out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, "")
    first, *lines = out.splitlines()
    address = first.removeprefix("Dashboard: ")
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", address)
    assert not is_served(address)
    # The address is gone with it: what would show the dashboard again is said instead.
    kept = f"    --store sqlite:///{tmp_path}/demo.db"
    assert [line for line in lines if line == kept] == [kept, kept], "each path is on a line of its own"
    assert "elision serve \\" in out
    assert "this recorded model never uses it\n" in out, "lines are whole where no terminal cuts them"
    text = "\n".join(lines)
    # A call is recorded after its answer: on a busy machine the line of the eightieth may already count the next one.
    assert re.search(r"call +8\d of 84 +[\d,]+ tokens sent of [\d,]+ +saved by hiding so far \$0\.\d+ \(\d+ %\)", text)
    assert re.search(r"call +\d+ +\d+ results hidden", text)
    usd = re.search(r"Saved +\$([\d.]+) \(\d+ %\) by hiding, of \$([\d.]+)", text)
    assert usd is not None
    assert 0 < float(usd[1]) < float(usd[2])
    store = open_store(f"sqlite:///{tmp_path}/demo.db")
    try:
        (session,) = store.sessions()
        assert session.turns == 83
        assert f"elision sessions show {session.key} \\" in text
    finally:
        store.close()


def test_it_sums_up_behind_its_last_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last call is waited for, and what was reported of it: a call is written down behind its answer."""
    states = [
        {"figures": {"calls": 83}, "made": [{"call": 83, "usage": {"input": 1}}]},
        {"figures": {"calls": 84}, "made": [{"call": 84, "usage": None}]},
        {"figures": {"calls": 84}, "made": [{"call": 84, "usage": {"input": 1}}]},
    ]
    asked: list[str] = []

    def answers(url: str) -> dict[str, Any]:
        asked.append(url)
        return states[len(asked) - 1]

    monkeypatch.setattr(gateway_demo, "_fetch_json", answers)
    monkeypatch.setattr(gateway_demo, "PACE", 0)
    stop = gateway_demo.DemoStop()
    assert gateway_demo.session(stop, "http://gateway", "s", 82) == states[0]
    asked.clear()
    assert gateway_demo.session(stop, "http://gateway", "s", 82, of=84) == states[2]
    asked.clear()
    monkeypatch.setattr(gateway_demo, "PATIENCE", -1)
    assert gateway_demo.session(stop, "http://gateway", "s", 82, of=84) == states[0], "it does not wait for ever"


@pytest.mark.parametrize(
    ("when", "number"),
    sample_cases(product(["at once", "behind the run"], [signal.SIGINT, signal.SIGTERM]), 4),
)
def test_it_is_ended(tmp_path: Path, when: str, number: signal.Signals) -> None:
    """Whenever it is interrupted or told to end, it ends with 0 and with everything that it started."""
    with demo(tmp_path, "--stay") as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[-1]
        assert is_served(address)
        if when == "behind the run":
            assert any("Still serving" in line for line in process.stdout)
            assert is_served(address)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert "Stopped." in out
    assert not is_served(address)


def test_a_second_interrupt_ends_a_step_that_hangs() -> None:
    """The first is only noted and looked for between the steps; the second one interrupts."""
    stop = gateway_demo.DemoStop()
    stop.check()
    stop.ask(signal.SIGINT, None)
    with pytest.raises(gateway_demo.Stopped):
        stop.check()
    with pytest.raises(KeyboardInterrupt):
        stop.ask(signal.SIGINT, None)
    with pytest.raises(gateway_demo.Stopped):
        stop.wait()
