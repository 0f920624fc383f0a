"""The gateway at work without a key: `make demo-gateway`, or `python examples/gateway_demo.py`.

    recorded run  ->  OpenAI's own client  ->  elision serve  ->  elision playback

`elision playback` plays recorded runs as a provider, `elision serve` is in front of it, and the client works
through one of the runs as the agent did that made it: it sends what the agent sent, and gets what the model answered.
Nothing leaves this machine. In a terminal it goes on serving until Ctrl-C, so that the dashboard can be looked at.
"""

from __future__ import annotations

import argparse
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
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from queue import SimpleQueue
from types import FrameType
from typing import Any, Final

import openai
from rich.console import Console
from rich.live import Live
from rich.text import Text

from elision.errors import ElisionError
from elision.formats.registry import read_runs
from elision.testing.follower import Follower
from elision.trajectory.trajectory import Trajectory

RUNS: Final = Path(__file__).parent / "runs"
RUN: Final = RUNS / "swe-agent-sympy-20801.traj.gz"
MODEL: Final = "gpt-5.2"
#: Hides at the moment at which it pays, whatever is older than the ten newest steps.
STRATEGY: Final = "masking(window=10)"
#: Seconds in which a server must be up, and a call written down.
PATIENCE: Final = 60
#: Seconds between two calls where somebody watches; a model would take longer.
PACE: Final = 0.08

Json = dict[str, Any]


def main() -> int:
    options = _options()
    stop = Stop()
    # The servers have sessions of their own: a signal ends this program alone, which then ends them.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop.ask)
    folder = options.store or Path(tempfile.mkdtemp(prefix="elision-demo-"))
    folder.mkdir(parents=True, exist_ok=True)
    console = Console(highlight=False, soft_wrap=True)
    try:
        with server(stop, "playback", str(options.run), "--port", "0", "--quiet") as provider:
            upstream = ("--upstream-openai", provider, "--upstream-anthropic", provider)
            kept = ("--store", f"sqlite:///{folder / 'demo.db'}", "--strategy", STRATEGY)
            with server(stop, "serve", "--port", "0", "--log", "none", *upstream, *kept) as gateway:
                demonstrate(console, gateway, folder / "demo.db", options, stop)
    except Stopped:
        console.print("\nStopped.")
    except KeyboardInterrupt:
        console.print("\nStopped at once.")
        return 128 + signal.SIGINT
    except ElisionError as error:
        console.print(f"elision: {error}", style="red", markup=False)
        return 1
    return 0


class Stopped(Exception):  # noqa: N818 - it is no error
    """This program was asked to end."""


class Stop:
    """Whether this program was asked to end, by Ctrl-C or SIGTERM.

    Python's own handler raises KeyboardInterrupt wherever the program happens to be, also inside libraries. Some of
    them make another error of it: pydantic's core raises SchemaError where it is building a model of `openai`. So the
    handler here only makes a note, and the program looks for it between its steps.
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


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The gateway at work without a key.")
    parser.add_argument("--run", type=Path, default=RUN, help="a recorded run; default: a sample")
    parser.add_argument("--store", type=Path, help="folder for the session; default: a new temporary one")
    staying = parser.add_mutually_exclusive_group()
    staying.add_argument("--stay", action="store_true", help="go on serving until Ctrl-C")
    staying.add_argument("--once", action="store_true", help="end with the run; as it does where nobody watches")
    return parser.parse_args()


def demonstrate(console: Console, gateway: str, store: Path, options: argparse.Namespace, stop: Stop) -> None:
    """One run through the gateway, told as it goes."""
    watched = console.is_terminal
    console.print(Text.assemble(("Dashboard: ", "bold"), (f"{gateway}/", "bold cyan")))
    console.print(f"Store:     {store}\n", style="dim", markup=False)
    run = next(each for each in read_runs(options.run) if isinstance(each, Trajectory))
    progress, shown = Progress(len(run.turns)), 0
    console.print(f"{run.id}: an agent's {len(run.turns)} recorded calls, asked again as {MODEL}\n", markup=False)
    with Live(Text(""), console=console, refresh_per_second=12, transient=True) if watched else _nothing() as live:
        for call in work(run, gateway, stop):
            for line in progress.heard(call):
                console.print(line)
            if live is not None:
                live.update(progress.line())
                time.sleep(PACE)
            elif call["figures"]["calls"] // 10 > shown:
                shown += 1
                console.print(progress.line())
    stays = options.stay or (watched and not options.once)
    ended(console, progress, gateway, store, stays=stays)
    if stays:
        console.print("\nStill serving; Ctrl-C ends it.", style="dim")
        stop.wait()


def work(run: Trajectory, gateway: str, stop: Stop) -> Iterator[Json]:
    """Every call of the run; behind each what the gateway's own API says of the session."""
    client = openai.OpenAI(base_url=f"{gateway}/v1", api_key="sk-none-needed")
    agent, seen, calls = Follower(run, "openai"), 0, 0
    while not agent.done:
        stop.check()
        answer = client.chat.completions.with_raw_response.create(model=MODEL, **agent.request)
        agent.take(json.loads(answer.content))
        calls += 1
        # Nothing comes behind the last call that could tell of it.
        name = answer.headers["x-elision-session"]
        told = session(stop, gateway, name, seen, of=calls if agent.done else 0)
        seen += len(told["made"])
        yield told


