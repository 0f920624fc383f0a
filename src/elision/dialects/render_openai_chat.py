"""Views as OpenAI chat messages.

Reasoning in clear text goes back as `reasoning_content`, the name that DeepSeek, vLLM and others read it under: it is
counted, so it is sent. OpenAI's own models never show reasoning here, and servers that refuse the field refuse it to
the client as well; `Renderer(reasoning=False)` leaves it out.
"""

from __future__ import annotations

from typing import Any

from elision.dialects.render import UNANSWERED, Exchange, Sent, Transcript, image_in, in_words
from elision.trajectory.content import Content, Opaque, Part, Text
from elision.trajectory.turn import Action, Message

#: Parts that a user message carries as they were recorded -> the field that must hold an object.
_OWN = {"image_url": "image_url", "input_audio": "input_audio", "file": "file"}


class Renderer(Transcript):
    """One session's messages. A message of one text has a string for content, any other a list of parts."""

    def __init__(self, *, unanswered: str = UNANSWERED, reasoning: bool = True) -> None:
        super().__init__(unanswered=unanswered)
        self.reasoning = reasoning

    def _message(self, message: Message, *, head: bool) -> list[Sent]:
        if message.role == "user":
            return self._user(message.content)
        return [{"role": message.role, "content": _texts(message.content)}]

    def _user(self, parts: Content) -> list[Sent]:
        return [{"role": "user", "content": _shown([_part(part) for part in parts])}]

    def _assistant(self, exchange: Exchange) -> list[Sent]:
        turn = exchange.turn
        said = _texts(turn.content)
        # No content is allowed only where there are calls.
        message: Sent = {"role": "assistant", "content": said if said or not exchange.calls else None}
        if self.reasoning and turn.reasoning:
            message["reasoning_content"] = turn.reasoning
        if exchange.calls:
            message["tool_calls"] = [_call(id, action) for id, action in exchange.calls]
        return [message]

    def _result(self, id: str, parts: Content, error: bool | None) -> Sent:
        return {"role": "tool", "tool_call_id": id, "content": _texts(parts)}


def _call(id: str, action: Action) -> Sent:
    return {"id": id, "type": "function", "function": {"name": action.name or "unknown", "arguments": action.arguments}}


def _texts(parts: Content) -> Any:
    """Content of a message that can hold nothing but text."""
    return _shown([_text(part.text if isinstance(part, Text) else in_words(part)) for part in parts])


def _part(part: Part) -> Sent:
    if isinstance(part, Text):
        return _text(part.text)
    return _own(part) or _image(part) or _text(in_words(part))


def _text(text: str) -> Sent:
    return {"type": "text", "text": text}


def _own(part: Opaque) -> Sent | None:
    field = _OWN.get(part.kind, "")
    if part.data and isinstance(part.data.get(field), dict):
        return dict(part.data)
    return None


def _image(part: Opaque) -> Sent | None:
    image = image_in(part)
    if image is None:
        return None
    return {"type": "image_url", "image_url": {"url": image.url or f"data:{image.media};base64,{image.data}"}}


def _shown(parts: list[Sent]) -> Any:
    parts = [part for part in parts if part.get("text") != ""]
    if not parts:
        return ""
    if len(parts) == 1 and parts[0]["type"] == "text":
        return parts[0]["text"]
    return parts
