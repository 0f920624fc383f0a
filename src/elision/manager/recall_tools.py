"""The recall tools: their definitions, the arguments of a call, and when and where Elision adds them to a request."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

from elision.engine import Log
from elision.manager.context_options import Options
from elision.manager.observation_text import TextPart
from elision.manager.outgoing_request import OutgoingRequest
from elision.providers.anthropic.bound_thinking import find_newest_thinking
from elision.providers.live.client_messages import convert_to_json
from elision.providers.provider_table import find_provider
from elision.providers.shared.json_reading import mapping_in, text_in
from elision.stores.store import Hit
from elision.trajectory.foreign_text import parse_object
from elision.trajectory.tool_definitions import (
    NESTED_TOOL_FIELDS,
    RECALL_TOOL,
    RECALL_TOOLS,
    SEARCH_TOOL,
    reads_handles,
)

_RECALL_DESCRIPTION = (
    "Read again what was hidden from this conversation to save room. A placeholder names its handle, such as t12.1. "
    "Ask for the lines or the pattern you need rather than for everything."
)
_SEARCH_DESCRIPTION = (
    "Search everything that was seen in this conversation, hidden or not, for words; returns handles and excerpts."
)
_RECALL_INPUT: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "handle": {
            "type": "string",
            "description": "The handle that a placeholder names, such as t12.1; t12 is the whole turn",
        },
        "lines": {"type": "string", "description": "Lines to show, such as 40-80"},
        "pattern": {"type": "string", "description": "Regular expression: show matching lines and those around them"},
        "head": {"type": "integer", "description": "Show the first so many lines"},
    },
    "required": ["handle"],
}
_SEARCH_INPUT: Mapping[str, Any] = {
    "type": "object",
    "properties": {"query": {"type": "string", "description": "Words that must all occur"}},
    "required": ["query"],
}
#: The recall tools in no provider's shape, as a session's log keeps them.
RECALL_TOOL_DEFINITIONS: tuple[Mapping[str, Any], ...] = (
    {"name": RECALL_TOOL, "description": _RECALL_DESCRIPTION, "input_schema": _RECALL_INPUT},
    {"name": SEARCH_TOOL, "description": _SEARCH_DESCRIPTION, "input_schema": _SEARCH_INPUT},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallTool:
    """One of the recall tools, for an agent framework that has tools of its own kind.

    name, description: as the model sees them. schema: the arguments, as a JSON Schema.
    call: answers a call, of its arguments as JSON or as a mapping, and never raises. call_async: does the same without
        blocking the event loop.
    """

    name: str
    description: str
    schema: dict[str, Any]
    call: Callable[[str | Mapping[str, Any]], str]
    call_async: Callable[[str | Mapping[str, Any]], Awaitable[str]]


def define_recall_tools(dialect: str) -> list[dict[str, Any]]:
    """Return the recall tools in the shape of `dialect`, the same bytes every time."""
    return render_tools(RECALL_TOOL_DEFINITIONS, dialect)


def render_tools(tools: Sequence[Mapping[str, Any]], dialect: str) -> list[dict[str, Any]]:
    """Return `tools`, each with `name`, `description` and `input_schema`, in the shape of `dialect`."""
    provider = find_provider(dialect)
    return [provider.render_tool(tool) for tool in tools]


def parse_arguments(arguments: object) -> Mapping[str, Any]:
    """Return a call's arguments as an object; {} where they are none."""
    if isinstance(arguments, Mapping):
        return arguments
    if not isinstance(arguments, str | bytes | bytearray):
        return {}
    return parse_object(arguments) or {}


def read_text_argument(arguments: Mapping[str, Any], name: str) -> str:
    """Return argument `name` as text, also where it is a whole number; "" for anything else."""
    value = arguments.get(name)
    # Python writes numbers of up to 4,300 digits.
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= sys.maxsize:
        return str(value)
    if isinstance(value, str):
        return value
    return ""


