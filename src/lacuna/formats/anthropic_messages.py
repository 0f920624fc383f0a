"""Anthropic messages: a list, `{"system": ..., "tools": [...], "messages": [...]}`, many of either, also JSON lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lacuna.dialects import Json, anthropic, content_of, count_in, mapping_in, mappings_in, number_in, text_in
from lacuna.formats.assembler import Assembler
from lacuna.formats.conversations import Conversation, Layout, listed, mostly, preview, runs
from lacuna.formats.document import Document, Found
from lacuna.formats.moments import moment
from lacuna.trajectory.usage import Usage

LAYOUT = Layout(mark='"role"', messages_of=listed("messages"), is_message=lambda outer: "role" in outer)
_ROLES = frozenset(("system", "user", "assistant"))
#: Roles that other dialects have and this one does not: a sign of theirs, and no slip.
_FOREIGN = frozenset(("tool", "function", "developer"))


class AnthropicMessages:
    """`sniff` wants a sign of the dialect: one of its blocks, a `system` field, a tool with an `input_schema`."""

    name = "anthropic-messages"

    def sniff(self, document: Document) -> bool:
        found = preview(document, LAYOUT)
        return all(map(_fits, found)) and any(map(_shows, found))

    def read(self, document: Document) -> Iterator[Found]:
        return runs(document, LAYOUT, format=self.name, feed=_feed)


def _fits(conversation: Conversation) -> bool:
    messages = [mapping_in(message) for _, message in conversation.messages]
    return mostly(messages, _is_message) and not any(map(_is_foreign, messages))


def _is_message(message: Json) -> bool:
    return text_in(message.get("role")) in _ROLES


def _is_foreign(message: Json) -> bool:
    return text_in(message.get("role")) in _FOREIGN or "tool_calls" in message


def _shows(conversation: Conversation) -> bool:
    return anthropic.shows((mapping_in(message) for _, message in conversation.messages), conversation.outer)


def _feed(assembler: Assembler, conversation: Conversation) -> None:
    outer = conversation.outer
    assembler.tools(mappings_in(outer.get("tools")))
    assembler.system(content_of(outer.get("system")))
    for line, message in (*conversation.messages, *_answers(outer, conversation.line)):
        _message(assembler, message, line)


def _answers(outer: Json, line: int | None) -> list[tuple[int | None, Json]]:
    """The answer to a recorded request: a message object of its own."""
    response = mapping_in(outer.get("response"))
    return [(line, response)] if response.get("role") == "assistant" else []


def _message(assembler: Assembler, message: Any, line: int | None) -> None:
    role = mapping_in(message).get("role")
    if role == "assistant":
        _assistant(assembler, message, line)
    elif role == "user":
        # Results belong to the turn of their calls; what else the message says is the user's.
        for result in anthropic.results(message):
            assembler.result(result.action_id, result.content, error=result.error, tags=result.tags, line=line)
        assembler.user(anthropic.remarks(message))
    elif role == "system":
        assembler.system(content_of(message.get("content")))
    else:
        assembler.problem(f"a message of unknown role {str(role)[:40]!r}; left out", line)


def _assistant(assembler: Assembler, message: Json, line: int | None) -> None:
    said = anthropic.said(message)
    if said.summary is not None:
        assembler.compaction(summary=said.summary)
    assembler.assistant(
        said.content,
        reasoning=said.reasoning,
        actions=said.actions,
        usage=anthropic.usage(message.get("usage")) or _metrics(message.get("metrics")),
        at=moment(message.get("ts")),
        model=text_in(message.get("model")) or text_in(mapping_in(message.get("modelInfo")).get("id")),
        line=line,
    )


def _metrics(value: object) -> Usage | None:
    """What Cline's SDK keeps beside a message; None if there is none.

    Its `inputTokens` include cache reads: in a recorded session each call reads what the call before had as its input.
    Counts that contradict this are not clear, and not taken.
    """
    counts = mapping_in(value)
    prompt, read, written = (
        count_in(counts.get(name)) for name in ("inputTokens", "cacheReadTokens", "cacheWriteTokens")
    )
    if "inputTokens" not in counts or read + written > prompt:
        return None
    return Usage.inclusive(
        prompt=prompt,
        output=count_in(counts.get("outputTokens")),
        cache_read=read,
        cache_write=written,
        usd=number_in(counts.get("cost")),
    )
