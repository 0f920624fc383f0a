"""What Anthropic's Messages API rejects about a request. Errors quoted as the service writes them.

Messages of one role in a row are one message to the service ("consecutive turns will be combined"), so pairs and order
are looked at in such *sayings*. A `system` message between turns belongs to none of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from elision.providers.anthropic.breakpoints import (
    MAX_BREAKPOINTS,
    THINKING_TYPES,
    BlockPath,
    find_breakpoints,
    has_automatic_breakpoint,
)
from elision.providers.shared.capabilities import find_capabilities
from elision.providers.shared.json_reading import Json, list_objects, mapping_in, text_in
from elision.testing.request_rules.violation import Rule, Violation, find_doubled_names, find_unknown_roles

ROLES: Final = frozenset(("user", "assistant", "system"))

_ID = re.compile(r"[a-zA-Z0-9_-]+")
_SERVER_ID = re.compile(r"srvtoolu_[a-zA-Z0-9_]+")


@dataclass(slots=True)
class MergedMessage:
    """Messages of one role in a row: their blocks, each with its place."""

    role: str
    blocks: list[tuple[BlockPath, dict[str, Any]]] = field(default_factory=list)


class AnthropicRequest:
    """A body, read once for all rules."""

    def __init__(self, body: Json) -> None:
        self.body = body
        self.messages = list_objects(body.get("messages"))

    @cached_property
    def merged_messages(self) -> list[MergedMessage]:
        """Return the conversation as the service reads it: adjacent messages of one role are one."""
        found: list[MergedMessage] = []
        for place, message in self.messages:
            role = text_in(message.get("role"))
            if role == "system":
                continue
            if not found or found[-1].role != role:
                found.append(MergedMessage(role))
            found[-1].blocks += _list_blocks(("messages", place), message)
        return found

    @cached_property
    def blocks(self) -> list[tuple[BlockPath, dict[str, Any]]]:
        """Return every block of system prompt and messages; blocks inside a result come right after it."""
        found = _list_blocks(("system",), {"content": self.body.get("system")})
        for number, message in self.messages:
            for place, block in _list_blocks(("messages", number), message):
                found.append((place, block))
                if _read_kind(block) == "tool_result":
                    found += _list_blocks(place, block, includes_strings=False)
        return found


# -- messages ---------------------------------------------------------------------------------------------------------


def there_are_messages(request: AnthropicRequest) -> Iterator[Violation]:
    """The service says: "messages: at least one message is required"."""
    if not request.messages:
        yield Violation("messages", "at least one message is required")


def roles_are_known(request: AnthropicRequest) -> Iterator[Violation]:
    """A tool's result is the user's here; the system prompt is apart, and between turns where the model takes it."""
    return find_unknown_roles(request.messages, ROLES)


def messages_have_content(request: AnthropicRequest) -> Iterator[Violation]:
    """The service says: "all messages must have non-empty content except for the optional final assistant message"."""
    messages = request.messages
    for place, message in messages:
        last = place == messages[-1][0] and message.get("role") == "assistant"
        if not message.get("content") and not last:
            yield Violation(f"messages.{place}", "all messages must have content")


def texts_are_not_blank(request: AnthropicRequest) -> Iterator[Violation]:
    """The service says: "text content blocks must be non-empty", and must hold more than white space; inside results
    and the system prompt too. A message that is one blank string is an empty message."""
    for place, block in request.blocks:
        text = block.get("text")
        if _read_kind(block) == "text" and isinstance(text, str) and not text.strip():
            yield Violation(_format_path(place), "text content blocks must contain non-whitespace text")


def the_answer_does_not_begin_with_space_at_its_end(request: AnthropicRequest) -> Iterator[Violation]:
    """A last message of the assistant is the beginning of the answer: "final assistant content cannot end with trailing
    whitespace"."""
    messages = request.messages
    for place, message in messages[-1:]:
        blocks = _list_blocks(("messages", place), message)
        if blocks:
            text = text_in(blocks[-1][1].get("text"))
        else:
            text = ""
        if message.get("role") == "assistant" and text != text.rstrip():
            yield Violation(_format_path(blocks[-1][0]), "final assistant content cannot end with trailing whitespace")


