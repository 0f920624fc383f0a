"""OpenAI Responses items: a list, `{"input": ..., "output": [...], ...}`, many of either, as JSON or JSON lines.

One assistant message is everything the model put out between two results or user messages: reasoning, text and calls,
each an item of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from elision.formats.assembler import Assembler
from elision.formats.conversations import (
    Layout,
    RecordedConversation,
    is_mostly_valid,
    preview_conversations,
    read_conversations,
)
from elision.formats.document import Document, RunOrProblem
from elision.providers.openai_responses import messages as openai_responses
from elision.providers.openai_responses.messages import CALLS, OUTPUTS, SILENT
from elision.providers.shared.json_reading import (
    Json,
    MessageTags,
    mapping_in,
    mappings_in,
    number_in,
    parse_content,
    take_tags,
    text_in,
)


class OpenAIResponsesReader:
    """`sniff` wants a sign of the dialect: one of its items, or one of its content parts."""

    name = "openai-responses"

    def sniff(self, document: Document) -> bool:
        found = preview_conversations(document, LAYOUT)
        items = [_list_items(conversation) for conversation in found]
        return all(is_mostly_valid(each, _is_known) for each in items) and any(
            openai_responses.has_own_signs(each, {}) for each in items
        )

    def read(self, document: Document) -> Iterator[RunOrProblem]:
        return read_conversations(document, LAYOUT, format=self.name, feed=_feed_conversation)


def _find_messages(outer: Json) -> list[Any] | None:
    """Return the input of a recorded request. Calls and results have such fields too, but they have a type."""
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
    """Return whether `outer` is a bare response object: `response`, or `response.compaction`."""
    bare = text_in(outer.get("object")).startswith("response") and "input" not in outer
    return bare and isinstance(outer.get("output"), list)


def _is_message(outer: Json) -> bool:
    return "type" in outer or "role" in outer or _is_response(outer)


LAYOUT = Layout(required_text='"type"', messages_of=_find_messages, is_message=_is_message)


def _is_known(item: Json) -> bool:
    """Return whether an item's type is known. Stricter than `_is_message`, which accepts future types."""
    kind = text_in(item.get("type"))
    calls = kind in openai_responses.ITEMS or kind.endswith(("_call", "_output"))
    return calls or "role" in item or _is_response(item) or kind.startswith(("mcp_", "additional_"))


def _list_items(conversation: RecordedConversation) -> list[Json]:
    """Return input and output items, those inside bare response objects included."""
    given = [mapping_in(item) for _, item in conversation.messages]
    responses = [item for item in given if _is_response(item)] + [_get_response(conversation.outer)]
    return given + [item for response in responses for item in mappings_in(response.get("output"))]


def _get_response(outer: Json) -> Json:
    return mapping_in(outer.get("response")) or outer


def _feed_conversation(assembler: Assembler, conversation: RecordedConversation) -> None:
    reader = _ItemFeeder(assembler)
    reader.add_head(conversation.outer)
    for line, item in conversation.messages:
        reader.feed_item(item, line)
    response = _get_response(conversation.outer)
    if isinstance(response.get("output"), list):
        reader.add_response(response, conversation.line)


