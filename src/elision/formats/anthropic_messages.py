"""Anthropic messages: a list, `{"system": ..., "tools": [...], "messages": [...]}`, many of either, also JSON lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from elision.dialects import Json, Said, anthropic, content_of, count_in, mapping_in, mappings_in, number_in, text_in
from elision.formats.assembler import Assembler
from elision.formats.conversations import Conversation, Layout, listed, mostly, preview, runs
from elision.formats.document import Document, Found
from elision.formats.fragments import Fragment, is_same_response
from elision.formats.moments import moment
from elision.trajectory.usage import Usage

LAYOUT = Layout(mark='"role"', messages_of=listed("messages"), is_message=lambda outer: "role" in outer)
_ROLES = frozenset(("system", "user", "assistant"))
#: Roles that other dialects have and this one does not: a sign of theirs, and no slip.
_FOREIGN = frozenset(("tool", "function", "developer"))
#: Why a response stopped that the client then asks the model to continue, with nothing added to it.
_RESUMED = frozenset(("pause_turn", "max_tokens"))


class AnthropicMessages:
    """`sniff` wants a sign of the dialect: a block of its own, `system`, an `input_schema`, its kind of response."""

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
    is_answered = mapping_in(conversation.outer.get("response")).get("type") == "message"
    messages = (mapping_in(message) for _, message in conversation.messages)
    return is_answered or anthropic.shows(messages, conversation.outer)


def _feed(assembler: Assembler, conversation: Conversation) -> None:
    outer = conversation.outer
    assembler.tools(mappings_in(outer.get("tools")))
    assembler.system(content_of(outer.get("system")))
    reader = _Messages(assembler)
    for line, message in conversation.messages:
        reader.feed(message, line)
    for line, message in _answers(outer, conversation.line):
        reader.feed(message, line, is_response=True)


def _answers(outer: Json, line: int | None) -> list[tuple[int | None, Json]]:
    """The answer to a recorded request: a message object of its own."""
    response = mapping_in(outer.get("response"))
    if response.get("role") == "assistant":
        return [(line, response)]
    return []


class _Messages:
    """Feeds messages to an assembler; assistant messages that are fragments of one response become one turn."""

    def __init__(self, assembler: Assembler) -> None:
        self._assembler = assembler
        self._newest: Fragment | None = None
        self._holds_server_tools = False

    def feed(self, message: Any, line: int | None, *, is_response: bool = False) -> None:
        """The next message. is_response: it was recorded as the response to the request that holds those before."""
        role = mapping_in(message).get("role")
        if role == "assistant":
            self._assistant(message, line, is_response=is_response)
        elif role == "user":
            # Results belong to the turn of their calls; what else the message says is the user's.
            for result in anthropic.results(message):
                self._assembler.result(result.action_id, result.content, error=result.error, line=line)
            self._assembler.user(anthropic.remarks(message))
        elif role == "system":
            self._assembler.system(content_of(message.get("content")))
        else:
            self._assembler.problem(f"a message of unknown role {str(role)[:40]!r}; left out", line)

    def _assistant(self, message: Json, line: int | None, *, is_response: bool) -> None:
        said = anthropic.said(message)
        fragment = _read_fragment(message)
        if said == Said() and fragment == Fragment() and "stop_reason" not in message:
            return  # the place of a block that the recorder left out: it tells of no call
        earlier = self._newest
        self._newest = fragment
        # A request may end with the beginning of its own response, or with one that server tools have interrupted.
        is_resumed = is_response and self._holds_server_tools
        is_same = earlier is not None and is_same_response(earlier, fragment, is_adjacent=self._assembler.is_unanswered)
        self._holds_server_tools = _holds_server_tools(message)
        if is_same and not is_resumed:
            self._newest = _join_fragments(earlier, fragment)
            self._assembler.amend(
                content=said.content,
                reasoning=said.reasoning,
                actions=said.actions,
                usage=fragment.usage,
                model=fragment.model,
            )
            return
        if said.summary is not None:
            self._assembler.compaction(summary=said.summary)
        self._assembler.assistant(
            said.content,
            reasoning=said.reasoning,
            actions=said.actions,
            usage=fragment.usage,
            at=moment(message.get("ts")),
            model=fragment.model,
            line=line,
        )


def _read_fragment(message: Json) -> Fragment:
    return Fragment(
        id=text_in(message.get("id")),
        model=text_in(message.get("model")) or text_in(mapping_in(message.get("modelInfo")).get("id")),
        usage=anthropic.usage(message.get("usage")) or _metrics(message.get("metrics")),
        is_final=text_in(message.get("stop_reason")) in _RESUMED,
    )


def _join_fragments(earlier: Fragment | None, later: Fragment) -> Fragment:
    """What both together tell of their response."""
    return Fragment(
        id=later.id or (earlier.id if earlier else ""),
        model=later.model or (earlier.model if earlier else ""),
        usage=later.usage or (earlier.usage if earlier else None),
        is_final=later.is_final,
    )


def _holds_server_tools(message: Json) -> bool:
    return any(block.get("type") == "server_tool_use" for block in mappings_in(message.get("content")))


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
