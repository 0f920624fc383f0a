"""Notes about requests that are probably not what their caller means: each names the cause and the fix.

A change at the front of a prompt is noted because all behind it is written to the prompt cache again.

Placeholders and folded results that a client gives back come from a view of another process that became its history.
Within a process they are recognized as what was sent. In a new one the stored results take their place again, so
neither is stored as a result, and the session continues.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, Final, Literal, TypeAlias

from elision.manager.branch import SessionBranch
from elision.providers.live.client_messages import LiveDialect, read_client_message, strip_passing
from elision.providers.live.conversation import Conversation
from elision.providers.provider import Provider
from elision.providers.provider_table import find_message_provider, find_tools_provider
from elision.providers.shared.json_reading import take_tags
from elision.strategies.extractors.outcome import shorten_to_line
from elision.trajectory.events import PassDecided, TurnsDropped
from elision.trajectory.prices import Prices
from elision.trajectory.tool_definitions import get_tool_name, list_tools
from elision.trajectory.turn import Head, Text

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
NOTE_PLACEHOLDERS: Final = (
    "the history holds Elision's placeholders as results: keep your own messages and append to them; view.messages is "
    "only for the request"
)
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


#: What of a head has changed.
HeadChange: TypeAlias = Literal["text", "order", "tools"]
#: Characters of a tool's name that are shown.
_NAME: Final = 60
#: Characters on both sides of a difference that are searched for what changes by itself.
_AROUND: Final = 40
#: What changes from call to call, in the order of the search.
_MOVING: Final = {
    "a time": re.compile(r"\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?( ?[ap]m)?", re.IGNORECASE),
    "a date": re.compile(
        r"\d{1,4}[-./]\d{1,2}[-./]\d{1,4}|\b(mon|tue|wed|thu|fri|sat|sun)[a-z]*\b"
        r"|\b\d{0,2} ?(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\b( \d{1,2}\b)?,?( \d{4})?",
        re.IGNORECASE,
    ),
    "an id": re.compile(r"\b(?=[\w-]*\d)[\w-]{8,}\b|\b\d{4,}\b"),
}
#: How the first piece of an edited message is called.
_PIECES: Final[dict[str, str]] = {
    "system": "the system prompt",
    "user": "the user's words",
    "assistant": "the model's words",
    "result": "a tool result",
}


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
    if change == "text":
        where = _describe_text(before, after)
    else:
        pairs = zip_longest(list_tools(after), list_tools(before))
        first = next(tool or other for tool, other in pairs if tool != other)
        verb = "came in another order" if change == "order" else "changed"
        where = f"the tools {verb}, from {shorten_to_line(get_tool_name(first), _NAME)!r} on"
    cost = _describe_cost(tokens, prices)
    if not cost:
        return ""
    advice = "keep dates and ids out of the beginning of the prompt, and keep the tools unchanged for the whole session"
    if change == "order":
        advice += "; in the gateway, pin_tools does that"
    return f"{where}, {cost}: {advice}"


def find_edited_message(before: Conversation, after: Conversation) -> int | None:
    """Return the place of the first message that the client changed; None where it edited no history.

    After an edit some of the next messages are still those that they were. Without any, the client took its words back
    or compacted. A message that comes several times, such as "Continue.", may stand at its place by chance.
    """
    known = [before.get_digest(place) for place in range(len(before))]
    new = [after.get_digest(place) for place in range(len(after))]
    first = next((place for place, (one, other) in enumerate(zip(known, new, strict=False)) if one != other), None)
    if first is None:
        return None
    times = Counter(known)
    later = zip(known[first:], new[first:], strict=False)
    return first if any(one == other and one and times[one] == 1 for one, other in later) else None


def describe_edit(before: Conversation, after: Conversation, place: int, tokens: int, prices: Prices) -> str:
    """Return the note of a history that the client edited; "" where no cache could break.

    place: of the first edited message. tokens: of the messages from there on that were sent before.
    """
    cost = _describe_cost(tokens, prices)
    texts = ["\n".join(_list_words(strip_passing(each.messages[place].json))) for each in (before, after)]
    pieces = after.dialect.split_message(after.messages[place].json, place)
    what = f" ({_PIECES[pieces[0].kind]})" if pieces else ""
    where = f"the client edited message {place + 1}{what}{_describe_difference(*texts)}"
    return f"{where}, {cost}: append to the history, and let Elision shorten it" if cost else ""


def _describe_cost(tokens: int, prices: Prices) -> str:
    if not prices.has_cache or tokens < prices.cache.minimum:
        return ""
    rates = prices.find_rates(tokens)
    usd = tokens * (rates.write_price - rates.read_price) / 1e6
    return f"so up to {tokens:,} tokens are written to the prompt cache again, for about ${usd:.4f} at each such change"


def _describe_text(before: Head, after: Head) -> str:
    """Return which message changed, and from which character on."""
    pairs = zip_longest(after.messages[: len(before.messages)], before.messages)
    message, known = next(pair for pair in pairs if pair[0] != pair[1])
    what = {"system": "the system prompt", "developer": "the developer's message"}.get(known.role, "the task")
    return what + " changed" + _describe_difference(known.text, message.text if message is not None else "")


def _describe_difference(before: str, after: str) -> str:
    """Return what differs in two texts, if it is of a kind that changes by itself, and from which character on."""
    differing = (place for place, (one, other) in enumerate(zip(before, after, strict=False)) if one != other)
    place = next(differing, min(len(before), len(after)))
    start = max(0, place - _AROUND)
    for kind, pattern in _MOVING.items():
        if all(
            any(
                match.start() <= place - start < match.end()
                for match in pattern.finditer(text[start : place + _AROUND])
            )
            for text in (before, after)
        ):
            return f" in {kind}, from character {place + 1:,} on"
    return f", from character {place + 1:,} on"


def _list_words(value: Any) -> Iterator[str]:
    """Yield the texts in a message's JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from _list_words(each)
    elif isinstance(value, dict):
        for name, each in value.items():
            if name not in ("role", "type"):
                yield from _list_words(each)


