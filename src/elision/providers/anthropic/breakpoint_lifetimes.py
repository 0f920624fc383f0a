"""Change how long the cache entries of a client's own breakpoints live.

Longer lives have to come before shorter ones in a request (docs/reference/provider-facts.md), so one place divides it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from elision.providers.shared.json_reading import Json


def make_control(*, lives_an_hour: bool) -> dict[str, str]:
    """Return the `cache_control` of a breakpoint."""
    if lives_an_hour:
        return {"type": "ephemeral", "ttl": "1h"}
    return {"type": "ephemeral"}


def change_lifetimes(content: object, lives_an_hour: Callable[[int], bool]) -> Any:
    """Return a content with the lifetimes of its breakpoints changed; the same object where none changes.

    lives_an_hour: of a breakpoint on block N, or inside it, 0-based.
    """
    if not isinstance(content, list):
        return content
    changed = [_change_block(block, lives_an_hour=lives_an_hour(place)) for place, block in enumerate(content)]
    if all(new is old for new, old in zip(changed, content, strict=True)):
        return content
    return changed


def change_message(message: Json, lives_an_hour: Callable[[int], bool]) -> Json:
    """Return a message with the lifetimes of its breakpoints changed; the same object where none changes."""
    content = message.get("content")
    changed = change_lifetimes(content, lives_an_hour)
    if changed is content:
        return message
    return {**message, "content": changed}


def _change_block(block: object, *, lives_an_hour: bool) -> object:
    if not isinstance(block, Mapping):
        return block
    found: dict[str, Any] = {}
    control = block.get("cache_control")
    if isinstance(control, Mapping) and (control.get("ttl") == "1h") != lives_an_hour:
        kept = {name: value for name, value in control.items() if name != "ttl"}
        found["cache_control"] = kept | make_control(lives_an_hour=lives_an_hour)
    inner = block.get("content")
    if block.get("type") == "tool_result" and isinstance(inner, list):
        changed = [_change_block(each, lives_an_hour=lives_an_hour) for each in inner]
        if any(new is not old for new, old in zip(changed, inner, strict=True)):
            found["content"] = changed
    return {**block, **found} if found else block
