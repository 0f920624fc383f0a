"""From a view to the request: the client's messages with gaps, breakpoints, and what bound thinking needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lacuna.dialects import breakpoints, native
from lacuna.dialects.bound_thinking import DROP_BETA, Way, dropping
from lacuna.dialects.capabilities import Capabilities
from lacuna.dialects.live.plain import plain
from lacuna.dialects.live.splice import own
from lacuna.engine import Session
from lacuna.manager.history import History
from lacuna.trajectory.plan import LivePrefix
from lacuna.trajectory.view import View


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """The request's parts. notes: what could not be done as decided, and why."""

    messages: list[Any]
    system: Any
    tools: Any
    extra: Mapping[str, Any] = field(default_factory=dict)
    betas: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What the client gave: messages, of which the first `end` are a history, and what stands apart from them."""

    messages: Sequence[Any]
    end: int
    system: Any = None
    tools: Any = None

    @property
    def tail(self) -> list[Any]:
        """Trailing messages of the assistant; they pass as they came."""
        return list(self.messages[self.end :])


def outgoing(
    given: Given, history: History, session: Session, view: View, way: Way, model: Capabilities, *, mark: bool
) -> Outgoing:
    """The request of `view`. way: how bound thinking is treated. mark: whether breakpoints are put."""
    if way == "native":
        return _native(given, session)
    entries = history.splice.entries(view)
    messages = [own(entry, given.messages) for entry in entries]
    sent = Outgoing(messages=messages + given.tail, system=given.system, tools=given.tools)
    if mark and history.dialect.in_blocks:
        sent = _marked(sent, history, view)
    return _dropping(sent, model) if way == "drop_block" and session.state.hidden else sent


def _marked(sent: Outgoing, history: History, view: View) -> Outgoing:
    """With cache breakpoints where the sticky prefix ends, as far as the client left any of the four."""
    request = {"messages": [plain(message) for message in sent.messages], "system": plain(sent.system)}
    request["tools"] = plain(sent.tools) if sent.tools else []
    # The end first: without it nothing of the newest is read at the next call; then the frontier, from the back.
    wanted = [place for mark in reversed(view.marks) if (place := history.splice.last_block(mark)) is not None]
    places = breakpoints.places(request, wanted)
    if not places:
        return sent
    marked = breakpoints.marked(request, places)["messages"]
    changed = {place.message for place in places}
    messages = [marked[at] if at in changed else message for at, message in enumerate(sent.messages)]
    return Outgoing(messages=messages, system=sent.system, tools=sent.tools)


def _dropping(sent: Outgoing, model: Capabilities) -> Outgoing:
    found = dropping({"messages": []}, model)
    if found is None:
        return sent
    return Outgoing(
        messages=sent.messages,
        system=sent.system,
        tools=sent.tools,
        extra={"thinking": found["thinking"]},
        betas=(DROP_BETA,),
    )


def _native(given: Given, session: Session) -> Outgoing:
    """The messages whole, and the server told to clear what our decisions hide: the longest run of the oldest."""
    hidden = session.state.hidden
    uses = [(turn.index, place) for turn in session.state.turns for place in range(1, len(turn.observations) + 1)]
    cleared = native.frontier(key in hidden or key[0] <= session.state.covered for key in uses)
    edit = native.edit(uses=len(uses), cleared=cleared)
    notes = ("the provider clears by itself: its placeholders have no gist and no handle",)
    if edit is None:
        return Outgoing(messages=list(given.messages), system=given.system, tools=given.tools)
    return Outgoing(
        messages=list(given.messages),
        system=given.system,
        tools=given.tools,
        extra={"context_management": {"edits": [edit]}},
        betas=(native.BETA,),
        notes=notes,
    )


def live_prefix(given: Given, history: History, view: View, model: str) -> LivePrefix:
    """The view as it would be sent if nothing more were hidden: what a summary request may extend."""
    messages = [plain(own(entry, given.messages)) for entry in history.splice.entries(view)]
    return LivePrefix(
        dialect=history.dialect.name,
        messages=tuple(messages),
        system=plain(given.system),
        tools=tuple(plain(given.tools) or ()),
        model=model,
    )