def the_user_ends(request: AnthropicRequest) -> Iterator[Violation]:
    """Claude from 4.6 on begins its answers itself: "This model does not support assistant message prefill. The
    conversation must end with a user message". An answer that a server's tool interrupted is sent back as it is."""
    if find_capabilities(text_in(request.body.get("model"))).takes_prefill:
        return
    for message in request.merged_messages[-1:]:
        if message.role != "assistant" or not message.blocks:
            continue
        path, block = message.blocks[-1]
        if _read_kind(block) == "text":
            reason = "the conversation must end with a user message"
            yield Violation(_format_path(path[:2]), reason)


# -- calls and results ------------------------------------------------------------------------------------------------


def calls_are_answered(request: AnthropicRequest) -> Iterator[Violation]:
    """The service says: "`tool_use` ids were found without `tool_result` blocks immediately after. Each `tool_use`
    block must have a corresponding `tool_result` block in the next message"."""
    said = request.merged_messages
    for number, message in enumerate(said):
        if number + 1 < len(said):
            following = said[number + 1].blocks
        else:
            following = []
        answered = {id for _, id in _list_results(following)}
        for place, id in _list_calls(message):
            if id not in answered:
                reason = f"`tool_use` {id!r} has no `tool_result` in the next message"
                yield Violation(_format_path(place), reason, id)


def results_answer_the_last_calls(request: AnthropicRequest) -> Iterator[Violation]:
    """The service says: "unexpected `tool_use_id` found in `tool_result` blocks. Each `tool_result` block must have a
    corresponding `tool_use` block in the previous message"; and each call has one result."""
    waiting: set[str] = set()
    for message in request.merged_messages:
        if message.role == "assistant":
            waiting = {id for _, id in _list_calls(message)}
            continue
        for place, id in _list_results(message.blocks):
            if id not in waiting:
                reason = f"`tool_result` {id!r} has no `tool_use` of its own in the previous message"
                yield Violation(_format_path(place), reason, id)
            waiting.discard(id)


def results_stand_first(request: AnthropicRequest) -> Iterator[Violation]:
    """The service says: "Messages following `tool_use` blocks must begin with a matching number of `tool_result`
    blocks": what else the user says comes after them."""
    for message in request.merged_messages:
        if message.role != "user":
            continue
        other = False
        for place, block in message.blocks:
            if _read_kind(block) != "tool_result":
                other = True
            elif other:
                id = text_in(block.get("tool_use_id"))
                reason = f"`tool_result` {id!r} stands behind other content"
                yield Violation(_format_path(place), reason, id)


def call_ids_are_unique(request: AnthropicRequest) -> Iterator[Violation]:
    """The service says: "`tool_use` ids must be unique": those of one message, which one message answers. An id that
    was answered may be used again."""
    for message in request.merged_messages:
        seen: set[str] = set()
        for place, id in _list_calls(message):
            if id in seen:
                yield Violation(_format_path(place), f"`tool_use` id {id!r} stands twice", id)
            seen.add(id)


def calls_are_well_formed(request: AnthropicRequest) -> Iterator[Violation]:
    """Ids and names: "String should match pattern '^[a-zA-Z0-9_-]+$'", of a server's call '^srvtoolu_[a-zA-Z0-9_]+$';
    the input is an object: "Input should be a valid dictionary"."""
    for message in request.merged_messages:
        for place, block in message.blocks:
            id = text_in(block.get("id"))
            if _read_kind(block) == "server_tool_use" and not _SERVER_ID.fullmatch(id):
                reason = f"{block.get('id')!r} should match pattern '^srvtoolu_[a-zA-Z0-9_]+$'"
                where = f"{_format_path(place)}.server_tool_use.id"
                yield Violation(where, reason, id)
            if _read_kind(block) != "tool_use":
                continue
            for name in ("id", "name"):
                if not _ID.fullmatch(text_in(block.get(name))):
                    reason = f"{block.get(name)!r} should match pattern '^[a-zA-Z0-9_-]+$'"
                    yield Violation(f"{_format_path(place)}.tool_use.{name}", reason, id)
            if not isinstance(block.get("input"), dict):
                yield Violation(f"{_format_path(place)}.tool_use.input", "input should be a valid dictionary", id)