#: Characters that a placeholder has at most, and what is in each.
_MOST: Final = 3_000
_MARK: Final = " tokens hidden"
#: What begins a line of a folded result, which may be of any length.
_REFERENCE: Final = "[same as "
#: How deep in a message a result's text is: content, block, content, block.
_DEPTH: Final = 4


def may_hold_placeholder(messages: Sequence[Any]) -> bool:
    """Return whether some text of plain `messages` may be a placeholder or a folded result. Nothing is parsed."""
    return any(isinstance(message, Mapping) and _has_mark(message, _DEPTH) for message in messages)


def restore_results(messages: Sequence[Any], dialect: LiveDialect, branch: SessionBranch) -> list[Any]:
    """Return `messages` with the results of `branch` in the place of what it showed for them."""
    results: dict[tuple[str, str], str] = {}
    turns = branch.log.state.turns
    for event in branch.log.events:
        if not isinstance(event, PassDecided | TurnsDropped):
            continue
        for each in event.edits:
            if each.kind not in ("mask", "fold"):
                continue
            turn, position = each.key
            observation = turns[turn - 1].observations[position - 1]
            # What is no text cannot be put back as it was.
            if len(observation.content) == 1 and isinstance(observation.content[0], Text):
                results[observation.action_id, each.text] = observation.text
    return [_restore_message(message, place, dialect, results) for place, message in enumerate(messages)]


def _restore_message(message: Any, place: int, dialect: LiveDialect, results: Mapping[tuple[str, str], str]) -> Any:
    if not isinstance(message, Mapping) or not _has_mark(message, _DEPTH):
        return message
    given, tags = take_tags(read_client_message(message, place, dialect))
    restored = dict(given)
    blocks = list(dialect.list_blocks(given) or ())
    for piece in dialect.split_message(given, place):
        if tags is not None or piece.result is None or len(piece.result.content) != 1:
            continue
        text = results.get((piece.result.action_id, getattr(piece.result.content[0], "text", "")))
        if text is None:
            continue
        if piece.location.blocks is None:
            return dialect.replace_result(given, text)
        block = piece.location.blocks[0]
        blocks[block] = dialect.replace_result(blocks[block], text)
        restored[dialect.content_field] = blocks
    return message if restored == given else restored


def _has_mark(value: Any, depth: int) -> bool:
    if isinstance(value, str):
        return _REFERENCE in value or (len(value) <= _MOST and value.endswith("]") and _MARK in value)
    if not depth:
        return False
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return any(_has_mark(each, depth - 1) for each in inner)
