"""Writers that are killed: a child appends and acknowledges, its parent ends it with SIGKILL at a random moment.

`python -m tests.stores.killed_writers URL` is the child. `kill_writers` runs trials over one store and counts what was
lost; any store that has a URL may be put through it.
"""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from elision.errors import ConflictError, UnknownHandle
from elision.stores.store import NewSession, Store
from elision.stores.store_urls import open_store
from elision.trajectory.events import Event, PassDecided
from elision.trajectory.plan import Edit
from tests.processes import start_process
from tests.stores.session_logs import add_turn

ROOT = Path(__file__).parents[2]
SESSION = "killed"
#: Seconds within which a child acknowledges something, or hangs.
PATIENCE = 60.0
#: Appends after which a child also searches, forks, deletes and compacts.
CHORES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class KillReport:
    """The result of trials.

    acknowledged: records that a child acknowledged. lost: of these, missing or different afterwards. kept: stored
    records without an acknowledgement, because the writer was killed before it. repeated: appends of writers that were
    killed between commit and acknowledgement, recognized when they were repeated.
    """

    trials: int
    acknowledged: int
    lost: int
    kept: int
    repeated: int = 0

    def __str__(self) -> str:
        return (
            f"{self.trials} kills, {self.acknowledged:,} acknowledged records, {self.lost} lost, "
            f"{self.kept} stored and not yet acknowledged, "
            f"{self.repeated} recognized when repeated"
        )


def make_event(number: int) -> Event:
    """Return record `number` of the log, the same in every process: turns with results of all sizes, decisions."""
    turn = number - number // 5
    if number % 5 == 0:
        return PassDecided(call=number, reason="due", edits=(Edit((turn, 1), "mask", f"[t{turn}.1]"),))
    word = f"{number * 2_654_435_761 % 2**32:08x} "
    return add_turn(turn, word * (1, 40, 400, 4_000)[number % 4], said=f"turn {number}", node=f"node {number}")


def make_batches(after: int) -> Iterator[list[Event]]:
    """Yield what is appended after record `after`, one to three records at once."""
    while True:
        size = 1 + after % 3
        yield [make_event(number) for number in range(after + 1, after + size + 1)]
        after += size


def make_batch_id(after: int) -> bytes:
    """Return the id of the append after record `after`, the same in every process."""
    return after.to_bytes(16, "big")


def kill_writers(url: str, *, trials: int, seed: int = 0) -> KillReport:
    """Kill a writer `trials` times; the session goes on from trial to trial.

    Raises AssertionError where the log ends within an append, or `check` finds something.
    """
    chance, acknowledged, lost, kept, repeated, seen = random.Random(seed), 0, 0, 0, 0, 0
    for _ in range(trials):
        newest = _kill_writer(url, chance)
        store = open_store(url)
        length = _find_length(store)
        lost += max(0, newest - length) + _count_differing(store, seen, length)
        kept += max(0, length - max(newest, seen))
        acknowledged += max(0, newest - seen)
        assert _is_whole(length), f"the log ends within an append, at record {length}"
        if length:
            # What the writer did when it was killed, behind all that any writer acknowledged.
            seen = _repeat_append(store, max(newest, seen))
            repeated += seen == length
        store.close()
    store = open_store(url)
    lost += _count_differing(store, 0, seen)
    assert store.check() == []
    store.close()
    return KillReport(trials=trials, acknowledged=acknowledged, lost=lost, kept=kept, repeated=repeated)


def _repeat_append(store: Store, after: int) -> int:
    """Repeat the append after record `after`, as its writer would; return the length of the log.

    It is written once, whether or not its writer wrote it.
    """
    events = next(make_batches(after))
    for _ in range(2):
        length = store.append(SESSION, events, after=after, at=float(after), batch=make_batch_id(after))
        assert length == store.length(SESSION) == after + len(events), "an append was written twice"
    return length


def _find_length(store: Store) -> int:
    try:
        return store.length(SESSION)
    except UnknownHandle:
        return 0


def _count_differing(store: Store, after: int, length: int) -> int:
    if not length:
        return 0
    found = list(store.events(SESSION, after))
    return (
        sum(here != make_event(number) for number, here in enumerate(found, start=after + 1))
        + length
        - after
        - len(found)
    )


def _is_whole(length: int) -> bool:
    end = 0
    while end < length:
        end += 1 + end % 3
    return end == length


def _kill_writer(url: str, chance: random.Random) -> int:
    """Start a writer and kill it; return the newest record that it acknowledged, 0 for none."""
    command = [sys.executable, "-m", "tests.stores.killed_writers", url]
    with start_process(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        heard = _read_acknowledgements(child.stdout.fileno(), chance)
        child.send_signal(signal.SIGKILL)
        heard += child.stdout.read()
        said = child.stderr.read().decode()
        child.wait(PATIENCE)
    assert child.returncode == -signal.SIGKILL, f"the writer ended by itself: {said}"
    whole = heard[: heard.rfind(b"\n") + 1].split()
    return int(whole[-1]) if whole else 0


def _read_acknowledgements(pipe: int, chance: random.Random) -> bytes:
    """Return what the child writes until it is to be killed: some acknowledgements, and a little more."""
    heard, wanted = b"", chance.choice((0, 1, 2, 5, 20, 60))
    while heard.count(b"\n") < wanted:
        assert select.select([pipe], [], [], PATIENCE)[0], "the writer hangs"
        piece = os.read(pipe, 4_096)
        assert piece, "the writer ended by itself"
        heard += piece
    # Without a wait every kill would meet the child at the same place, just behind an acknowledgement.
    select.select([], [], [], chance.uniform(0, 0.012) if wanted else chance.uniform(0, 0.4))
    return heard


# --- the child ---------------------------------------------------------------------------------------------------


def _write_forever(url: str) -> None:
    """Append and acknowledge, for ever."""
    store = open_store(url)
    after = _open_session(store)
    for number, events in enumerate(make_batches(after), start=1):
        after = store.append(SESSION, events, after=after, at=float(after), batch=make_batch_id(after))
        os.write(1, f"{after}\n".encode())
        if number % CHORES == 0:
            _do_chores(store, after)


def _open_session(store: Store) -> int:
    try:
        return store.length(SESSION)
    except UnknownHandle:
        store.create(NewSession(key=SESSION, family=SESSION, at=0.0))
        return 0


def _do_chores(store: Store, after: int) -> None:
    store.search(SESSION, "turn", 1)
    try:
        store.create(NewSession(key="fork", family=SESSION, at=0.0, parent=SESSION, shared=after))
    except ConflictError:
        # A child before this one was killed in front of the deletion.
        store.delete("fork")
    else:
        store.append("fork", next(make_batches(after)), after=after, at=0.0)
        store.delete("fork")
    store.compact()


if __name__ == "__main__":
    _write_forever(sys.argv[1])
