"""What Anthropic's Messages API rejects about a request. Errors quoted as the service writes them.

Messages of one role in a row are one message to the service ("consecutive turns will be combined"), so pairs and order
are looked at in such *sayings*. A `system` message between turns belongs to none of them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, TypeAlias

from elision.dialects import Json, mapping_in, text_in
from elision.dialects.capabilities import of
from elision.dialects.rules.violation import Rule, Violation, listed

#: Cache breakpoints in one request; automatic caching (top-level `cache_control`) takes one of them.
BREAKPOINTS: Final = 4
THINKING: Final = frozenset(("thinking", "redacted_thinking"))
ROLES: Final = frozenset(("user", "assistant", "system"))

_ID = re.compile(r"[a-zA-Z0-9_-]+")
_SERVERS_ID = re.compile(r"srvtoolu_[a-zA-Z0-9_]+")


#: Where a block stands: "messages" or "system", then numbers; made a text only where something is wrong.
Where: TypeAlias = tuple[str | int, ...]


@dataclass(slots=True)
class Saying:
    """Messages of one role in a row: their blocks, each with its place."""

    role: str
    blocks: list[tuple[Where, dict[str, Any]]] = field(default_factory=list)


class Request:
    """A body, read once for all rules."""

    def __init__(self, body: Json) -> None:
        self.body = body
        self.messages = listed(body.get("messages"))

    @cached_property
    def sayings(self) -> list[Saying]:
        """The conversation as the service reads it."""
        found: list[Saying] = []
        for place, message in self.messages:
            role = text_in(message.get("role"))
            if role == "system":
                continue
            if not found or found[-1].role != role:
                found.append(Saying(role))
            found[-1].blocks += _blocks(("messages", place), message)
        return found

    @cached_property
    def blocks(self) -> list[tuple[Where, dict[str, Any]]]:
        """Every block of system prompt and messages, those inside results right behind them."""
        found = _blocks(("system",), {"content": self.body.get("system")})
        for number, message in self.messages:
            for place, block in _blocks(("messages", number), message):
                found.append((place, block))
                if _kind(block) == "tool_result":
                    found += _blocks(place, block, strings=False)
        return found


# -- messages ---------------------------------------------------------------------------------------------------------


def there_are_messages(request: Request) -> Iterator[Violation]:
    """The service says: "messages: at least one message is required"."""
    if not request.messages:
        yield Violation(rule="there-are-messages", place="messages", reason="at least one message is required")


def roles_are_known(request: Request) -> Iterator[Violation]:
    """A tool's result is the user's here; the system prompt stands apart, and between turns where the model takes
    it."""
    for place, message in request.messages:
        role = message.get("role")
        if text_in(role) not in ROLES:
            reason = f"role {role!r} is none of {', '.join(sorted(ROLES))}"
            yield Violation(rule="roles-are-known", place=f"messages.{place}.role", reason=reason, subject=str(role))


def messages_have_content(request: Request) -> Iterator[Violation]:
    """The service says: "all messages must have non-empty content except for the optional final assistant message"."""
    messages = request.messages
    for place, message in messages:
        last = place == messages[-1][0] and message.get("role") == "assistant"
        if not message.get("content") and not last:
            yield Violation(
                rule="messages-have-content", place=f"messages.{place}", reason="all messages must have content"
            )


def texts_are_not_blank(request: Request) -> Iterator[Violation]:
    """The service says: "text content blocks must be non-empty", and must hold more than white space; inside results
    and the system prompt too. A message that is one blank string is an empty message."""
    for place, block in request.blocks:
        text = block.get("text")
        if _kind(block) == "text" and isinstance(text, str) and not text.strip():
            yield Violation(
                rule="texts-are-not-blank",
                place=_path(place),
                reason="text content blocks must contain non-whitespace text",
            )


def the_answer_does_not_begin_with_space_at_its_end(request: Request) -> Iterator[Violation]:
    """A last message of the assistant is the beginning of the answer: "final assistant content cannot end with trailing
    whitespace"."""
    messages = request.messages
    for place, message in messages[-1:]:
        blocks = _blocks(("messages", place), message)
        if blocks:
            text = text_in(blocks[-1][1].get("text"))
        else:
            text = ""
        if message.get("role") == "assistant" and text != text.rstrip():
            yield Violation(
                rule="the-answer-does-not-begin-with-space-at-its-end",
                place=_path(blocks[-1][0]),
                reason="final assistant content cannot end with trailing whitespace",
            )


