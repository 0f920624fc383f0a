"""The append-only log of a session. The same events give the same view, byte for byte, in any process (I3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from elision.trajectory.plan import Edit, Key, Summary
from elision.trajectory.record_fields import write_always
from elision.trajectory.run_roles import SaidRole
from elision.trajectory.turn import Head, Message, Turn
from elision.trajectory.usage import Usage


class SessionEvent(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="e"):
    """What happened in a session; as JSON its `e` names the event, and fields that have their default are left out."""


class EditLists:
    """The edits of an event by kind."""

    __slots__ = ()
    edits: tuple[Edit, ...]

    @property
    def masks(self) -> tuple[Edit, ...]:
        return tuple(edit for edit in self.edits if edit.kind == "mask")

    @property
    def clips(self) -> tuple[Edit, ...]:
        return tuple(edit for edit in self.edits if edit.kind == "clip")

    @property
    def folds(self) -> tuple[Edit, ...]:
        return tuple(edit for edit in self.edits if edit.kind == "fold")

    @property
    def unfolded(self) -> tuple[Key, ...]:
        return tuple(edit.key for edit in self.edits if edit.kind == "whole")


class Deferral(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which tools' definitions a session leaves out of its prompts.

    form: the provider searches them ("native"), or an "outline" stands for each. tools: their names. saved: tokens of
    each prompt.
    """

    form: Literal["native", "outline"] = "outline"
    tools: tuple[str, ...] = ()
    saved: int = 0


class SessionOpened(SessionEvent, frozen=True, kw_only=True, tag="opened"):
    """A live session begins: what is fixed for as long as it lives.

    strategy: as text (`elision.strategies.spec.describe_strategy`); a later process may go on with another one.
    dialect:  whose messages it is fed with; "" where turns are added by hand.
    handles:  whether placeholders name handles; recorded again if that changes before anything is hidden.
    offer:    who puts the recall tools into requests: "caller", us with the "first" placeholder, us from the "start",
              "never" anybody. tools: what we put in, each with `name`, `description` and `input_schema`.
    shadow:   whether requests are sent unchanged, whatever is decided; recorded again when that changes.
    deferral: of which tools the definitions are left out.
    role:     of the agent, as its client says it.
    """

    strategy: str
    dialect: str = ""
    handles: bool = write_always(True)
    shadow: bool = False
    tools: tuple[Mapping[str, Any], ...] = ()
    offer: str = "caller"
    deferral: Deferral = Deferral()
    role: SaidRole = ""

    def defer(self, deferral: Deferral) -> SessionOpened:
        """Return the same with what is left out of prompts. The head of such a session never changes."""
        offer = "start" if deferral.tools and self.offer == "first" else self.offer
        return msgspec.structs.replace(self, deferral=deferral, offer=offer)

    def __hash__(self) -> int:
        return hash((self.strategy, self.dialect, self.handles, self.shadow, self.offer, self.deferral))


class HeadSet(SessionEvent, frozen=True, tag="head"):
    """System prompt, tools and task; once more where they changed, which rewrites everything."""

    head: Head


class TurnAdded(SessionEvent, frozen=True, tag="turn"):
    """Raw first (I1): a turn is in the log before anything of it is hidden.

    node: names the history up to and with this turn by its content; "" if histories are not looked up.
    """

    turn: Turn
    node: str = ""


class HistoryReplaced(SessionEvent, frozen=True, tag="replaced"):
    """The client rewrote the history, and this session begins with the new one: the first record of its own.

    turns: that its parent had then. They are what the session came from.
    """

    turns: int


class TurnAmended(SessionEvent, frozen=True, tag="amended"):
    """The newest turn came again with another ending; nothing of it was hidden yet. The log keeps both."""

    turn: Turn
    node: str = ""


class TurnsDropped(EditLists, SessionEvent, frozen=True, kw_only=True, tag="dropped"):
    """The client no longer sends turns 1 ... `through`: it trims its own history. Views leave them out from now on.

    The log keeps the turns, so they can be recalled. edits: how results are shown whose repeated lines referred to the
    dropped turns. words: what the client sends in their place, such as a summary; they follow its head,
    and take the place of earlier ones. None leaves those where they are.
    """

    through: int
    words: Message | None = None
    edits: tuple[Edit, ...] = ()


