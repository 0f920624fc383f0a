"""What was hidden, read again: a part of it, and the tools by which an agent asks."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elision.errors import UnknownHandle
from elision.manager.context_options import RECALL_TOOL, SEARCH_TOOL
from elision.manager.line_search import find_matching_lines
from elision.stores.store import Hit
from elision.trajectory.assistant_text import join_assistant_text
from elision.trajectory.content import Content, Opaque, Text
from elision.trajectory.plan import Key
from elision.trajectory.plan import make_handle as handle_of
from elision.trajectory.turn import Turn

#: Characters that one recall hands out at most; about 4,000 tokens.
RECALL_CHARACTERS = 16_000
#: Lines around each match of a pattern.
CONTEXT_LINES = 2
_HANDLE_PATTERN = re.compile(r"(?:(?P<session>.+):)?t(?P<turn>[1-9]\d{0,8})(?:\.(?P<place>[1-9]\d{0,8}))?")
_LINES_PATTERN = re.compile(r"\s*(\d{1,9})?\s*-\s*(\d{1,9})?\s*|\s*(\d{1,9})\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPart:
    """Which part of an observation is wanted; all of it if nothing is said.

    lines: "40-80", "40-" or "7", 1-based and inclusive. pattern: a regular expression; lines that match it, and those
    around. head: the first so many lines.
    """

    lines: str = ""
    pattern: str = ""
    head: int | None = None


def parse_handle(handle: str) -> tuple[str, Key]:
    """(session, observation) that a handle names; t12, position 0, is all of turn 12. Raises UnknownHandle."""
    found = _HANDLE_PATTERN.fullmatch(handle.strip())
    if found is None:
        raise UnknownHandle(f"{handle[:60]!r} is no handle; they look like t12.1")
    return found["session"] or "", (int(found["turn"]), int(found["place"] or 0))


def render_turn(turn: Turn) -> str:
    """All of a turn: what the assistant thought, said and called, then each result under its handle."""
    results = (
        f"[{handle_of((turn.index, place))} {seen.tool}]\n{_render_content(seen.content)}"
        for place, seen in enumerate(turn.observations, start=1)
    )
    return "\n\n".join(filter(None, (join_assistant_text(turn), *results)))


def find_text(turn: Turn, key: Key) -> str | None:
    """What stands under `key` in `turn`, position 0 being all of it; None if there is no such result."""
    if not key[1]:
        return render_turn(turn)
    if key[1] <= len(turn.observations):
        return _render_content(turn.observations[key[1] - 1].content)
    return None


def _render_content(content: Content) -> str:
    """The text of `content`, with a line in place of each part that is no text."""
    return "\n".join(part.text if isinstance(part, Text) else describe_part(part) for part in content)


def describe_part(part: Opaque) -> str:
    """Return a line that says what `part` (a picture, a file) is, and how to see it again."""
    found = dict(_walk_strings(part.data or {}))
    media = found.get("media_type", "")
    size = len(found.get("data", "")) * 3 // 4
    place = ""
    for value in found.values():
        if value.startswith("data:"):
            head, _, body = value.partition(",")
            media = head.removeprefix("data:").partition(";")[0]
            size = len(body) * 3 // 4
        elif value.startswith(("http://", "https://")):
            place = value
    facts = (part.kind, media[:60], f"{size:,} bytes" if size else "", place[:300])
    return f"[{', '.join(filter(None, facts))}: no text can stand for it; make the call again to see it]"


def _walk_strings(value: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The texts in `value` and in its objects, each with the name of its field."""
    for name, inner in value.items():
        if isinstance(inner, str):
            yield name, inner
        elif isinstance(inner, Mapping):
            yield from _walk_strings(inner)


def format_handle(key: Key) -> str:
    """The handle of `key`."""
    if key[1]:
        return handle_of(key)
    return f"t{key[0]}"


def extract_part(text: str, part: TextPart, limit: int = RECALL_CHARACTERS) -> str:
    """`part` of `text`, with line numbers where it is not the whole, at most `limit` characters and a note.

    Raises UnknownHandle where what is asked for has no meaning.
    """
    lines = text.split("\n")
    wanted = _select_lines(lines, part)
    if wanted is None:
        return _truncate_middle(text, limit)
    if not wanted:
        return f"[no line matches; there are {len(lines)} lines]"
    shown = "\n".join(_number_lines(lines, wanted))
    return _truncate_middle(shown, limit)


