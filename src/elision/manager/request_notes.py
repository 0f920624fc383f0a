"""Notes about requests that are probably not what their caller means: each names the cause and the fix."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, Final

from elision.providers.provider import Provider
from elision.providers.provider_table import find_message_provider

#: The note of a message of a view that came back in the client's list.
NOTE_VIEW_RETURNED: Final = (
    "a message of view.messages came back in the history: it is read as the result that it replaces. Keep your own "
    "list and append to it, since in another process the result would be lost"
)
#: The note of `prepare` after turns were added by hand.
NOTE_MIXED: Final = (
    "prepare() was called after context.turns: the messages begin another history, without the turns that were added "
    "by hand. Use one of the two in a session"
)
#: The note of usage that was recorded again.
NOTE_RECORDED_TWICE: Final = (
    "usage was recorded twice for one call, and the later one counts: call record() once, with the whole response or "
    "the last chunk of a stream"
)
#: The note of a call that blocks an event loop.
NOTE_BLOCKED_LOOP: Final = "prepare() blocks the event loop that it is called in: await context.prepare_async() there"
#: The notes of clocks that no provider's cache goes by.
NOTE_MILLISECONDS: Final = "clock returns milliseconds, so that every cache entry seems to be lost: return seconds"
NOTE_BACKWARDS: Final = "clock went back since the call before, so that caches are priced wrong: return time.time()"
#: Seconds since the epoch that are none before the year 5138.
MOST_SECONDS: Final = 1e11
#: The note of messages of which none is known, where others came before.
NOTE_UNRELATED: Final = (
    "these messages share nothing with those of the calls before: give prepare() the whole history each time, not only "
    "what is new; another run needs its own session (elision.Sessions)"
)
#: The note of the first call in which the client dropped turns.
NOTE_TRIMMED: Final = (
    "these messages leave out turns that earlier calls had: each such cut makes all messages after it new to the "
    "prompt cache. Give prepare() the whole history and let Elision shorten it; report() shows what the cuts cost"
)
#: The note of a history in which our placeholders came as results.
NOTE  #: What `view.messages` shows in place of a result, with and without a handle.
_PLACEHOLDER: Final = re.compile(r"\[(?:t\d+\.\d+ )?[^\n]{1,1000}; [\d,]+ tokens hidden(?: \| [^\n]*)?\]")
_FUNCTIONS: Final = (FunctionType, MethodType, BuiltinFunctionType)


def describe_odd_parts(messages: Sequence[Any], tools: Any, *, first: int) -> str:
    """Return the note of the first part of a request that no provider takes; "" where there is none.

    first: place of the first message that is looked at; the calls before looked at the others.
    """
    if not messages:
        return "messages is empty, which providers refuse: give prepare() the system prompt or the task at least"
    for place, message in enumerate(messages[first:], start=first):
        if not isinstance(message, dict):
            continue
        content = message.get("content")
        if content is not None and not isinstance(content, str | list | tuple):
            found = f"messages[{place}].content is a {type(content).__name__}, which providers refuse"
            return f"{found}: give a text, such as json.dumps of it"
        calls = message.get("tool_calls")
        if isinstance(calls, list) and (note := _describe_odd_calls(messages, place, calls)):
            return note
    if isinstance(tools, Mapping):
        return "tools is a dict, in which no definition is read: give the list of definitions that the API takes"
    if not isinstance(tools, list | tuple):
        return ""
    for place, tool in enumerate(tools):
        if isinstance(tool, _FUNCTIONS):
            name = getattr(tool, "__name__", "it")
            return f"tools[{place}] is a function, which is not counted: give the API's definition of {name} instead"
    return ""


def _describe_odd_calls(messages: Sequence[Any], place: int, calls: Sequence[Any]) -> str:
    """Return the note of OpenAI's tool calls, of the message at `place`, that no provider takes; "" if they are sound.

    The newest calls may still run, so that only a message which is no result shows that one is left out.
    """
    for number, call in enumerate(calls):
        function = call.get("function") if isinstance(call, dict) else None
        arguments = function.get("arguments", "") if isinstance(function, dict) else ""
        if not isinstance(arguments, str):
            kind = type(arguments).__name__
            return f"messages[{place}].tool_calls[{number}] has arguments that are a {kind}: give json.dumps of them"
    for after in messages[place + 1 : place + 1 + len(calls)]:
        if isinstance(after, dict) and after.get("role") != "tool":
            found = f"messages[{place}] calls a tool, and no result follows it, which providers refuse"
            return f"{found}: give a result to each call"
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