def parse_part(arguments: Mapping[str, Any]) -> TextPart:
    """Return the part that a call asks for. Arguments of a wrong type are ignored."""
    pattern = arguments.get("pattern")
    head = arguments.get("head")
    return TextPart(
        lines=read_text_argument(arguments, "lines"),
        pattern=pattern if isinstance(pattern, str) else "",
        head=head if isinstance(head, int) and not isinstance(head, bool) else None,
    )


def format_hits(hits: list[Hit]) -> str:
    """Return the hits of a search as text, one line each."""
    if not hits:
        return "[nothing found; try fewer or other words]"
    return "\n".join(f"{hit.handle} {hit.tool or 'assistant'}: {hit.excerpt}" for hit in hits)


#: The note of the call with which the tools enter.
NOTE_TOOLS_ENTERED: Final = "the recall tools enter with this call and stay: all of it is new to the cache"
#: The note of the first placeholder of a session in which no request has a recall tool.
NOTE_NO_RECALL: Final = (
    "the model cannot read hidden results again, so placeholders name no handle: give prepare() the request's tools= "
    'and send **view.request, or offer context.tool_definitions() yourself; recall="never" if you want no recall'
)
#: The note of the first placeholder that names a handle which no tool of the request reads.
NOTE_UNREAD_HANDLES: Final = (
    "placeholders name handles, and this request has no recall tool: give prepare() the request's tools= and send "
    "**view.request, or add context.tool_definitions() to your tools"
)
#: The note of a call in which the tools were to enter and cannot.
NOTE_BOUND_THINKING: Final = "recall is not offered: tools may not change after thinking that is bound to them"


#: When the recall tools enter a session's requests: the "caller" has them, with the "first" placeholder that names a
#: handle, from the "start", "never".
RecallEntry: TypeAlias = Literal["caller", "first", "start", "never"]


@dataclass(slots=True)
class SentParts:
    """Which parts of a session's views the caller has read: what it does not read it cannot send.

    has_messages: `view.messages` of some view. has_tools: `view.request`, `view.tools` or what else holds the tools.
    """

    has_messages: bool = False
    has_tools: bool = False

    def may_have_tools(self, before: bool) -> bool:
        """Return whether the caller sends the tools of views. before: what was taken for true, where nothing is known.

        That is so in the first call of a process.
        """
        return self.has_tools or (before and not self.has_messages)


def choose_entry(options: Options, tools: Any, *, bound: bool, begun: bool, is_native: bool) -> RecallEntry:
    """Return when the recall tools enter the requests of a session that begins now.

    tools: of its first request. bound: whether the model binds its thinking to the messages and tools before it. begun:
    whether the history has such thinking already, with other tools. is_native: whether the provider clears results,
    whose placeholders name nothing.
    """
    if options.recall == "caller":
        return "caller"
    strategy = options.effective_strategy
    if options.recall == "never" or not strategy.handles or begun or (bound and is_native):
        return "never"
    # A client without tools gets no results that could be hidden, and its requests stay as they are.
    if bound and isinstance(_to_plain(tools), list | tuple) and not list_tools(tools):
        return "never"
    # Tools may not enter behind bound thinking.
    return "start" if bound else "first"


def is_recall_served(entry: str, tools: Any, sent: SentParts, before: bool = True) -> bool:
    """Return whether the model of a request can recall: the request has the tools, or gets them from us.

    tools: as the caller gave them; None where it did not, so that it sends tools of its own, or none. sent: what the
    caller sends of views. before: whether placeholders name handles so far.
    """
    if entry == "never":
        return False
    if any(map(reads_handles, _list_names(tools))):
        return True
    if entry == "caller":
        return _may_have_unseen_tools(tools)
    return tools is not None and _is_list(tools) and sent.may_have_tools(before)


