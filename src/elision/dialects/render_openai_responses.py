"""Views as OpenAI Responses items, every one sent anew (`store=False`), nothing left to the service's memory.

Sealed reasoning goes back as it was recorded, in front of what the model said or did next, without which it is
rejected. Reasoning in clear text is left out: the service takes its own sealed items and no others. Item ids are left
out but for those of reasoning and of hosted tools, which cannot be without.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from elision.dialects.render import Exchange, Sent, Transcript, image_in, in_words
from elision.trajectory.content import Content, Opaque, Part, Text
from elision.trajectory.turn import Action, Message

#: Letters that the service forbids in a tool's name.
_FORBIDDEN = re.compile(r"[^a-zA-Z0-9_-]")

#: Parts and items kept as they were recorded -> fields that they cannot be without, and of which type.
_Fields = Mapping[str, type]
_IN_USER: Mapping[str, _Fields] = {"input_image": {"detail": str}, "input_file": {}}
_IN_ASSISTANT: Mapping[str, _Fields] = {
    "reasoning": {"id": str, "summary": list, "encrypted_content": str},
    "web_search_call": {"id": str, "action": dict, "status": str},
    "image_generation_call": {"id": str, "status": str, "result": str},
}


class Renderer(Transcript):
    """One session's items: messages, reasoning, calls and their outputs, each an item of its own."""

    def _message(self, message: Message, *, head: bool) -> list[Sent]:
        if message.role == "user":
            return self._user(message.content)
        return [{"role": message.role, "content": _words(message.content)}]

    def _user(self, parts: Content) -> list[Sent]:
        return [{"role": "user", "content": _shown(parts)}]

    def _assistant(self, exchange: Exchange) -> list[Sent]:
        items = [*_said(exchange.turn.content), *(_call(id, action) for id, action in exchange.calls)]
        while items and items[-1].get("type") == "reasoning":
            items.pop()
        return items

    def _result(self, id: str, parts: Content, error: bool | None) -> Sent:
        return {"type": "function_call_output", "call_id": id, "output": _shown(parts)}


def _said(parts: Content) -> Iterator[Sent]:
    """What an assistant says: words in a row are one message, and items stand where they stood."""
    words: list[Part] = []
    for part in (*parts, None):
        if isinstance(part, Opaque):
            item = _own(part, _IN_ASSISTANT)
        else:
            item = None
        if part is not None and item is None:
            words.append(part)
            continue
        if said := _words(tuple(words)):
            yield {"role": "assistant", "content": said}
        words = []
        if item is not None:
            yield item


def _call(id: str, action: Action) -> Sent:
    name = _FORBIDDEN.sub("_", action.name) or "unknown"
    return {"type": "function_call", "call_id": id, "name": name, "arguments": action.arguments}


def _words(parts: Content) -> str:
    """Content that can hold nothing but text."""
    return "\n".join(filter(None, (part.text if isinstance(part, Text) else in_words(part) for part in parts)))


def _shown(parts: Content) -> Any:
    """Content that holds images too: a text where there are none."""
    shown = [_part(part) for part in parts]
    shown = [part for part in shown if part.get("text") != ""]
    if all(part["type"] == "input_text" for part in shown) and len(shown) < 2:
        if shown:
            return shown[0]["text"]
        return ""
    return shown


def _part(part: Part) -> Sent:
    if isinstance(part, Text):
        return _text(part.text)
    return _own(part, _IN_USER) or _image(part) or _text(in_words(part))


def _text(text: str) -> Sent:
    return {"type": "input_text", "text": text}


def _own(part: Opaque, allowed: Mapping[str, _Fields]) -> Sent | None:
    """As recorded, but for fields that are null or a recorded breakpoint, of which a request writes four."""
    fields = allowed.get(part.kind)
    if fields is None or part.data is None:
        return None
    if not all(isinstance(part.data.get(name), kind) for name, kind in fields.items()):
        return None
    return {name: value for name, value in part.data.items() if value is not None and name != "prompt_cache_breakpoint"}


def _image(part: Opaque) -> Sent | None:
    image = image_in(part)
    if image is None:
        return None
    url = image.url or f"data:{image.media};base64,{image.data}"
    return {"type": "input_image", "detail": "auto", "image_url": url}
