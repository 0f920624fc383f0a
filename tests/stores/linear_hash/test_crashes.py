"""What was acknowledged is there after any crash, byte for byte; what was not is there whole or not at all."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

from elision.errors import StoreError
from elision.stores.linear_hash.check import check_store
from elision.stores.linear_hash.folder import OpenLog, StoreFolder
from elision.stores.linear_hash.log import File, write_log_header
from elision.stores.linear_hash.writer import Writer, WriterLimits
from elision.stores.store import Finding
from elision.trajectory.events import TurnAdded
from tests.figures import ReportFigures
from tests.soak import SOAK
from tests.stores.linear_hash.disk import Crash, Disk
from tests.stores.session_logs import add_turn, new_session

TRIALS = 2_000 if SOAK else 24

#: The texts of each session's turns.
State = dict[str, tuple[str, ...]]


class DiskFolder(StoreFolder):
    """A folder whose log is on a disk that forgets; the directory is replaced as a whole, or is not."""

    def __init__(self, path: Path, disk: Disk) -> None:
        super().__init__(path)
        self.disk = disk

    def make_log(self) -> None:
        if not self.values.exists():
            # A new log gets its name once it is whole.
            steps, room = self.disk.steps, self.disk.room
            self.disk.steps = self.disk.room = None
            write_log_header(self.disk.open("values"))
            self.values.touch()
            self.disk.steps, self.disk.room = steps, room

    def open_values(self, *, writable: bool) -> File:
        return self.disk.open("values")

    def save_directory(self, log: OpenLog) -> None:
        self.disk.step()
        if self.disk.room is not None and self.disk.rng.random() < 0.5:
            raise OSError("No space left on device")
        super().save_directory(log)
        if self.disk.rng.random() < 0.3:
            shutil.copyfile(self.directory, self.path / "older")

    def lose_directory(self) -> None:
        """Leave the newest directory, an older one, or none."""
        choice = self.disk.rng.random()
        if choice < 0.2 and (self.path / "older").exists():
            shutil.copyfile(self.path / "older", self.directory)
        elif choice < 0.4:
            self.directory.unlink(missing_ok=True)


def open_writer(folder: DiskFolder, *, group: int = 1) -> Writer:
    return Writer(folder, WriterLimits(group=group, log_bytes=20_000))


def change_store(writer: Writer, rng: Random, state: State) -> State:
    """Return `state` after one change of the store, which is made."""
    key = f"session {rng.randrange(4)}"
    if key not in state:
        state = {**state, key: ()}
        writer.create_session(new_session(key), (), 1.0)
    elif rng.random() < 0.08:
        state = {name: texts for name, texts in state.items() if name != key}
        writer.delete_session(key)
    else:
        sizes = (10, 400, 600, 5_000, 30_000)
        texts = tuple(rng.randbytes(rng.choice(sizes) // 2).hex() for _ in range(rng.randrange(1, 4)))
        if rng.random() < 0.2 and state[key]:
            texts = (*texts, state[key][0])
        after = len(state[key])
        state = {**state, key: (*state[key], *texts)}
        events = [add_turn(after + number, text) for number, text in enumerate(texts, start=1)]
        writer.append_events(key, events, after=after, at=2.0)
    return state


def read_state(writer: Writer) -> State:
    found = {}
    for key, session in writer.log.catalogue.by_key.items():
        texts = []
        for number in range(1, session.records + 1):
            event = writer.log.view.read_event(writer.log.find_record(session, number))
            assert isinstance(event, TurnAdded)
            texts.append(event.turn.observations[0].text)
        found[key] = tuple(texts)
    return found


def find_damage(folder: DiskFolder) -> list[Finding]:
    return check_store(folder)


def run_trial(path: Path, seed: int) -> int:
    """Several lives of one store, each ended by a crash; how many changes a crash took back."""
    rng = Random(seed)
    folder = DiskFolder(path, Disk(rng))
    acknowledged: State = {}
    taken = 0
    for _ in range(rng.randrange(2, 6)):
        states = [acknowledged]
        durable = 0
        folder.disk.steps = rng.randrange(1, 60)
        try:
            writer = open_writer(folder, group=rng.choice([1, 1, 3, 8]))
            for _ in range(100):
                states.append(change_store(writer, rng, states[-1]))
                if not writer.log.view.pending:
                    durable = len(states) - 1
        except Crash:
            # The change that it interrupted may be there, whole: it is the last of the states if it can be known.
            pass
        folder.disk.crash()
        folder.lose_directory()
        assert find_damage(folder) == [], f"seed {seed}"
        found = read_state(open_writer(folder))
        known = [state for state in states[durable:] if state == found]
        assert known or is_next(states[-1], found), f"seed {seed}: an acknowledged change is lost, or one is in part"
        taken += 0 if not known else len(states) - 1 - states.index(found, durable)
        assert find_damage(folder) == []
        acknowledged = found
    writer = open_writer(folder)
    for _ in range(10):
        acknowledged = change_store(writer, rng, acknowledged)
    writer.close()
    assert read_state(open_writer(folder)) == acknowledged, f"seed {seed}: the store does not go on"
    assert find_damage(folder) == []
    return taken


def is_next(before: State, after: State) -> bool:
    """Return whether one change makes `after` of `before`."""
    changed = [key for key in {*before, *after} if before.get(key) != after.get(key)]
    if len(changed) != 1:
        return False
    old, new = before.get(changed[0]), after.get(changed[0])
    return not old or new is None or new[: len(old)] == old


def test_power_fails_at_any_write(tmp_path: Path, report_figures: ReportFigures) -> None:
    """Writes since the last sync are lost, torn or reordered; no acknowledged change is."""
    taken = 0
    for seed in range(TRIALS):
        (tmp_path / str(seed)).mkdir()
        taken += run_trial(tmp_path / str(seed), seed)
    report_figures(f"linear-hash: {TRIALS:,} disks of 2-5 crashes, 0 acknowledged changes lost, {taken:,} others gone")


def test_a_write_may_end_within_the_mark(tmp_path: Path) -> None:
    """What a soak found in the store's first frame: it was taken for damage, not for a write that nobody waited for."""
    run_trial(tmp_path, 1_282)


