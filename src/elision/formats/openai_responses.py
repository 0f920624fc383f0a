"""OpenAI Responses items: a list, `{"input": ..., "output": [...], ...}`, many of either, as JSON or JSON lines.

One assistant message is everything the model put out between two results or user messages: reasoning, text and calls,
each an item of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from elision.dialects import Json, content_of, mapping_in, mappings_in, number_in, openai_responses, text_in
from elision.dialects.openai_responses import CALLS, OUTPUTS, SILENT
from elision.formats.assembler import Assembler
from elision.formats.conversations import Conversation, Layout, mostly, preview, runs
from elision.formats.document import Document, Found


class OpenAIResponses:
    """`sniff` wants a sign of the dialect: one of its items, or one of its content parts."""

    name = "openai-responses"

    def sniff(self, document: Document) -> bool:
        found = preview(document, LAYOUT)
        return all(map(_fits, found)) and any(map(_shows, found))

    def read(self, document: Document) -> Iterator[Found]:
        return runs(document, LAYOUT, format=self.name, feed=_feed)


def _messages_of(outer: Json) -> list[Any] | None:
    """The input of a recorded request. Calls have an `input` and results an `output` too, but they have a type."""
    given = outer.get("input")
    if "type" in outer or _is_response(outer):
        return None
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    if isinstance(given, list):
        return given
    if isinstance(outer.get("output"), list):
        return []
    return None


def _is_response(outer: Json) -> bool:
    """Whether `outer` is a bare response object: `response`, or `response.compaction`."""
    bare = text_in(outer.get("object")).startswith("response") and "input" not in outer
    return bare and isinstance(outer.get("output"), list)


def _is_message(outer: Json) -> bool:
    return "type" in outer or "role" in outer or _is_response(outer)


LAYOUT = Layout(mark='"type"', messages_of=_messages_of, is_message=_is_message)


def _fits(conversation: Conversation) -> bool:
    return mostly(_items(conversation), _is_known)


def _is_known(item: Json) -> bool:
    """Stricter than `_is_message`, which lets in types that are yet to come."""
    kind = text_in(item.get("type"))
    calls = kind in openai_responses.ITEMS or kind.endswith(("_call", "_output"))
    return calls or "role" in item or _is_response(item) or kind.startswith(("mcp_", "additional_"))


def _shows(conversation: Conversation) -> bool:
    return openai_responses.shows(_items(conversation))


def _items(conversation: Conversation) -> list[Json]:
    """Items given and put out, those inside bare response objects included."""
    given = [mapping_in(item) for _, item in conversation.messages]
    responses = [item for item in given if _is_response(item)] + [_response_of(conversation.outer)]
    return given + [item for response in responses for item in mappings_in(response.get("output"))]


def _response_of(outer: Json) -> Json:
    return mapping_in(outer.get("response")) or outer


def _feed(assembler: Assembler, conversation: Conversation) -> None:
    reader = _Items(assembler)
    reader.head(conversation.outer)
    for line, item in conversation.messages:
        reader.feed(item, line)
    response = _response_of(conversation.outer)
    if isinstance(response.get("output"), list):
        reader.response(response, conversation.line)


class _Items:
    """Feeds items to an assembler: a run of output items becomes one assistant message."""

    def __init__(self, assembler: Assembler) -> None:
        self._assembler = assembler
        self._open = False
        self._headed = False
        self._response: Json = {}
        #: id of a call item -> the id its result refers to; also every item seen, for references.
        self._ids: dict[str, str] = {}

    def head(self, outer: Json) -> None:
        """Tools and instructions, which each request and response repeats; the first are taken."""
        tools = mappings_in(outer.get("tools"))
        instructions = content_of(outer.get("instructions"))
        if not self._headed and (tools or instructions):
            self._headed = True
            self._assembler.tools(tools)
            self._assembler.system(instructions)

    def response(self, response: Json, line: int | None) -> None:
        """A response object: its output is a message of its own, with its usage."""
        self.head(response)
        self._open = False
        self._response = response
        for item in response["output"]:
            self.feed(item, line)
        self._open = False
        self._response = {}

    def feed(self, item: Any, line: int | None) -> None:
        if not isinstance(item, dict):
            self._assembler.problem(f"a JSON {type(item).__name__} where an item belongs; left out", line)
            return
        kind = text_in(item.get("type")) or ("message" if "role" in item else "")
        if _is_response(item):
            self.response(item, line)
        elif not kind:
            self._assembler.problem("an item without type and role; left out", line)
        elif kind == "message" and item.get("role") == "assistant":
            self._said(item, line)
        else:
            _FEEDERS.get(kind, _Items._said)(self, item, line)

    def _said(self, item: Json, line: int | None) -> None:
        self._know(item)
        said = openai_responses.said(item)
        if not self._open:
            self._begin(line)
        self._assembler.amend(content=said.content, reasoning=said.reasoning, actions=said.actions)
        if result := openai_responses.inline_result(item):
            self._assembler.result(result.action_id, result.content, error=result.error, line=line)

    def _begin(self, line: int | None) -> None:
        self._open = True
        self._assembler.assistant(
            usage=openai_responses.usage(self._response.get("usage")),
            at=number_in(self._response.get("created_at")),
            model=text_in(self._response.get("model")),
            line=line,
        )

    def _know(self, item: Json) -> None:
        if name := text_in(item.get("id")):
            if text_in(item.get("type")) in CALLS:
                self._ids[name] = openai_responses.call_id(item)
            else:
                self._ids[name] = name

    def _result(self, item: Json, line: int | None) -> None:
        self._open = False
        result = openai_responses.result(item)
        action_id = self._ids.get(result.action_id, result.action_id)
        self._assembler.result(
            action_id, result.content, tool=result.tool, error=result.error, tags=result.tags, line=line
        )

    def _message(self, item: Json, line: int | None) -> None:
        self._open = False
        self._know(item)
        role = item.get("role")
        said = content_of(item.get("content"))
        if role == "user":
            self._assembler.user(said)
        elif role in ("system", "developer"):
            self._assembler.system(said, role="system" if role == "system" else "developer")
        else:
            self._assembler.problem(f"a message of unknown role {str(role)[:40]!r}; left out", line)

    def _compacted(self, item: Json, line: int | None) -> None:
        self._open = False
        self._assembler.compaction()

    def _more_tools(self, item: Json, line: int | None) -> None:
        self._assembler.tools(mappings_in(item.get("tools")))

    def _approval(self, item: Json, line: int | None) -> None:
        self._open = False
        self._assembler.user(openai_responses.said(item).content)

    def _silent(self, item: Json, line: int | None) -> None:
        name = text_in(item.get("id"))
        if item.get("type") == "item_reference" and name not in self._ids:
            self._assembler.problem(f"item_reference to {name!r}, which is not in this file; left out", line)


#: Item type -> what is done with it; every other item is something the assistant said.
_FEEDERS: Mapping[str, Callable[[_Items, Json, int | None], None]] = {
    **dict.fromkeys(OUTPUTS, _Items._result),
    **dict.fromkeys(SILENT, _Items._silent),
    "message": _Items._message,
    "compaction": _Items._compacted,
    "additional_tools": _Items._more_tools,
    "mcp_approval_response": _Items._approval,
}
