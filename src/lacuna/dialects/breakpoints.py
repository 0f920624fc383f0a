"""Where cache breakpoints can still be put in an Anthropic request: four in all, the client's own counted.

Only breakpoints make cache entries there, so one of ours belongs at the frontier of what is hidden, behind which
everything is rewritten at the next decision, and one at the end. A breakpoint looks back 20 blocks for an entry: a turn
that adds more (parallel calls) loses touch with the entry before it, so what is left of the four goes in between.

OpenAI's models need none of this: a prefix is found there wherever an earlier request ended (docs/providers.md).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lacuna.dialects import mapping_in, text_in
from lacuna.dialects.rules.anthropic import BREAKPOINTS, THINKING, breakpoints, takes_one
from lacuna.dialects.rules.violation import listed

#: Content blocks that a breakpoint looks back for an entry (Anthropic, prompt caching guide).
LOOK_BACK: Final = 20


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """message, block: 0-based; a content that is one text is block 0 of its message.

    ttl: "1h" where a breakpoint behind it lives an hour, since longer lives must come first; else "5m".
    """

    message: int
    block: int
    ttl: str = "5m"

    @property
    def control(self) -> dict[str, str]:
        """The `cache_control` to be set there."""
        return {"type": "ephemeral"} if self.ttl == "5m" else {"type": "ephemeral", "ttl": self.ttl}


def places(request: Mapping[str, Any], wanted: Iterable[tuple[int, int]]) -> list[Place]:
    """Where breakpoints can be set in `request`, most important first, the ones in between last.

    wanted: (message, block) behind which a prefix should be kept, most important first. A block that can bear no mark
            (thinking, blank text) gives way to the nearest before it, be it in another message; one that is marked
            already needs nothing.
    """
    blocks = _blocks(request)
    free = BREAKPOINTS - len(breakpoints(request)) - takes_one(request)
    marked = {number for number, block in enumerate(blocks) if block.marked}
    taken: list[int] = []
    for place in wanted:
        number = _bearer(blocks, place)
        if number is not None and number not in marked and len(taken) < free:
            taken.append(number)
            marked.add(number)
    ends = sorted(marked | ({len(blocks) - 1} if takes_one(request) and blocks else set()))
    taken += _between(blocks, ends, free - len(taken))
    lives = _lives(request, blocks)
    return [Place(*blocks[number].place, ttl=lives[number]) for number in taken]


def marked(request: Mapping[str, Any], at: Sequence[Place]) -> dict[str, Any]:
    """`request` with breakpoints at `at`; every message that has none is the very same object."""
    messages = list(request.get("messages") or ())
    for place in at:
        message = messages[place.message]
        content = message["content"]
        content = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
        content[place.block] = {**content[place.block], "cache_control": place.control}
        messages[place.message] = {**message, "content": content}
    return {**request, "messages": messages}


@dataclass(frozen=True, slots=True)
class _Block:
    """bears: whether it may bear a mark. marked: whether it has one. hour: whether it, or something in it, lives 1
    h."""

    place: tuple[int, int]
    bears: bool
    marked: bool
    hour: bool


def _blocks(request: Mapping[str, Any]) -> list[_Block]:
    found = []
    for number, message in listed(request.get("messages")):
        content = message.get("content")
        parts = [(0, {"type": "text", "text": content})] if isinstance(content, str) else listed(content)
        # A `system` message between turns is left as it is.
        whose = message.get("role") in ("user", "assistant")
        found += [_block((number, place), part, bears=whose and _bears(part)) for place, part in parts]
    return found


def _block(place: tuple[int, int], part: Mapping[str, Any], *, bears: bool) -> _Block:
    controls = [mapping_in(each.get("cache_control")) for each in (part, *(inner for _, inner in _inside(part)))]
    hour = any(control.get("ttl") == "1h" for control in controls)
    return _Block(place, bears, bool(controls[0]), hour)


def _inside(part: Mapping[str, Any]) -> list[tuple[int, dict[str, Any]]]:
    return listed(part.get("content")) if part.get("type") == "tool_result" else []


def _bears(part: Mapping[str, Any]) -> bool:
    kind = text_in(part.get("type"))
    return bool(kind) and kind not in THINKING and (kind != "text" or bool(text_in(part.get("text")).strip()))


def _bearer(blocks: Sequence[_Block], place: tuple[int, int]) -> int | None:
    """The last block at or before `place` that may bear a mark; None if there is none."""
    number = bisect_left(blocks, place, key=lambda block: block.place)
    if number == len(blocks) or blocks[number].place != place:
        number -= 1
    while number >= 0 and not blocks[number].bears:
        number -= 1
    return number if number >= 0 else None


def _between(blocks: Sequence[_Block], ends: Sequence[int], free: int) -> list[int]:
    """Up to `free` blocks that shorten the last stretch between two breakpoints to what one looks back."""
    found: list[int] = []
    if len(ends) < 2:
        return found
    first, last = ends[-2:]
    while len(found) < free and last - first > LOOK_BACK:
        number = last - LOOK_BACK
        while number > first and not blocks[number].bears:
            number -= 1
        if number <= first:
            break
        found.append(number)
        last = number
    return found


def _lives(request: Mapping[str, Any], blocks: Sequence[_Block]) -> list[str]:
    """For each block, how long a breakpoint on it must live."""
    hour = mapping_in(request.get("cache_control")).get("ttl") == "1h"
    lives = []
    for block in reversed(blocks):
        hour = hour or block.hour
        lives.append("1h" if hour else "5m")
    return lives[::-1]
