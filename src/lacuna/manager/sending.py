"""From a view to the request: the client's messages with gaps, breakpoints, and what bound thinking needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lacuna.dialects import Json, breakpoints, native
from lacuna.dialects.bound_thinking import DROP_BETA, Way, dropping
from lacuna.dialects.capabilities import Capabilities
from lacuna.dialects.live.plain import plain
from lacuna.dialects.live.splice import as_json, own
from lacuna.engine import Session
from lacuna.manager.history import History
from lacuna.manager.options import CacheControl
from lacuna.trajectory.plan import Key, LivePrefix
from lacuna.trajectory.view import View


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """The request's parts. notes: what could not be done as decided, and why. added: of the tools those of ours."""

    messages: list[Any]
    system: Any
    tools: Any
    extra: Mapping[str, Any] = field(default_factory=dict)
    betas: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    added: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What the client gave: messages, of which the first `end` are a history, and what stands apart from them.

    request: further fields of the request's body, for what they ask of the context (`thinking`, `context_management`,
    `cache_control`).
    """

    messages: Sequence[Any]
    end: int
    system: Any = None
    tools: Any = None
    request: Mapping[str, Any] = field(default_factory=dict)

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
    messages = own(entries, given.messages) + given.tail
    if mark and history.dialect.in_blocks:
        messages = _marked(messages, [as_json(entry, history.read) for entry in entries], given, history, view)
    sent = Outgoing(messages=messages, system=given.system, tools=given.tools)
    edited = bool(session.state.hidden or session.state.covered)
    return _dropping(sent, given, model) if way == "drop_block" and edited else sent


def marking(who: CacheControl, session: Session) -> bool:
    """Whether we put cache breakpoints into the request as it stands."""
    return who == "auto" or (who == "gaps" and session.edited)


def marked_by_client(given: Given) -> bool:
    """Whether the client says itself what is to be cached (Anthropic)."""
    request = {"messages": list(map(plain, given.messages)), "system": plain(given.system), "tools": plain(given.tools)}
    return bool(plain(given.request.get("cache_control")) or breakpoints.set_in(request))


def _marked(messages: list[Any], read: list[Json], given: Given, history: History, view: View) -> list[Any]:
    """With cache breakpoints where the sticky prefix ends, as far as the client left any of the four.

    read: the same messages as JSON, but for a beginning of the answer at their end.
    """
    request = {
        "messages": [*read, *map(plain, given.tail)],
        "system": plain(given.system),
        "tools": plain(given.tools) if given.tools else [],
        "cache_control": plain(given.request.get("cache_control")),
    }
    # The end first: without it nothing of the newest is read at the next call; then the frontier, from the back.
    wanted = [place for mark in reversed(view.marks) if (place := history.splice.last_block(mark)) is not None]
    places = breakpoints.places(request, wanted)
    marked = breakpoints.marked(request, places)["messages"]
    changed = {place.message for place in places}
    return [marked[at] if at in changed else message for at, message in enumerate(messages)]


def _dropping(sent: Outgoing, given: Given, model: Capabilities) -> Outgoing:
    """Asking for thinking that our edits made invalid to be dropped; the client's own settings of it stay."""
    found = dropping({"thinking": plain(given.request.get("thinking"))}, model)
    if found is None:
        return replace(sent, notes=("thinking is off: nothing is bound, and nothing needs to be dropped",))
    return replace(sent, extra={"thinking": found["thinking"]}, betas=(DROP_BETA,))


def _native(given: Given, session: Session) -> Outgoing:
    """The messages whole, and the server told to clear what our decisions hide: the longest run of the oldest."""
    sent = Outgoing(messages=list(given.messages), system=given.system, tools=given.tools)
    kept = set(session.policy.protected)
    uses = [key not in kept and _goes(session, key) for key in native.uses(session.state.turns)]
    cleared = native.frontier(uses)
    if held := uses[cleared:].count(True):
        told = f"{held} of {uses.count(True)} hidden results are sent all the same: what the provider clears is a run"
        sent = replace(sent, notes=(f"{told} of the oldest, and one that stays stands in front of them",))
    edit = native.edit(uses=len(uses), cleared=cleared)
    if edit is None:
        return sent
    found = native.managed({"context_management": plain(given.request.get("context_management"))}, edit)
    if found is None:
        return replace(sent, notes=("the client has the server clear tool uses itself: nothing is added",))
    notes = (*sent.notes, "the provider clears by itself: its placeholders have no gist and no handle")
    return replace(sent, extra={"context_management": found["context_management"]}, betas=(native.BETA,), notes=notes)


def _goes(session: Session, key: Key | None) -> bool | None:
    """Whether a tool use is decided to be hidden; None where its result is only too short for that."""
    if key is None:
        return False
    if key in session.state.hidden or key[0] <= session.state.covered:
        return True
    return None if key in session.policy.spared else False


def live_prefix(given: Given, history: History, view: View, model: str, *, mark: bool) -> LivePrefix:
    """The view as it would be sent if nothing more were hidden: what a summary request may extend.

    mark: whether breakpoints are put, so that it is read where the call before left it.
    """
    read: list[Json] = [as_json(entry, history.read) for entry in history.splice.entries(view)]
    if mark and history.dialect.in_blocks:
        read = _marked(list(read), read, replace(given, messages=(), end=0), history, view)
    return LivePrefix(
        dialect=history.dialect.name,
        messages=tuple(read),
        system=plain(given.system),
        tools=tuple(plain(given.tools) or ()),
        model=model,
    )
