"""Stores to damage, and ways to damage them."""

from __future__ import annotations

import struct
from pathlib import Path
from random import Random

from elision.stores.linear_hash.layout import AT_KIND, PAGE, U32, checksum
from elision.stores.linear_hash.store import LinearHashStore
from elision.trajectory.events import PassDecided
from elision.trajectory.plan import Mask
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
            masks = (Mask((index - 1, 1), f"[hidden {index - 1}]"),) if index > 1 else ()
            store.append(
                key,
                [add_turn(index, text, node=f"{key} n{index}"), PassDecided(call=index, reason="due", masks=masks)],
                after=after,
                at=float(number),
            )
    store.create(new_session("fork", parent="session 0", shared=turns))
    store.close()


def list_pages(folder: Path, kind: int) -> list[int]:
    """Return the numbers of the pages of a kind."""
    data = (folder / "pages").read_bytes()
    return [at // PAGE for at in range(PAGE, len(data), PAGE) if data[at + AT_KIND] == kind]


def flip_bit(path: Path, offset: int) -> None:
    """Change one bit of a file."""
    data = bytearray(path.read_bytes())
    data[offset] ^= 0x10
    path.write_bytes(data)


def set_field(folder: Path, number: int, offset: int, form: str, value: int) -> None:
    """Change a field of a page and make its checksum right again: damage that only its meaning shows."""
    path = folder / "pages"
    data = bytearray(path.read_bytes())
    page = data[number * PAGE : (number + 1) * PAGE]
    struct.pack_into(form, page, offset, value)
    U32.pack_into(page, 0, checksum(page, number))
    data[number * PAGE : (number + 1) * PAGE] = page
    path.write_bytes(data)
