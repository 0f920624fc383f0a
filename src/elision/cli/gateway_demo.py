"""`elision demo --gateway`: the gateway at work without a key.

    recorded run  ->  elision serve  ->  elision lab playback

`elision lab playback` plays a recorded run as a provider, `elision serve` is in front of it, and this program works
through the run as the agent did that made it: it sends what the agent sent, and gets what the model answered. Nothing
leaves this machine. In a terminal it continues to serve until Ctrl-C, so that you can look at the dashboard.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from http import HTTPStatus
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from types import FrameType
from typing import Any, Final

from rich.console import Console
from rich.live import Live
from rich.text import Text

from elision.cli.console import open_console, open_notes
from elision.cli.outputs import print_json
from elision.errors import ElisionError, MissingExtra
from elision.formats.registry import read_runs
from elision.lab.report.figures import format_share
from elision.testing.follower import Follower
from elision.trajectory.trajectory import Trajectory

#: The run that is sent, one of those that come with Elision.
RUN: Final = "swe-agent-sympy-20801.traj.gz"
MODEL: Final = "gpt-5.2"
#: Hides at the moment at which it pays, whatever is older than the ten newest steps.
STRATEGY: Final = "masking(window=10)"
#: Seconds in which a server must be up, and a call written down.
PATIENCE: Final = 60
#: Seconds between two calls where somebody watches; a model would take longer.
PACE: Final = 0.08

Json = dict[str, Any]


def run_gateway_demo(runs: Path, folder: Path | None, *, stays: bool | None, as_json: bool, quiet: bool) -> int:
    """Send the run in the folder `runs` through a gateway; the exit code.

    folder: where the session is kept; None: a new temporary one. stays: whether it serves until Ctrl-C; None: in a
    terminal. Raises MissingExtra and ElisionError.
    """
    if any(find_spec(name) is None for name in ("starlette", "uvicorn", "aiohttp")):
        raise MissingExtra("elision demo --gateway", "gateway")
    stop = DemoStop()
    # The servers have sessions of their own: a signal ends this program alone, which then ends them.
    before = {number: signal.signal(number, stop.ask) for number in (signal.SIGINT, signal.SIGTERM)}
    place = folder or Path(tempfile.mkdtemp(prefix="elision-demo-"))
    place.mkdir(parents=True, exist_ok=True)
    # With JSON, standard output has nothing else.
    console = open_notes(quiet) if as_json else open_console()
    console.soft_wrap = True
    run = runs / RUN
    try:
        with server(stop, "lab", "playback", str(run), "--port", "0", "--quiet") as provider:
            upstream = ("--upstream-openai", provider, "--upstream-anthropic", provider)
            kept = ("--store", f"sqlite:///{place / 'demo.db'}", "--strategy", STRATEGY)
            with server(stop, "serve", "--port", "0", "--log", "none", *upstream, *kept) as gateway:
                demonstrate(console, gateway, place / "demo.db", run, stop, stays=stays, as_json=as_json)
    except Stopped:
        console.print("\nStopped.")
    except KeyboardInterrupt:
        console.print("\nStopped at once.")
        return 128 + signal.SIGINT
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 0


class Stopped(Exception):  # noqa: N818 - it is no error
    """This program was asked to end."""


class DemoStop:
    """Whether this program was asked to end, by Ctrl-C or SIGTERM.

    Python's own handler raises KeyboardInterrupt wherever the program happens to be, also inside libraries, some of
    which make another error of it. So the handler here only makes a note, and the program looks for it between its
    steps.
    """

    def __init__(self) -> None:
        # The one queue that the documentation allows signal handlers to put into.
        self._asked: SimpleQueue[int] = SimpleQueue()

    def ask(self, number: int, frame: FrameType | None) -> None:
        """Take a signal. The second one ends the program wherever it is: a step may hang."""
        if not self._asked.empty():
            raise KeyboardInterrupt
        self._asked.put(number)

    def check(self) -> None:
        """Raise `Stopped` if it was asked to end."""
        if not self._asked.empty():
            raise Stopped

    def wait(self) -> None:
        """Wait until it is asked to end, and raise `Stopped`."""
        self._asked.get()
        raise Stopped


def demonstrate(
    console: Console, gateway: str, store: Path, file: Path, stop: DemoStop, *, stays: bool | None, as_json: bool
) -> None:
    """One run through the gateway, described as it goes."""
    watched = console.is_terminal
    console.print(Text.assemble(("Dashboard: ", "bold"), (f"{gateway}/", "bold cyan")))
    console.print(f"Store:     {store}\n", style="dim", markup=False)
    run = next(each for each in read_runs(file) if isinstance(each, Trajectory))
    progress, shown = Progress(len(run.turns)), 0
    console.print(f"{run.id}: an agent's {len(run.turns)} recorded calls, asked again as {MODEL}\n", markup=False)
    with Live(Text(""), console=console, refresh_per_second=12, transient=True) if watched else nullcontext() as live:
        for call in work(run, gateway, stop):
            for line in progress.describe_progress(call):
                console.print(line)
            if live is not None:
                live.update(progress.line())
                time.sleep(PACE)
            elif call["figures"]["calls"] // 10 > shown:
                shown += 1
                console.print(progress.line())
    stays = watched if stays is None else stays
    print_end(console, progress, gateway, store, stays=stays)
    if as_json:
        session = {"session": progress.newest["name"], "store": f"sqlite:///{store}", "dashboard": f"{gateway}/"}
        print_json("demo --gateway", session | progress.newest["figures"])
    if stays:
        console.print("\nStill serving; Ctrl-C ends it.", style="dim")
        stop.wait()


def work(run: Trajectory, gateway: str, stop: DemoStop) -> Iterator[Json]:
    """Every call of the run; behind each what the gateway's own API says of the session."""
    agent, seen, calls = Follower(run, "openai"), 0, 0
    while not agent.done:
        stop.check()
        request = urllib.request.Request(
            f"{gateway}/v1/chat/completions",
            json.dumps({"model": MODEL, **agent.request}).encode(),
            {"content-type": "application/json", "authorization": "Bearer sk-none-needed"},
        )
        with urllib.request.urlopen(request) as answer:
            name = answer.headers["x-elision-session"]
            agent.take(json.load(answer))
        calls += 1
        # Nothing comes after the last call that could report it.
        told = session(stop, gateway, name, seen, of=calls if agent.done else 0)
        seen += len(told["made"])
        yield told


