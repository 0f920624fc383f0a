"""Find the conversations in files of provider messages, however they are nested.

A file is one conversation or many: a list of messages, an object that holds such a list, a list of such objects, or
either of them as JSON lines. What a message means is up to the reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from elision.errors import FormatError
from elision.formats.assembler import Assembler
from elision.formats.document import Document, RunOrProblem
from elision.formats.json_lines import PEEK_LINES, peek_objects, read_json_lines, read_json_value
from elision.formats.request_log_chains import merge_continued_runs
from elision.providers.shared.json_reading import Json, mapping_in, text_in
from elision.trajectory.trajectory import Problem

#: (line or number, message): where a message is, for problems.
PlacedMessage: TypeAlias = tuple[int | None, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedConversation:
    """One conversation as recorded.

    name:     unique within its file.
    line:     the line it is on, or its number in the list; None if it is the whole file.
    messages: each with the place to name in a problem: `line`, else its own line or number.
    outer:    the object that holds the messages: tools, system prompt, usage, the response ...; {} for a bare list.
    """

    name: str
    line: int | None = None
    messages: tuple[PlacedMessage, ...]
    outer: Json = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How a dialect nests its messages.

    required_text: a text without which no file has this layout.
    messages_of: the messages that an object holds; None where it is no conversation.
    is_message:  whether an object that is no conversation is a message.
    """

    required_text: str
    messages_of: Callable[[Json], list[Any] | None]
    is_message: Callable[[Json], bool]

    def is_known(self, value: object) -> bool:
        """Return whether `value` is a conversation or a message."""
        outer = unwrap_request(value)
        return self.messages_of(outer) is not None or self.is_message(outer)


def make_list_getter(name: str) -> Callable[[Json], list[Any] | None]:
    """Return a function that returns the list under `name`."""

    def messages_of(outer: Json) -> list[Any] | None:
        held = outer.get(name)
        return held if isinstance(held, list) else None

    return messages_of


def unwrap_request(value: object) -> Json:
    """Return a conversation object. In `{"request": {...}, "response": {...}}` the request gets its response inside."""
    outer = mapping_in(value)
    return {**outer, **mapping_in(outer.get("request"))}


def read_conversations(
    document: Document, layout: Layout, *, format: str, feed: Callable[[Assembler, RecordedConversation], None]
) -> Iterator[RunOrProblem]:
    """Yield every conversation of `document` as a run; `feed` gives its messages to the assembler.

    Records that repeat one conversation and extend it, as logs of requests do, are one run.
    """
    return merge_continued_runs(_read_each(document, layout, format=format, feed=feed))


def _read_each(
    document: Document, layout: Layout, *, format: str, feed: Callable[[Assembler, RecordedConversation], None]
) -> Iterator[RunOrProblem]:
    for item in split_conversations(document, layout):
        if isinstance(item, Problem):
            yield item
            continue
        assembler = Assembler(document.path)
        try:
            feed(assembler, item)
        except RecursionError:
            yield Problem(file=document.path, line=item.line, reason=f"{item.name}: nested too deeply to read")
            continue
        yield from assembler.problems
        if run := assembler.finish(item.name, format=format, model=text_in(item.outer.get("model"))):
            yield run


def split_conversations(document: Document, layout: Layout) -> Iterator[RecordedConversation | Problem]:
    """Yield every conversation of `document`; anything else is a Problem.

    Raises FormatError if the file is neither JSON nor JSON lines of this layout.
    """
    try:
        value = read_json_value(document)
    except FormatError:
        if not any(map(layout.is_known, peek_objects(document, PEEK_LINES))):
            raise
        yield from _gather_conversations(document, layout, _read_lines(document), "line")
        return
    if isinstance(value, dict) and (messages := layout.messages_of(unwrap_request(value))) is not None:
        yield RecordedConversation(name="main", messages=_number_messages(messages, None), outer=unwrap_request(value))
    else:
        entries = value if isinstance(value, list) else [value]
        yield from _gather_conversations(document, layout, enumerate(entries, start=1), "conversation")


def _read_lines(document: Document) -> Iterator[PlacedMessage | Problem]:
    for line in read_json_lines(document):
        if isinstance(line, Problem):
            yield line
        else:
            yield line.number, line.value


def _gather_conversations(
    document: Document, layout: Layout, entries: Iterable[PlacedMessage | Problem], unit_name: str
) -> Iterator[RecordedConversation | Problem]:
    """Yield conversations among `entries`, and one more of all the bare messages."""
    bare: list[PlacedMessage] = []
    for entry in entries:
        if isinstance(entry, Problem):
            yield entry
            continue
        number, value = entry
        outer = unwrap_request(value)
        messages = value if isinstance(value, list) else layout.messages_of(outer)
        if messages is not None:
            yield RecordedConversation(
                name=f"{unit_name} {number}", line=number, messages=_number_messages(messages, number), outer=outer
            )
        elif layout.is_message(outer):
            bare.append((number, value))
        else:
            yield Problem(file=document.path, line=number, reason="no message and no conversation; left out")
    if bare:
        yield RecordedConversation(name="main", messages=tuple(bare))


def _number_messages(messages: list[Any], line: int | None) -> tuple[PlacedMessage, ...]:
    return tuple((line or number, message) for number, message in enumerate(messages, start=1))


def is_mostly_valid(messages: Iterable[Json], is_valid: Callable[[Json], bool]) -> bool:
    """Return whether most of `messages` are valid. An odd one becomes a Problem later; the file is not refused."""
    verdicts = [is_valid(message) for message in messages]
    return not verdicts or sum(verdicts) * 2 > len(verdicts)


def preview_conversations(document: Document, layout: Layout, count: int = 5) -> list[RecordedConversation]:
    """Return the first `count` conversations, for sniffing; none if most of the file is something else."""
    if layout.required_text.encode() not in document.data:
        return []
    found: list[RecordedConversation] = []
    strange = 0
    try:
        for item in split_conversations(document, layout):
            if isinstance(item, Problem):
                strange += 1
            else:
                found.append(item)
            if len(found) == count:
                break
    except FormatError:
        return []
    return found if strange <= sum(len(item.messages) for item in found) else []
