"""Anthropic Messages: content blocks, results and usage read into values, and views rendered as messages.

Live, each result of a user message is a piece, and the other blocks are one more.

A request has the system prompt apart, alternating roles, and results first in the next message. Reasoning in clear text
is left out: its signature was not recorded, and a thinking block without it is rejected. Sealed blocks go back as they
were recorded. Each mark of the view puts a cache breakpoint on the last block before it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from elision.providers.anthropic.breakpoints import THINKING_TYPES
from elision.providers.live.client_messages import BlockMessageDialect, Location, Piece
from elision.providers.shared.base_renderer import (
    CONTINUE_TEXT,
    OPENING_TEXT,
    BlockRenderer,
    JsonMessage,
    RecordedParts,
    TurnCalls,
    copy_recorded,
    describe_part,
    find_image,
    parse_input,
)
from elision.providers.shared.json_reading import (
    ANTHROPIC_SEAL,
    KEEP_OUTPUT,
    AssistantMessage,
    Json,
    ToolResult,
    bool_in,
    count_in,
    dump_arguments,
    dump_json,
    join_contents,
    join_lines,
    make_sealed,
    mapping_in,
    mappings_in,
    parse_content,
    text_in,
)
from elision.trajectory.turn import Action, Content, Opaque, Part, Text, join_text, make_content
from elision.trajectory.usage import ModelUsage, Usage
from elision.trajectory.view import View

#: Block types that no other dialect knows.
BLOCKS = frozenset(
    [
        "tool_use",
        "tool_result",
        "thinking",
        "redacted_thinking",
        "server_tool_use",
        "web_search_tool_result",
        "web_fetch_tool_result",
        "code_execution_tool_result",
        "bash_code_execution_tool_result",
        "text_editor_code_execution_tool_result",
        "tool_search_tool_result",
        "mcp_tool_use",
        "mcp_tool_result",
        "advisor_tool_result",
        "compaction",
        "container_upload",
        "search_result",
        "tool_addition",
        "tool_removal",
    ]
)


#: Types of tools that Anthropic runs, or defines: `web_search_20250305`.
_OWN_TOOLS = re.compile(r".*_\d{8}|mcp_toolset")


def defines_tool(definition: Json) -> bool:
    """Return whether a tool's definition is of this API: it has an `input_schema`, or a type with a date."""
    return "input_schema" in definition or _OWN_TOOLS.fullmatch(text_in(definition.get("type"))) is not None


def has_own_signs(messages: Iterable[Json], request: Json) -> bool:
    """Return whether a conversation bears a sign of this API: an own block, `system`, a tool's `input_schema`.

    request: the object that holds the messages.
    """
    if isinstance(request.get("system"), str | list):
        return True
    if any("input_schema" in tool for tool in mappings_in(request.get("tools"))):
        return True
    blocks = (block for message in messages for block in mappings_in(message.get("content")))
    return any(text_in(block.get("type")) in BLOCKS or isinstance(block.get("source"), dict) for block in blocks)


def list_blocks(value: object) -> list[Json]:
    """Return a `content` field as blocks; a string is one text block."""
    if isinstance(value, list):
        return [item if isinstance(item, dict) else {"type": "text", "text": dump_json(item)} for item in value]
    if isinstance(value, dict):
        return [value]
    if value is None:
        return []
    return [{"type": "text", "text": dump_json(value)}]


def parse_assistant(message: Json) -> AssistantMessage:
    """Read an assistant message. Thinking is reasoning; server tools and their results stay in the content, opaque."""
    blocks = list_blocks(message.get("content"))
    summaries = [_read_summary(block) for block in blocks if block.get("type") == "compaction"]
    return AssistantMessage(
        content=join_contents(
            _CONTENT_PARSERS.get(text_in(block.get("type")), parse_content)(block) for block in blocks
        ),
        reasoning=join_lines(text_in(block.get("thinking")) for block in blocks if block.get("type") == "thinking"),
        actions=tuple(_parse_action(block) for block in blocks if block.get("type") == "tool_use"),
        summary=summaries[-1] if summaries else None,
    )


