"""Agents that are killed: a child works through a recorded run and acknowledges each call, its parent kills it.

`run_kill_trials` runs trials over one store. Each child continues after the last acknowledged call, and SIGKILL ends it
at a random moment. What it acknowledged is compared with what another process finds in the store. Children are forked
from a server that has imported everything, so that a trial costs milliseconds.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import multiprocessing
import random
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from elision import Advanced, Cache
from elision.manager import ContextManager, ContextView
from elision.stores.memory import MemoryStore
from elision.stores.store import Store
from elision.stores.store_urls import open_store
from elision.trajectory.events import PassDecided
from elision.trajectory.plan import make_handle
from elision.trajectory.tokens import make_counter
from elision.trajectory.turn import Turn

#: Each hides and summarizes as early as it may: nearly every call decides something.
STRATEGIES = {
    "hybrid": "hybrid(window=3, summarize_at=9, tail=4, summary_max_tokens=400, schedule=every-turn)",
    "fold": "masking(window=5, fold=true, schedule=every-turn)",
    "hybrid-fold": "hybrid(window=5, summarize_at=9, tail=4, summary_max_tokens=400, schedule=every-turn, fold=true)",
}
#: Seconds within which a child says something, or hangs.
PATIENCE = 60.0

# Loaded once, where children are forked from.
_WARM = make_counter().count("warm")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ack:
    """What one call was acknowledged with. turns: known then. view: SHA-256 of its messages. edits: that it made."""

    call: int
    turns: int
    view: str
    edits: tuple[tuple[str, str], ...]

    @classmethod
    def from_view(cls, call: int, view: ContextView) -> Ack:
        told = view.diagnostics
        summary = [(f"summary to t{told.summarized.last}", "")] if told.summarized else []
        folds = ((f"fold of {each.handle}", each.text) for each in told.folded)
        edits = (*((each.handle, each.text) for each in told.masked), *folds, *summary)
        return cls(call=call, turns=told.turns, view=hash_messages(view.messages), edits=edits)

    def shows_same(self, other: Ack) -> bool:
        """Whether both show the same. Edits may differ: what was decided just before a kill is not decided again."""
        return (self.turns, self.view) == (other.turns, other.view)


@dataclass(slots=True, kw_only=True)
class TrialTotals:
    """What trials led to.

    acknowledged: calls that a child said were done. lost: of these, whose turns or edits are not there or not equal.
    other: views that are not those of an undisturbed run. runs: that went to their end.
    """

    trials: int = 0
    acknowledged: int = 0
    edits: int = 0
    runs: int = 0
    lost: list[str] = field(default_factory=list)
    other: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.trials} kills, {self.acknowledged:,} acknowledged calls with {self.edits:,} edits, "
            f"{len(self.lost)} lost, {len(self.other)} views other than undisturbed, {self.runs} runs to their end"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A recorded run as its client sends it, under `strategy`.

    ends: messages of each call. acks, turns: of an undisturbed session.
    """

    strategy: str
    messages: list[dict[str, Any]]
    ends: list[int]
    acks: list[Ack]
    turns: list[Turn]

    @classmethod
    def record_undisturbed(cls, strategy: str, messages: list[dict[str, Any]], ends: list[int]) -> Run:
        store = MemoryStore()
        with make_agent(store, "s", strategy) as context:
            acks = [Ack.from_view(call, context.prepare(messages[:end])) for call, end in enumerate(ends, start=1)]
        return cls(strategy=strategy, messages=messages, ends=ends, acks=acks, turns=list(store.turns("s")))


def hash_messages(messages: object) -> str:
    return hashlib.sha256(json.dumps(messages).encode()).hexdigest()


def make_agent(store: str | Store, session: str, strategy: str) -> ContextManager:
    # Time stands still: what is decided must follow from the log alone.
    return ContextManager(
        strategy,
        store=store,
        session=session,
        advanced=Advanced(clock=lambda: 0.0, cache=Cache(control="client")),
    )


def run_kill_trials(url: str, run: Run, *, trials: int, seed: int = 0) -> TrialTotals:
    """Kill agents `trials` times; sessions go on from trial to trial, and the next begins where one is at its end."""
    chance, toll, session, done, forked = random.Random(seed), TrialTotals(), 1, 0, start_fork_server(__name__)
    for _ in range(trials):
        acks = _run_and_kill(forked, url, f"s{session}", run, done, chance)
        toll.trials += 1
        toll.acknowledged += len(acks)
        toll.edits += sum(len(ack.edits) for ack in acks)
        toll.other += [f"call {ack.call}" for ack in acks if not ack.shows_same(run.acks[ack.call - 1])]
        done = acks[-1].call if acks else done
        toll.lost += _find_lost(url, f"s{session}", run, done)
        if done == len(run.ends):
            session, done = session + 1, 0
            toll.runs += 1
    return toll


