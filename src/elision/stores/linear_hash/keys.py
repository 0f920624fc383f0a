"""Keys of the directory: 64 bits each, made from what they name.

Keys of records, turns and sessions' numbers are mixed one to one, so two of them are never equal. Names and texts are
hashed with BLAKE2b under the store's random number, so that nobody can choose two that are equal.
"""

from __future__ import annotations

import struct
from hashlib import blake2b
from typing import Final

from elision.errors import StoreError

#: What a key names; the three highest bits of a key before it is mixed.
_RECORD: Final = 1 << 61
_TURN: Final = 2 << 61
_WORD: Final = (1 << 64) - 1
#: 2^64 divided by the golden ratio, made odd.
_GOLDEN: Final = 0x9E3779B97F4A7C15
_PACK: Final = struct.Struct("<Q")
_MASK: Final = struct.Struct("<IQH")
#: Records of a log, turns, and sessions that a store can have.
MAX_NUMBER: Final = (1 << 32) - 1
MAX_SESSION: Final = (1 << 29) - 1


class KeyMaker:
    """Makes the keys of one store. secret: its random number."""

    def __init__(self, secret: int) -> None:
        self._number = secret
        self._secret = _PACK.pack(secret)

    def make_record_key(self, session: int, number: int) -> bytes:
        """Return the key of record `number` of the session with that number."""
        return self._mix(_RECORD | session << 32 | number)

    def make_turn_key(self, session: int, turn: int) -> bytes:
        return self._mix(_TURN | session << 32 | turn)

    def make_mask_key(self, session: int, turn: int, position: int) -> bytes:
        return self._hash(b"mask", _MASK.pack(session, turn, position))

    def make_node_key(self, family: str, node: str) -> bytes:
        """Return the key of a history's name; families are kept apart by their length."""
        return self._hash(b"node", f"{len(family)} {family}{node}".encode("utf-8", "surrogatepass"))

    def make_text_key(self, data: bytes) -> bytes:
        return self._hash(b"text", data)

    def _hash(self, kind: bytes, data: bytes) -> bytes:
        return blake2b(data, digest_size=8, key=self._secret, person=kind).digest()

    def _mix(self, number: int) -> bytes:
        # Both steps can be undone, so no two numbers collide: a product with an odd number spreads consecutive numbers
        # over the high bits (D. Knuth, The Art of Computer Programming 3, 6.4), and these come down to the low ones.
        number = (number ^ self._number) * _GOLDEN & _WORD
        return _PACK.pack(number ^ number >> 32)


def check_number(number: int, what: str) -> int:
    """Return `number`. Raises StoreError if it does not fit a key."""
    if 0 <= number <= MAX_NUMBER:
        return number
    raise StoreError(f"{what} {number} does not fit a linear-hash store; the largest is {MAX_NUMBER:,}")
