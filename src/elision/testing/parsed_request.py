"""Read a request to a provider: what it asks, what was said in it, and its blocks as a prompt cache sees them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from elision.providers.anthropic import messages as anthropic
from elision.providers.gemini import messages as gemini
from elision.providers.openai_chat import messages as openai_chat
from elision.providers.openai_responses import messages as openai_responses
from elision.providers.provider import Api
from elision.providers.provider_table import PROVIDERS
from elision.providers.shared.json_reading import (
    AssistantMessage,
    Json,
    mapping_in,
    mappings_in,
    parse_content,
    text_in,
)
from elision.trajectory.tokens import TOKENS_PER_CALL, TOKENS_PER_MESSAGE, TokenCounter
from elision.trajectory.turn import Content, Text, join_text


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptBlock:
    """The smallest thing that a prompt cache compares.

    text:   what is compared: role and content, without cache markers.
    tokens: counted. has_breakpoint: whether a cache breakpoint is set on it. ttl: how long it asks to keep the prefix.
    signature, thinking: of a thinking block; "" for anything else.
    place:  where it is, as a provider's error names it ("messages.3.content.0").
    role:   whose it is: system, developer, user, assistant, tool; "" for tools and where it does not matter.
    """

    text: str
    tokens: int
    has_breakpoint: bool = False
    ttl: str = ""
    signature: str = ""
    thinking: str = ""
    place: str = ""
    role: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedRequest:
    """What a request says, whichever API it came to.

    assistant_messages: the assistant messages in it, in order. user_texts: the texts of the user messages.
    """

    model: str
    stream: bool
    assistant_messages: tuple[AssistantMessage, ...]
    user_texts: tuple[str, ...]


def parse_request(api: Api, body: Json) -> ParsedRequest:
    """Read `body`. Fields of the wrong type count as absent; they are checked elsewhere."""
    provider = PROVIDERS[api]
    messages = list_items(body) if api == "openai-responses" else mappings_in(body.get(provider.list_field))
    said: list[AssistantMessage] = []
    users: list[str] = []
    is_continued = False
    for index, message in enumerate(messages):
        for piece in provider.live.split_message(message, index):
            if piece.assistant is not None and is_continued:
                said[-1] = join_messages(said[-1], piece.assistant)
            elif piece.assistant is not None:
                said.append(piece.assistant)
            elif piece.kind == "user":
                users.append(join_text(piece.words))
            # Items in a row are one message.
            is_continued = piece.assistant is not None and api == "openai-responses"
    return ParsedRequest(
        model=text_in(body.get("model")),
        stream=body.get("stream") is True,
        assistant_messages=tuple(said),
        user_texts=tuple(users),
    )


def join_messages(first: AssistantMessage, second: AssistantMessage) -> AssistantMessage:
    """Join two parts of one assistant message."""
    return AssistantMessage(
        content=first.content + second.content,
        reasoning=first.reasoning + second.reasoning,
        actions=first.actions + second.actions,
    )


def list_items(body: Json) -> Sequence[Json]:
    """Return the input of a Responses request as items; a string is one user message."""
    given = body.get("input")
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    return mappings_in(given)


# -- blocks -----------------------------------------------------------------------------------------------------------


def split_into_blocks(api: Api, body: Json, counter: TokenCounter) -> Iterator[PromptBlock]:
    """Yield the prompt in the order in which it is cached: tools, system prompt, messages."""
    for place, tool in enumerate(mappings_in(body.get("tools"))):
        yield _make_block(f"tools.{place}", "tool", tool, counter.count(_dump_json(_strip_markers(tool))))
    yield from _SPLITTERS[api](body, counter)


def _split_chat(body: Json, counter: TokenCounter) -> Iterator[PromptBlock]:
    for place, message in enumerate(mappings_in(body.get("messages"))):
        tokens = TOKENS_PER_MESSAGE + _count_message(openai_chat.parse_assistant(message), counter)
        yield _make_block(f"messages.{place}", text_in(message.get("role")), message, tokens)


def _split_responses(body: Json, counter: TokenCounter) -> Iterator[PromptBlock]:
    if instructions := text_in(body.get("instructions")):
        yield _make_block(
            "instructions", "system", {"text": instructions}, TOKENS_PER_MESSAGE + counter.count(instructions)
        )
    for place, item in enumerate(list_items(body)):
        if text_in(item.get("type")) in openai_responses.OUTPUTS:
            tokens = _count_content(openai_responses.parse_result(item).content, counter)
        else:
            tokens = _count_message(openai_responses.parse_item(item), counter)
        block = _make_block(f"input.{place}", text_in(item.get("role")), item, TOKENS_PER_MESSAGE + tokens)
        is_output = text_in(item.get("type")) in openai_responses.OUTPUTS
        yield replace(block, role="tool" if is_output else block.role or "assistant")


def _split_anthropic(body: Json, counter: TokenCounter) -> Iterator[PromptBlock]:
    system = anthropic.list_blocks(body.get("system"))
    for place, block in enumerate(system):
        yield _make_block(f"system.{place}", "system", block, _count_block(block, counter))
    for message, each in enumerate(mappings_in(body.get("messages"))):
        for place, block in enumerate(anthropic.list_blocks(each.get("content"))):
            tokens = _count_block(block, counter)
            if place == 0:
                tokens += TOKENS_PER_MESSAGE
            yield _make_block(f"messages.{message}.content.{place}", text_in(each.get("role")), block, tokens)


def _split_gemini(body: Json, counter: TokenCounter) -> Iterator[PromptBlock]:
    contents = [("systemInstruction", "system", body.get("systemInstruction") or {})]
    for number, each in enumerate(mappings_in(body.get("contents"))):
        contents.append((f"contents.{number}", text_in(each.get("role")) or "user", each))
    for path, role, content in contents:
        for place, part in enumerate(gemini.list_parts(content)):
            tokens = TOKENS_PER_MESSAGE if place == 0 else 0
            if gemini.is_response(part):
                tokens += _count_content(gemini.parse_response(part).content, counter)
            else:
                tokens += _count_message(gemini.parse_assistant({"parts": [part]}), counter)
            yield _make_block(f"{path}.parts.{place}", role, part, tokens)


def _count_block(block: Json, counter: TokenCounter) -> int:
    kind = block.get("type")
    if kind == "tool_result":
        return TOKENS_PER_MESSAGE + _count_content(parse_content(block.get("content")), counter)
    return _count_message(anthropic.parse_assistant({"content": [block]}), counter)


def _make_block(place: str, role: str, block: Json, tokens: int) -> PromptBlock:
    sealed: Json = block if block.get("type") == "thinking" else {}
    return PromptBlock(
        text=f"{role} {_dump_json(_strip_markers(block))}",
        tokens=tokens,
        has_breakpoint="cache_control" in block or any(part.get(_MARK) for part in _list_parts(block)),
        ttl=text_in(mapping_in(block.get("cache_control")).get("ttl")),
        signature=text_in(sealed.get("signature")),
        thinking=text_in(sealed.get("thinking")),
        place=place,
        role=role,
    )


#: OpenAI's cache breakpoint, a field of a part of a message.
_MARK = "prompt_cache_breakpoint"


def _list_parts(block: Json) -> list[Json]:
    return [part for name in ("content", "output") for part in mappings_in(block.get(name))]


def _strip_markers(block: Json) -> dict[str, Any]:
    """Return `block` without what no cache compares: markers, nulls, and the part around a single text."""
    shown = {name: value for name, value in block.items() if name != "cache_control" and value is not None}
    for name in ("content", "output"):
        if isinstance(shown.get(name), list) and any(_MARK in part for part in mappings_in(shown[name])):
            parts = [{key: each for key, each in part.items() if key != _MARK} for part in mappings_in(shown[name])]
            shown[name] = parts[0]["text"] if len(parts) == 1 and "text" in parts[0] else parts
    return shown


def _count_content(parts: Content, counter: TokenCounter) -> int:
    tokens = 0
    for part in parts:
        if isinstance(part, Text):
            tokens += counter.count(part.text)
        else:
            tokens += part.tokens
    return tokens


def _count_message(message: AssistantMessage, counter: TokenCounter) -> int:
    calls = sum(TOKENS_PER_CALL + counter.count(call.name) + counter.count(call.arguments) for call in message.actions)
    return _count_content(message.content, counter) + counter.count(message.reasoning) + calls


def _dump_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


_SPLITTERS: Mapping[Api, Callable[[Json, TokenCounter], Iterator[PromptBlock]]] = {
    "openai": _split_chat,
    "openai-responses": _split_responses,
    "anthropic": _split_anthropic,
    "gemini": _split_gemini,
}