def session(stop: Stop, gateway: str, name: str, after: int, of: int = 0) -> Json:
    """What the dashboard knows of a session, and its calls behind the first `after`. of: how many calls it must know,
    and the usage of the newest; it is asked again until it does, or patience ends."""
    until = time.monotonic() + PATIENCE
    while True:
        stop.check()
        late = time.monotonic() > until
        try:
            told = _asked(f"{gateway}/elision/api/sessions/{_named(name)}?after={after}")
            if late or (told["figures"]["calls"] >= of and (not of or told["made"][-1]["usage"])):
                return told
        except urllib.error.HTTPError as error:
            if error.code != HTTPStatus.NOT_FOUND or late:
                raise
        # A call is written down behind its answer.
        time.sleep(PACE)


def read_again(gateway: str, name: str, handle: str) -> Json:
    """What stands in the store under a handle."""
    return _asked(f"{gateway}/elision/api/sessions/{_named(name)}/observations/{handle}")


def _named(name: str) -> str:
    return "k" + urlsafe_b64encode(name.encode()).decode().rstrip("=")


def _asked(url: str) -> Json:
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

    def heard(self, told: Json) -> Iterator[Text]:
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
            (saved(so_far), "bold green"),
        )


def saved(figures: Json) -> str:
    """What hiding saved, in dollars and as a share of the bill of sending everything with the same cache."""
    usd, everything = round(figures["hiding_usd"], 3), figures["raw_usd"] - figures["caching_usd"]
    share = usd / everything if everything else 0.0
    return f"{'−' if usd < 0 else ''}${abs(usd):.3f} ({abs(share):.0%})"


def caching(figures: Json) -> str:
    """What cache breakpoints saved that the client does not set; "" where it sets its own."""
    usd = figures["caching_usd"]
    return f"; cache breakpoints, which the client does not set, saved ${usd:.3f} more" if usd > 0.0005 else ""


def ended(console: Console, progress: Progress, gateway: str, store: Path, *, stays: bool) -> None:
    """What came of it, one hidden result read again, and where to look. stays: whether the gateway goes on serving."""
    found, name = progress.newest["figures"], progress.newest["name"]
    rows = [
        ("Saved", f"{saved(found)} by hiding, of ${found['raw_usd'] - found['caching_usd']:.3f}{caching(found)}"),
        ("Tokens", f"{found['sent_tokens']:,} sent of {found['raw_tokens']:,}"),
        ("Cache", f"{found['hit']:.0%} of those sent were read from it, as the provider reported"),
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
    _print_command(console, f"{_elision()} show {name}", kept)


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
def server(stop: Stop, *command: str) -> Iterator[str]:
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
            yield _address(process, stop) or _failed(errors, command[0])
        finally:
            process.terminate()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


def _address(process: subprocess.Popen[bytes], stop: Stop) -> str:
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


def _failed(errors: Any, command: str) -> str:
    errors.seek(0)
    raise ElisionError(f"elision {command} does not come up: {errors.read().decode(errors='replace').strip()[-2_000:]}")


@contextmanager
def _nothing() -> Iterator[None]:
    yield None


if __name__ == "__main__":
    sys.exit(main())
