"""A child of the tests, `python -m tests.stores.linear_hash.child_processes FOLDER [LAST]`: writes and acknowledges.

Every append adds as many turns as `WIDTH` to one session; their texts carry its number.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from random import Random

from elision.errors import UnknownHandle
from elision.stores.linear_hash.store import LinearHashStore
from elision.stores.linear_hash.writer import WriterLimits
from elision.trajectory.events import TurnAdded
from tests.stores.session_logs import add_turn, new_session

SESSION = "versions"
WIDTH = 3
#: Appends after which the child deletes a session of its own and compacts.
CHORES = 60
#: Checkpoints often, so that kills and readers meet them.
LIMITS = WriterLimits(log_bytes=40_000)


def make_text(version: int, place: int) -> str:
    """Return the text of turn `place` of append `version`: sizes from a line to many pages."""
    return f"{version} " + Random(version * 100 + place).randbytes((version * 37 + place * 911) % 4_000).hex()


def find_version(store: LinearHashStore) -> int:
    """Return the last append in `store`; assert that every turn is as its append wrote it."""
    try:
        events = list(store.events(SESSION))
    except UnknownHandle:
        return 0
    version, rest = divmod(len(events), WIDTH)
    assert not rest, "an append is there in part"
    for number, event in enumerate(events):
        assert isinstance(event, TurnAdded)
        text = event.turn.observations[0].text
        assert text == make_text(number // WIDTH + 1, number % WIDTH), f"record {number + 1} is another one"
    return version


def write_versions(folder: Path, last: int = 0) -> None:
    """Append for ever, or up to `last`; acknowledge each append."""
    store = LinearHashStore(folder, LIMITS)
    version = find_version(store)
    if not version and SESSION not in {info.key for info in store.sessions()}:
        store.create(new_session(SESSION))
    while not last or version < last:
        after = version * WIDTH
        version += 1
        turns = [add_turn(after + place + 1, make_text(version, place)) for place in range(WIDTH)]
        store.append(SESSION, turns, after=after, at=float(version))
        os.write(1, b"%d\n" % version)
        if version % CHORES == 0:
            key = f"chore {version}"
            store.create(new_session(key))
            store.append(key, [add_turn(1, make_text(version, 9) * 30)], after=0, at=1.0)
            store.delete(key)
            store.compact()
    store.close()


if __name__ == "__main__":
    write_versions(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