def test_a_full_disk_refuses_and_loses_nothing(tmp_path: Path) -> None:
    """At whatever byte the disk is full, the refused change is not stored and all others are."""
    for seed in range(TRIALS // 4):
        rng = Random(seed)
        (tmp_path / str(seed)).mkdir()
        folder = DiskFolder(tmp_path / str(seed), Disk(rng))
        writer = open_writer(folder)
        state: State = {}
        for _ in range(10):
            state = change_store(writer, rng, state)
        folder.disk.room = rng.randrange(200_000)
        tried = refused = 0
        # Small changes take more than 60 to fill it.
        while tried < 60 or (not refused and tried < 10_000):
            tried += 1
            try:
                state = change_store(writer, rng, state)
            except StoreError:
                refused += 1
                assert read_state(writer) == state
        assert refused, "the disk was never full"
        folder.disk.room = None
        for _ in range(20):
            state = change_store(writer, rng, state)
        if rng.random() < 0.5:
            folder.disk.crash()
        assert read_state(open_writer(folder)) == state
        assert find_damage(folder) == []


def test_a_failed_sync_refuses_and_loses_nothing(tmp_path: Path) -> None:
    """After a sync that failed nothing is trusted: the store goes back to what is durable and goes on from there."""
    for seed in range(TRIALS // 4):
        rng = Random(seed)
        (tmp_path / str(seed)).mkdir()
        folder = DiskFolder(tmp_path / str(seed), Disk(rng))
        writer = open_writer(folder)
        state: State = {}
        for _ in range(40):
            folder.disk.failing_syncs = rng.choice([0, 0, 0, 0, 1, 2])
            try:
                state = change_store(writer, rng, state)
            except StoreError:
                folder.disk.failing_syncs = 0
                writer = open_writer(folder)
                assert read_state(writer) == state
        folder.disk.crash()
        assert read_state(open_writer(folder)) == state
        assert find_damage(folder) == []
