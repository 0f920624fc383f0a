"""Find where cache breakpoints can still be set in an Anthropic request: four in all, the client's own counted.

Cache entries are written only at breakpoints. One belongs at the frontier of what is hidden: everything after it is
rewritten at the next decision. One belongs at the end. A breakpoint looks back 20 blocks for an entry, so a turn that
adds more blocks (parallel calls) loses the entry before it. Breakpoints that are left of the four go in between.

OpenAI's are in `shared/prompt_breakpoints.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, TypeAlias

from elision.providers.live.client_messages import ParsedMessage
from elision.providers.shared.json_reading import Json, list_in, list_objects, mapping_in, text_in

#: Cache breakpoints in one request; automatic caching (top-level `cache_control`) takes one of them.
MAX_BREAKPOINTS: Final = 4
THINKING_TYPES: Final = frozenset(("thinking", "redacted_thinking"))
#: Where a block is: "messages", "system" or "tools", then numbers.
BlockPath: TypeAlias = tuple[str | int, ...]
#: Content blocks that a breakpoint looks back for an entry (Anthropic, prompt caching guide).
LOOK_BACK: Final = 20


@dataclass(frozen=True, slots=True)
class Breakpoint:
    """A breakpoint that is set. path: its path. ttl: "5m" or "1h"."""

    path: BlockPath
    ttl: str

    @property
    def place(self) -> tuple[int, int]:
        """Return (message, block); (-1, -1), before all of them, for one on a tool or the system prompt."""
        numbers = (*(each for each in self.path[1:] if isinstance(each, int)), 0, 0)
        if self.path[0] == "messages":
            return (numbers[0], numbers[1])
        return (-1, -1)

    @property
    def is_on_message_block(self) -> bool:
        """Return whether it is on a block of a message, and not inside a result."""
        return self.path[0] == "messages" and len(self.path) < 4


def find_breakpoints(body: Json) -> list[Breakpoint]:
    """Return every breakpoint of a request, in the order in which the service reads them."""
    found = [*_find_marks(("tools",), body.get("tools")), *_find_marks(("system",), body.get("system"))]
    for number, message in enumerate(list_in(body.get("messages"))):
        content = message.get("content") if isinstance(message, dict) else None
        # This is read at every call, and most messages have no mark.
        if isinstance(content, list) and any(map(_may_be_marked, content)):
            found += _find_marks(("messages", number), content, includes_results=True)
    return found


def _may_be_marked(block: object) -> bool:
    return isinstance(block, dict) and ("cache_control" in block or isinstance(block.get("content"), list))


def _find_marks(path: BlockPath, content: object, *, includes_results: bool = False) -> Iterator[Breakpoint]:
    """Yield every marked block of a content. includes_results: whether to look inside its results too."""
    for at, block in enumerate(list_in(content)):
        if not isinstance(block, dict):
            continue
        if isinstance(control := block.get("cache_control"), dict):
            yield Breakpoint((*path, at), text_in(control.get("ttl")) or "5m")
        if includes_results and block.get("type") == "tool_result":
            yield from _find_marks((*path, at), block.get("content"))


def has_automatic_breakpoint(body: Json) -> bool:
    """Return whether automatic caching takes a breakpoint. It does not if the last block that can bear one has one."""
    if not isinstance(body.get("cache_control"), dict):
        return False
    messages = list_objects(body.get("messages"))
    if not messages:
        return True
    bearing = [
        block
        for _, block in list_objects(messages[-1][1].get("content"))
        if text_in(block.get("type")) not in THINKING_TYPES
    ]
    return not bearing or bearing[-1].get("cache_control") is None


@dataclass(frozen=True, slots=True, order=True)
class BreakpointPlace:
    """message, block: 0-based; a content that is one text is block 0 of its message.

    ttl: "5m" or "1h". A life that is longer than a later breakpoint's must come first.
    """

    message: int
    block: int
    ttl: str = "5m"

    @property
    def control(self) -> dict[str, str]:
        """Return the `cache_control` to set here."""
        if self.ttl == "1h":
            return {"type": "ephemeral", "ttl": "1h"}
        return {"type": "ephemeral"}


def choose_breakpoints(
    request: Mapping[str, Any], wanted: Iterable[tuple[int, int]], *, lives_an_hour: bool = False
) -> list[BreakpointPlace]:
    """Choose where to set breakpoints in `request`, most important first, the ones in between last.

    request: a body; a message of it that bears no mark may be a `ParsedMessage`, which is read where it is needed.
    wanted: (message, block) after which a prefix should be kept, most important first. A block that can bear no mark
        (thinking, blank text) is replaced by the nearest block before it, also in another message. A marked block needs
        nothing.
    lives_an_hour: whether all entries shall; else the client's own breakpoints decide.
    """
    messages = list_in(request.get("messages"))
    marks = find_breakpoints(request)
    free = MAX_BREAKPOINTS - len(marks) - has_automatic_breakpoint(request)
    ends = {mark.place for mark in marks if mark.is_on_message_block}
    taken: list[tuple[int, int]] = []
    for place in wanted:
        bearer = _find_bearer(messages, place)
        if bearer is not None and bearer not in ends and len(taken) < free:
            taken.append(bearer)
            ends.add(bearer)
    if has_automatic_breakpoint(request):
        ends |= {at for at, _ in islice(_walk_back(messages, _END), 1)}
    taken += _fill_gap(messages, sorted(ends), free - len(taken))
    return [BreakpointPlace(*at, ttl="1h" if lives_an_hour else _choose_ttl(request, marks, at)) for at in taken]


def add_breakpoints(request: Mapping[str, Any], places: Sequence[BreakpointPlace]) -> dict[str, Any]:
    """Return `request` with breakpoints at `places`. Every message that gets none is the same object."""
    messages = list(request.get("messages") or ())
    for place in places:
        message = _read_message(messages[place.message])
        content = message["content"]
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        else:
            content = list(content)
        content[place.block] = {**content[place.block], "cache_control": place.control}
        messages[place.message] = {**message, "content": content}
    return {**request, "messages": messages}


#: After every block.
_END: Final = (sys.maxsize, sys.maxsize)


def _walk_back(messages: Sequence[Any], place: tuple[int, int]) -> Iterator[tuple[tuple[int, int], bool]]:
    """Yield (place, whether it may bear a mark) of every block from `place` back to the beginning."""
    for number in range(min(place[0], len(messages) - 1), -1, -1):
        message = _read_message(messages[number])
        content = message.get("content")
        if isinstance(content, str):
            parts = [(0, {"type": "text", "text": content})]
        else:
            parts = list_objects(content)
        # A `system` message between turns is left as it is.
        whose = message.get("role") in ("user", "assistant")
        for at, part in reversed(parts):
            if (number, at) <= place:
                yield (number, at), whose and _can_bear_breakpoint(part)


def _read_message(message: object) -> Json:
    return message.json if isinstance(message, ParsedMessage) else mapping_in(message)


def _can_bear_breakpoint(part: Json) -> bool:
    kind = text_in(part.get("type"))
    return bool(kind) and kind not in THINKING_TYPES and (kind != "text" or bool(text_in(part.get("text")).strip()))


def _find_bearer(messages: Sequence[Any], place: tuple[int, int]) -> tuple[int, int] | None:
    """Return the nearest block from `place` back that can bear a mark."""
    for at, bears in _walk_back(messages, place):
        if bears:
            return at
    return None


def _fill_gap(messages: Sequence[Any], ends: Sequence[tuple[int, int]], free: int) -> list[tuple[int, int]]:
    """Return up to `free` blocks that shorten the last gap between two breakpoints to 20 blocks."""
    found: list[tuple[int, int]] = []
    if len(ends) < 2:
        return found
    steps = 0
    for at, bears in _walk_back(messages, ends[-1]):
        if at <= ends[-2] or len(found) >= free:
            break
        if steps >= LOOK_BACK and bears:
            found.append(at)
            steps = 0
        steps += 1
    return found


def _choose_ttl(request: Mapping[str, Any], marks: Sequence[Breakpoint], place: tuple[int, int]) -> str:
    """Return how long a breakpoint at `place` must live: as long as any after it."""
    is_before_long = any(mark.ttl == "1h" and mark.place >= place for mark in marks)
    automatic = mapping_in(request.get("cache_control")).get("ttl") == "1h" and has_automatic_breakpoint(request)
    if is_before_long or automatic:
        return "1h"
    return "5m"