def must_withhold_tools(log: Log, tools: Any, sent: SentParts, *, bound: bool) -> bool:
    """Return whether tools that may enter must not do so now: they would not be sent, the client has its own, or
    thinking is bound to the present ones."""
    if defines_recall_tools(tools) or not is_recall_served("first", tools, sent, log.strategy.handles):
        return True
    return bound and find_newest_thinking(log.state.turns) > 0


def list_added_tools(log: Log, dialect: str, tools: Any) -> list[dict[str, Any]]:
    """Return the recall tools that follow the client's `tools`, in the shape of `dialect`, always the same bytes."""
    state = log.state
    if not state.has_recall_tools or log.state.shadow:
        return []
    if tools is None or not _is_list(tools) or defines_recall_tools(tools):
        return []
    return render_tools(state.recall_tools, dialect)


def add_recall_tools(sent: OutgoingRequest, log: Log, dialect: str) -> OutgoingRequest:
    """Return `sent` with the recall tools, where they have entered."""
    ours = list_added_tools(log, dialect, sent.tools)
    if not ours:
        return sent
    notes = sent.notes
    if log.newest_call is not None and log.newest_call.decided.offers:
        notes = (*notes, NOTE_TOOLS_ENTERED)
    return replace(sent, tools=[*(sent.tools or ()), *ours], added_tools=(*sent.added_tools, *ours), notes=notes)


def describe_lost_recall(log: Log, options: Options, tools: Any) -> str:
    """Return the note of a call that wrote placeholders which the model cannot open; "" for any other.

    tools: of the request that is sent.
    """
    if log.newest_call is None or not log.newest_call.decided.masks or log.state.shadow:
        return ""
    placeholders = log.policy.candidates.placeholders
    if not options.effective_strategy.handles or not replace(placeholders, handles=True).names_handle:
        return ""
    if not placeholders.handles:
        return "" if log.state.recall_offer == "never" else NOTE_NO_RECALL
    if log.state.recall_offer == "caller" and _may_have_unseen_tools(tools):
        return ""
    return "" if any(map(reads_handles, _list_names(tools))) else NOTE_UNREAD_HANDLES


def is_entry_refused(log: Log, options: Options) -> bool:
    """Return whether the tools were to enter a request whose thinking is bound, and that prevents it."""
    state = log.state
    if options.recall != "auto" or state.has_recall_tools:
        return False
    if state.recall_offer == "never":
        return True
    # Last, since it reads every turn where none has thinking.
    return bool(state.recall_tools) and find_newest_thinking(state.turns) > 0


def defines_recall_tools(tools: Any) -> bool:
    """Return whether the client defines a tool of one of our names. Then its own is used."""
    return any(name in RECALL_TOOLS for name in _list_names(tools))


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


def _may_have_unseen_tools(tools: Any) -> bool:
    """Return whether the model may have tools that `tools` does not name: none are given, or some are loaded later.

    Claude Code defers the tools of its servers: a message tells the model their names, and the request has a tool that
    searches for them, and a placeholder with `defer_loading`.
    """
    return tools is None or any(_to_mapping(tool).get("defer_loading") is True for tool in list_tools(tools))


def _list_names(tools: Any) -> Iterator[str]:
    """Yield the names of a client's tools.

    A tool of Gemini's declares several functions, and a namespace of OpenAI's has tools: Codex's has those of a server.
    """
    for tool in list_tools(tools):
        definition = _to_mapping(tool)
        name = definition.get("name")
        if not name or not isinstance(name, str):
            name = text_in(_to_mapping(definition.get("function")).get("name"))
        yield name
        for field in NESTED_TOOL_FIELDS:
            nested = definition.get(field)
            if isinstance(nested, list):
                yield from (text_in(_to_mapping(each).get("name")) for each in nested)


def _to_mapping(value: Any) -> Mapping[str, Any]:
    # Only names are read: JSON objects need no copy.
    if isinstance(value, dict):
        return value
    return mapping_in(convert_to_json(value))