def _select_lines(lines: list[str], part: TextPart) -> list[int] | None:
    """Line numbers (0-based, ascending); None for everything."""
    if part.pattern:
        return _match_lines(lines, part.pattern)
    if part.lines:
        first, last = _parse_span(part.lines, len(lines))
        return list(range(first - 1, min(last, len(lines))))
    if part.head is not None:
        return list(range(min(max(part.head, 0), len(lines))))
    return None


def _parse_span(text: str, count: int) -> tuple[int, int]:
    found = _LINES_PATTERN.fullmatch(text)
    if found is None or not text.strip(" -"):
        raise UnknownHandle(f"lines={text[:40]!r}: give lines like 40-80, 40- or 7")
    if found[3]:
        return max(1, int(found[3])), int(found[3])
    return max(1, int(found[1] or 1)), int(found[2] or count)


def _match_lines(lines: list[str], pattern: str) -> list[int]:
    hits = find_matching_lines(lines, pattern)
    around = {near for hit in hits for near in range(hit - CONTEXT_LINES, hit + CONTEXT_LINES + 1)}
    return sorted(near for near in around if 0 <= near < len(lines))


def _number_lines(lines: list[str], wanted: list[int]) -> list[str]:
    shown: list[str] = []
    before = wanted[0] - 1
    for number in wanted:
        if number != before + 1:
            shown.append("[...]")
        shown.append(f"{number + 1}: {lines[number]}")
        before = number
    return shown


def _truncate_middle(text: str, limit: int) -> str:
    """Head and tail of `text` where it is too long, and how to get the rest."""
    if len(text) <= limit:
        return text
    half = limit // 2
    note = f"\n[... {len(text) - limit} characters left out; ask for lines or a pattern ...]\n"
    return f"{text[:half]}{note}{text[-half:]}"


# -- tools ------------------------------------------------------------------------------------------------------------

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
#: The recall tools, in nobody's shape: what a session's log keeps of them.
RECALL_TOOL_DEFINITIONS: tuple[Mapping[str, Any], ...] = tuple(
    {"name": name, "description": said, "input_schema": dict(given)}
    for name, said, given in (
        (RECALL_TOOL, _RECALL_DESCRIPTION, _RECALL_INPUT),
        (SEARCH_TOOL, _SEARCH_DESCRIPTION, _SEARCH_INPUT),
    )
)


def define_recall_tools(dialect: str) -> list[dict[str, Any]]:
    """The recall tools in the shape of `dialect`; the same bytes every time."""
    return render_tools(RECALL_TOOL_DEFINITIONS, dialect)


def render_tools(tools: Sequence[Mapping[str, Any]], dialect: str) -> list[dict[str, Any]]:
    """`tools`, each with `name`, `description` and `input_schema`, in the shape of `dialect`."""
    if dialect == "anthropic":
        return [dict(tool) for tool in tools]
    inner = [
        {"name": tool["name"], "description": tool["description"], "parameters": tool["input_schema"]} for tool in tools
    ]
    if dialect == "openai-responses":
        return [{"type": "function", **each, "strict": False} for each in inner]
    return [{"type": "function", "function": each} for each in inner]


def parse_arguments(given: object) -> Mapping[str, Any]:
    """A call's arguments as an object; {} where they are none."""
    if isinstance(given, Mapping):
        return given
    if not isinstance(given, str | bytes | bytearray):
        return {}
    try:
        value = json.loads(given)
    except (ValueError, RecursionError):
        return {}
    if isinstance(value, dict):
        return value
    return {}


def read_text_argument(arguments: Mapping[str, Any], name: str) -> str:
    """The text that a call gives as `name`, also where it gives a number instead; "" for anything else."""
    value = arguments.get(name)
    # Python writes numbers of up to 4,300 digits.
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= sys.maxsize:
        return str(value)
    if isinstance(value, str):
        return value
    return ""


def parse_part(arguments: Mapping[str, Any]) -> TextPart:
    """The part that a call asks for; what has another type than it should is passed over."""
    pattern = arguments.get("pattern")
    head = arguments.get("head")
    return TextPart(
        lines=read_text_argument(arguments, "lines"),
        pattern=pattern if isinstance(pattern, str) else "",
        head=head if isinstance(head, int) and not isinstance(head, bool) else None,
    )


def format_hits(hits: list[Hit]) -> str:
    """What a search found, a line each."""
    if not hits:
        return "[nothing found; try fewer or other words]"
    return "\n".join(f"{hit.handle} {hit.tool or 'assistant'}: {hit.excerpt}" for hit in hits)
