"""Many agents for a long time, through `elision serve` as a process of its own: nothing fails, mixes or grows."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from elision.stores.store_urls import open_store
from tests.figures import ReportFigures
from tests.gateway.checking_provider import Sightings, start_checking_provider
from tests.gateway.conversation_bytes import APIS, EAGER, PATHS, make_body
from tests.gateway.gateway_trial import answer_soundly
from tests.gateway.recorded_agents import PARTING_TURN, RecordedAgent, make_agents
from tests.gateway.recorded_clients import RecordedClients
from tests.gateway.scripted_upstream import run_scripted_upstream
from tests.gateway.serve_process import ServeProcess, start_serve

#: Agents, how many of them at once, and turns of the longest.
AGENTS, TOGETHER, LONGEST = 200, 50, 1_000
#: Sessions of ten requests each, one after the other.
SHORT_SESSIONS = 2_000
#: Sessions that may stay in memory: fewer than there are.
KEPT = 60
#: Answers between two looks at the memory.
LOOK = 100
MIB = 2**20
pytestmark = pytest.mark.soak

#: Of what hides a little at its time, and of what hides all that it can.
STRATEGIES = ["hybrid(window=4, summarize_at=16, tail=4, schedule=every-turn)", "masking(window=4)"]


@dataclass(slots=True)
class Watched:
    """Memory of the gateway over answers, in bytes."""

    gateway: ServeProcess
    memory: list[tuple[int, int]] = field(default_factory=list)

    def __call__(self, count: int) -> None:
        if count % LOOK == 0:
            self.memory.append((count, self.gateway.memory))


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda spec: spec.partition("(")[0])
def test_agents_at_work(tmp_path: Path, strategy: str, report_figures: ReportFigures) -> None:
    """No error, no request with another session's words, one session for each agent, memory and store bounded."""
    known = make_agents(AGENTS, LONGEST)
    started = time.perf_counter()
    limits = {"AGENT_CONTEXT_GATEWAY_MAX_SESSIONS": str(KEPT)}
    with start_checking_provider(AGENTS, LONGEST) as provider:
        upstream = ["--upstream-openai", provider.url, "--upstream-anthropic", provider.url]
        with start_serve(tmp_path, *upstream, "--store", "sqlite:///soak.db", "-s", strategy, **limits) as gateway:
            watched = Watched(gateway)
            crowd = RecordedClients([gateway.url], watched)
            asyncio.run(crowd.run_all(known, TOGETHER))
            watched(LOOK)
            assert gateway.end_process() == 0
            log = gateway.log
        saw = provider.wait_for_sightings()
    store = sum(path.stat().st_size for path in tmp_path.glob("soak.db*"))
    seconds = time.perf_counter() - started
    report_figures(f"{strategy}: {seconds:.0f} s, {_figures(known, crowd, saw, watched, store)}")
    assert crowd.errors == []
    assert saw.problems == []
    assert saw.requests == {trial.number: len(trial.run.turns) for trial in known}
    assert saw.shortened > 0
    assert '"level": "error"' not in log
    # Nobody can tell twins apart before they part.
    assert {number: len(set(names[PARTING_TURN:])) for number, names in crowd.sessions.items()} == dict.fromkeys(
        range(AGENTS), 1
    )
    _kept_apart(tmp_path, known, crowd)
    assert store < _raw(known)
    assert sum(trial.seconds for trial in known) / TOGETHER >= 3_600
    _flat(watched.memory)


async def test_memory_stays_flat(tmp_path: Path, report_figures: ReportFigures) -> None:
    """Sessions come and go: in the last quarter the gateway holds at most 3 % more than in the second."""
    held: list[int] = []

    async with run_scripted_upstream(answer_soundly) as upstream:
        limits = {"AGENT_CONTEXT_GATEWAY_MAX_SESSIONS": "10"}
        options = ["--upstream-openai", upstream.url, "--upstream-anthropic", upstream.url]
        with start_serve(tmp_path, *options, "--store", "sqlite:///flat.db", "-s", EAGER, **limits) as gateway:
            for session in range(SHORT_SESSIONS):
                await asyncio.to_thread(_hold_session, gateway, session)
                held.append(gateway.memory)
                upstream.requests.clear()
            assert gateway.end_process() == 0
    quarter = len(held) // 4
    second, last = (sum(part) / len(part) / MIB for part in (held[quarter : 2 * quarter], held[-quarter:]))
    report_figures(f"{SHORT_SESSIONS} short sessions: {second:.1f} MiB in the second quarter, {last:.1f} in the last")
    assert last < 1.03 * second


def _hold_session(gateway: ServeProcess, number: int) -> None:
    """A session of ten requests, with texts that no other session has."""
    api = APIS[number % len(APIS)]
    for steps in range(10):
        body = make_body(api, steps, stream=steps % 2 == 0, task=f"Task {number}.", word=f"part_{number}/value")
        status, _ = gateway.send_request(PATHS[api], body, **{"content-type": "application/json"})
        assert status == 200


def _figures(known: list[RecordedAgent], crowd: RecordedClients, saw: Sightings, watched: Watched, store: int) -> str:
    turns = sum(len(trial.run.turns) for trial in known)
    memory = ", ".join(f"{held / MIB:.0f}" for _, held in watched.memory[:: max(1, len(watched.memory) // 12)])
    return (
        f"{crowd.count} requests, {saw.bytes / MIB:.0f} MiB upstream, {saw.shortened} with gaps,"
        f" {saw.recall_offers} with recall,"
        f" {sum(trial.seconds for trial in known) / 3_600:.1f} h recorded, {len(crowd.errors)} errors,"
        f" memory {memory} MiB, store {store / turns:.0f} bytes a turn of {_raw(known) / turns:.0f} raw"
    )


def _kept_apart(folder: Path, known: list[RecordedAgent], crowd: RecordedClients) -> None:
    """Each agent's session holds its own turns, all of them, each once."""
    store = open_store(f"sqlite:///{folder}/soak.db")
    try:
        names = {number: names[-1] for number, names in crowd.sessions.items()}
        assert len(set(names.values())) == len(known)
        assert {info.key for info in store.sessions()} == set(names.values())
        for trial in known:
            turns = store.turns(names[trial.number])
            # The last turn was answered, and nobody went on behind it.
            assert [turn.index for turn in turns] == list(range(1, len(trial.run.turns)))
            for made, kept in zip(trial.run.turns, turns, strict=False):
                assert [each.text for each in kept.observations] == [each.text for each in made.observations]
    finally:
        store.close()


def _raw(known: list[RecordedAgent]) -> int:
    """Bytes of what all agents said and saw."""
    turns = (turn for trial in known for turn in trial.run.turns)
    return sum(
        len(turn.text) + sum(len(each.arguments) for each in turn.actions) + sum(len(o.text) for o in turn.observations)
        for turn in turns
    )


def _flat(memory: list[tuple[int, int]]) -> None:
    """Behind the first third, in which as many sessions came as may stay, it hardly grows."""
    held = [each for _, each in memory]
    third = len(held) // 3
    assert max(held[-third:]) < 1.2 * max(held[:third])
