"""What a task and its agent are like: the settings of a closed loop."""

from __future__ import annotations

import hashlib
from typing import Literal, TypeAlias

import msgspec

from elision.errors import SettingError

#: How far back the facts of a step are: as in recorded runs, or half of them anywhere in the run so far.
Reuse: TypeAlias = Literal["recorded", "heavy"]
#: The form of tool results: each family's own, a JSON object, or lines of text.
ResultForm: TypeAlias = Literal["own", "json", "text"]


class Knobs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a task and of the scripted agent. Shares are between 0 and 1.

    calls:      requests that the task takes where nothing is hidden or overlooked, 10 or more.
    reuse:      how far back facts are. needs: facts that a step uses.
    size:       factor on the length of documents.
    results:    form of tool results.
    parallel:   share of steps at which the agent asks for everything that it misses at once.
    notes:      share of the facts of a new result that the agent writes down in its own words.
    careless:   share of hidden facts that it guesses.
    noticed:    share of steps at which a wrong value is rejected; elsewhere it goes through.
    rot:        chance to overlook or confuse a visible fact, per 100,000 tokens between it and the end of the prompt.
    looks_again: share of accepted steps after which it looks at what it changed.
    recalls:    whether it uses the recall tools that a request has.
    pauses:     share of calls before which the user pauses for more than five minutes.
    """

    calls: int = 80
    reuse: Reuse = "recorded"
    needs: int = 4
    size: float = 1.0
    results: ResultForm = "own"
    parallel: float = 0.3
    notes: float = 0.1
    careless: float = 0.05
    noticed: float = 0.5
    rot: float = 0.02
    looks_again: float = 0.2
    recalls: bool = True
    pauses: float = 0.0

    def __post_init__(self) -> None:
        for name in ("parallel", "notes", "careless", "noticed", "rot", "looks_again", "pauses"):
            if not 0 <= getattr(self, name) <= 1:
                raise SettingError(f"{name} is a share between 0 and 1, not {getattr(self, name)}")
        for name, least in (("calls", 10), ("needs", 1), ("size", 0.1)):
            if getattr(self, name) < least:
                raise SettingError(f"{name} is {least} or more, not {getattr(self, name)}")


def draw_share(*key: object) -> float:
    """Return a number from 0 up to 1 that depends on `key` only, so that all strategies meet the same chances."""
    return int.from_bytes(hashlib.blake2b(repr(key).encode(), digest_size=8).digest(), "big") / 2**64
