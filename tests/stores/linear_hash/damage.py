"""Stores to damage, and ways to damage them."""

from __future__ import annotations

from pathlib import Path
from random import Random

from elision.stores.linear_hash.store import LinearHashStore
from elision.trajectory.events import PassDecided
from elision.trajectory.plan import Edit
from tests.stores.session_logs import add_turn, begin_session, new_session


def fill_store(folder: Path, sessions: int = 4, turns: int = 12) -> None:
    """Make a closed store with sessions, large and small results, masks and a fork."""
    store, noise = LinearHashStore(folder), Random(turns)
    for number in range(sessions):
        key = f"session {number}"
        begin_session(store, key)
        for index in range(1, turns + 1):
            text = noise.randbytes((20, 400, 9_000)[index % 3]).hex()
            after = store.length(key)
            masks = (Edit((index - 1, 1), "mask", f"[hidden {index - 1}]"),) if index > 1 else ()
            store.append(
                key,
                [add_turn(index, text, node=f"{key} n{index}"), PassDecided(call=index, reason="due", edits=masks)],
                after=after,
                at=float(number),
            )
    store.create(new_session("fork", parent="session 0", shared=turns))
    store.close()


def read_everything(folder: Path) -> dict[str, list[object]]:
    """Return the events of all sessions."""
    store = LinearHashStore(folder)
    try:
        return {info.key: list(store.events(info.key)) for info in store.sessions()}
    finally:
        store.close()


def flip_bit(path: Path, offset: int, bit: int = 4) -> None:
    """Change one bit of a file."""
    data = bytearray(path.read_bytes())
    data[offset] ^= 1 << bit
    path.write_bytes(data)