def _read_summary(block: Json) -> str:
    return join_text(parse_content(block.get("content")))


def _keep_hidden_thinking(block: Json) -> Content:
    """Keep thinking that was sent without its text (`display: omitted`): it is part of the prompt and billed."""
    if block.get("thinking"):
        return ()
    return (make_sealed("thinking", block, text_in(block.get("signature")), ANTHROPIC_SEAL),)


#: Block type -> reads the part of it that belongs to the content of an assistant message.
_CONTENT_PARSERS: dict[str, Callable[[Json], Content]] = {
    "thinking": _keep_hidden_thinking,
    "redacted_thinking": lambda block: (
        make_sealed("redacted_thinking", block, text_in(block.get("data")), ANTHROPIC_SEAL),
    ),
    "tool_use": lambda _: (),
    "compaction": lambda block: make_content(_read_summary(block)),
}


def _parse_action(block: Json) -> Action:
    return Action(
        id=text_in(block.get("id")), name=text_in(block.get("name")), arguments=dump_arguments(block.get("input"))
    )


def parse_results(message: Json) -> list[ToolResult]:
    """Read the tool results of a user message."""
    return [_parse_result(block) for block in list_blocks(message.get("content")) if block.get("type") == "tool_result"]


def _parse_result(block: Json) -> ToolResult:
    # A tool that a result refers to may be called from then on, and may not where the reference is hidden.
    loads = any(part.get("type") == "tool_reference" for part in mappings_in(block.get("content")))
    return ToolResult(
        action_id=text_in(block.get("tool_use_id")),
        content=parse_content(block.get("content")),
        error=bool_in(block.get("is_error")),
        tags=KEEP_OUTPUT if loads else frozenset(),
    )


def parse_user_words(message: Json) -> Content:
    """Return what a user message says beside its tool results."""
    blocks = list_blocks(message.get("content"))
    return join_contents(parse_content(block) for block in blocks if block.get("type") != "tool_result")


def parse_usage(value: object) -> Usage | None:
    """Return the whole bill of a `usage` object; None if there is none. `input_tokens` exclude cache reads and writes.

    Where the provider asked models several times for one request, `iterations` lists each bill. The counts at the top
    leave out server-side compaction and advisors, so the sum over the list is what is paid.
    """
    counts = mapping_in(value)
    if "input_tokens" not in counts:
        return None
    own = _count_bill(counts)
    iterations = mappings_in(counts.get("iterations"))
    if not iterations:
        return own
    bills = [_count_bill(each) for each in iterations]
    whole = sum(bills, Usage())
    models = [(text_in(each.get("model")), bill) for each, bill in zip(iterations, bills, strict=True)]
    return Usage(
        # A list that is cut short must not make the bill smaller than the counts at the top.
        input=max(own.input, whole.input),
        cache_read=max(own.cache_read, whole.cache_read),
        cache_write=max(own.cache_write, whole.cache_write),
        output=max(own.output, whole.output),
        cache_write_1h=max(own.cache_write_1h, whole.cache_write_1h),
        first_prompt=bills[0].prompt if len(bills) > 1 else 0,
        played=own.played,
        others=tuple(ModelUsage(model, bill) for model, bill in models if model),
    )


def _count_bill(counts: Json) -> Usage:
    """Read one bill. `cache_creation` says how long the written entries live."""
    tiers = mapping_in(counts.get("cache_creation"))
    hour, minutes = (count_in(tiers.get(f"ephemeral_{life}_input_tokens")) for life in ("1h", "5m"))
    return Usage(
        input=count_in(counts.get("input_tokens")),
        cache_read=count_in(counts.get("cache_read_input_tokens")),
        cache_write=max(count_in(counts.get("cache_creation_input_tokens")), hour + minutes),
        output=count_in(counts.get("output_tokens")),
        cache_write_1h=hour,
        played=counts.get("played") is True,
    )


#: Blocks of a system message that change which tools there are.
_TOOLS = ("tool_addition", "tool_removal")


