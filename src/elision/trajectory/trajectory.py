"""A recorded or live run: a head and its turns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec

from elision.trajectory.run_roles import SaidRole
from elision.trajectory.turn import Head, Turn
from elision.trajectory.usage import Usage

#: How a recording agent, or its provider, condensed the context: older turns gave way to a summary, or left; results
#: were cleared and their turns stayed; or the recording does not say how.
CompactionKind = Literal["summary", "cleared", "unknown"]


class Compaction(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The recording agent itself rewrote its context before call `before` (1-based).

    kept_from: the first turn that stayed; None where the recording does not say. usage: of the call that wrote the
    summary, where it is recorded.
    """

    before: int
    summary: str = ""
    tokens_before: int | None = None
    kind: CompactionKind = "summary"
    kept_from: int | None = None
    usage: Usage | None = None


class PromptChange(msgspec.Struct, frozen=True, kw_only=True):
    """Before call `before` (1-based) something was changed that is no turn, and that the cache goes by.

    what: as a report calls it: "the tools", "the thinking level".
    """

    before: int
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something in a file that could not be read; the rest was loaded.

    line: 1-based line, record or step number; None where the file has no such thing.
    kind: "input" if the file is at fault, "bug" if a reader of ours is; commands then exit with a code of their own.
    """

    file: str
    line: int | None
    reason: str
    kind: Literal["input", "bug"] = "input"

    def __str__(self) -> str:
        if self.line is None:
            place = self.file
        else:
            place = f"{self.file}:{self.line}"
        return f"{place}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """One run of one agent.

    id:          unique within its file, readable ("airline-13", "main", "sidechain a1b2c3").
    file:        where it was read from, as the user named it; "" if live.
    format:      the reader's name ("swe-agent", "claude-code", ...); "" if live.
    model:       the model that ran it, as recorded; the most frequent where there were several.
    parent:      id of the trajectory that started it (a sub-agent's), if known.
    compactions: where the recording agent rewrote its own context.
    observations: whether its observations came as tool results or, in a text protocol, as user messages.
    changes:     of settings, system prompt and tools, as far as the recording states them.
    recorded_window: how many observations the recording agent itself kept visible (1 ... ), None if all.
    usd:         what the whole run cost, as the recording states it beside its calls; None if it states nothing.
    role:        of its agent, as the recording states it; "" if it states nothing.
    """

    id: str
    head: Head
    turns: tuple[Turn, ...]
    file: str = ""
    format: str = ""
    model: str = ""
    parent: str | None = None
    compactions: tuple[Compaction, ...] = ()
    changes: tuple[PromptChange, ...] = ()
    recorded_window: int | None = None
    observations: Literal["tools", "user"] = "tools"
    usd: float | None = None
    role: SaidRole = ""

    def __post_init__(self) -> None:
        for expected, turn in enumerate(self.turns, start=1):
            if turn.index != expected:
                raise ValueError(f"trajectory {self.id!r}: turn {turn.index} stands where turn {expected} belongs")

    @property
    def tool_turns(self) -> int:
        """Turns with at least one answered call."""
        return sum(turn.is_finished for turn in self.turns)