class PassDecided(EditLists, SessionEvent, frozen=True, tag="decided"):
    """One pass: everything it hid, at once (I4), or nothing and why.

    offers: whether the recall tools enter with it; they are in every later request. held: whether the strategy was not
    asked, because the store failed. edits: at most one for each observation; a later one takes the place of an earlier.
    bound: whether the provider clears results itself and binds thinking to this request. What the request is the first
    to show folded stays so in every such request. overtaken: whether another process changed the prompt before this was
    stored: the request did not show that. It is held too.
    """

    call: int
    reason: str
    edits: tuple[Edit, ...] = ()
    summary: Summary | None = None
    offers: bool = False
    held: bool = False
    bound: bool = False
    overtaken: bool = False


class SummaryFailed(SessionEvent, frozen=True, kw_only=True, tag="attempted"):
    """A summary was requested and not used; it is billed all the same.

    cause:    one word (`elision.errors.SummaryError.cause`). reason: the sentence.
    input, cached, output: tokens of the failed call (cached is part of input). usd: its cost.
    retry_at: the next call that may ask.
    """

    call: int
    cause: str
    reason: str
    input: int = 0
    cached: int = 0
    output: int = 0
    retry_at: int = 0
    usd: float | None = None


#: When a client that sets no cache breakpoints gets some of ours. never: nor is one found where a rewrite ends.
Breakpoints: TypeAlias = Literal["gaps", "always", "never"]


class RequestSent(SessionEvent, frozen=True, kw_only=True, tag="called"):
    """A request went out.

    at: seconds since the epoch, None if unknown. model: "" if unknown. tokens: of its prompt.
    unmarked: whether its client sets no cache breakpoint. ours: when we set some then: "gaps" once something of ours
              stands in the request, "always", or "never".
    hour_turn: the newest turn for which it asks that cache entries live an hour; 0 for the head alone, None for
              nothing.
    blocked:  whether the recall tools must not enter it.
    """

    call: int
    at: float | None = None
    model: str = ""
    tokens: int
    unmarked: bool = False
    ours: Breakpoints = "gaps"
    hour_turn: int | None = None
    blocked: bool = False


class UsageReported(SessionEvent, frozen=True, kw_only=True, tag="answered"):
    """What the provider reported for call `call`."""

    call: int
    usage: Usage


class ObservationRecalled(SessionEvent, frozen=True, kw_only=True, tag="recalled"):
    """Something hidden was read again before call `call`.

    key:    the observation. tokens: of what was returned. by: "tool" (the agent asked) or "user".
    """

    call: int
    key: Key
    tokens: int
    by: str = write_always("tool")


class WindowLearned(SessionEvent, frozen=True, kw_only=True, tag="learned"):
    """The provider named the size of its window, in tokens, when it refused call `call`.

    tokens: of that call's prompt, as the provider counted them; 0 if it did not say.
    """

    call: int
    window: int
    tokens: int = 0


class RecallExchanged(SessionEvent, frozen=True, kw_only=True, tag="exchanged"):
    """Messages between us and the provider that the client never saw: a recall that was answered on its behalf.

    call:     the request that the last of them answers.
    node:     names the client's own history, which ends with the one message that it was shown instead.
    messages: JSON texts, in the dialect's own shape, that stand upstream in place of that message; the last one is what
              corresponds to it.
    results:  JSON texts of what joins the front of the client's next message.
    """

    call: int
    node: str
    messages: tuple[str, ...] = ()
    results: tuple[str, ...] = ()


Event: TypeAlias = (
    SessionOpened
    | HeadSet
    | TurnAdded
    | TurnAmended
    | HistoryReplaced
    | TurnsDropped
    | PassDecided
    | SummaryFailed
    | RequestSent
    | UsageReported
    | ObservationRecalled
    | WindowLearned
    | RecallExchanged
)