class LiveAnthropic(BlockMessageDialect):
    """The Messages API."""

    name = "anthropic"
    alternates_roles = True
    takes_breakpoints = True

    def split_message(self, message: Json, index: int) -> list[Piece]:
        role = text_in(message.get("role"))
        spot = Location(index)
        if role == "assistant":
            return [Piece(kind="assistant", location=spot, assistant=parse_assistant(message))]
        if role in ("system", "developer"):
            words = parse_content(message.get("content"))
            changes_tools = any(isinstance(part, Opaque) and part.kind in _TOOLS for part in words)
            return [Piece(kind="system", location=spot, words=words, role="system", is_pinned=changes_tools)]
        return self.split_user_message(message, index)

    def parse_words(self, value: object) -> Content:
        return parse_user_words({"content": value}) if isinstance(value, list) else parse_content(value)

    def parse_block_result(self, block: object) -> ToolResult | None:
        if mapping_in(block).get("type") != "tool_result":
            return None
        return parse_results({"content": [block]})[0]

    def replace_result(self, part: Json, text: str) -> dict[str, Any]:
        if part.get("type") == "tool_result":
            return {**part, "content": text}
        return self.make_block(text)


_MEDIA_TYPES = frozenset(("image/jpeg", "image/png", "image/gif", "image/webp"))
_FORBIDDEN = re.compile(r"[^a-zA-Z0-9_-]")

#: Blocks kept as they were recorded, by where they are allowed -> the fields that they need, with their types.
_WITH_SOURCE: RecordedParts = {"image": {"source": dict}, "document": {"source": dict}}
_IN_RESULT: RecordedParts = {
    **_WITH_SOURCE,
    "search_result": {"content": list},
    "tool_reference": {"tool_name": str},
}
_IN_USER: RecordedParts = {
    **_WITH_SOURCE,
    "search_result": {"content": list},
    "container_upload": {"file_id": str},
}
_SERVER_RESULT: Mapping[str, type] = {"tool_use_id": str, "content": object}
_IN_ASSISTANT: RecordedParts = {
    "thinking": {"thinking": str, "signature": str},
    "redacted_thinking": {"data": str},
    "server_tool_use": {"id": str, "name": str, "input": dict},
    "mcp_tool_use": {"id": str, "name": str, "input": dict},
    "mcp_tool_result": _SERVER_RESULT,
    "web_search_tool_result": _SERVER_RESULT,
    "web_fetch_tool_result": _SERVER_RESULT,
    "code_execution_tool_result": _SERVER_RESULT,
    "bash_code_execution_tool_result": _SERVER_RESULT,
    "text_editor_code_execution_tool_result": _SERVER_RESULT,
    "tool_search_tool_result": _SERVER_RESULT,
}


def render_tool(tool: Mapping[str, Any]) -> JsonMessage:
    """Return `tool`, of `name`, `description` and `input_schema`: it is in this API's form."""
    return dict(tool)