def session(stop: DemoStop, gateway: str, name: str, after: int, of: int = 0) -> Json:
    """What the dashboard knows of a session, and its calls behind the first `after`. of: how many calls it must know,
    and the usage of the newest; it is asked again until it does, or patience ends."""
    until = time.monotonic() + PATIENCE
    while True:
        stop.check()
        late = time.monotonic() > until
        try:
            told = _fetch_json(f"{gateway}/elision/api/sessions/{_quote_name(name)}?after={after}")
            if late or (told["figures"]["calls"] >= of and (not of or told["made"][-1]["usage"])):
                return told
        except urllib.error.HTTPError as error:
            if error.code != HTTPStatus.NOT_FOUND or late:
                raise
        # A call is written down behind its answer.
        time.sleep(PACE)


def read_again(gateway: str, name: str, handle: str) -> Json:
    """What stands in the store under a handle."""
    return _fetch_json(f"{gateway}/elision/api/sessions/{_quote_name(name)}/observations/{handle}")


def _quote_name(name: str) -> str:
    return "k" + urlsafe_b64encode(name.encode()).decode().rstrip("=")


def _fetch_json(url: str) -> Json:
    with urllib.request.urlopen(url) as answer:
        found: Json = json.load(answer)
    return found


# -- what is shown ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Progress:
    """What was told so far. made: the newest call. hidden: results of which a line is left in the prompt. offered: when
    recall entered."""

    calls: int
    newest: Json = field(default_factory=dict)
    made: Json = field(default_factory=lambda: {"tokens": {"after": 0, "raw": 0}})
    hidden: list[Json] = field(default_factory=list)
    offered: int = 0

    def describe_progress(self, told: Json) -> Iterator[Text]:
        """Take it; a line for each call that hid something."""
        self.newest = told
        for made in told["made"]:
            self.made = made
            self.offered = self.offered or (made["call"] if made["recall_tools_entered"] else 0)
            if masked := made["masked"]:
                self.hidden += masked
                tokens, left = (sum(each[name] for each in masked) for name in ("tokens", "left"))
                yield Text.assemble(
                    (f"call {made['call']:3}  ", "dim"),
                    (f"{len(masked)} results hidden", "yellow"),
                    f": {tokens:,} tokens became {left:,}",
                )

    def line(self) -> Text:
        """How it stands, in a line."""
        newest, so_far = self.made["tokens"], self.newest["figures"]
        return Text.assemble(
            (f"call {so_far['calls']:3} of {self.calls}  ", "dim"),
            f"{newest['after']:>7,} tokens sent of {newest['raw']:,}",
            ("  saved by hiding so far ", "dim"),
            (describe_saving(so_far), "bold green"),
        )


