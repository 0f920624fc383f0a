"""Two processes that prepare the same call of one session at the same time, with folded lines and summaries held."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from elision import Advanced, Cache
from elision.errors import ConflictError
from elision.manager import ContextManager
from elision.stores.store import Store
from elision.stores.store_urls import open_store
from elision.trajectory.events import PassDecided, RequestSent, TurnAdded
from elision.trajectory.state import State
from elision.trajectory.tokens import Sizer, make_counter
from tests.figures import ReportFigures
from tests.manager.kill_trials import PATIENCE, STRATEGIES, hash_messages, start_fork_server
from tests.manager.test_durable import recorded
from tests.soak import SOAK, pair_cases
from tests.stores.implementations import STORES

#: Calls that both prepare, unless it is the whole run.
CALLS = 200 if SOAK else 24


class Agent:
    """A process that prepares calls of session `s`. shared: whether others may write to it as well."""

    def __init__(self, url: str, strategy: str, *, shared: bool) -> None:
        forked = start_fork_server(__name__)
        self.pipe, theirs = forked.Pipe()
        self.process = forked.Process(target=serve_calls, args=(url, strategy, shared, theirs), daemon=True)
        self.process.start()
        theirs.close()

    def send(self, messages: list[dict[str, Any]]) -> None:
        self.pipe.send_bytes(json.dumps(messages).encode())

    def receive(self) -> tuple[str, str]:
        assert self.pipe.poll(PATIENCE), "the agent hangs"
        outcome, what = json.loads(self.pipe.recv_bytes())
        return outcome, what

    def end(self) -> None:
        self.pipe.close()
        self.process.join(PATIENCE)
        assert self.process.exitcode == 0


def serve_calls(url: str, strategy: str, shared: bool, pipe: Connection) -> None:
    """Prepare what comes, and answer with the view's hash or the name of the error, until the pipe is closed."""
    family = "f" if shared else ""
    with ContextManager(
        strategy,
        store=url,
        session="s",
        advanced=Advanced(clock=lambda: 0.0, on_fault="raise", family=family, cache=Cache(control="client")),
    ) as context:
        while True:
            try:
                messages = json.loads(pipe.recv_bytes())
            except EOFError:
                return
            try:
                answer = ("sent", hash_messages(context.prepare(messages).messages))
            except ConflictError as error:
                answer = ("conflict", str(error))
            pipe.send_bytes(json.dumps(answer).encode())


@contextlib.contextmanager
def agents(url: str, strategy: str, *, shared: bool) -> Iterator[list[Agent]]:
    both = [Agent(url, strategy, shared=shared) for _ in range(2)]
    yield both
    for each in both:
        each.end()


def check_log(store: Store, turns: int) -> int:
    """The log is one that a single process could have written. Return the number of folds in it.

    Each turn is there once, each decision with its request; each folded line names what the view shows.
    """
    events = list(store.events("s"))
    assert [event.turn.index for event in events if isinstance(event, TurnAdded)] == list(range(1, turns + 1))
    for event, after in pairwise([*events, None]):
        if isinstance(event, PassDecided):
            assert isinstance(after, RequestSent)
            assert after.call == event.call
    state = State(Sizer(make_counter()))
    folds = 0
    for event in events:
        state.fold_event(event)
        if not isinstance(event, RequestSent):
            continue
        for key, fold in state.folded.items():
            assert state.find_segment(key).kind == "folded"
            for run in fold.runs:
                assert run.source not in state.hidden
                assert run.source[0] > state.covered_turns
        folds += len(state.folded)
    return folds


@pytest.mark.parametrize(("name", "strategy"), pair_cases(["sqlite", "postgresql"], ["fold", "hybrid-fold"]))
def test_two_at_once_send_what_one_sends(
    name: str, strategy: str, tmp_path: Path, report_figures: ReportFigures
) -> None:
    """In a shared session both get the view of the one decision that the store has, byte for byte."""
    url, run = STORES[name](tmp_path), recorded(strategy)
    open_store(url).close()
    # A session is found by its turns: the first calls go to one after the other.
    with agents(url, STRATEGIES[strategy], shared=True) as both:
        for call, end in enumerate(run.ends[:CALLS]):
            together = call > 2
            answers = []
            for each in both:
                each.send(run.messages[:end])
                answers += [] if together else [each.receive()]
            answers += [each.receive() for each in both] if together else []
            assert {what for outcome, what in answers if outcome == "sent"} == {run.acks[call].view}
            assert {outcome for outcome, _ in answers} == {"sent"}
    store = open_store(url)
    folds = check_log(store, run.acks[min(CALLS, len(run.ends)) - 1].turns)
    assert folds
    assert store.check() == []
    store.close()
    report_figures(f"two processes at once on {name}, {strategy}: {min(CALLS, len(run.ends))} calls, the same bytes")


@pytest.mark.parametrize("name", ["sqlite", "postgresql"])
def test_of_two_that_own_a_session_one_wins(name: str, tmp_path: Path) -> None:
    """Where a session is one process's own, the other one gets a ConflictError, and the log is the winner's."""
    url, run = STORES[name](tmp_path), recorded("fold")
    open_store(url).close()
    conflicts = 0
    with agents(url, STRATEGIES["fold"], shared=False) as both:
        for call, end in enumerate(run.ends[:CALLS]):
            for each in both:
                each.send(run.messages[:end])
            answers = [each.receive() for each in both]
            assert {what for outcome, what in answers if outcome == "sent"} == {run.acks[call].view}
            conflicts += sum(outcome == "conflict" for outcome, _ in answers)
    store = open_store(url)
    assert check_log(store, run.acks[min(CALLS, len(run.ends)) - 1].turns)
    assert conflicts
    assert store.check() == []
    store.close()
