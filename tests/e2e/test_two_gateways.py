"""Several `elision serve` processes over one store serve one session: what they send is what one alone would send."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import TypeAlias

import pytest

from elision.stores.store import Store
from elision.stores.store_urls import open_store
from elision.testing.exchange import ReceivedRequest
from elision.testing.playback import Playback
from tests.e2e.doors import gateway
from tests.gateway.checking_provider import AGENT_HEADER, TURN_HEADER
from tests.gateway.recorded_agents import TWIN_COUNT, RecordedAgent, list_marks, load_runs, make_agents
from tests.gateway.recorded_clients import RecordedClients
from tests.gateway.serve_process import ServeProcess, start_serve
from tests.soak import SOAK
from tests.stores.postgres_server import make_fresh_url

#: Agents that are nobody's twins, one for each API, and turns of the longest.
AGENTS, LONGEST = 3, 1_000 if SOAK else 9
#: Decides by what was said alone: every byte is known beforehand.
MASKING = "masking(window=2, schedule=every-turn)"
#: Summaries are written while calls go on, and stand in whichever comes next.
HYBRID = "hybrid(window=2, summarize_at=6, tail=2, summary_max_tokens=400, schedule=every-turn)"
#: A strategy, and whether both processes are asked every time.
WAYS = [(MASKING, True), (HYBRID, False), (MASKING, False), (HYBRID, True)][: 4 if SOAK else 1]

#: The turn from which on both are asked: before, the same words at the same time are two agents'.
BEGUN, NEVER = 4, float("inf")

#: Ids of answers, which a provider counts over all of its clients.
_COUNTED = re.compile(rb"playback\d{8}")

#: By agent and turn, what the provider got.
Upstream: TypeAlias = dict[tuple[int, int], list[bytes]]


def agents() -> list[RecordedAgent]:
    return make_agents(AGENTS * TWIN_COUNT, LONGEST)[::TWIN_COUNT]


def worked(provider: Playback, crowd: RecordedClients, made: Sequence[ServeProcess] = ()) -> Upstream:
    """What the provider gets while all agents work through their runs. made: what they ask, if it is processes."""
    got: Upstream = {}

    def watch(received: ReceivedRequest) -> None:
        raw = _COUNTED.sub(b"answer", received.raw)
        got.setdefault((int(received.headers[AGENT_HEADER]), int(received.headers[TURN_HEADER])), []).append(raw)

    provider.provider.on_request = watch
    asyncio.run(crowd.run_all(agents(), AGENTS))
    assert crowd.errors == [], [(each.popen.poll(), each.log[-2_000:]) for each in made]
    assert provider.violations == []
    return got


@cache
def alone(strategy: str) -> Upstream:
    """What a provider gets of one gateway in this process."""
    with Playback(load_runs()) as provider, gateway(provider.url, strategy=strategy) as one:
        got = worked(provider, RecordedClients([one.url]))
    for trial in agents():
        assert any(
            b"tokens hidden" in raw for (number, _), raws in got.items() if number == trial.number for raw in raws
        )
    return got


def processes(stack: ExitStack, folder: Path, provider: Playback, store: str, strategy: str) -> list[ServeProcess]:
    """Two of them."""
    upstream = ["--upstream-openai", provider.url, "--upstream-anthropic", provider.url]
    made = []
    for name in ("one", "two"):
        (folder / name).mkdir()
        options = [*upstream, "--store", store, "-s", strategy]
        made.append(stack.enter_context(start_serve(folder / name, *options)))
    return made


def assert_whole(store: Store) -> None:
    """Each agent's turns are in one session, each once, word for word.

    A call before there is a turn has nothing by which another process could know it: it may stand alone.
    """
    infos = [info for info in store.sessions() if info.turns]
    assert len(infos) == AGENTS
    kept = sorted([[each.text for each in turn.observations] for turn in store.turns(info.key)] for info in infos)
    made = [[[each.text for each in turn.observations] for turn in trial.run.turns[:-1]] for trial in agents()]
    assert kept == sorted(made)


def assert_hidden_for_good(got: Upstream) -> None:
    """What did not stand whole in a request stands whole in no later one, whoever sent it."""
    for trial in agents():
        hidden: set[str] = set()
        for turn in range(1, len(trial.run.turns) + 1):
            raws = got[trial.number, turn]
            told = list(zip(list_marks(turn - 1, trial.number), trial.run.turns, strict=False))
            seen = [mark for mark, made in told if made.observations]
            whole = {mark for mark in seen if any(raw.count(mark.encode()) >= 2 for raw in raws)}
            assert not whole & hidden
            hidden |= {mark for mark in seen if any(raw.count(mark.encode()) < 2 for raw in raws)}
        assert hidden


@pytest.mark.parametrize(("strategy", "at_once"), WAYS)
def test_two_processes_on_postgres(tmp_path: Path, strategy: str, at_once: bool) -> None:
    """Each session's calls go to them in turn, or each to both at the same time: no turn is lost or doubled, what is
    hidden stays hidden, and not a byte differs where nothing is left to chance."""
    url = make_fresh_url()
    with Playback(load_runs()) as provider, ExitStack() as stack:
        made = processes(stack, tmp_path, provider, url, strategy)
        crowd = RecordedClients([each.url for each in made], fan_out_turn=BEGUN if at_once else NEVER)
        got = worked(provider, crowd, made)
        assert all(len(raws) == (2 if at_once and turn >= BEGUN else 1) for (_, turn), raws in got.items())
        assert {len(set(names[1:])) for names in crowd.sessions.values()} == {1}
        assert_hidden_for_good(got)
        if strategy == MASKING:
            expected = alone(strategy)
            assert {key: set(raws) for key, raws in got.items()} == {key: set(raws) for key, raws in expected.items()}
        assert [each.end_process() for each in made] == [0, 0]
        assert ['"level": "error"' in each.log for each in made] == [False, False]
    with_store(url, assert_whole)


# What is said of two workers one by one is part of every run: tests/gateway/test_faults_killed.py.
@pytest.mark.soak
def test_two_workers_on_sqlite(tmp_path: Path) -> None:
    """Two workers of one gateway, whichever takes the connection: the very bytes that one would send."""
    url = f"sqlite:///{tmp_path}/s.db"
    with Playback(load_runs()) as provider:
        upstream = ["--upstream-openai", provider.url, "--upstream-anthropic", provider.url]
        with start_serve(tmp_path, *upstream, "--store", url, "-s", MASKING, "--workers", "2") as both:
            got = worked(provider, RecordedClients([both.url], keep_connections=False), [both])
            assert both.end_process() == 0
            assert '"level": "error"' not in both.log
        assert got == alone(MASKING)
    with_store(url, assert_whole)


def with_store(url: str, check: Callable[[Store], None]) -> None:
    store = open_store(url)
    try:
        check(store)
    finally:
        store.close()
