"""What was acknowledged is there after any crash, byte for byte; what was not is there whole or not at all."""

from __future__ import annotations

import os
from random import Random

import pytest

from elision.errors import StoreError
from elision.stores.linear_hash.changes import DELETE, HEAD, PUT, Change
from elision.stores.linear_hash.fsck import check_pages
from elision.stores.linear_hash.writer import Writer, WriterLimits
from tests.stores.linear_hash.disk import Crash, Disk

SOAK = os.environ.get("ELISION_SOAK") == "1"
TRIALS = 2_000 if SOAK else 60
SMALL = {"log_bytes": 6_000, "dirty_pages": 12, "cache": 6}

State = dict[bytes, tuple[bytes, bytes]]


def limits(rng: Random) -> WriterLimits:
    return WriterLimits(group=rng.choice([1, 1, 3, 8]), **SMALL)  # type: ignore[arg-type]


def transaction(rng: Random, state: State) -> list[Change]:
    """A few changes of records that mostly exist."""
    changes = []
    seen = set()
    for _ in range(rng.randrange(1, 5)):
        key = b"key-%d" % rng.randrange(120)
        if key in seen:
            continue
        seen.add(key)
        kind = rng.random()
        if kind < 0.2:
            changes.append(Change(DELETE, key))
        elif kind < 0.4 and key in state:
            changes.append(Change(HEAD, key, rng.randbytes(rng.choice([4, 4, 60, 400]))))
        else:
            size = rng.choice([0, 10, 60, 300, 900, 2_100, 5_000, 13_000])
            changes.append(Change(PUT, key, rng.randbytes(4), rng.randbytes(size)))
    return changes


def after(state: State, changes: list[Change]) -> State:
    state = dict(state)
    for op, key, head, value in changes:
        if op == DELETE:
            state.pop(key, None)
        else:
            state[key] = (head, state[key][1] if op == HEAD else value)
    return state


def content(writer: Writer) -> State:
    return {record.key: (record.head, record.value) for record in writer.records()}


def opened(disk: Disk, rng: Random) -> Writer:
    return Writer(disk.open("pages"), disk.open("log"), limits=limits(rng))


def findings(disk: Disk) -> list[str]:
    return [str(found) for found in check_pages(disk.open("pages"), disk.open("log")).findings]


def work(writer: Writer, rng: Random, states: list[State], count: int) -> None:
    """Commit `count` transactions; states[lsn so far] is what each leaves behind."""
    for _ in range(count):
        changes = transaction(rng, states[-1])
        states.append(after(states[-1], changes))
        writer.commit(changes)


def trial(seed: int) -> int:
    """Several lives of one store, each ended by a crash; how many transactions a crash took back."""
    rng = Random(seed)
    disk, acknowledged, taken = Disk(rng), {}, 0
    for _ in range(rng.randrange(2, 6)):
        states, durable = [acknowledged], 0
        disk.steps = rng.randrange(1, 60)
        try:
            writer = opened(disk, rng)
            for _ in range(100):
                before = writer.durable
                work(writer, rng, states, 1)
                if writer.durable != before:
                    durable = len(states) - 1 - (writer.committed - writer.durable)
        except Crash:
            pass
        disk.crash()
        writer = opened(disk, rng)
        found = content(writer)
        assert found in states[durable:], f"seed {seed}: an acknowledged transaction is lost, or one is there in part"
        taken += len(states) - 1 - states.index(found, durable)
        assert findings(disk) == []
        acknowledged = found
    work(writer, rng, states := [acknowledged], 10)
    writer.close()
    assert content(opened(disk, rng)) == states[-1], f"seed {seed}: the store does not go on"
    assert findings(disk) == []
    return taken


def test_power_fails_at_any_write(capsys: pytest.CaptureFixture[str]) -> None:
    """Writes since the last sync are lost, torn or reordered; no acknowledged transaction is."""
    taken = sum(trial(seed) for seed in range(TRIALS))
    with capsys.disabled():
        print(
            f"\n{TRIALS} stores, 2-5 crashes each: 0 acknowledged transactions lost, {taken} others gone whole", end=""
        )


def test_a_full_disk_refuses_and_loses_nothing() -> None:
    """At whatever byte the disk is full, the refused transaction is not stored and all others are."""
    for seed in range(TRIALS):
        rng = Random(seed)
        disk = Disk(rng)
        writer = Writer(disk.open("pages"), disk.open("log"), limits=WriterLimits(group=1, **SMALL))  # type: ignore[arg-type]
        states: list[State] = [{}]
        work(writer, rng, states, 10)
        disk.room = rng.randrange(120_000)
        refused = 0
        for _ in range(40):
            try:
                work(writer, rng, states, 1)
            except StoreError:
                states.pop()
                refused += 1
                assert content(writer) == states[-1]
        assert refused, "the disk was never full"
        disk.room = None
        work(writer, rng, states, 20)
        assert content(writer) == states[-1]
        if rng.random() < 0.5:
            disk.crash()
        assert content(opened(disk, rng)) == states[-1]
        assert findings(disk) == []


def test_a_failed_sync_refuses_and_loses_nothing() -> None:
    """After a sync that failed nothing is trusted: the store goes back to what is durable and goes on from there."""
    for seed in range(TRIALS):
        rng = Random(seed)
        disk = Disk(rng)
        writer = Writer(disk.open("pages"), disk.open("log"), limits=WriterLimits(group=1, **SMALL))  # type: ignore[arg-type]
        states: list[State] = [{}]
        unsure: list[State] = []
        for _ in range(40):
            disk.failing_syncs = rng.choice([0, 0, 0, 0, 1, 2])
            try:
                work(writer, rng, states, 1)
            except StoreError as error:
                refused = states.pop()
                unsure = [*unsure, refused] if "may be" in str(error) else []
            else:
                unsure = []
        disk.crash()
        writer = opened(disk, rng)
        assert content(writer) in [states[-1], *unsure]
        assert findings(disk) == []
