"""The recall tools in a request, where we put them in: which, behind what, and when they must not enter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from elision.dialects import mapping_in, text_in
from elision.dialects.bound_thinking import find_newest_thinking
from elision.dialects.live.client_messages import convert_to_json
from elision.engine import Session
from elision.manager import recall_definitions
from elision.manager.context_options import RECALL_TOOLS, SEARCH_TOOLS, Offer, Options
from elision.manager.outgoing_request import OutgoingRequest

_OUR_TOOL_NAMES: Final = RECALL_TOOLS | SEARCH_TOOLS
#: What is said where the tools enter, and where they were to and do not.
NOTE_TOOLS_ENTERED: Final = "the recall tools enter with this call and stay: all of it is new to the cache"
#: What is said where the first placeholder names a handle that no tool reads.
NOTE_UNREAD_HANDLES: Final = (
    "placeholders name handles, and no recall tool is among `tools`: add context.tool_definitions(), have us add them "
    'with offer="first", or say recall=False'
)
NOTE_BOUND_THINKING: Final = "recall is not offered: behind thinking that is bound to them, tools may not change"


def settle_offer(options: Options, *, handles: bool, bound: bool, begun: bool) -> Offer:
    """Who puts the recall tools into the requests of a session that begins now.

    handles: whether placeholders are to name handles. bound: whether the model binds its thinking to its prefix; begun:
    whether it has thought already, behind other tools.
    """
    no = {"first": bound or not handles, "start": begun or not options.recall}
    if no.get(options.offer):
        return "never"
    return options.offer


def must_withhold_tools(session: Session, tools: Any, *, bound: bool) -> bool:
    """Whether the tools must not enter now: the client has its own, or thinking is bound to what stands there."""
    state = session.state
    if not state.recall_tools or state.has_recall_tools:
        return False
    return defines_recall_tools(tools) or not _is_list(tools) or (bound and find_newest_thinking(state.turns) > 0)


def list_added_tools(session: Session, dialect: str, tools: Any) -> list[dict[str, Any]]:
    """The recall tools that go behind the client's `tools`, in the shape of `dialect`; the same bytes every time."""
    state = session.state
    if not state.has_recall_tools or session.shadow or not _is_list(tools) or defines_recall_tools(tools):
        return []
    return recall_definitions.render_tools(state.recall_tools, dialect)


def add_recall_tools(sent: OutgoingRequest, session: Session, dialect: str) -> OutgoingRequest:
    """`sent` with the recall tools in it."""
    ours = list_added_tools(session, dialect, sent.tools)
    if not ours:
        return sent
    entered = session.newest_call is not None and session.newest_call.decided.offers
    if entered:
        notes = (*sent.notes, NOTE_TOOLS_ENTERED)
    else:
        notes = sent.notes
    return replace(sent, tools=[*(sent.tools or ()), *ours], added_tools=tuple(ours), notes=notes)


def names_unread_handles(session: Session, tools: Any) -> bool:
    """Whether the newest pass wrote placeholders with handles, and no tool of the request reads them."""
    if (
        session.newest_call is None
        or not session.newest_call.decided.masks
        or not session.policy.placeholders.names_handle
    ):
        return False
    return not (session.shadow or defines_recall_tools(tools))


def is_offer_refused(session: Session, wanted: Offer, *, bound: bool) -> bool:
    """Whether the tools were to enter, and bound thinking is what keeps them out."""
    state = session.state
    if not bound or wanted not in ("first", "start") or state.has_recall_tools:
        return False
    # Asked last: it looks through every turn where none thinks.
    return state.recall_offer == "never" or (bool(state.recall_tools) and find_newest_thinking(state.turns) > 0)


def defines_recall_tools(tools: Any) -> bool:
    """Whether the client itself defines a tool of our names: then its own counts."""
    return any(_get_tool_name(tool) in _OUR_TOOL_NAMES for tool in list_tools(tools))


def list_tools(tools: Any) -> Sequence[Any]:
    """A client's tools; none where it sends what is no list of them, which its provider will refuse."""
    return _to_plain(tools) if _is_list(tools) and tools is not None else ()


def _is_list(tools: Any) -> bool:
    return tools is None or isinstance(_to_plain(tools), list | tuple)


def _to_plain(tools: Any) -> Any:
    if isinstance(tools, list | tuple):
        return tools
    return convert_to_json(tools)


def _get_tool_name(tool: Any) -> str:
    told = _to_mapping(tool)
    return text_in(told.get("name")) or text_in(_to_mapping(told.get("function")).get("name"))


def _to_mapping(value: Any) -> Mapping[str, Any]:
    # Nothing but names is asked for: what is JSON is not copied.
    if isinstance(value, dict):
        return value
    return mapping_in(convert_to_json(value))
