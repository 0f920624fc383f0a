"""How long the cache entries of a request live: who decides that, and what was decided."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

#: Who decides how long cache entries live: the client's request, a setting (all live so long), or the planner.
LifetimeChoice: TypeAlias = Literal["client", "5m", "1h", "plan"]


class CacheLifetime(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was decided for the cache entries of one request.

    hour_turn: the newest turn whose entries live an hour; 0 for the head alone, None for nothing.
    pings:     requests at most that keep the entries alive in the pause after an answer with tool calls.
    pings_after_words: the same after an answer without; the session may be over then.
    planned:   whether the planner decided it, and not a setting.
    """

    hour_turn: int | None = None
    pings: int = 0
    pings_after_words: int = 0
    planned: bool = False
