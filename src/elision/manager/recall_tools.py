"""The recall tools in requests: when Elision adds them, where, and when it must not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from elision.engine import Log
from elision.manager import recall_definitions
from elision.manager.context_options import Offer, Options
from elision.manager.outgoing_request import OutgoingRequest
from elision.providers.anthropic.bound_thinking import find_newest_thinking
from elision.providers.live.client_messages import convert_to_json
from elision.providers.shared.json_reading import mapping_in, text_in
from elision.trajectory.recall_names import RECALL_TOOLS, SEARCH_TOOLS, reads_handles

_OUR_TOOL_NAMES: Final = RECALL_TOOLS | SEARCH_TOOLS
#: The note of the call with which the tools enter.
NOTE_TOOLS_ENTERED: Final = "the recall tools enter with this call and stay: all of it is new to the cache"
#: The note of the first placeholder that names a handle which no tool reads.
NOTE_UNREAD_HANDLES: Final = (
    "placeholders name handles, and no recall tool is among `tools`: add context.tool_definitions(), have us add them "
    'with offer="first", or say recall=False'
)
#: The note of a call in which the tools were to enter and cannot.
NOTE_BOUND_THINKING: Final = "recall is not offered: behind thinking that is bound to them, tools may not change"


def settle_offer(options: Options, *, handles: bool, bound: bool, begun: bool) -> Offer:
    """Return who adds the recall tools to the requests of a session that begins now.

    handles: whether placeholders name handles. bound: whether the model binds its thinking to the messages before it.
    begun:   whether the history has such thinking already, with other tools.
    """
    if options.offer == "first" and (bound or not handles):
        return "never"
    if options.offer == "start" and (begun or not options.recall):
        return "never"
    return options.offer


def must_withhold_tools(log: Log, tools: Any, *, bound: bool) -> bool:
    """Return whether the tools must not enter now: the client has its own, or thinking is bound to the present ones."""
    state = log.state
    if not state.recall_tools or state.has_recall_tools:
        return False
    if defines_recall_tools(tools) or not _is_list(tools):
        return True
    return bound and find_newest_thinking(state.turns) > 0


def list_added_tools(log: Log, dialect: str, tools: Any) -> list[dict[str, Any]]:
    """Return the recall tools that follow the client's `tools`, in the shape of `dialect`, always the same bytes."""
    state = log.state
    if not state.has_recall_tools or log.state.shadow:
        return []
    if not _is_list(tools) or defines_recall_tools(tools):
        return []
    return recall_definitions.render_tools(state.recall_tools, dialect)


def add_recall_tools(sent: OutgoingRequest, log: Log, dialect: str) -> OutgoingRequest:
    """Return `sent` with the recall tools, where they have entered."""
    ours = list_added_tools(log, dialect, sent.tools)
    if not ours:
        return sent
    notes = sent.notes
    if log.newest_call is not None and log.newest_call.decided.offers:
        notes = (*notes, NOTE_TOOLS_ENTERED)
    return replace(sent, tools=[*(sent.tools or ()), *ours], added_tools=tuple(ours), notes=notes)


def names_unread_handles(log: Log, tools: Any) -> bool:
    """Return whether the newest call wrote placeholders with handles, and no tool of the request reads them."""
    if log.newest_call is None or not log.newest_call.decided.masks:
        return False
    if not log.policy.candidates.placeholders.names_handle or log.state.shadow:
        return False
    return not any(reads_handles(_get_tool_name(tool)) for tool in list_tools(tools))


def is_offer_refused(log: Log, wanted: Offer, *, bound: bool) -> bool:
    """Return whether the tools were to enter, and bound thinking prevents it."""
    state = log.state
    if not bound or wanted not in ("first", "start") or state.has_recall_tools:
        return False
    if state.recall_offer == "never":
        return True
    # Last, since it reads every turn where none has thinking.
    return bool(state.recall_tools) and find_newest_thinking(state.turns) > 0


def defines_recall_tools(tools: Any) -> bool:
    """Return whether the client defines a tool of one of our names. Then its own is used."""
    return any(_get_tool_name(tool) in _OUR_TOOL_NAMES for tool in list_tools(tools))


def list_tools(tools: Any) -> Sequence[Any]:
    """Return a client's tools; none where it sends something else than a list, which its provider will refuse."""
    if tools is None or not _is_list(tools):
        return ()
    plain: Sequence[Any] = _to_plain(tools)
    return plain


def _is_list(tools: Any) -> bool:
    return tools is None or isinstance(_to_plain(tools), list | tuple)


def _to_plain(tools: Any) -> Any:
    if isinstance(tools, list | tuple):
        return tools
    return convert_to_json(tools)


def _get_tool_name(tool: Any) -> str:
    definition = _to_mapping(tool)
    return text_in(definition.get("name")) or text_in(_to_mapping(definition.get("function")).get("name"))


def _to_mapping(value: Any) -> Mapping[str, Any]:
    # Only names are read: JSON objects need no copy.
    if isinstance(value, dict):
        return value
    return mapping_in(convert_to_json(value))