def the_user_ends(request: Request) -> Iterator[Violation]:
    """Claude from 4.6 on begins its answers itself: "This model does not support assistant message prefill. The
    conversation must end with a user message". An answer that a server's tool interrupted is sent back as it is."""
    if of(text_in(request.body.get("model"))).prefill:
        return
    for saying in request.sayings[-1:]:
        if saying.blocks:
            place, block = saying.blocks[-1]
        else:
            place, block = ((), {})
        if saying.role == "assistant" and _kind(block) == "text":
            reason = "the conversation must end with a user message"
            yield Violation(rule="the-user-ends", place=_path(place[:2]), reason=reason)


# -- calls and results ------------------------------------------------------------------------------------------------


def calls_are_answered(request: Request) -> Iterator[Violation]:
    """The service says: "`tool_use` ids were found without `tool_result` blocks immediately after. Each `tool_use`
    block must have a corresponding `tool_result` block in the next message"."""
    said = request.sayings
    for number, saying in enumerate(said):
        if number + 1 < len(said):
            following = said[number + 1].blocks
        else:
            following = []
        answered = {id for _, id in _results(following)}
        for place, id in _calls(saying):
            if id not in answered:
                reason = f"`tool_use` {id!r} has no `tool_result` in the next message"
                yield Violation(rule="calls-are-answered", place=_path(place), reason=reason, subject=id)


def results_answer_the_last_calls(request: Request) -> Iterator[Violation]:
    """The service says: "unexpected `tool_use_id` found in `tool_result` blocks. Each `tool_result` block must have a
    corresponding `tool_use` block in the previous message"; and each call has one result."""
    waiting: set[str] = set()
    for saying in request.sayings:
        if saying.role == "assistant":
            waiting = {id for _, id in _calls(saying)}
            continue
        for place, id in _results(saying.blocks):
            if id not in waiting:
                reason = f"`tool_result` {id!r} has no `tool_use` of its own in the previous message"
                yield Violation(rule="results-answer-the-last-calls", place=_path(place), reason=reason, subject=id)
            waiting.discard(id)


def results_stand_first(request: Request) -> Iterator[Violation]:
    """The service says: "Messages following `tool_use` blocks must begin with a matching number of `tool_result`
    blocks": what else the user says stands behind them."""
    for saying in request.sayings:
        other = False
        for place, block in saying.blocks if saying.role == "user" else ():
            if _kind(block) != "tool_result":
                other = True
            elif other:
                id = text_in(block.get("tool_use_id"))
                reason = f"`tool_result` {id!r} stands behind other content"
                yield Violation(rule="results-stand-first", place=_path(place), reason=reason, subject=id)


def call_ids_are_unique(request: Request) -> Iterator[Violation]:
    """The service says: "`tool_use` ids must be unique": those of one message, which one message answers. An id that
    was answered may be used again."""
    for saying in request.sayings:
        seen: set[str] = set()
        for place, id in _calls(saying):
            if id in seen:
                yield Violation(
                    rule="call-ids-are-unique",
                    place=_path(place),
                    reason=f"`tool_use` id {id!r} stands twice",
                    subject=id,
                )
            seen.add(id)


def calls_are_well_formed(request: Request) -> Iterator[Violation]:
    """Ids and names: "String should match pattern '^[a-zA-Z0-9_-]+$'", of a server's call '^srvtoolu_[a-zA-Z0-9_]+$';
    the input is an object: "Input should be a valid dictionary"."""
    for saying in request.sayings:
        for place, block in saying.blocks:
            id = text_in(block.get("id"))
            if _kind(block) == "server_tool_use" and not _SERVERS_ID.fullmatch(id):
                reason = f"{block.get('id')!r} should match pattern '^srvtoolu_[a-zA-Z0-9_]+$'"
                where = f"{_path(place)}.server_tool_use.id"
                yield Violation(rule="calls-are-well-formed", place=where, reason=reason, subject=id)
            if _kind(block) != "tool_use":
                continue
            for name in ("id", "name"):
                if not _ID.fullmatch(text_in(block.get(name))):
                    reason = f"{block.get(name)!r} should match pattern '^[a-zA-Z0-9_-]+$'"
                    yield Violation(
                        rule="calls-are-well-formed", place=f"{_path(place)}.tool_use.{name}", reason=reason, subject=id
                    )
            if not isinstance(block.get("input"), dict):
                yield Violation(
                    rule="calls-are-well-formed",
                    place=f"{_path(place)}.tool_use.input",
                    reason="input should be a valid dictionary",
                    subject=id,
                )