class AnthropicRenderer(BlockRenderer):
    """One session's messages; content is always a list of blocks, except a result's that is one text."""

    forbidden_letters = _FORBIDDEN

    def render_messages(self, view: View) -> list[JsonMessage]:
        sent = self.render_unmarked(view)
        for message, block in self._find_marks(view):
            sent[message] = _mark_message(sent[message], block)
        return sent

    def render_unmarked(self, view: View) -> list[JsonMessage]:
        sent = super().render_unmarked(view)
        return sent + self._make_filler(sent)

    def render_system(self, view: View) -> list[JsonMessage]:
        blocks = super().render_system(view)
        # The breakpoints that come before the first message.
        if blocks and any(self._ends[mark - 1] == (0, 0) for mark in view.marks):
            blocks[-1] = _mark_block(blocks[-1])
        return blocks

    # -- what is said ---------------------------------------------------------------------------------------------

    def _render_system(self, parts: Content) -> list[JsonMessage]:
        return list(_render_parts(parts, {}))

    def _render_user(self, parts: Content) -> list[JsonMessage]:
        return self._make_messages("user", list(_render_parts(parts, _IN_USER)))

    def _render_assistant(self, calls: TurnCalls) -> list[JsonMessage]:
        blocks = [
            *_render_parts(calls.turn.content, _IN_ASSISTANT),
            *(_render_call(id, action) for id, action in calls.calls),
        ]
        while blocks and blocks[-1]["type"] in THINKING_TYPES:
            blocks.pop()
        return self._make_messages("assistant", blocks)

    def _render_result(self, id: str, parts: Content, error: bool | None) -> JsonMessage:
        blocks = list(_render_parts(parts, _IN_RESULT))
        result: JsonMessage = {"type": "tool_result", "tool_use_id": id}
        if blocks:
            if len(blocks) == 1 and blocks[0]["type"] == "text":
                result["content"] = blocks[0]["text"]
            else:
                result["content"] = blocks
        # An error must say something, and in text alone.
        if error and blocks and all(block["type"] == "text" for block in blocks):
            result["is_error"] = True
        return {"role": "user", "content": [result]}

    def _append_message(self, message: JsonMessage) -> None:
        if message["role"] == "assistant":
            self._messages += self._make_filler(self._messages)
        elif self._messages and self._messages[-1]["role"] == "user":
            last = self._messages[-1]
            self._messages[-1] = {**last, "content": last["content"] + message["content"]}
            return
        self._messages.append(message)

    def _make_filler(self, messages: list[JsonMessage]) -> list[JsonMessage]:
        """Return the message that must come between `messages` and an assistant message; [] if none must."""
        if messages and messages[-1]["role"] == "user":
            return []
        return [{"role": "user", "content": [_make_text(CONTINUE_TEXT if messages else OPENING_TEXT)]}]

    # -- cache breakpoints ----------------------------------------------------------------------------------------

    def _find_marks(self, view: View) -> set[tuple[int, int]]:
        """Return (message, block) of every breakpoint."""
        found = (self._find_last_block(*self._ends[mark - 1]) for mark in view.marks)
        return {place for place in found if place}

    def _find_last_block(self, count: int, blocks: int) -> tuple[int, int] | None:
        """Return the last block among `count` messages that can bear a breakpoint; None if there is none.

        blocks: of the last message, how many count.
        """
        while count:
            content = self._messages[count - 1]["content"]
            for block in range(blocks - 1, -1, -1):
                if content[block]["type"] not in THINKING_TYPES:
                    return count - 1, block
            count -= 1
            blocks = len(self._messages[count - 1]["content"]) if count else 0
        return None


def _mark_block(block: JsonMessage) -> JsonMessage:
    return {**block, "cache_control": {"type": "ephemeral"}}


def _mark_message(message: JsonMessage, block: int) -> JsonMessage:
    blocks = message["content"]
    return {**message, "content": [*blocks[:block], _mark_block(blocks[block]), *blocks[block + 1 :]]}


# -- blocks ---------------------------------------------------------------------------------------------------------


def _make_text(text: str) -> JsonMessage:
    return {"type": "text", "text": text}


def _render_parts(parts: Content, allowed: RecordedParts) -> Iterator[JsonMessage]:
    """Yield `parts` as blocks. Only `allowed` kinds go as recorded; blank text is left out, as it is rejected."""
    for part in parts:
        block = _render_part(part, allowed)
        if block["type"] != "text" or block["text"].strip():
            yield block


def _render_part(part: Part, allowed: RecordedParts) -> JsonMessage:
    if isinstance(part, Text):
        return _make_text(part.text)
    return (
        copy_recorded(part, allowed, "cache_control")
        or (_render_image(part) if "image" in allowed else None)
        or _make_text(describe_part(part))
    )


def _render_image(part: Opaque) -> JsonMessage | None:
    image = find_image(part)
    if image is None or (image.data and image.media not in _MEDIA_TYPES):
        return None
    if image.data:
        source = {"type": "base64", "media_type": image.media, "data": image.data}
    else:
        source = {"type": "url", "url": image.url}
    return {"type": "image", "source": source}


def _render_call(id: str, action: Action) -> JsonMessage:
    name = _FORBIDDEN.sub("_", action.name) or "unknown"
    return {"type": "tool_use", "id": id, "name": name, "input": parse_input(action.arguments)}
