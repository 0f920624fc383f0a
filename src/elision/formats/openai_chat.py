"""OpenAI chat messages: a list, `{"messages": [...], "tools": [...]}`, many of either, as JSON or JSON lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from elision.dialects import (
    Json,
    Said,
    anthropic,
    content_of,
    mapping_in,
    mappings_in,
    number_in,
    openai_chat,
    openai_responses,
    text_in,
)
from elision.formats.assembler import Assembler
from elision.formats.conversations import Conversation, Layout, listed, mostly, preview, runs
from elision.formats.document import Document, Found
from elision.formats.fragments import Fragment, is_same_response

LAYOUT = Layout(mark='"role"', messages_of=listed("messages"), is_message=lambda outer: "role" in outer)
_ROLES = frozenset(("system", "developer", "user", "assistant", "tool", "function"))
_CONTENTS = frozenset(("content", "tool_calls", "function_call", "refusal", "reasoning_content", "reasoning"))


class OpenAIChat:
    """`sniff` also takes plain conversations without any call, which several dialects write alike."""

    name = "openai-chat"

    def sniff(self, document: Document) -> bool:
        found = preview(document, LAYOUT)
        return bool(found) and all(_is_chat(conversation) for conversation in found)

    def read(self, document: Document) -> Iterator[Found]:
        return runs(document, LAYOUT, format=self.name, feed=_feed)


def _is_chat(conversation: Conversation) -> bool:
    messages = [mapping_in(message) for _, message in conversation.messages]
    foreign = anthropic.shows(messages, conversation.outer) or openai_responses.shows(messages)
    return bool(messages) and mostly(messages, _is_message) and not foreign


def _is_message(message: Json) -> bool:
    return text_in(message.get("role")) in _ROLES and not _CONTENTS.isdisjoint(message)


def _feed(assembler: Assembler, conversation: Conversation) -> None:
    outer = conversation.outer
    assembler.tools(mappings_in(outer.get("tools")) or mappings_in(outer.get("functions")))
    reader = ChatMessages(assembler)
    for line, message in (*conversation.messages, *_answers(outer, conversation.line)):
        reader.feed(message, line)


def _answers(outer: Json, line: int | None) -> list[tuple[int | None, Json]]:
    """The answer to a recorded request, as one more message with its usage; beside the request or under `response`."""
    response = mapping_in(outer.get("response")) or outer
    choices = mappings_in(response.get("choices"))
    if choices:
        message = mapping_in(choices[0].get("message"))
    else:
        message = {}
    if message:
        return [(line, {"response": response, **message})]
    return []


class ChatMessages:
    """Feeds messages to an assembler, which pairs calls and results that were recorded without ids in order."""

    def __init__(self, assembler: Assembler) -> None:
        self._assembler = assembler
        self._newest: tuple[Said, Fragment] | None = None

    def feed(self, message: Any, line: int | None) -> None:
        role = mapping_in(message).get("role")
        if role == "assistant":
            self._assistant(message, line)
        elif role in ("tool", "function"):
            self._result(message, line)
        elif role in ("system", "developer"):
            self._assembler.system(
                content_of(message.get("content")), role="system" if role == "system" else "developer"
            )
        elif role == "user":
            self._assembler.user(content_of(message.get("content")))
        else:
            self._assembler.problem(f"a message of unknown role {str(role)[:40]!r}; left out", line)

    def _assistant(self, message: Json, line: int | None) -> None:
        said = openai_chat.said(message)
        response = mapping_in(message.get("response"))
        fragment = _read_fragment(message, response)
        is_same = self._continues_newest(said, fragment)
        self._newest = (said, fragment)
        if is_same:
            self._assembler.amend(
                content=said.content,
                reasoning=said.reasoning,
                actions=said.actions,
                usage=fragment.usage,
                model=fragment.model,
            )
            return
        self._assembler.assistant(
            said.content,
            reasoning=said.reasoning,
            actions=said.actions,
            usage=fragment.usage,
            at=number_in(response.get("created")) or number_in(message.get("created")),
            model=fragment.model,
            line=line,
        )

    def _continues_newest(self, said: Said, fragment: Fragment) -> bool:
        """Whether a message belongs to the response that the newest one is of.

        In this dialect one message holds text and calls, and agents exist that ask again with nothing added. So a text
        after a text is a response of its own; calls after a text, and what follows unanswered calls, are not.
        """
        if self._newest is None:
            return False
        earlier, newest = self._newest
        fits = not earlier.content or bool(earlier.actions) or (bool(said.actions) and not said.content)
        return fits and is_same_response(newest, fragment, is_adjacent=self._assembler.is_unanswered)

    def _result(self, message: Json, line: int | None) -> None:
        result = openai_chat.result(message)
        is_named = bool(text_in(message.get("tool_call_id"))) or not self._assembler.has_unnamed_call
        self._assembler.result(
            result.action_id if is_named else "", result.content, tool=result.tool, error=result.error, line=line
        )


def _read_fragment(message: Json, response: Json) -> Fragment:
    return Fragment(
        id=text_in(response.get("id")),
        model=text_in(message.get("model")) or text_in(response.get("model")),
        speaker=text_in(message.get("name")),
        usage=openai_chat.usage(message.get("usage")) or openai_chat.usage(response.get("usage")),
    )