def server_results_stand_behind_their_call(request: Request) -> Iterator[Violation]:
    """The service says: "Each `web_search_tool_result` block must have a corresponding `server_tool_use` block before
    it", be it in an earlier message. A call may lack its result."""
    called: set[str] = set()
    for saying in request.sayings:
        for place, block in saying.blocks:
            kind = _kind(block)
            if kind in ("server_tool_use", "mcp_tool_use"):
                called.add(text_in(block.get("id")))
            elif kind.endswith("_tool_result") and (id := text_in(block.get("tool_use_id"))) not in called:
                reason = f"`{kind}` {id!r} has no corresponding call before it"
                yield Violation(
                    rule="server-results-stand-behind-their-call", place=_path(place), reason=reason, subject=id
                )


def errors_are_told_in_text(request: Request) -> Iterator[Violation]:
    """The service says: "content cannot be empty if `is_error` is true", and "all content must be type `text` if
    `is_error` is true"."""
    for saying in request.sayings:
        for place, block in saying.blocks:
            if _kind(block) != "tool_result" or block.get("is_error") is not True:
                continue
            content = block.get("content")
            if content:
                reason = ""
            else:
                reason = "content cannot be empty if `is_error` is true"
            if any(_kind(part) != "text" for _, part in listed(content)):
                reason = "all content must be type `text` if `is_error` is true"
            if reason:
                id = text_in(block.get("tool_use_id"))
                yield Violation(rule="errors-are-told-in-text", place=_path(place), reason=reason, subject=id)


def tools_are_named_once(request: Request) -> Iterator[Violation]:
    """The service says: "tools: Tool names must be unique"."""
    names = Counter(text_in(tool.get("name")) for _, tool in listed(request.body.get("tools")))
    for name, count in names.items():
        if name and count > 1:
            yield Violation(
                rule="tools-are-named-once", place="tools", reason=f"{count} tools named {name!r}", subject=name
            )


# -- thinking ---------------------------------------------------------------------------------------------------------


def thinking_is_sealed(request: Request) -> Iterator[Violation]:
    """Thinking goes back as the service sealed it, or not at all: "thinking.signature: Field required"."""
    for place, block in request.blocks:
        name = {"thinking": "signature", "redacted_thinking": "data"}.get(_kind(block))
        if name and not text_in(block.get(name)):
            yield Violation(
                rule="thinking-is-sealed", place=f"{_path(place)}.{_kind(block)}.{name}", reason="field required"
            )


def thinking_is_not_last(request: Request) -> Iterator[Violation]:
    """The service says: "The final block in an assistant message cannot be `thinking`"."""
    for saying in request.sayings:
        if saying.role == "assistant" and saying.blocks and _kind(saying.blocks[-1][1]) in THINKING:
            place, block = saying.blocks[-1]
            reason = f"the final block in an assistant message cannot be `{_kind(block)}`"
            yield Violation(rule="thinking-is-not-last", place=_path(place), reason=reason, subject=_seal(block))


def thinking_goes_before_the_running_calls(request: Request) -> Iterator[Violation]:
    """With manual thinking on, the assistant's message that the last results answer begins with its thinking: "Expected
    `thinking` or `redacted_thinking`, but found `tool_use`. When `thinking` is enabled, a final `assistant` message
    must start with a thinking block". Adaptive thinking does not ask for it."""
    if mapping_in(request.body.get("thinking")).get("type") != "enabled":
        return
    spoken = [saying for saying in request.sayings if saying.role == "assistant" and saying.blocks]
    for saying in spoken[-1:]:
        place, first = saying.blocks[0]
        if any(True for _ in _calls(saying)) and _kind(first) not in THINKING:
            reason = f"expected `thinking` or `redacted_thinking`, but found `{_kind(first)}`"
            yield Violation(rule="thinking-goes-before-the-running-calls", place=_path(place), reason=reason)


# -- cache breakpoints ------------------------------------------------------------------------------------------------


def there_are_four_breakpoints_at_most(request: Request) -> Iterator[Violation]:
    """The service says: "A maximum of 4 blocks with cache_control may be provided. Found 5." Tools, system prompt and
    messages together, and one for automatic caching, unless it falls on a block that is marked already."""
    found = len(breakpoints(request.body)) + takes_one(request.body)
    if found > BREAKPOINTS:
        reason = f"a maximum of {BREAKPOINTS} blocks with cache_control may be provided, found {found}"
        yield Violation(rule="there-are-four-breakpoints-at-most", place="messages", reason=reason)


def longer_lives_come_first(request: Request) -> Iterator[Violation]:
    """The service says: "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block. Note that
    blocks are processed in the following order: `tools`, `system`, `messages`". Automatic caching marks the end."""
    short = False
    for mark in breakpoints(request.body):
        if mark.ttl == "1h" and short:
            reason = "a ttl='1h' cache_control block must not come after a ttl='5m' one"
            yield Violation(
                rule="longer-lives-come-first", place=f"{_path(mark.where)}.cache_control.ttl", reason=reason
            )
            return
        short = short or mark.ttl != "1h"
    if short and mapping_in(request.body.get("cache_control")).get("ttl") == "1h" and takes_one(request.body):
        reason = "automatic caching with a ttl='1h' must not come after a ttl='5m' cache_control block"
        yield Violation(rule="longer-lives-come-first", place="cache_control.ttl", reason=reason)


