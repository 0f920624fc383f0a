"""Set OpenAI's own cache breakpoints: the field `prompt_cache_breakpoint` of a part of a message (models from 5.6 on).

A request writes the prefix up to its newest message by itself. It looks for earlier ones at its breakpoints, and at the
ends of its 20 newest messages (guide of 2026-09-23). So after a rewrite further in front, what is left is found only at
a breakpoint.
Breakpoints stand on text, images and files that the client sends, never on what the model said, and not on
`instructions`. Up to three are written beside the newest message. A text is the same prompt as a list of one text part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from elision.providers.shared.json_reading import Json, mapping_in, mappings_in, text_in

FIELD: Final = "prompt_cache_breakpoint"
BREAKPOINT: Final[Mapping[str, str]] = {"mode": "explicit"}

#: Responses: the items beside messages whose output may be a list of parts.
_OUTPUTS: Final = ("function_call_output", "custom_tool_call_output")
#: The parts that may bear a breakpoint, for each role or type of item.
_CHAT_PARTS: Final = ("text", "image_url", "input_audio", "file")
_RESPONSES_PARTS: Final = ("input_text", "input_image", "input_file")


def sets_own_breakpoints(messages: Iterable[Json], options: object) -> bool:
    """Return whether a client chooses the breakpoints itself. options: its `prompt_cache_options`."""
    if mapping_in(options).get("mode") == "explicit":
        return True
    contents = (message.get(name) for message in messages for name in ("content", "output"))
    return any(part.get(FIELD) for content in contents for part in mappings_in(content))


def add_breakpoint(message: Json, *, responses: bool) -> dict[str, Any] | None:
    """Return `message` with a breakpoint at its end; None where it can bear none.

    responses: whether it is an item of the Responses API.
    """
    field = "output" if responses and message.get("type") in _OUTPUTS else "content"
    if field == "content" and not _is_client_message(message, responses=responses):
        return None
    content = message.get(field)
    if isinstance(content, str):
        content = [{"type": "input_text" if responses else "text", "text": content}]
    parts = mappings_in(content)
    if not parts or content != parts or not _can_bear(parts[-1], _RESPONSES_PARTS if responses else _CHAT_PARTS):
        return None
    return {**message, field: [*parts[:-1], {**parts[-1], FIELD: dict(BREAKPOINT)}]}


def _is_client_message(message: Json, *, responses: bool) -> bool:
    if responses and text_in(message.get("type")) not in ("", "message"):
        return False
    return message.get("role") in ("system", "developer", "user", *(() if responses else ("tool",)))


def _can_bear(part: Json, kinds: Iterable[str]) -> bool:
    kind = text_in(part.get("type"))
    return kind in kinds and (not kind.endswith("text") or bool(text_in(part.get("text")).strip()))
