"""`elision demo --gateway`: the gateway at work without a key.

    recorded run  ->  gateway  ->  playback

The playback server plays a recorded run as a provider, and the gateway is in front of it, both in threads of this
process. This program works through the run as the agent did that made it: it sends what the agent sent, and gets what
the model answered. Nothing leaves this machine. In a terminal it continues to serve until Ctrl-C, so that you can look
at the dashboard.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import sys
import tempfile
import time
import urllib.error
import urllib.request
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from types import FrameType
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from elision.cli.options import Output
from elision.cli.outputs import open_console
from elision.errors import MissingExtra
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


def run_gateway_demo(runs: Path, folder: Path | None, output: Output, *, stays: bool | None) -> None:
    """Send the run in the folder `runs` through a gateway.

    folder: where the session is kept; None: a new temporary one. stays: whether it serves until Ctrl-C; None: in a
    terminal. Raises MissingExtra and ElisionError.
    """
    if any(find_spec(name) is None for name in ("starlette", "uvicorn", "aiohttp")):
        raise MissingExtra("elision demo --gateway", "gateway")
    from elision.gateway.server import GatewayThread
    from elision.gateway.settings import gateway_settings
    from elision.testing.playback import Playback
    from elision.testing.recorded_provider import Terms

    stop = DemoStop()
    before = {number: signal.signal(number, stop.ask) for number in (signal.SIGINT, signal.SIGTERM)}
    place = folder or Path(tempfile.mkdtemp(prefix="elision-demo-"))
    place.mkdir(parents=True, exist_ok=True)
    # With JSON, standard output has nothing else.
    console = output.notes if output.json else open_console()
    console.soft_wrap = True
    # Nothing is logged into what is shown.
    logger = logging.getLogger("elision")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    run = next(each for each in read_runs(runs / RUN) if isinstance(each, Trajectory))
    store = place / "demo.db"
    try:
        with Playback(run, Terms(played=True)) as provider:
            settings = gateway_settings(
                gateway_upstream_openai=provider.url,
                gateway_upstream_anthropic=provider.url,
                gateway_port=0,
                gateway_log="none",
                store=f"sqlite:///{store}",
                strategy=STRATEGY,
            )
            with GatewayThread(settings) as gateway:
                demonstrate(console, gateway.url, store, run, stop, output, stays=stays)
    except Stopped:
        console.print("\nStopped.")
    except KeyboardInterrupt:
        console.print("\nStopped at once.")
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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
    console: Console, gateway: str, store: Path, run: Trajectory, stop: DemoStop, output: Output, *, stays: bool | None
) -> None:
    """Send `run` through the gateway, and describe it as it goes."""
    console.print(Text.assemble(("Dashboard: ", "bold"), (f"{gateway}/", "bold cyan")))
    console.print(f"Store:     {store}\n", style="dim", markup=False)
    progress, shown = Progress(len(run.turns)), 0
    console.print(f"{run.id}: an agent's {len(run.turns)} recorded calls, asked again as {MODEL}\n", markup=False)
    for call in work(run, gateway, stop):
        for line in progress.describe_progress(call):
            console.print(line)
        if call["figures"]["calls"] // 10 > shown:
            shown += 1
            console.print(progress.line())
        if console.is_terminal:
            time.sleep(PACE)
    stays = console.is_terminal if stays is None else stays
    print_end(console, progress, gateway, store, stays=stays)
    if output.json:
        session = {"session": progress.newest["name"], "store": f"sqlite:///{store}", "dashboard": f"{gateway}/"}
        output.answer("demo --gateway", session | progress.newest["figures"])
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


def print_end(console: Console, progress: Progress, gateway: str, store: Path, *, stays: bool) -> None:
    """What came of it, one hidden result read again, and where to look. stays: whether the gateway goes on serving."""
    found, name = progress.newest["figures"], progress.newest["name"]
    usd = found["caching_usd"]
    caching = f"; cache breakpoints, which the client does not set, saved ${usd:.3f} more" if usd > 0.0005 else ""
    rows = [
        ("Saved", f"{describe_saving(found)} by hiding, of ${found['raw_usd'] - usd:.3f}{caching}"),
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
    session_url = f"{gateway}/elision/api/sessions/{_quote_name(progress.newest['name'])}"
    kept = _fetch_json(f"{session_url}/observations/{largest['handle']}")
    yield "Hidden", largest["text"]
    yield "Kept", f"{kept['letters']:,} characters in the store, unchanged"
    if progress.offered:
        yield "Recall", f"a tool of the model since call {progress.offered}; this recorded model never uses it"
