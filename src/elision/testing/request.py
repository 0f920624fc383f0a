"""A request to a provider, read: what it asks, what was said in it, and its blocks as a prompt cache sees them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from elision.dialects import (
    Json,
    Said,
    anthropic,
    content_of,
    mapping_in,
    mappings_in,
    openai_chat,
    openai_responses,
    text_in,
)
from elision.trajectory.content import Content, Text, text_of
from elision.trajectory.tokens import PER_CALL, PER_MESSAGE, Counter

#: Whose API a request came to, as `dialects` call it; "openai" is chat completions.
Api: TypeAlias = Literal["openai", "openai-responses", "anthropic"]

#: Items of OpenAI Responses that are part of what the assistant said; consecutive ones are one message.
_SPOKEN_ITEMS = frozenset(openai_responses.CALLS) | {"reasoning"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """The smallest thing that a prompt cache compares.

    text:   what is compared: role and content, without cache markers.
    tokens: counted. mark: whether a cache breakpoint stands behind it.
    signature, thought: of a thinking block; "" for anything else.
    place:  where it stands, as a provider's error names it ("messages.3.content.0").
    """

    text: str
    tokens: int
    mark: bool = False
    signature: str = ""
    thought: str = ""
    place: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a request says, whichever API it came to.

    said:  the assistant messages in it, in order. users: the texts of the user messages.
    """

    model: str
    stream: bool
    said: tuple[Said, ...]
    users: tuple[str, ...]


def asked(api: Api, body: Json) -> Asked:
    """`body` read. Fields of the wrong type are taken for absent: checking them is not done here."""
    said, users = _TALK[api](body)
    return Asked(
        model=text_in(body.get("model")), stream=body.get("stream") is True, said=tuple(said), users=tuple(users)
    )


def _chat_talk(body: Json) -> tuple[list[Said], list[str]]:
    messages = mappings_in(body.get("messages"))
    said = [openai_chat.said(message) for message in messages if message.get("role") == "assistant"]
    return said, [_text(message) for message in messages if message.get("role") == "user"]


def _anthropic_talk(body: Json) -> tuple[list[Said], list[str]]:
    messages = mappings_in(body.get("messages"))
    said = [anthropic.said(message) for message in messages if message.get("role") == "assistant"]
    users = [text_of(anthropic.remarks(message)) for message in messages if message.get("role") == "user"]
    return said, users


def _responses_talk(body: Json) -> tuple[list[Said], list[str]]:
    said: list[Said] = []
    users: list[str] = []
    goes_on = False
    for item in items_of(body):
        spoken = item.get("role") == "assistant" or text_in(item.get("type")) in _SPOKEN_ITEMS
        if spoken:
            new = openai_responses.said(item)
            if goes_on:
                said[-1:] = [joined(said[-1], new)]
            else:
                said[-1:] = [*said[-1:], new]
        elif item.get("role") == "user":
            users.append(_text(item))
        goes_on = spoken
    return said, users


def joined(first: Said, second: Said) -> Said:
    """Two parts of one assistant message as one."""
    return Said(
        content=first.content + second.content,
        reasoning=first.reasoning + second.reasoning,
        actions=first.actions + second.actions,
    )


def items_of(body: Json) -> list[Json]:
    """The input of a Responses request as items; a string is one user message."""
    given = body.get("input")
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    return mappings_in(given)


def _text(message: Json) -> str:
    return text_of(content_of(message.get("content")))


_TALK: Mapping[Api, Callable[[Json], tuple[list[Said], list[str]]]] = {
    "openai": _chat_talk,
    "openai-responses": _responses_talk,
    "anthropic": _anthropic_talk,
}


# -- blocks -----------------------------------------------------------------------------------------------------------


def blocks(api: Api, body: Json, counter: Counter) -> Iterator[Block]:
    """The prompt in the order in which it is cached: tools, system prompt, messages."""
    for place, tool in enumerate(mappings_in(body.get("tools"))):
        yield _block(f"tools.{place}", "tool", tool, counter.count(_json(_bare(tool))))
    yield from _BLOCKS[api](body, counter)


def _chat_blocks(body: Json, counter: Counter) -> Iterator[Block]:
    for place, message in enumerate(mappings_in(body.get("messages"))):
        said = openai_chat.said(message)
        tokens = PER_MESSAGE + _size(said.content, counter) + counter.count(said.reasoning) + _calls(said, counter)
        yield _block(f"messages.{place}", text_in(message.get("role")), message, tokens)


def _responses_blocks(body: Json, counter: Counter) -> Iterator[Block]:
    if instructions := text_in(body.get("instructions")):
        yield _block("instructions", "system", {"text": instructions}, PER_MESSAGE + counter.count(instructions))
    for place, item in enumerate(items_of(body)):
        if text_in(item.get("type")) in openai_responses.OUTPUTS:
            tokens = _size(openai_responses.result(item).content, counter)
        else:
            said = openai_responses.said(item)
            tokens = _size(said.content, counter) + counter.count(said.reasoning) + _calls(said, counter)
        yield _block(f"input.{place}", text_in(item.get("role")), item, PER_MESSAGE + tokens)


def _anthropic_blocks(body: Json, counter: Counter) -> Iterator[Block]:
    system = anthropic.blocks_of(body.get("system"))
    for place, block in enumerate(system):
        yield _block(f"system.{place}", "system", block, _block_tokens(block, counter))
    for message, each in enumerate(mappings_in(body.get("messages"))):
        for place, block in enumerate(anthropic.blocks_of(each.get("content"))):
            tokens = _block_tokens(block, counter) + (0 if place else PER_MESSAGE)
            yield _block(f"messages.{message}.content.{place}", text_in(each.get("role")), block, tokens)


def _block_tokens(block: Json, counter: Counter) -> int:
    kind = block.get("type")
    if kind == "tool_result":
        return PER_MESSAGE + _size(content_of(block.get("content")), counter)
    said = anthropic.said({"content": [block]})
    return _size(said.content, counter) + counter.count(said.reasoning) + _calls(said, counter)


def _block(place: str, role: str, block: Json, tokens: int) -> Block:
    thinks = block.get("type") == "thinking"
    return Block(
        text=f"{role} {_json(_bare(block))}",
        tokens=tokens,
        mark="cache_control" in block,
        signature=text_in(block.get("signature")) if thinks else "",
        thought=text_in(block.get("thinking")) if thinks else "",
        place=place,
    )


def _bare(block: Json) -> dict[str, Any]:
    """Without what no cache compares: markers, and fields that say nothing."""
    return {name: value for name, value in block.items() if name != "cache_control" and value is not None}


def _size(parts: Content, counter: Counter) -> int:
    return sum(counter.count(part.text) if isinstance(part, Text) else part.tokens for part in parts)


def _calls(said: Said, counter: Counter) -> int:
    return sum(PER_CALL + counter.count(call.name) + counter.count(call.arguments) for call in said.actions)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


_BLOCKS: Mapping[Api, Callable[[Json, Counter], Iterator[Block]]] = {
    "openai": _chat_blocks,
    "openai-responses": _responses_blocks,
    "anthropic": _anthropic_blocks,
}


def tool_names(body: Json) -> set[str]:
    """The names of the tools that a request offers."""
    tools = mappings_in(body.get("tools"))
    return {text_in(tool.get("name")) or text_in(mapping_in(tool.get("function")).get("name")) for tool in tools}