def server_results_stand_behind_their_call(request: AnthropicRequest) -> Iterator[Violation]:
    """The service says: "Each `web_search_tool_result` block must have a corresponding `server_tool_use` block before
    it", be it in an earlier message. A call may lack its result."""
    called: set[str] = set()
    for message in request.merged_messages:
        for place, block in message.blocks:
            kind = _read_kind(block)
            if kind in ("server_tool_use", "mcp_tool_use"):
                called.add(text_in(block.get("id")))
            elif kind.endswith("_tool_result") and (id := text_in(block.get("tool_use_id"))) not in called:
                reason = f"`{kind}` {id!r} has no corresponding call before it"
                yield Violation(_format_path(place), reason, id)


def errors_are_told_in_text(request: AnthropicRequest) -> Iterator[Violation]:
    """The service says: "content cannot be empty if `is_error` is true", and "all content must be type `text` if
    `is_error` is true"."""
    for message in request.merged_messages:
        for place, block in message.blocks:
            if _read_kind(block) != "tool_result" or block.get("is_error") is not True:
                continue
            content = block.get("content")
            if content:
                reason = ""
            else:
                reason = "content cannot be empty if `is_error` is true"
            if any(_read_kind(part) != "text" for _, part in list_objects(content)):
                reason = "all content must be type `text` if `is_error` is true"
            if reason:
                id = text_in(block.get("tool_use_id"))
                yield Violation(_format_path(place), reason, id)


def tools_are_named_once(request: AnthropicRequest) -> Iterator[Violation]:
    """The service says: "tools: Tool names must be unique"."""
    names = (text_in(tool.get("name")) for _, tool in list_objects(request.body.get("tools")))
    return find_doubled_names(names, "tools")


# -- thinking ---------------------------------------------------------------------------------------------------------


def thinking_is_sealed(request: AnthropicRequest) -> Iterator[Violation]:
    """Thinking goes back as the service sealed it, or not at all: "thinking.signature: Field required"."""
    for place, block in request.blocks:
        name = {"thinking": "signature", "redacted_thinking": "data"}.get(_read_kind(block))
        if name and not text_in(block.get(name)):
            yield Violation(f"{_format_path(place)}.{_read_kind(block)}.{name}", "field required")


def thinking_is_not_last(request: AnthropicRequest) -> Iterator[Violation]:
    """The service says: "The final block in an assistant message cannot be `thinking`"."""
    for message in request.merged_messages:
        if message.role == "assistant" and message.blocks and _read_kind(message.blocks[-1][1]) in THINKING_TYPES:
            place, block = message.blocks[-1]
            reason = f"the final block in an assistant message cannot be `{_read_kind(block)}`"
            yield Violation(_format_path(place), reason, text_in(block.get("signature")) or text_in(block.get("data")))


def thinking_goes_before_the_running_calls(request: AnthropicRequest) -> Iterator[Violation]:
    """With manual thinking on, the assistant's message that the last results answer begins with its thinking: "Expected
    `thinking` or `redacted_thinking`, but found `tool_use`. When `thinking` is enabled, a final `assistant` message
    must start with a thinking block". Adaptive thinking does not ask for it."""
    if mapping_in(request.body.get("thinking")).get("type") != "enabled":
        return
    spoken = [message for message in request.merged_messages if message.role == "assistant" and message.blocks]
    for message in spoken[-1:]:
        place, first = message.blocks[0]
        if any(True for _ in _list_calls(message)) and _read_kind(first) not in THINKING_TYPES:
            reason = f"expected `thinking` or `redacted_thinking`, but found `{_read_kind(first)}`"
            yield Violation(_format_path(place), reason)


# -- cache breakpoints ------------------------------------------------------------------------------------------------


