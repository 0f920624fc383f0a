"""Rounds of recall that the client did not see, put back into its messages.

After a recall the client gets one response instead of the model's call, the result and the model's answer. It sends
that response back. Upstream the recall must be in its place, so `RecallExchanged` events name the history that ends
with what the client was shown. That name contains no ids: a response may come again with other ids, and some clients
write their own. So the client's messages keep their own ids.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from elision.gateway.json_patch import encode_json, patch_json
from elision.providers.live.conversation import Conversation
from elision.providers.live.parsed_message import ParsedMessage, parse_message
from elision.providers.live.pieces import LiveDialect
from elision.trajectory.events import RecallExchanged
from elision.trajectory.recall_names import OWN_TOOLS


@dataclass(slots=True)
class _CachedExpansion:
    """What one client message was expanded to. key: what that depends on."""

    key: tuple[ParsedMessage, RecallExchanged | None, tuple[str, ...], tuple[ParsedMessage, ...]]
    messages: tuple[ParsedMessage, ...]


@dataclass(slots=True)
class HiddenRounds:
    """The hidden rounds of one conversation. A request costs work only for its new messages; known objects are reused.

    dialect: of the conversation.
    """

    dialect: LiveDialect
    events_by_node: dict[str, RecallExchanged] = field(default_factory=dict)
    _expansions: dict[int, _CachedExpansion] = field(default_factory=dict)

    def add_events(self, events: Iterable[RecallExchanged]) -> None:
        """Add rounds that the log has."""
        self.events_by_node |= {event.node: event for event in events}

    def expand_messages(self, conversation: Conversation) -> list[ParsedMessage]:
        """Return the client's messages with everything that the client did not see."""
        if self.events_by_node:
            return list(self._expand_conversation(conversation))
        return conversation.messages.copy()

    def _expand_conversation(self, conversation: Conversation) -> Iterator[ParsedMessage]:
        pending: tuple[str, ...] = ()
        silent_messages: tuple[ParsedMessage, ...] = ()
        for place, message in enumerate(conversation.messages):
            event: RecallExchanged | None = None
            joining: tuple[str, ...] = ()
            if message.is_from_assistant:
                if not message.digest:
                    # Reasoning belongs to the next message, so what was recalled before that comes before both.
                    silent_messages = (*silent_messages, message)
                    continue
                event = self.events_by_node.get(conversation.nodes[place].hex())
                if event is not None:
                    # Parallel calls stay together, and all results come after them.
                    pending += event.results
            else:
                joining = pending
                pending = ()
            if event is None and not joining:
                yield from silent_messages
                yield message
            else:
                yield from self._expand_message(place, message, event, joining, silent_messages)
            silent_messages = ()
        yield from silent_messages
        if not self.dialect.has_blocks:
            yield from self._parse_messages(pending)

    def _expand_message(
        self,
        place: int,
        message: ParsedMessage,
        event: RecallExchanged | None,
        pending: tuple[str, ...],
        silent_messages: tuple[ParsedMessage, ...],
    ) -> Sequence[ParsedMessage]:
        cached = self._expansions.get(place)
        key = message, event, pending, silent_messages
        if cached is None or cached.key != key:
            if event is not None:
                messages = self._restore_hidden(message, event, silent_messages)
            else:
                messages = (*silent_messages, *self._join_results(pending, message))
            cached = self._expansions[place] = _CachedExpansion(key, messages)
        return cached.messages

    def _restore_hidden(
        self, own: ParsedMessage, event: RecallExchanged, silent_messages: tuple[ParsedMessage, ...]
    ) -> tuple[ParsedMessage, ...]:
        """Return what replaces a message that the client was shown."""
        *ahead, last = self._parse_messages(event.messages)
        recorded = {_identify_reasoning(message.json) for message in ahead}
        others = [message for message in silent_messages if _identify_reasoning(message.json) not in recorded]
        if others:
            # The client has other reasoning before it than when it was recorded.
            while ahead and not ahead[-1].digest:
                ahead.pop()
        # A message has text and calls, while an item is one of them.
        is_item = self.dialect.joins_assistant_messages and not self.dialect.has_blocks
        return (*ahead, *others, own if is_item else self._adopt_call_ids(own.json, last))

    def _join_results(self, pending: tuple[str, ...], own: ParsedMessage) -> tuple[ParsedMessage, ...]:
        """Return the client's next message with pending results before it, or in it."""
        if not pending:
            return (own,)
        if not self.dialect.has_blocks:
            return (*self._parse_messages(pending), own)
        results = [json.loads(text) for text in pending]
        if own.json.get("role") != "user":
            message = {"role": "user", self.dialect.content_field: results}
            return (self.make_message(message, encode_json(message)), own)
        content = own.json.get(self.dialect.content_field)
        blocks = content if isinstance(content, list) else [self.dialect.make_block(str(content))]
        message = {**own.json, self.dialect.content_field: [*results, *blocks]}
        return (self.make_message(message, patch_json(own.raw, own.json, message)),)

    def _adopt_call_ids(self, own: Mapping[str, Any], recorded: ParsedMessage) -> ParsedMessage:
        """Return the recorded message, with the ids of `own` for the client's calls."""
        ids = [str(call.get("id")) for call in _list_calls(own)]
        calls = [call for call in _list_calls(recorded.json) if _get_call_name(call) not in OWN_TOOLS]
        if len(ids) != len(calls) or ids == [call.get("id") for call in calls]:
            return recorded
        renamed = {id(call): {**call, "id": new} for call, new in zip(calls, ids, strict=True)}
        message = dict(recorded.json)
        for name, value in message.items():
            if isinstance(value, list):
                message[name] = [renamed.get(id(part), part) for part in value]
        return self.make_message(message, encode_json(message))

    def _parse_messages(self, texts: Iterable[str]) -> tuple[ParsedMessage, ...]:
        return tuple(self.make_message(json.loads(text), text.encode()) for text in texts)

    def make_message(self, message: dict[str, Any], raw: bytes) -> ParsedMessage:
        """Return a message that the client did not send, with its bytes."""
        return parse_message(self.dialect, message, 0, raw)[0]


def _identify_reasoning(item: Mapping[str, Any]) -> str:
    """Return what identifies reasoning; some clients leave its id out."""
    return str(item.get("encrypted_content") or item.get("id"))


def _list_calls(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a message's calls, in either format."""
    parts = message.get("tool_calls")
    if isinstance(parts, list):
        return [part for part in parts if isinstance(part, dict)]
    blocks = message.get("content")
    if isinstance(blocks, list):
        return [part for part in blocks if isinstance(part, dict) and part.get("type") == "tool_use"]
    return []


def _get_call_name(call: Mapping[str, Any]) -> object:
    function = call.get("function")
    if isinstance(function, dict):
        return function.get("name")
    return call.get("name")
