"""OpenAI chat messages: a list, `{"messages": [...], "tools": [...]}`, many of either, as JSON or JSON lines."""

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
from elision.providers.anthropic import messages as anthropic
from elision.providers.openai_chat import messages as openai_chat
from elision.providers.openai_responses import messages as openai_responses
from elision.providers.shared.json_reading import (
    AssistantMessage,
    Json,
    mapping_in,
    mappings_in,
    number_in,
    parse_content,
    take_tags,
    text_in,
)

LAYOUT = Layout(
    required_text='"role"', messages_of=make_list_getter("messages"), is_message=lambda outer: "role" in outer
)
_ROLES = frozenset(("system", "developer", "user", "assistant", "tool", "function"))
_CONTENT_FIELDS = frozenset(("content", "tool_calls", "function_call", "refusal", "reasoning_content", "reasoning"))


class OpenAIChatReader:
    """`sniff` also takes plain conversations without any call, which several dialects write alike."""

    name = "openai-chat"

    def sniff(self, document: Document) -> bool:
        found = preview_conversations(document, LAYOUT)
        return bool(found) and all(map(_is_chat, found))

    def read(self, document: Document) -> Iterator[RunOrProblem]:
        return read_conversations(document, LAYOUT, format=self.name, feed=_feed_conversation)


def _is_chat(conversation: RecordedConversation) -> bool:
    messages = [mapping_in(message) for _, message in conversation.messages]
    foreign = anthropic.has_own_signs(messages, conversation.outer) or openai_responses.has_own_signs(messages, {})
    return bool(messages) and is_mostly_valid(messages, _is_message) and not foreign


def _is_message(message: Json) -> bool:
    return text_in(message.get("role")) in _ROLES and not _CONTENT_FIELDS.isdisjoint(message)


def _feed_conversation(assembler: Assembler, conversation: RecordedConversation) -> None:
    outer = conversation.outer
    assembler.add_tools(mappings_in(outer.get("tools")) or mappings_in(outer.get("functions")))
    reader = ChatMessageFeeder(assembler)
    for line, message in (*conversation.messages, *_list_responses(outer, conversation.line)):
        reader.feed_message(message, line)


def _list_responses(outer: Json, line: int | None) -> list[tuple[int | None, Json]]:
    """Return the answer to a recorded request as a message with its usage, from beside the request or `response`."""
    response = mapping_in(outer.get("response")) or outer
    choices = mappings_in(response.get("choices")) or [{}]
    message = mapping_in(choices[0].get("message"))
    return [(line, {"response": response, **message})] if message else []


class ChatMessageFeeder:
    """Feeds messages to an assembler, which pairs calls and results that were recorded without ids in order."""

    def __init__(self, assembler: Assembler) -> None:
        self._assembler = assembler
        self._newest: tuple[AssistantMessage, Fragment] | None = None

    def feed_message(self, message: Any, line: int | None) -> None:
        message, tags = take_tags(mapping_in(message))
        role = message.get("role")
        own: frozenset[str] = tags.of_text if tags is not None else frozenset()
        if role == "assistant":
            self._add_assistant(message, line)
            if tags is not None:
                self._assembler.tag_assistant(tags)
        elif role in ("tool", "function"):
            self._add_result(message, line, own)
        elif role in ("system", "developer"):
            self._assembler.add_system(
                parse_content(message.get("content")), role="system" if role == "system" else "developer"
            )
        elif role == "user":
            self._assembler.add_user(parse_content(message.get("content")), tags=own)
        else:
            self._assembler.report_problem(f"a message of unknown role {str(role)[:40]!r}; left out", line)

    def _add_assistant(self, message: Json, line: int | None) -> None:
        said = openai_chat.parse_assistant(message)
        response = mapping_in(message.get("response"))
        fragment = _read_fragment(message, response)
        is_same = self._continues_newest(said, fragment)
        self._newest = (said, fragment)
        self._assembler.take_assistant(
            said,
            continues=is_same,
            usage=fragment.usage,
            at=number_in(response.get("created")) or number_in(message.get("created")),
            model=fragment.model,
            line=line,
        )

    def _continues_newest(self, said: AssistantMessage, fragment: Fragment) -> bool:
        """Return whether a message belongs to the same response as the newest one.

        In this dialect one message holds text and calls, and agents exist that ask again with nothing added. So a text
        after a text is a response of its own; calls after a text, and what follows unanswered calls, are not.
        """
        if self._newest is None:
            return False
        earlier, newest = self._newest
        fits = not earlier.content or bool(earlier.actions) or (bool(said.actions) and not said.content)
        return fits and is_same_response(newest, fragment, is_adjacent=self._assembler.is_unanswered)

    def _add_result(self, message: Json, line: int | None, tags: frozenset[str]) -> None:
        result = openai_chat.parse_result(message)
        is_named = bool(text_in(message.get("tool_call_id"))) or not self._assembler.has_unnamed_call
        self._assembler.add_result(
            result.action_id if is_named else "",
            result.content,
            tool=result.tool,
            error=result.error,
            tags=result.tags | tags,
            line=line,
        )


def _read_fragment(message: Json, response: Json) -> Fragment:
    return Fragment(
        id=text_in(response.get("id")),
        model=text_in(message.get("model")) or text_in(response.get("model")),
        speaker=text_in(message.get("name")),
        usage=openai_chat.parse_usage(message.get("usage")) or openai_chat.parse_usage(response.get("usage")),
    )
