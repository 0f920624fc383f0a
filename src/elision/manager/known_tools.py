"""Tools that were read before: the sessions of an agent have the same ones, so they are read once and shared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from elision.manager.recall_tools import list_tools
from elision.providers.live.client_messages import convert_to_json, copy_structure

#: Lists of tools that are kept.
MAX_KNOWN: Final = 32


@dataclass(frozen=True, slots=True)
class KnownTools:
    """Tools as a client gave them.

    given: its object, which it may change. copy: what that looked like. json: the tools as JSON, shared by sessions.
    """

    given: Any
    copy: Any
    json: tuple[Any, ...]


#: By the identity of the client's object, which is held here, so that no other one gets it.
_known: dict[int, KnownTools] = {}


def find_known_tools(tools: Any) -> KnownTools | None:
    """Return what is known of `tools`; None where they are new, or were changed."""
    found = _known.get(id(tools))
    if found is not None and found.given is tools and found.copy == tools:
        return found
    return None


def read_tools(tools: Any) -> KnownTools:
    """Return `tools` as JSON, read now if they are new."""
    found = find_known_tools(tools)
    if found is None:
        found = KnownTools(tools, copy_structure(tools), tuple(map(convert_to_json, list_tools(tools))))
        if len(_known) >= MAX_KNOWN:
            _known.clear()
        _known[id(tools)] = found
    return found
