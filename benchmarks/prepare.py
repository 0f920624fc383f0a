"""`prepare` on a session of 1,000 turns and 4.5 MB, one call a turn, everything on, against what it cannot do without.

`python -m benchmarks prepare --peers` sets other libraries beside it, each in an environment of its own.
"""

from __future__ import annotations

import io
import json
import logging
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter, process_time, thread_time

from benchmarks.apart import apart, peak
from benchmarks.bound import Bound, bound
from benchmarks.peers import PEERS, PeerError, measured
from benchmarks.session import SIZE, TURNS, Chat, Message, anthropic, chat
from benchmarks.split import Part, Split
from elision import Advanced, Cache, ContextManager
from elision.engine import Log
from elision.engine.money import Money
from elision.manager import follow_history, prepared_calls
from elision.manager.history import History
from elision.manager.summary_worker import SummaryRunner
from elision.manager.think_time import get_think_executor
from elision.stores.sqlite import SqliteStore
from elision.strategies.guards import Guards
from elision.strategies.policy import Policy
from elision.telemetry.diagnostics import Diagnostics
from elision.telemetry.logs import LOGGER, PassLog
from elision.trajectory.tokens import VocabularyCounter, make_counter

OPENAI, ANTHROPIC = "gpt-4.1", "claude-sonnet-4-5"
#: The aims, a session's total over the bound's: of calls back to back, and of calls between which the model thinks.
BACK_TO_BACK_BAR = 3.5
CRITICAL_PATH_BAR = 1.7
#: Whole sessions, each beside a bound of its own. The fastest of either counts, since the machine has other work: the
#: best of their ratios would be that of the slowest bound.
REPEATS = 3
#: Turns of the small form.
SMALL_TURNS = 300
#: Calls compared for the growth of the work: behind the warm-up, and at the end.
FEW, WARM_UP = 100, 50
#: What is timed apart, without what stands in another row; the rest is one row more.
REST = "the rest"
PARTS: tuple[Part, ...] = (
    ("counting tokens", VocabularyCounter, "count"),
    ("comparing with what was read", History, "count_common"),
    ("reading what is new", History, "extend"),
    ("turns, head, guards", follow_history, "ingest_turns"),
    ("deciding; placeholders and gists", Policy, "plan_pass"),
    ("summaries (the digest)", SummaryRunner, "request_summary"),
    ("recording the decision", Log, "record_call"),
    ("bills, raw and ours", Money, "settle"),
    ("appending, one sync a call", SqliteStore, "append"),
    ("messages with gaps, breakpoints", prepared_calls, "build_request"),
    ("diagnostics", prepared_calls.PreparedCalls, "make_view"),
    ("listeners, the log line", prepared_calls.PreparedCalls, "finish_call"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """seconds: of each call. memory: MB above what the process had before. disk: bytes of the store.

    cpu: seconds of CPU that all calls took, those of other threads too unless they are waited for.
    """

    seconds: tuple[float, ...]
    cpu: float
    memory: float
    disk: int
    summaries: int
    masked: int
    sent: int

    @property
    def total(self) -> float:
        return sum(self.seconds)

    @property
    def growth(self) -> float:
        """Median of the last calls over that of the first behind the warm-up: those that rewrite are among both."""
        return median(self.seconds[-FEW:]) / median(self.seconds[WARM_UP : WARM_UP + FEW])


class Clock:
    """Twenty seconds a turn, so that a provider's cache stays warm as it does in a real run."""

    def __init__(self) -> None:
        self.turn = 0

    def __call__(self) -> float:
        return 1.7e9 + 20.0 * self.turn


def manager(folder: Path, clock: Clock, model: str) -> ContextManager:
    """Everything on: budget, guards, handles, listeners, a log line a pass, a durable store."""
    log = logging.getLogger(LOGGER)
    log.setLevel(logging.DEBUG)
    log.propagate = False
    log.handlers = [logging.StreamHandler(io.StringIO())]
    return ContextManager(
        "hybrid(window=10, budget=budget(reserved=4_096))",
        model=model,
        store=f"sqlite:///{folder / 'session.db'}",
        session="long",
        guards=Guards(max_turns=100_000, max_cost_usd=1e6, plateau_window=8),
        token_budget=100_000,
        advanced=Advanced(clock=clock, cache=Cache(control="auto")),
        on_event=PassLog().report_pass,
    )


def renewed(found: Chat) -> Iterator[list[Message]]:
    """The calls of a client that reads its messages from JSON before each: other objects, the same content."""
    for messages in found.calls():
        yield json.loads(json.dumps(messages))


def measure(
    found: Chat,
    folder: Path,
    model: str,
    calls: Callable[[Chat], Iterator[list[Message]]] = Chat.calls,
    *,
    waits: bool = False,
) -> Measured:
    """A session from its first call to its last; `record` is part of a call.

    waits: whether the model thinks after each `prepare` until no deferred work is left. That time is not measured.
    """
    make_counter().count("load the vocabulary")
    clock, told, seconds, cpu, before = Clock(), list[Diagnostics](), list[float](), 0.0, peak()
    process_cpu = process_time()
    with manager(folder, clock, model) as context:
        for messages in calls(found):
            clock.turn += 1
            started, started_cpu = perf_counter(), thread_time()
            view = context.prepare(messages, tools=found.tools, system=found.system)
            if waits:
                paused, paused_cpu = perf_counter(), thread_time()
                get_think_executor().submit(_do_nothing).result()
                told.append(view.diagnostics)
                started += perf_counter() - paused
                started_cpu += thread_time() - paused_cpu
            else:
                told.append(view.diagnostics)
            context.record(_usage(model, told[-1].after))
            seconds.append(perf_counter() - started)
            cpu += thread_time() - started_cpu
            if view.diagnostics.faults:
                raise RuntimeError(f"call {clock.turn} failed: {view.diagnostics.faults[0].what}")
    return Measured(
        seconds=tuple(seconds),
        cpu=cpu if waits else process_time() - process_cpu,
        memory=peak() - before,
        disk=sum(path.stat().st_size for path in folder.iterdir()),
        summaries=told[-1].summaries,
        masked=sum(len(each.masked) for each in told),
        sent=told[-1].after,
    )


def _do_nothing() -> None:
    """What the thread of deferred work does last."""


def _usage(model: str, tokens: int) -> dict[str, int]:
    if "claude" in model:
        return {"input_tokens": tokens, "output_tokens": 100}
    return {"prompt_tokens": tokens, "completion_tokens": 100}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The same session twice, calls back to back and with time between them, and the bound as it was next to them."""

    back_to_back: Measured
    critical_path: Measured
    bound: Bound


def run_beside_bound(found: Chat) -> Run:
    return Run(
        back_to_back=apart(lambda folder: measure(found, folder, OPENAI)),
        critical_path=apart(lambda folder: measure(found, folder, OPENAI, waits=True)),
        bound=apart(lambda folder: bound(found, folder)),
    )


def split(found: Chat) -> dict[str, float]:
    """Seconds by part of one more session; watching costs some itself."""

    def work(folder: Path) -> dict[str, float]:
        with Split().watching(PARTS) as watch:
            total = measure(found, folder, OPENAI).total
        watch.seconds[REST] = total - sum(watch.seconds.values())
        return watch.seconds

    return apart(work)


def main(*, peers: bool = False, small: bool = False) -> None:
    make_counter().count("load the vocabulary")
    found = chat(SMALL_TURNS, SMALL_TURNS * SIZE // TURNS) if small else chat()
    print(f"{len(found.turns):,} turns, {found.bytes / 1e6:.1f} MB, one call a turn; SQLite, every turn synced.")
    runs = [run_beside_bound(found) for _ in range(REPEATS)]
    fastest = min((run.back_to_back for run in runs), key=lambda each: each.total)
    fastest_thinking = min((run.critical_path for run in runs), key=lambda each: each.total)
    best = min((run.bound for run in runs), key=lambda each: each.sum)
    print(
        f"Bound: counting {best.counting:.2f} s + bare appends {best.appending:.2f} s + hashing {best.hashing:.3f} s."
    )
    _print_ratio("Back to back", [run.back_to_back for run in runs], [run.bound for run in runs], BACK_TO_BACK_BAR)
    _print_ratio("Critical path", [run.critical_path for run in runs], [run.bound for run in runs], CRITICAL_PATH_BAR)
    if small:
        print(f"Median call: {median(fastest.seconds) * 1e3:.2f} ms; growth {fastest.growth:.2f} x")
        return
    _print_split(split(found), best)
    print(f"  {'':44} {'session':>9} {'median':>9} {'last call':>9} {'memory':>7}")
    _print("Elision", fastest)
    _print("Elision, deferred work done between the calls", fastest_thinking)
    _print("Elision, messages read from JSON anew each time", apart(lambda at: measure(found, at, OPENAI, renewed)))
    _print("Elision, Anthropic's shape, breakpoints set", apart(lambda at: measure(anthropic(found), at, ANTHROPIC)))
    long = chat(3 * TURNS, 3 * SIZE)
    _print("Elision, 3,000 turns", three := apart(lambda at: measure(long, at, OPENAI)))
    if peers:
        _print_peers(found)
    print(
        f"Median of the last {FEW} calls / of {FEW} behind the first {WARM_UP}: "
        f"{fastest.growth:.2f} x at 1,000 turns, {three.growth:.2f} x at 3,000."
    )


def _print_ratio(label: str, sessions: Sequence[Measured], bounds: Sequence[Bound], bar: float) -> None:
    """Print the fastest session over the fastest bound, of time and of CPU, and each session over its own bound."""
    ratio = min(each.total for each in sessions) / min(each.sum for each in bounds)
    cpu = min(each.cpu for each in sessions) / min(each.cpu for each in bounds)
    ratios = sorted(session.total / bound.sum for session, bound in zip(sessions, bounds, strict=True))
    shown = ", ".join(f"{each:.2f}" for each in ratios)
    print(f"{label} / bound: {ratio:.2f} x (bar {bar} x; each run beside its own: {shown}); CPU {cpu:.2f} x")


def _print_split(seconds: dict[str, float], bare: Bound) -> None:
    total = sum(seconds.values())
    print("Where it goes:")
    for part, taken in sorted(seconds.items(), key=lambda item: -item[1]):
        print(f"  {part:44} {100 * taken / total:5.1f} % {taken / bare.counting:8.2f} x counting")


def _print(label: str, found: Measured) -> None:
    _row(label, found.seconds, f"{found.memory:4.0f} MB")


def _row(label: str, seconds: Sequence[float], memory: str = "") -> None:
    times = (sum(seconds), median(seconds), seconds[-1])
    print(
        f"  {label:46}"
        + "".join(f" {each * 1e3:6,.1f} ms" if each < 10 else f" {each * 1e3:6,.0f} ms" for each in times)
        + f" {memory:>7}",
        flush=True,
    )


def _print_peers(found: Chat) -> None:
    with tempfile.TemporaryDirectory(prefix="elision-bench-") as folder:
        session = Path(folder) / "session.json"
        session.write_text(json.dumps({"head": found.head, "turns": found.turns}), encoding="utf-8")
        for peer in PEERS:
            try:
                version, each = measured(peer, session)
            except PeerError as why:
                print(f"  LEFT OUT: {peer.package}: {why}", flush=True)
                continue
            for label, seconds in each.items():
                _row(label, seconds, version)