def start_fork_server(module: str) -> Any:
    """Where children are forked from. It imports `module`, which it finds in its working folder."""
    forked = multiprocessing.get_context("forkserver")
    forked.set_forkserver_preload([module])
    with contextlib.chdir(Path(__file__).parents[__name__.count(".")]):
        forkserver.ensure_running()
    return forked


def _run_and_kill(forked: Any, url: str, session: str, run: Run, done: int, chance: random.Random) -> list[Ack]:
    """Start an agent behind call `done`, and kill it; what it acknowledged."""
    hears, says = forked.Pipe(duplex=False)
    child = forked.Process(
        target=run_child,
        args=(url, session, run.strategy, run.messages, run.ends[done:], done, says),
        daemon=True,
    )
    child.start()
    says.close()
    wanted, acks = chance.choice((0, 1, 2, 5, 9, 15)), []
    while child.is_alive() and len(acks) < min(wanted, len(run.ends) - done):
        assert hears.poll(PATIENCE), "the agent hangs"
        acks += _receive_ack(hears)
    # Without a wait every kill would meet the child at the same place, just behind an acknowledgement.
    until = time.monotonic() + (chance.uniform(0, 0.02) if wanted else chance.uniform(0, 0.15))
    while (left := until - time.monotonic()) > 0 and hears.poll(left):
        acks += _receive_ack(hears)
    child.kill()
    child.join(PATIENCE)
    assert child.exitcode == -signal.SIGKILL, f"the agent ended by itself: {child.exitcode}"
    return acks + _receive_remaining(hears)


def _receive_ack(hears: Connection) -> list[Ack]:
    """What the agent says next; nothing where it was cut off, or is gone."""
    try:
        told = json.loads(hears.recv_bytes())
    except (EOFError, OSError):
        return []
    return [Ack(**{**told, "edits": tuple((name, text) for name, text in told["edits"])})]


def _receive_remaining(hears: Connection) -> list[Ack]:
    """What the agent had said before it was killed."""
    acks: list[Ack] = []
    while hears.poll() and (heard := _receive_ack(hears)):
        acks += heard
    hears.close()
    return acks


def _find_lost(url: str, session: str, run: Run, done: int) -> list[str]:
    """What of calls 1 ... `done` another process does not find, or finds otherwise."""
    if not done:
        return []
    ack, store = run.acks[done - 1], open_store(url)
    found = []
    try:
        context = make_agent(store, session, run.strategy)
        view = context.prepare(run.messages[: run.ends[done - 1]])
        branch = view.diagnostics.branch
        if view.diagnostics.faults or hash_messages(view.messages) != ack.view:
            found.append(f"{session} call {done}: the view is another one: {view.diagnostics.faults}")
        if list(store.turns(branch))[: ack.turns] != run.turns[: ack.turns]:
            found.append(f"{session} call {done}: turns are lost or changed")
        there = _list_stored_edits(store, branch)
        lost = [edit for each in run.acks[:done] for edit in each.edits if edit not in there]
        found += [f"{session} call {done}: {name} is lost" for name, _ in lost]
    finally:
        store.close()
    return found


def _list_stored_edits(store: Store, session: str) -> set[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    for event in store.events(session):
        if isinstance(event, PassDecided):
            found |= {(make_handle(mask.key), mask.text) for mask in event.masks}
            found |= {(f"fold of {make_handle(fold.key)}", fold.text) for fold in event.folds}
            found |= {(f"summary to t{event.summary.covers}", "")} if event.summary else set()
    return found


# --- the child -------------------------------------------------------------------------------------------------------


def run_child(
    url: str,
    session: str,
    strategy: str,
    messages: list[dict[str, Any]],
    ends: Sequence[int],
    done: int,
    says: Connection,
) -> None:
    """An agent's loop from call `done` + 1 on; each call is acknowledged. At the end it waits to be killed."""
    context = make_agent(url, session, strategy)
    for call, end in enumerate(ends, start=done + 1):
        ack = Ack.from_view(call, context.prepare(messages[:end]))
        told = {"call": ack.call, "turns": ack.turns, "view": ack.view, "edits": ack.edits}
        says.send_bytes(json.dumps(told).encode())
    signal.pause()
