"""Notes about a head that changes within a session: all behind the change is written to the prompt cache again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any, Final, Literal, TypeAlias

from elision.providers.detect import find_tools_provider
from elision.strategies.extractors.outcome import shorten_to_line
from elision.trajectory.prices import Prices
from elision.trajectory.turn import Head, Message

#: What of a head has changed.
HeadChange: TypeAlias = Literal["text", "order", "tools"]
#: Characters of a tool's name that are shown.
_NAME: Final = 60


def find_head_change(before: Head, after: Head) -> tuple[HeadChange, str] | None:
    """Return what of a head has changed, and where, in words; None where the request says the same.

    The words name a place or a tool, and never quote a prompt, which may hold what no log should.
    """
    # What is added behind the task leaves the prompt before it as it was.
    if after.messages[: len(before.messages)] != before.messages:
        return "text", _describe_text(before.messages, after.messages)
    # In the shape of another API they go to another provider, whose cache is another one.
    if before.tools == after.tools or find_tools_provider(before.tools) is not find_tools_provider(after.tools):
        return None
    known, new = ([_get_name(tool) for tool in head.tools] for head in (before, after))
    if known != new and sorted(known) == sorted(new):
        first = next(name for name, other in zip(new, known, strict=True) if name != other)
        return "order", f"the tools came in another order, from {shorten_to_line(first, _NAME)!r} on"
    for tool, other in zip_longest(after.tools, before.tools):
        if tool != other:
            name = shorten_to_line(_get_name(tool or other), _NAME)
            return "tools", f"the tools changed, from {name!r} on"
    return None


def describe_head_change(where: str, tokens: int, prices: Prices) -> str:
    """Return the note of a change. tokens: of the prompt. "" where the model has no cache that a change could break."""
    if not prices.has_cache or tokens < prices.cache.minimum:
        return ""
    rates = prices.find_rates(tokens)
    usd = tokens * (rates.write_price - rates.read_price) / 1e6
    return (
        f"{where}, so up to {tokens:,} tokens are written to the prompt cache again, for about ${usd:.4f} at each such "
        "change: keep dates and ids out of the beginning of the prompt, and the tools as they are for the whole session"
    )


def _describe_text(before: Sequence[Message], after: Sequence[Message]) -> str:
    for message, other in zip_longest(after[: len(before)], before):
        if message == other:
            continue
        text, known = (each.text if each is not None else "" for each in (message, other))
        place = next((at for at, pair in enumerate(zip(text, known, strict=False)) if pair[0] != pair[1]), None)
        place = min(len(text), len(known)) if place is None else place
        role = (message or other).role
        what = {"system": "the system prompt", "developer": "the developer's message"}.get(role, "the task")
        return f"{what} changed, from character {place + 1:,} on"
    return "the system prompt changed"


def _get_name(tool: Mapping[str, Any]) -> str:
    """Return the name of a tool's definition, in any API's shape; "" where it has none."""
    function = tool.get("function")
    name = function.get("name") if isinstance(function, Mapping) else tool.get("name")
    return name if isinstance(name, str) else ""