def breakpoints_stand_where_they_may(request: Request) -> Iterator[Violation]:
    """The service says: "cache_control cannot be set for empty text blocks", and thinking takes none."""
    for place, block in request.blocks:
        if block.get("cache_control") is None:
            continue
        blank = _kind(block) == "text" and not text_in(block.get("text"))
        if blank or _kind(block) in THINKING:
            reason = f"cache_control cannot be set for {'empty text' if blank else _kind(block)} blocks"
            yield Violation(
                rule="breakpoints-stand-where-they-may", place=f"{_path(place)}.cache_control", reason=reason
            )


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


@dataclass(frozen=True, slots=True)
class Mark:
    """A breakpoint that is set. where: its path. ttl: "5m" or "1h"."""

    where: Where
    ttl: str

    @property
    def place(self) -> tuple[int, int]:
        """(message, block); in front of all of them for one on a tool or the system prompt."""
        numbers = (*(each for each in self.where[1:] if isinstance(each, int)), 0, 0)
        if self.where[0] == "messages":
            return (numbers[0], numbers[1])
        return (-1, -1)

    @property
    def own(self) -> bool:
        """Whether it stands on a block of a message, and not inside a result."""
        return self.where[0] == "messages" and len(self.where) < 4


def breakpoints(body: Json) -> list[Mark]:
    """Every block of a request that is marked, in the order in which the service reads them."""
    found = [*_marks(("tools",), body.get("tools")), *_marks(("system",), body.get("system"))]
    messages = body.get("messages")
    for number, message in enumerate(messages if isinstance(messages, list) else ()):
        if isinstance(message, dict):
            content = message.get("content")
        else:
            content = None
        # This is read at every call, and most messages have no mark.
        if isinstance(content, list) and any(map(_may_be_marked, content)):
            found += _marks(("messages", number), content, inside=True)
    return found


def _may_be_marked(block: object) -> bool:
    return isinstance(block, dict) and ("cache_control" in block or isinstance(block.get("content"), list))


def _marks(where: Where, content: object, *, inside: bool = False) -> Iterator[Mark]:
    """Every marked block of a content; inside: those in its results right behind them."""
    for at, block in enumerate(content) if isinstance(content, list) else ():
        if not isinstance(block, dict):
            continue
        if isinstance(control := block.get("cache_control"), dict):
            yield Mark((*where, at), text_in(control.get("ttl")) or "5m")
        if inside and block.get("type") == "tool_result":
            yield from _marks((*where, at), block.get("content"))


def takes_one(body: Json) -> bool:
    """Whether automatic caching takes a breakpoint: it does nothing where the last block that can bear one has one."""
    if not isinstance(body.get("cache_control"), dict):
        return False
    messages = listed(body.get("messages"))
    blocks = [block for _, message in messages[-1:] for _, block in _blocks((), message)]
    bearing = [block for block in blocks if _kind(block) not in THINKING]
    return not bearing or bearing[-1].get("cache_control") is None


def _path(where: Where) -> str:
    """`messages.3.content.0.content.1`; tools and the system prompt are lists themselves."""
    first, *rest = where
    if first != "messages" or not rest:
        return ".".join(map(str, where))
    return ".".join((f"messages.{rest[0]}", *(f"content.{number}" for number in rest[1:])))


def _blocks(where: Where, message: Json, *, strings: bool = True) -> list[tuple[Where, dict[str, Any]]]:
    """The content of a message or result as blocks. strings: whether a plain text is one, too."""
    content = message.get("content")
    if isinstance(content, str):
        if content and strings:
            return [(where, {"type": "text", "text": content})]
        return []
    return [((*where, number), block) for number, block in listed(content)]


def _kind(block: Json) -> str:
    return text_in(block.get("type"))


def _seal(block: Json) -> str:
    return text_in(block.get("signature")) or text_in(block.get("data"))


def _calls(saying: Saying) -> Iterator[tuple[Where, str]]:
    """(place, id) of every call of the assistant's."""
    for place, block in saying.blocks if saying.role == "assistant" else ():
        if _kind(block) == "tool_use":
            yield place, text_in(block.get("id"))


def _results(blocks: Sequence[tuple[Where, Json]]) -> Iterator[tuple[Where, str]]:
    """(place, id of the call) of every result."""
    for place, block in blocks:
        if _kind(block) == "tool_result":
            yield place, text_in(block.get("tool_use_id"))
