"""Anthropic messages: a list, `{"system": ..., "tools": [...], "messages": [...]}`, many of either, also JSON lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from elision.formats.assembler import Assembler
from elision.formats.conversations import (
    Fragment,
    Layout,
    RecordedConversation,
    is_mostly_valid,
    is_same_response,
    make_list_getter,
    preview_conversations,
    read_conversations,
)
from elision.formats.document import Document, RunOrProblem
from elision.formats.recorded_fields import parse_timestamp
from elision.providers.anthropic import messages as anthropic
from elision.providers.shared.json_reading import (
    AssistantMessage,
    Json,
    MessageTags,
    cost_in,
    count_in,
    mapping_in,
    mappings_in,
    parse_content,
    take_tags,
    text_in,
)
from elision.trajectory.usage import Usage

LAYOUT = Layout(
    required_text='"role"', messages_of=make_list_getter("messages"), is_message=lambda outer: "role" in outer
)
_ROLES = frozenset(("system", "user", "assistant"))
#: Roles that other dialects have and this one does not: a sign of theirs, and no slip.
_FOREIGN_ROLES = frozenset(("tool", "function", "developer"))
#: Why a response stopped that the client then asks the model to continue, with nothing added to it.
_RESUMED_REASONS = frozenset(("pause_turn", "max_tokens"))


class AnthropicMessagesReader:
    """`sniff` wants a sign of the dialect: a block of its own, `system`, an `input_schema`, its kind of response."""

    name = "anthropic-messages"

    def sniff(self, document: Document) -> bool:
        found = preview_conversations(document, LAYOUT)
        return all(map(_has_valid_messages, found)) and any(map(_has_dialect_signs, found))

    def read(self, document: Document) -> Iterator[RunOrProblem]:
        return read_conversations(document, LAYOUT, format=self.name, feed=_feed_conversation)


def _has_valid_messages(conversation: RecordedConversation) -> bool:
    messages = [mapping_in(message) for _, message in conversation.messages]
    if any(text_in(message.get("role")) in _FOREIGN_ROLES or "tool_calls" in message for message in messages):
        return False
    return is_mostly_valid(messages, lambda message: text_in(message.get("role")) in _ROLES)


def _has_dialect_signs(conversation: RecordedConversation) -> bool:
    is_answered = mapping_in(conversation.outer.get("response")).get("type") == "message"
    messages = (mapping_in(message) for _, message in conversation.messages)
    return is_answered or anthropic.has_own_signs(messages, conversation.outer)


def _feed_conversation(assembler: Assembler, conversation: RecordedConversation) -> None:
    outer = conversation.outer
    assembler.add_tools(mappings_in(outer.get("tools")))
    assembler.add_system(parse_content(outer.get("system")))
    reader = _MessageFeeder(assembler)
    for line, message in conversation.messages:
        reader.feed_message(message, line)
    for line, message in _list_responses(outer, conversation.line):
        reader.feed_message(message, line, is_response=True)


def _list_responses(outer: Json, line: int | None) -> list[tuple[int | None, Json]]:
    """Return the answer to a recorded request: a message object of its own."""
    response = mapping_in(outer.get("response"))
    return [(line, response)] if response.get("role") == "assistant" else []


class _MessageFeeder:
    """Feeds messages to an assembler; assistant messages that are fragments of one response become one turn."""

    def __init__(self, assembler: Assembler) -> None:
        self._assembler = assembler
        self._newest: Fragment | None = None
        self._holds_server_tools = False

    def feed_message(self, message: Any, line: int | None, *, is_response: bool = False) -> None:
        """Feed the next message. is_response: it was recorded as the response to the messages before it."""
        message, tags = take_tags(mapping_in(message))
        role = message.get("role")
        if role == "assistant":
            self._feed_assistant(message, line, is_response=is_response)
            if tags is not None:
                self._assembler.tag_assistant(tags)
        elif role == "user":
            self._feed_user(message, line, tags or MessageTags())
        elif role == "system":
            self._assembler.add_system(parse_content(message.get("content")))
        else:
            self._assembler.report_problem(f"a message of unknown role {str(role)[:40]!r}; left out", line)

    def _feed_user(self, message: Json, line: int | None, tags: MessageTags) -> None:
        """Feed results, which belong to the turn of their calls, and then what else the message says."""
        blocks = anthropic.list_blocks(message.get("content"))
        places = [place for place, block in enumerate(blocks) if block.get("type") == "tool_result"]
        for place, result in zip(places, anthropic.parse_results(message), strict=True):
            self._assembler.add_result(
                result.action_id,
                result.content,
                error=result.error,
                tags=result.tags | tags.whole | tags.select_blocks((place,)),
                line=line,
            )
        own = tags.select_blocks(place for place in range(len(blocks)) if place not in places)
        if not places:
            own |= tags.whole
        self._assembler.add_user(anthropic.parse_user_words(message), tags=own)

    def _feed_assistant(self, message: Json, line: int | None, *, is_response: bool) -> None:
        said = anthropic.parse_assistant(message)
        fragment = _read_fragment(message)
        if said == AssistantMessage() and fragment == Fragment() and "stop_reason" not in message:
            return  # the place of a block that the recorder left out: it is no call
        earlier = self._newest
        self._newest = fragment
        # A request may end with the beginning of its own response, or with one that server tools have interrupted.
        is_resumed = is_response and self._holds_server_tools
        is_same = earlier is not None and is_same_response(earlier, fragment, is_adjacent=self._assembler.is_unanswered)
        self._holds_server_tools = _holds_server_tools(message)
        continues = is_same and not is_resumed
        if continues:
            self._newest = _join_fragments(earlier, fragment)
        elif said.summary is not None:
            self._assembler.add_compaction(summary=said.summary)
        self._assembler.take_assistant(
            said,
            continues=continues,
            usage=fragment.usage,
            at=parse_timestamp(message.get("ts")),
            model=fragment.model,
            line=line,
        )


def _read_fragment(message: Json) -> Fragment:
    return Fragment(
        id=text_in(message.get("id")),
        model=text_in(message.get("model")) or text_in(mapping_in(message.get("modelInfo")).get("id")),
        usage=anthropic.parse_usage(message.get("usage")) or _read_cline_usage(message.get("metrics")),
        is_final=text_in(message.get("stop_reason")) in _RESUMED_REASONS,
    )


def _join_fragments(earlier: Fragment | None, later: Fragment) -> Fragment:
    """Join what two fragments report of their response."""
    if earlier is None:
        return later
    return Fragment(
        id=later.id or earlier.id,
        model=later.model or earlier.model,
        usage=later.usage or earlier.usage,
        is_final=later.is_final,
    )


def _holds_server_tools(message: Json) -> bool:
    return any(block.get("type") == "server_tool_use" for block in mappings_in(message.get("content")))


def _read_cline_usage(value: object) -> Usage | None:
    """Read what Cline's SDK keeps beside a message; None if there is none.

    Its `inputTokens` include cache reads: in a recorded session each call reads what the call before had as its input.
    Counts that contradict this are unclear, and not taken.
    """
    counts = mapping_in(value)
    prompt, read, written = (
        count_in(counts.get(name)) for name in ("inputTokens", "cacheReadTokens", "cacheWriteTokens")
    )
    if "inputTokens" not in counts or read + written > prompt:
        return None
    return Usage.from_inclusive(
        prompt=prompt,
        output=count_in(counts.get("outputTokens")),
        cache_read=read,
        cache_write=written,
        usd=cost_in(counts.get("cost")),
    )