def there_are_four_breakpoints_at_most(request: AnthropicRequest) -> Iterator[Violation]:
    """The service says: "A maximum of 4 blocks with cache_control may be provided. Found 5." Tools, system prompt and
    messages together, and one for automatic caching, unless it falls on a block that is marked already."""
    found = len(find_breakpoints(request.body)) + has_automatic_breakpoint(request.body)
    if found > MAX_BREAKPOINTS:
        reason = f"a maximum of {MAX_BREAKPOINTS} blocks with cache_control may be provided, found {found}"
        yield Violation("messages", reason)


def longer_lives_come_first(request: AnthropicRequest) -> Iterator[Violation]:
    """The service says: "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block. Note that
    blocks are processed in the following order: `tools`, `system`, `messages`". Automatic caching marks the end."""
    short = False
    for mark in find_breakpoints(request.body):
        if mark.ttl == "1h" and short:
            reason = "a ttl='1h' cache_control block must not come after a ttl='5m' one"
            yield Violation(f"{_format_path(mark.path)}.cache_control.ttl", reason)
            return
        short = short or mark.ttl != "1h"
    if (
        short
        and mapping_in(request.body.get("cache_control")).get("ttl") == "1h"
        and has_automatic_breakpoint(request.body)
    ):
        reason = "automatic caching with a ttl='1h' must not come after a ttl='5m' cache_control block"
        yield Violation("cache_control.ttl", reason)


def breakpoints_stand_where_they_may(request: AnthropicRequest) -> Iterator[Violation]:
    """The service says: "cache_control cannot be set for empty text blocks", and thinking takes none."""
    for place, block in request.blocks:
        if block.get("cache_control") is None:
            continue
        blank = _read_kind(block) == "text" and not text_in(block.get("text"))
        if blank or _read_kind(block) in THINKING_TYPES:
            reason = f"cache_control cannot be set for {'empty text' if blank else _read_kind(block)} blocks"
            yield Violation(f"{_format_path(place)}.cache_control", reason)


RULES: Final[Sequence[Rule]] = (
    there_are_messages,
    roles_are_known,
    messages_have_content,
    texts_are_not_blank,
    the_answer_does_not_begin_with_space_at_its_end,
    the_user_ends,
    calls_are_answered,
    results_answer_the_last_calls,
    results_stand_first,
    call_ids_are_unique,
    calls_are_well_formed,
    server_results_stand_behind_their_call,
    errors_are_told_in_text,
    tools_are_named_once,
    thinking_is_sealed,
    thinking_is_not_last,
    thinking_goes_before_the_running_calls,
    there_are_four_breakpoints_at_most,
    longer_lives_come_first,
    breakpoints_stand_where_they_may,
)


# -- reading a request ------------------------------------------------------------------------------------------------


def _format_path(path: BlockPath) -> str:
    """Return a path as providers write it: `messages.3.content.0.content.1`. Tools and system prompt are lists
    themselves."""
    first, *rest = path
    if first != "messages" or not rest:
        return ".".join(map(str, path))
    return ".".join((f"messages.{rest[0]}", *(f"content.{number}" for number in rest[1:])))


def _list_blocks(
    path: BlockPath, message: Json, *, includes_strings: bool = True
) -> list[tuple[BlockPath, dict[str, Any]]]:
    """Return the content of a message or result as blocks. includes_strings: whether a plain text is one, too."""
    content = message.get("content")
    if isinstance(content, str):
        if content and includes_strings:
            return [(path, {"type": "text", "text": content})]
        return []
    return [((*path, number), block) for number, block in list_objects(content)]


def _read_kind(block: Json) -> str:
    return text_in(block.get("type"))


def _list_calls(message: MergedMessage) -> Iterator[tuple[BlockPath, str]]:
    """Yield (place, id) of every call in an assistant message."""
    if message.role != "assistant":
        return
    for place, block in message.blocks:
        if _read_kind(block) == "tool_use":
            yield place, text_in(block.get("id"))


def _list_results(blocks: Sequence[tuple[BlockPath, Json]]) -> Iterator[tuple[BlockPath, str]]:
    """Yield (place, id of the call) of every result."""
    for place, block in blocks:
        if _read_kind(block) == "tool_result":
            yield place, text_in(block.get("tool_use_id"))
