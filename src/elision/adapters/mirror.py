"""A framework's own messages beside plain ones in a provider's shape: translated for `prepare`, and restored after it.

    mirror = Mirror(to_plain, rebuild, make_user_message)
    mirrored = mirror.translate(messages)
    view = context.prepare(mirrored.plain)
    send(mirrored.restore(view))

What the view left unchanged is restored as the very object that the framework gave. Nothing that it gave is modified.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from elision.manager.context_view import ContextView
from elision.providers.shared.json_reading import join_lines, mappings_in, text_in

_M = TypeVar("_M")

#: A message in a provider's shape.
PlainMessage: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Mirror(Generic[_M]):
    """Translate the messages of one framework. It keeps nothing between two calls, so one serves all sessions.

    to_plain: returns the plain messages of a framework's message, in order: one, several or none. A message of which
        it returns none is sent where it is, unchanged.
    rebuild: called with a framework's message of which something is hidden, and with the plain messages that are sent
        for it, by their place (0-based) among those that `to_plain` returned. Returns a copy that says those; None
        where nothing is to be sent.
    make_user_message: returns a new message in the user's role that says a text: a summary.
    """

    to_plain: Callable[[_M], Sequence[PlainMessage]]
    rebuild: Callable[[_M, Mapping[int, PlainMessage]], _M | None]
    make_user_message: Callable[[str], _M]

    def translate(self, messages: Sequence[_M]) -> MirroredMessages[_M]:
        """Return `messages` with the plain ones that stand for them. Raises what `to_plain` raises."""
        return MirroredMessages(
            mirror=self, messages=list(messages), parts=[list(self.to_plain(message)) for message in messages]
        )


@dataclass(frozen=True, kw_only=True)
class MirroredMessages(Generic[_M]):
    """The messages of one request. messages: the framework's. parts: for each of them its plain messages."""

    mirror: Mirror[_M]
    messages: list[_M]
    parts: list[list[PlainMessage]]

    @property
    def plain(self) -> list[PlainMessage]:
        """The plain messages of all, in order: what to give to `prepare`."""
        return [plain for parts in self.parts for plain in parts]

    def restore(self, view: ContextView) -> list[_M]:
        """Return the framework's messages to send for `view`, which was prepared of `plain`.

        An unchanged message is the very object, and a changed one a rebuilt copy. A message of which nothing is sent is
        left out. A summary is a new message of the user.
        """
        #: For each plain message: (index of the framework's message, its place among that one's parts).
        places = [(index, part) for index, parts in enumerate(self.parts) for part in range(len(parts))]
        restored: list[_M] = []
        #: The message that is restored next, and what is sent of it.
        owner = -1
        sent_parts: dict[int, PlainMessage] = {}
        for sent, origin in zip(view.messages, view.origins, strict=True):
            if origin is None:
                restored += self._restore_message(owner, sent_parts)
                sent_parts = {}
                restored.append(self.mirror.make_user_message(read_message_text(sent)))
                continue
            index, part = places[origin]
            if index != owner:
                restored += self._restore_message(owner, sent_parts)
                restored += self._list_untranslated(owner + 1, index)
                owner = index
                sent_parts = {}
            sent_parts[part] = sent
        restored += self._restore_message(owner, sent_parts)
        return restored + self._list_untranslated(owner + 1, len(self.messages))

    def _restore_message(self, index: int, sent_parts: Mapping[int, PlainMessage]) -> list[_M]:
        """Return message `index` in a list: the very object where all its parts are sent unchanged; [] for nothing."""
        if not sent_parts:
            return []
        message = self.messages[index]
        given = self.parts[index]
        if len(sent_parts) == len(given) and all(sent_parts[part] is plain for part, plain in enumerate(given)):
            return [message]
        rebuilt = self.mirror.rebuild(message, sent_parts)
        return [] if rebuilt is None else [rebuilt]

    def _list_untranslated(self, first: int, end: int) -> list[_M]:
        """Return those of messages[first:end] that have no plain messages."""
        return [self.messages[index] for index in range(first, end) if not self.parts[index]]


def read_message_text(message: Mapping[str, Any]) -> str:
    """Return the text of a plain message, in whichever provider's shape; its blocks are joined by newlines."""
    content = message.get("content", message.get("parts", message.get("output")))
    if isinstance(content, str):
        return content
    return join_lines(text_in(block.get("text")) for block in mappings_in(content))


def make_anthropic_tool(definition: Mapping[str, Any]) -> dict[str, Any]:
    """Return a function's definition in Anthropic's shape; any other definition is returned as it is."""
    function = definition.get("function")
    if not isinstance(function, Mapping):
        return dict(definition)
    made = {"name": function["name"], "description": function.get("description") or ""}
    return {**made, "input_schema": function.get("parameters") or {"type": "object"}}


def dump_value(value: object) -> str:
    """Return `value` as text: a string itself, all else as JSON.

    Bytes become their length and digest, what JSON does not know its `repr`.
    """
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=_describe_value)


def _describe_value(value: object) -> str:
    if isinstance(value, bytes | bytearray):
        return f"{len(value)} bytes, sha256 {hashlib.sha256(value).hexdigest()[:16]}"
    return repr(value)
