"""The recall tools in a request, where we put them in: which, behind what, and when they must not enter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from lacuna.dialects import mapping_in
from lacuna.dialects.bound_thinking import newest_thought
from lacuna.dialects.live.plain import plain
from lacuna.engine import Session
from lacuna.manager import recall
from lacuna.manager.options import RECALL_TOOL, SEARCH_TOOL, Offer, Options
from lacuna.manager.sending import Outgoing

_OURS: Final = frozenset((RECALL_TOOL, SEARCH_TOOL))
#: What is said where the tools were to enter, and do not.
BOUND: Final = "recall is not offered: behind thinking that is bound to them, tools may not change"


def settled(options: Options, *, handles: bool, bound: bool) -> Offer:
    """Who puts the recall tools into the requests of a session that begins now.

    handles: whether placeholders are to name handles. bound: whether the model binds its thinking to its prefix.
    """
    if options.offer == "first" and (bound or not handles):
        return "never"
    return "never" if options.offer == "start" and not options.recall else options.offer


def withheld(session: Session, tools: Any, *, bound: bool) -> bool:
    """Whether the tools must not enter now: the client has its own, or thinking is bound to what stands there."""
    state = session.state
    if not state.recall or state.offered:
        return False
    return defines(tools) or (bound and newest_thought(state.turns) > 0)


def added(session: Session, dialect: str, tools: Any) -> list[dict[str, Any]]:
    """The recall tools that go behind the client's `tools`, in the shape of `dialect`; the same bytes every time."""
    state = session.state
    if not state.offered or session.shadow or defines(tools):
        return []
    return recall.shaped(state.recall, dialect)


def joined(sent: Outgoing, session: Session, dialect: str) -> Outgoing:
    """`sent` with the recall tools in it."""
    ours = added(session, dialect, sent.tools)
    return replace(sent, tools=[*(sent.tools or ()), *ours], added=tuple(ours)) if ours else sent


def defines(tools: Any) -> bool:
    """Whether the client itself defines a tool of our names: then its own counts."""
    return any(_name(tool) in _OURS for tool in plain(tools) or ())


def _name(tool: Any) -> object:
    told: Mapping[str, Any] = mapping_in(tool)
    return told.get("name") or mapping_in(told.get("function")).get("name")
