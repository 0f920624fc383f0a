"""From a view to the request: the client's messages with gaps, breakpoints, and what bound thinking needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from elision.dialects import Json, breakpoints, server_clearing
from elision.dialects.bound_thinking import DROP_BETA, ThinkingPolicy, ask_to_drop_thinking
from elision.dialects.capabilities import Capabilities
from elision.dialects.live.client_messages import convert_to_json
from elision.dialects.live.live_renderer import get_entry_json, resolve_entries
from elision.engine import Session
from elision.manager.context_options import CacheControl
from elision.manager.history import History
from elision.trajectory.plan import Key, LivePrefix
from elision.trajectory.view import View

#: The first and the newest messages of a request, in which a client that sets cache breakpoints has one: the newest
#: are twice as many as the blocks that a breakpoint looks back.
FIRST_MESSAGES: Final = 3
NEWEST_MESSAGES: Final = 2 * breakpoints.LOOK_BACK


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingRequest:
    """The request's parts. notes: what could not be done as decided, and why. added: of the tools those of ours."""

    messages: list[Any]
    system: Any
    tools: Any
    extra: Mapping[str, Any] = field(default_factory=dict)
    betas: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    added_tools: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingRequest:
    """What the client gave: messages, of which the first `end` are a history, and what stands apart from them.

    request: further fields of the request's body, for what they ask of the context (`thinking`, `context_management`,
    `cache_control`).
    """

    messages: Sequence[Any]
    end: int
    system: Any = None
    tools: Any = None
    body_fields: Mapping[str, Any] = field(default_factory=dict)

    @property
    def tail(self) -> list[Any]:
        """Trailing messages of the assistant; they pass as they came."""
        return list(self.messages[self.end :])


def build_request(
    given: IncomingRequest,
    history: History,
    session: Session,
    view: View,
    way: ThinkingPolicy,
    model: Capabilities,
    *,
    mark: bool,
) -> OutgoingRequest:
    """The request of `view`. way: how bound thinking is treated. mark: whether breakpoints are put."""
    if way == "native":
        return _build_native_request(given, session)
    entries = history.splice.render_entries(view)
    messages = resolve_entries(entries, given.messages) + given.tail
    if mark and history.dialect.has_blocks:
        messages = _add_breakpoints(
            messages, [get_entry_json(entry, history.messages) for entry in entries], given, history, view
        )
    sent = OutgoingRequest(messages=messages, system=given.system, tools=given.tools)
    edited = bool(session.state.hidden or session.state.covered_turns)
    if way == "drop_block" and edited:
        return _request_thinking_drop(sent, given, model)
    return sent


def needs_breakpoints(who: CacheControl, session: Session) -> bool:
    """Whether we put cache breakpoints into the request as it stands."""
    return who == "auto" or (who == "gaps" and session.is_edited)


@dataclass(frozen=True, slots=True)
class ClientBreakpoints:
    """The cache breakpoints that a client sets itself (Anthropic).

    any: whether it sets one. hour: how many leading messages have entries that live an hour; 0 where only system prompt
    and tools do, None where nothing does.
    """

    has_any: bool
    hour_messages: int | None


def find_client_breakpoints(given: IncomingRequest) -> ClientBreakpoints:
    """Return what the client says of the cache.

    Breakpoints stand at the front of a request and move along with its end, so only the first and the newest messages
    are read.
    """
    messages = given.messages
    first = max(FIRST_MESSAGES, len(messages) - NEWEST_MESSAGES)
    front = {
        "messages": list(map(convert_to_json, messages[:FIRST_MESSAGES])),
        "system": convert_to_json(given.system),
        "tools": convert_to_json(given.tools),
    }
    marks = [(mark.place[0], mark.ttl) for mark in breakpoints.list_breakpoints(front)]
    newest = breakpoints.list_breakpoints({"messages": list(map(convert_to_json, messages[first:]))})
    marks += [(first + mark.place[0], mark.ttl) for mark in newest]
    automatic = convert_to_json(given.body_fields.get("cache_control"))
    if isinstance(automatic, Mapping):
        marks.append((len(messages) - 1, str(automatic.get("ttl"))))
    hours = [place + 1 for place, life in marks if life == "1h"]
    return ClientBreakpoints(has_any=bool(automatic or marks), hour_messages=max(hours, default=None))


