"""Notes about requests that are probably not what their caller means: each names the cause and the fix."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, Final

from elision.providers.detect import find_message_provider
from elision.providers.live.pieces import Piece
from elision.providers.provider import Provider

#: The note of messages of which none is known, where others came before.
NOTE_UNRELATED: Final = (
    "these messages share nothing with those of the calls before: give prepare() the whole history each time, not only "
    "what is new; another run needs a session of its own (elision.Sessions)"
)
#: The note of the first call in which the client dropped turns.
NOTE_TRIMMED: Final = (
    "these messages leave out turns that earlier calls had: each such cut makes all messages after it new to the "
    "prompt cache. Give prepare() the whole history and let Elision shorten it; report() shows what the cuts cost"
)
#: The note of a history in which our placeholders came as results.
NOTE_PLACEHOLDERS: Final = (
    "the history holds Elision's placeholders as results: keep your own messages and append to them; view.messages is "
    "only for the request"
)
#: What `view.messages` shows in place of a result, with and without a handle.
_PLACEHOLDER: Final = re.compile(r"\[(?:t\d+\.\d+ )?[^\n]{1,1000}; [\d,]+ tokens hidden(?: \| [^\n]*)?\]")
_FUNCTIONS: Final = (FunctionType, MethodType, BuiltinFunctionType)


def describe_functions(tools: Any) -> str:
    """Return the note of tools that are functions, of which no definition can be read; "" where none is one."""
    if not isinstance(tools, list | tuple):
        return ""
    for place, tool in enumerate(tools):
        if isinstance(tool, _FUNCTIONS):
            name = getattr(tool, "__name__", "it")
            return f"tools[{place}] is a function, which is not counted: give the API's definition of {name} instead"
    return ""


def describe_wrong_dialect(messages: Sequence[Any], chosen: Provider) -> str:
    """Return the note of messages of another API than the caller named; "" where none shows that."""
    sign = find_message_provider(messages, chosen)
    if sign is None or sign is chosen:
        return ""
    return (
        f'dialect="{chosen.name}" is set, and the messages are those of {sign.title}: their tool results are not '
        f'hidden; set dialect="{sign.name}", or leave it "auto"'
    )


def holds_placeholder(pieces: Iterable[Piece]) -> bool:
    """Return whether a result of a message is one of our placeholders."""
    for piece in pieces:
        if piece.result is None or len(piece.result.content) != 1:
            continue
        text = getattr(piece.result.content[0], "text", "")
        if text.startswith("[") and text.endswith("]") and _PLACEHOLDER.fullmatch(text):
            return True
    return False
