"""The text of observations and turns, read again by their handle: all of it, or a part."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from elision.errors import UnknownHandle
from elision.trajectory.plan import Key, make_handle
from elision.trajectory.trajectory import join_assistant_text
from elision.trajectory.turn import Content, Opaque, Text, Turn

#: Largest answer of one recall, in characters; about 4,000 tokens.
RECALL_CHARACTERS = 16_000
#: Lines around each match of a pattern.
CONTEXT_LINES = 2
_HANDLE_PATTERN = re.compile(r"(?:(?P<session>.+):)?t(?P<turn>[1-9]\d{0,8})(?:\.(?P<place>[1-9]\d{0,8}))?")
_LINES_PATTERN = re.compile(r"\s*(\d{1,9})?\s*-\s*(\d{1,9})?\s*|\s*(\d{1,9})\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPart:
    """Selects a part of a text; all of it without any field.

    lines:   "40-80", "40-" or "7", 1-based and inclusive.
    pattern: a regular expression: the lines that match it, and `CONTEXT_LINES` around each.
    head:    number of first lines.
    """

    lines: str = ""
    pattern: str = ""
    head: int | None = None


def parse_handle(handle: str) -> tuple[str, Key]:
    """Return the session ("" for none) and the key that a handle names; position 0 is the whole turn.

    Raises UnknownHandle.
    """
    found = _HANDLE_PATTERN.fullmatch(handle.strip())
    if found is None:
        raise UnknownHandle(f"{handle[:60]!r} is not a handle; handles look like t12.1")
    return found["session"] or "", (int(found["turn"]), int(found["place"] or 0))


def render_turn(turn: Turn) -> str:
    """Return the text of a turn: what the assistant thought, said and called, then each result under its handle."""
    parts = [join_assistant_text(turn)]
    for place, observation in enumerate(turn.observations, start=1):
        handle = make_handle((turn.index, place))
        parts.append(f"[{handle} {observation.tool}]\n{_render_content(observation.content)}")
    return "\n\n".join(filter(None, parts))


def find_text(turn: Turn, key: Key) -> str | None:
    """Return the text under `key` in `turn`, all of it for position 0; None if there is no such result."""
    if not key[1]:
        return render_turn(turn)
    if key[1] <= len(turn.observations):
        return _render_content(turn.observations[key[1] - 1].content)
    return None


def _render_content(content: Content) -> str:
    """Return the text of `content`, with a line in place of each part that is no text."""
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
    """Yield the texts in `value` and in its objects, each with the name of its field."""
    for name, inner in value.items():
        if isinstance(inner, str):
            yield name, inner
        elif isinstance(inner, Mapping):
            yield from _walk_strings(inner)


def format_handle(key: Key) -> str:
    """Return the handle of `key`; of the whole turn for position 0."""
    if key[1]:
        return make_handle(key)
    return f"t{key[0]}"


def extract_part(text: str, part: TextPart, limit: int = RECALL_CHARACTERS) -> str:
    """Return `part` of `text`, `limit` characters at most and a note where some are left out.

    Lines are numbered where it is not the whole text. Raises UnknownHandle for a part without a meaning.
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
    """Return the line numbers of a part (0-based, ascending); None for all."""
    if part.pattern:
        wanted: set[int] = set()
        for hit in find_matching_lines(lines, part.pattern):
            wanted.update(range(max(0, hit - CONTEXT_LINES), min(hit + CONTEXT_LINES + 1, len(lines))))
        return sorted(wanted)
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
    """Return the beginning and the end of a text that is too long, and a note how to get the rest."""
    if len(text) <= limit:
        return text
    half = limit // 2
    note = f"\n[... {len(text) - limit} characters left out; ask for lines or a pattern ...]\n"
    return f"{text[:half]}{note}{text[-half:]}"


#: Longest pattern, in characters.
LONGEST_PATTERN: Final = 1_000
#: Bytes that one compiled pattern may take. RE2 refuses what needs more, before it is built.
PATTERN_BYTES: Final = 1 << 20
#: Seconds after which no further line is searched.
SEARCH_SECONDS: Final = 1.0
#: Most instructions × bytes of a single line, which cannot be interrupted: 6 ns each in the worst case.
LINE_WORK: Final = 400_000_000

#: An escape, or what begins or ends a class; so that `\w` inside of `[...]` is told from one outside.
_PIECE: Final = re.compile(r"\\.|\[:\^?\w+:\]|\[\^?\]?|\]", re.DOTALL)
#: RE2's `\w` and `\s` know ASCII alone: the same of Unicode, inside a class.
_UNICODE: Final = {r"\w": r"\p{L}\p{M}\p{N}_", r"\s": r"\s\p{Z}"}


def find_matching_lines(lines: Sequence[str], pattern: str) -> list[int]:
    """Return the 0-based numbers of `lines` in which `pattern` is found, in order.

    Raises UnknownHandle, in words for the model, for a pattern that is refused or takes too long.
    """
    search = _compile(pattern, is_ascii=all(map(str.isascii, lines)))
    end = time.monotonic() + SEARCH_SECONDS
    found: list[int] = []
    for number, line in enumerate(lines):
        # Lone surrogates are no UTF-8; RE2 takes any bytes.
        data = line.encode("utf-8", "surrogatepass")
        if time.monotonic() >= end or search.programsize * len(data) > LINE_WORK:
            raise _refuse(pattern, "it takes too long here")
        if search.search(data) is not None:
            found.append(number)
    return found


def _compile(pattern: str, *, is_ascii: bool) -> Any:
    if len(pattern) > LONGEST_PATTERN:
        raise _refuse(pattern, f"it has more than {LONGEST_PATTERN:,} characters")
    import re2  # only a recall with a pattern needs it

    options = re2.Options()
    options.max_mem = PATTERN_BYTES
    options.log_errors = False
    # Groups are not asked for, and thousands of them would take memory in each search.
    options.never_capture = True
    try:
        return re2.compile(_translate(pattern, is_ascii=is_ascii).encode("utf-8", "surrogatepass"), options)
    except re2.error as error:
        reason = error.args[0]
        raise _refuse(pattern, reason.decode("utf-8", "replace") if isinstance(reason, bytes) else reason) from error


def _translate(pattern: str, *, is_ascii: bool) -> str:
    r"""Return `pattern` in RE2's words: `\Z` is `\z`, and classes mean Unicode unless the text is ASCII.

    Two cases stay ASCII: `\b`, and `\W` or `\S` inside of `[...]`.
    """
    is_inside = False

    def replace(match: re.Match[str]) -> str:
        nonlocal is_inside
        piece = match[0]
        if piece == "]":
            is_inside = False
        elif piece.startswith("[") and not is_inside:
            is_inside = True
        elif piece == r"\Z" and not is_inside:
            return r"\z"
        elif piece.startswith("\\") and not is_ascii:
            return _widen(piece, is_inside=is_inside)
        return piece

    return _PIECE.sub(replace, pattern)


def _widen(escape: str, *, is_inside: bool) -> str:
    if escape.lower() == r"\d":
        if escape == r"\d":
            return r"\p{Nd}"
        return r"\P{Nd}"
    members = _UNICODE.get(escape.lower())
    if members is None:
        return escape
    if escape.islower():
        if is_inside:
            return members
        return f"[{members}]"
    if is_inside:
        return escape
    return f"[^{members}]"


def _refuse(pattern: str, reason: str) -> UnknownHandle:
    return UnknownHandle(
        f"pattern {pattern[:60]!r} cannot be used: {reason}. "
        "Give a simpler one or plain words; look-around and back-references are not supported"
    )