def describe_saving(figures: Json) -> str:
    """What hiding saved, in dollars and as a share of the bill of sending everything with the same cache."""
    usd, everything = round(figures["hiding_usd"], 3), figures["raw_usd"] - figures["caching_usd"]
    share = usd / everything if everything else 0.0
    return f"{'−' if usd < 0 else ''}${abs(usd):.3f} ({format_share(abs(share))})"


def caching(figures: Json) -> str:
    """What cache breakpoints saved that the client does not set; "" where it sets its own."""
    usd = figures["caching_usd"]
    return f"; cache breakpoints, which the client does not set, saved ${usd:.3f} more" if usd > 0.0005 else ""


def print_end(console: Console, progress: Progress, gateway: str, store: Path, *, stays: bool) -> None:
    """What came of it, one hidden result read again, and where to look. stays: whether the gateway goes on serving."""
    found, name = progress.newest["figures"], progress.newest["name"]
    rows = [
        (
            "Saved",
            f"{describe_saving(found)} by hiding, of ${found['raw_usd'] - found['caching_usd']:.3f}{caching(found)}",
        ),
        ("Tokens", f"{found['sent_tokens']:,} sent of {found['raw_tokens']:,}"),
        ("Cache", f"{format_share(found['hit'])} of those sent were read from it, as the provider reported"),
        *_again(progress, gateway),
    ]
    console.print()
    for title, value in rows:
        line = Text.assemble((f"{title:<11}", "bold"), value)
        watched = console.is_terminal
        console.print(line, soft_wrap=not watched, no_wrap=True, overflow="ellipsis" if watched else "ignore")
    where = Text(f"{gateway}/", style="bold cyan") if stays else Text("")
    console.print(Text.assemble((f"{'Dashboard':<11}", "bold"), where))
    kept = f"--store sqlite:///{store}"
    if not stays:
        _print_command(console, f"{_elision()} serve", kept)
    console.print(Text(f"{'Details':<11}", "bold"))
    _print_command(console, f"{_elision()} sessions show {name}", kept)


def _print_command(console: Console, command: str, option: str) -> None:
    """A command that can be copied whole: on two lines, and no terminal of 80 columns breaks its path."""
    console.print(Text(f"  {command} \\\n    {option}"))


def _elision() -> str:
    """The command, as it can be typed here."""
    beside = Path(sys.executable).with_name("elision")
    if shutil.which("elision") or not beside.exists():
        return "elision"
    return os.path.relpath(beside) if beside.is_relative_to(Path.cwd()) else str(beside)


def _again(progress: Progress, gateway: str) -> Iterator[tuple[str, str]]:
    """The largest result that was hidden: what is left of it in the prompt, and what the store has."""
    if not progress.hidden:
        return
    largest = max(progress.hidden, key=lambda each: each["tokens"] - each["left"])
    kept = read_again(gateway, progress.newest["name"], largest["handle"])
    yield "Hidden", largest["text"]
    yield "Kept", f"{kept['letters']:,} characters in the store, unchanged"
    if progress.offered:
        yield "Recall", f"a tool of the model since call {progress.offered}; this recorded model never uses it"


# -- servers ----------------------------------------------------------------------------------------------------------


@contextmanager
def server(stop: DemoStop, *command: str) -> Iterator[str]:
    """A `elision` command that serves; its address. It ends with this program, however that ends."""
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", "from elision.cli import main; main()", *command],
            stdout=subprocess.PIPE,
            stderr=errors,
            # Ctrl-C is for this program, which ends them in their order.
            start_new_session=True,
        )
        try:
            yield _address(process, stop) or _raise_failure(errors, command[0])
        finally:
            process.terminate()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


def _address(process: subprocess.Popen[bytes], stop: DemoStop) -> str:
    """What it says first: "OpenAI clients:    http://127.0.0.1:PORT/v1"; "" where it ends instead."""
    assert process.stdout is not None
    said, deadline = b"", time.monotonic() + PATIENCE
    while b"\n" not in said and time.monotonic() < deadline:
        stop.check()
        if select.select([process.stdout], [], [], 0.5)[0]:
            piece = os.read(process.stdout.fileno(), 4096)
            if not piece:
                return ""
            said += piece
    return said.partition(b"\n")[0].decode().split()[-1].removesuffix("/v1") if b"\n" in said else ""


def _raise_failure(errors: Any, command: str) -> str:
    errors.seek(0)
    raise ElisionError(f"elision {command} does not come up: {errors.read().decode(errors='replace').strip()[-2_000:]}")