class _ItemFeeder:
    """Feeds items to an assembler: a run of output items becomes one assistant message."""

    def __init__(self, assembler: Assembler) -> None:
        self._assembler = assembler
        self._is_open = False
        self._has_head = False
        self._response: Json = {}
        #: Tags of the newest item.
        self._tags: MessageTags | None = None
        #: id of a call item -> the id its result refers to; also every item seen, for references.
        self._ids: dict[str, str] = {}

    def add_head(self, outer: Json) -> None:
        """Add tools and instructions. Each request and response repeats them; the first are taken."""
        tools = mappings_in(outer.get("tools"))
        instructions = parse_content(outer.get("instructions"))
        if not self._has_head and (tools or instructions):
            self._has_head = True
            self._assembler.add_tools(tools)
            self._assembler.add_system(instructions)

    def add_response(self, response: Json, line: int | None) -> None:
        """Add a response object: its output is a message of its own, with its usage."""
        self.add_head(response)
        self._is_open = False
        self._response = response
        for item in response["output"]:
            self.feed_item(item, line)
        self._is_open = False
        self._response = {}

    def feed_item(self, item: Any, line: int | None) -> None:
        if not isinstance(item, dict):
            self._assembler.report_problem(f"a JSON {type(item).__name__} instead of an item; left out", line)
            return
        item, self._tags = take_tags(item)
        kind = text_in(item.get("type")) or ("message" if "role" in item else "")
        if _is_response(item):
            self.add_response(item, line)
        elif not kind:
            self._assembler.report_problem("an item without type and role; left out", line)
        elif kind == "message" and item.get("role") == "assistant":
            self._add_output(item, line)
        else:
            _FEEDERS.get(kind, _ItemFeeder._add_output)(self, item, line)

    def _get_tags(self) -> frozenset[str]:
        return frozenset() if self._tags is None else self._tags.of_text

    def _add_output(self, item: Json, line: int | None) -> None:
        self._note_id(item)
        said = openai_responses.parse_item(item)
        if not self._is_open:
            self._begin_message(line)
        self._assembler.take_assistant(said, continues=True)
        if self._tags is not None:
            self._assembler.tag_assistant(self._tags, said.actions)
        if result := openai_responses.parse_inline_result(item):
            self._assembler.add_result(result.action_id, result.content, error=result.error, line=line)

    def _begin_message(self, line: int | None) -> None:
        self._is_open = True
        self._assembler.add_assistant(
            usage=openai_responses.parse_usage(self._response.get("usage")),
            at=number_in(self._response.get("created_at")),
            model=text_in(self._response.get("model")),
            line=line,
        )

    def _note_id(self, item: Json) -> None:
        if name := text_in(item.get("id")):
            is_call = text_in(item.get("type")) in CALLS
            self._ids[name] = openai_responses.read_call_id(item) if is_call else name

    def _add_result(self, item: Json, line: int | None) -> None:
        self._is_open = False
        result = openai_responses.parse_result(item)
        action_id = self._ids.get(result.action_id, result.action_id)
        self._assembler.add_result(
            action_id,
            result.content,
            tool=result.tool,
            error=result.error,
            tags=result.tags | self._get_tags(),
            line=line,
        )

    def _add_message(self, item: Json, line: int | None) -> None:
        self._is_open = False
        self._note_id(item)
        role = item.get("role")
        said = parse_content(item.get("content"))
        if role == "user":
            self._assembler.add_user(said, tags=self._get_tags())
        elif role in ("system", "developer"):
            self._assembler.add_system(said, role="system" if role == "system" else "developer")
        else:
            self._assembler.report_problem(f"a message of unknown role {str(role)[:40]!r}; left out", line)

    def _add_compaction(self, item: Json, line: int | None) -> None:
        self._is_open = False
        self._assembler.add_compaction()

    def _add_tools(self, item: Json, line: int | None) -> None:
        self._assembler.add_tools(mappings_in(item.get("tools")))

    def _add_approval(self, item: Json, line: int | None) -> None:
        self._is_open = False
        self._assembler.add_user(openai_responses.parse_item(item).content)

    def _check_reference(self, item: Json, line: int | None) -> None:
        name = text_in(item.get("id"))
        if item.get("type") == "item_reference" and name not in self._ids:
            self._assembler.report_problem(f"item_reference to {name!r}, which is not in this file; left out", line)


#: Item type -> what is done with it; every other item is something the assistant said.
_FEEDERS: Mapping[str, Callable[[_ItemFeeder, Json, int | None], None]] = {
    **dict.fromkeys(OUTPUTS, _ItemFeeder._add_result),
    **dict.fromkeys(SILENT, _ItemFeeder._check_reference),
    "message": _ItemFeeder._add_message,
    "compaction": _ItemFeeder._add_compaction,
    "additional_tools": _ItemFeeder._add_tools,
    "mcp_approval_response": _ItemFeeder._add_approval,
}
