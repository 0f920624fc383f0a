"""Notes about a head that changes within a session: all behind the change is written to the prompt cache again."""

from __future__ import annotations

from itertools import zip_longest
from typing import Final, Literal, TypeAlias

from elision.providers.detect import find_tools_provider
from elision.strategies.extractors.outcome import shorten_to_line
from elision.trajectory.prices import Prices
from elision.trajectory.tool_definitions import get_tool_name, list_tools
from elision.trajectory.turn import Head

#: What of a head has changed.
HeadChange: TypeAlias = Literal["text", "order", "tools"]
#: Characters of a tool's name that are shown.
_NAME: Final = 60


def find_head_change(before: Head, after: Head) -> HeadChange | None:
    """Return what of a head has changed; None where the request says the same."""
    # What is added behind the task leaves the prompt before it as it was.
    if after.messages[: len(before.messages)] != before.messages:
        return "text"
    # In the shape of another API they go to another provider, whose cache is another one.
    if before.tools == after.tools or find_tools_provider(before.tools) is not find_tools_provider(after.tools):
        return None
    known, new = (list(map(get_tool_name, list_tools(head))) for head in (before, after))
    return "order" if known != new and sorted(known) == sorted(new) else "tools"


def describe_head_change(change: HeadChange, before: Head, after: Head, tokens: int, prices: Prices) -> str:
    """Return the note of a change; "" where the model has no cache that it could break. tokens: of the prompt.

    It names a place or a tool, and never quotes a prompt, which may hold what no log should.
    """
    if not prices.has_cache or tokens < prices.cache.minimum:
        return ""
    if change == "text":
        where = _describe_text(before, after)
    else:
        pairs = zip_longest(list_tools(after), list_tools(before))
        first = next(tool or other for tool, other in pairs if tool != other)
        verb = "came in another order" if change == "order" else "changed"
        where = f"the tools {verb}, from {shorten_to_line(get_tool_name(first), _NAME)!r} on"
    rates = prices.find_rates(tokens)
    usd = tokens * (rates.write_price - rates.read_price) / 1e6
    return (
        f"{where}, so up to {tokens:,} tokens are written to the prompt cache again, for about ${usd:.4f} at each such "
        "change: keep dates and ids out of the beginning of the prompt, and keep the tools unchanged for "
        "the whole session"
    )


def _describe_text(before: Head, after: Head) -> str:
    """Return which message changed, and from which character on."""
    pairs = zip_longest(after.messages[: len(before.messages)], before.messages)
    message, known = next(pair for pair in pairs if pair[0] != pair[1])
    what = {"system": "the system prompt", "developer": "the developer's message"}.get(known.role, "the task")
    texts = [each.text if each is not None else "" for each in (message, known)]
    differing = (place for place, (one, other) in enumerate(zip(*texts, strict=False)) if one != other)
    place = next(differing, min(map(len, texts)))
    return f"{what} changed, from character {place + 1:,} on"