def _add_breakpoints(
    messages: list[Any], read: list[Json], given: IncomingRequest, history: History, view: View
) -> list[Any]:
    """With cache breakpoints where the sticky prefix ends, as far as the client left any of the four.

    read: the same messages as JSON, but for a beginning of the answer at their end.
    """
    request = {
        "messages": [*read, *map(convert_to_json, given.tail)],
        "system": convert_to_json(given.system),
        "tools": convert_to_json(given.tools) if given.tools else [],
        "cache_control": convert_to_json(given.body_fields.get("cache_control")),
    }
    # The end first: without it nothing of the newest is read at the next call; then the frontier, from the back.
    wanted = [place for mark in reversed(view.marks) if (place := history.splice.find_last_block(mark)) is not None]
    places = breakpoints.choose_breakpoints(request, wanted)
    marked = breakpoints.add_breakpoints(request, places)["messages"]
    changed = {place.message for place in places}
    return [marked[at] if at in changed else message for at, message in enumerate(messages)]


def _request_thinking_drop(sent: OutgoingRequest, given: IncomingRequest, model: Capabilities) -> OutgoingRequest:
    """Asking for thinking that our edits made invalid to be dropped; the client's own settings of it stay."""
    found = ask_to_drop_thinking({"thinking": convert_to_json(given.body_fields.get("thinking"))}, model)
    if found is None:
        return replace(sent, notes=("thinking is off: nothing is bound, and nothing needs to be dropped",))
    return replace(sent, extra={"thinking": found["thinking"]}, betas=(DROP_BETA,))


def _build_native_request(given: IncomingRequest, session: Session) -> OutgoingRequest:
    """The messages whole, and the server told to clear what our decisions hide: the longest run of the oldest."""
    sent = OutgoingRequest(messages=list(given.messages), system=given.system, tools=given.tools)
    kept = set(session.policy.protected)
    uses = [
        key not in kept and _is_cleared(session, key) for key in server_clearing.list_tool_uses(session.state.turns)
    ]
    cleared = server_clearing.count_uses_to_clear(uses)
    if held := uses[cleared:].count(True):
        told = f"{held} of {uses.count(True)} hidden results are sent all the same: what the provider clears is a run"
        sent = replace(sent, notes=(f"{told} of the oldest, and one that stays stands in front of them",))
    edit = server_clearing.build_clearing_edit(uses=len(uses), cleared=cleared)
    if edit is None:
        return sent
    found = server_clearing.add_clearing_edit(
        {"context_management": convert_to_json(given.body_fields.get("context_management"))}, edit
    )
    if found is None:
        return replace(sent, notes=("the client has the server clear tool uses itself: nothing is added",))
    notes = (*sent.notes, "the provider clears by itself: its placeholders have no gist and no handle")
    return replace(
        sent,
        extra={"context_management": found["context_management"]},
        betas=(server_clearing.CLEARING_BETA,),
        notes=notes,
    )


def _is_cleared(session: Session, key: Key | None) -> bool | None:
    """Whether a tool use is decided to be hidden; None where its result is only too short for that."""
    if key is None:
        return False
    if key in session.state.hidden or key[0] <= session.state.covered_turns:
        return True
    if key in session.policy.not_shortened:
        return None
    return False


def build_live_prefix(given: IncomingRequest, history: History, view: View, model: str, *, mark: bool) -> LivePrefix:
    """The view as it would be sent if nothing more were hidden: what a summary request may extend.

    mark: whether breakpoints are put, so that it is read where the call before left it.
    """
    read: list[Json] = [get_entry_json(entry, history.messages) for entry in history.splice.render_entries(view)]
    if mark and history.dialect.has_blocks:
        read = _add_breakpoints(list(read), read, replace(given, messages=(), end=0), history, view)
    return LivePrefix(
        dialect=history.dialect.name,
        messages=tuple(read),
        system=convert_to_json(given.system),
        tools=tuple(convert_to_json(given.tools) or ()),
        model=model,
    )
