"""The record of one keep-alive request, for the metrics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from elision.trajectory.prices import Bill


@dataclass(frozen=True, slots=True, kw_only=True)
class PingRecord:
    """One ping. status: of its response; 0 where there was none. bill: as it was booked; nothing where it failed."""

    status: int
    bill: Bill = field(default_factory=Bill)


#: Gets every ping when it is over.
PingListener: TypeAlias = Callable[[PingRecord], None]
