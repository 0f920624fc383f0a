"""Views as Anthropic messages: the system prompt apart, roles taking turns, results first in the message behind a call.

Reasoning in clear text is left out: its signature was not recorded, and a thinking block without it is rejected. Sealed
blocks go back as they were recorded. Cache breakpoints stand on the last block in front of each of the view's marks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from elision.dialects.render import Exchange, Sent, Transcript, image_in, in_words
from elision.trajectory.content import Content, Opaque, Part, Text
from elision.trajectory.turn import Action, Message
from elision.trajectory.view import View

#: A conversation must begin with the user.
BEGINS = "[The conversation begins.]"
#: Two assistant messages with nothing between them; one at the end would be taken for the beginning of the answer.
CONTINUES = "[Continue.]"
#: Reasoning: may not bear a cache breakpoint, and may not end a message.
THINKING = frozenset(("thinking", "redacted_thinking"))

_MEDIA_TYPES = frozenset(("image/jpeg", "image/png", "image/gif", "image/webp"))
_FORBIDDEN = re.compile(r"[^a-zA-Z0-9_-]")

#: Blocks kept as they were recorded, by where they may stand -> fields that they cannot be without, and of which type.
_Fields = Mapping[str, type]
_SOURCED: Mapping[str, _Fields] = {"image": {"source": dict}, "document": {"source": dict}}
_IN_RESULT: Mapping[str, _Fields] = {
    **_SOURCED,
    "search_result": {"content": list},
    "tool_reference": {"tool_name": str},
}
_IN_USER: Mapping[str, _Fields] = {
    **_SOURCED,
    "search_result": {"content": list},
    "container_upload": {"file_id": str},
}
_SERVED: _Fields = {"tool_use_id": str, "content": object}
_IN_ASSISTANT: Mapping[str, _Fields] = {
    "thinking": {"thinking": str, "signature": str},
    "redacted_thinking": {"data": str},
    "server_tool_use": {"id": str, "name": str, "input": dict},
    "mcp_tool_use": {"id": str, "name": str, "input": dict},
    "mcp_tool_result": _SERVED,
    "web_search_tool_result": _SERVED,
    "web_fetch_tool_result": _SERVED,
    "code_execution_tool_result": _SERVED,
    "bash_code_execution_tool_result": _SERVED,
    "text_editor_code_execution_tool_result": _SERVED,
    "tool_search_tool_result": _SERVED,
}


class Renderer(Transcript):
    """One session's messages; content is always a list of blocks, except a result's that is one text."""

    forbidden = _FORBIDDEN

    def messages(self, view: View) -> list[Sent]:
        sent = self.plain(view)
        for message, block in self._marks(view):
            sent[message] = _marked(sent[message], block)
        return sent

    def plain(self, view: View) -> list[Sent]:
        sent = super().plain(view)
        if filler := _filler(sent):
            sent.append(filler)
        return sent

    def system(self, view: View) -> list[Sent]:
        """The head's system messages as text blocks, with the breakpoints that stand in front of the first message."""
        self._follow(view)
        segments = view.track.segments[: view.length]
        head = (each.source for each in segments if each.kind == "head" and isinstance(each.source, Message))
        blocks = [block for each in head if each.role != "user" for block in _texts(each.content)]
        if blocks and any(self._ends[mark - 1] == (0, 0) for mark in view.marks):
            blocks[-1] = _cached(blocks[-1])
        return blocks

    # -- what is said ---------------------------------------------------------------------------------------------

    def _message(self, message: Message, *, head: bool) -> list[Sent]:
        if message.role == "user":
            return self._user(message.content)
        if head:
            return []  # see `system`
        # Few models take `role: system` between turns, so its words go where all take them, named for what they are.
        return self._user((Text("[System message]"), *message.content))

    def _user(self, parts: Content) -> list[Sent]:
        return _as("user", list(_placed(parts, _IN_USER)))

    def _assistant(self, exchange: Exchange) -> list[Sent]:
        blocks = [*_placed(exchange.turn.content, _IN_ASSISTANT), *(_call(id, action) for id, action in exchange.calls)]
        while blocks and blocks[-1]["type"] in THINKING:
            blocks.pop()
        return _as("assistant", blocks)

    def _result(self, id: str, parts: Content, error: bool | None) -> Sent:
        blocks = list(_placed(parts, _IN_RESULT))
        result: Sent = {"type": "tool_result", "tool_use_id": id}
        if blocks:
            if len(blocks) == 1 and blocks[0]["type"] == "text":
                result["content"] = blocks[0]["text"]
            else:
                result["content"] = blocks
        # An error must say something, and in text alone.
        if error and blocks and all(block["type"] == "text" for block in blocks):
            result["is_error"] = True
        return {"role": "user", "content": [result]}

    def _join(self, message: Sent) -> None:
        if message["role"] == "assistant":
            if filler := _filler(self._sent):
                self._sent += [filler]
            else:
                self._sent += []
        elif self._sent and self._sent[-1]["role"] == "user":
            last = self._sent[-1]
            self._sent[-1] = {**last, "content": last["content"] + message["content"]}
            return
        self._sent.append(message)

    # -- cache breakpoints ----------------------------------------------------------------------------------------

    def _marks(self, view: View) -> set[tuple[int, int]]:
        """(message, block) of every breakpoint."""
        found = (self._last_block(*self._ends[mark - 1]) for mark in view.marks)
        return {place for place in found if place}

    def _last_block(self, count: int, blocks: int) -> tuple[int, int] | None:
        """The last block that can bear a breakpoint among `count` messages, `blocks` of the last one; None if none."""
        while count:
            content = self._sent[count - 1]["content"]
            for block in range(blocks - 1, -1, -1):
                if content[block]["type"] not in THINKING:
                    return count - 1, block
            count -= 1
            if count:
                blocks = len(self._sent[count - 1]["content"])
            else:
                blocks = 0
        return None


def _filler(sent: list[Sent]) -> Sent | None:
    """What must stand between `sent` and an assistant message; None if nothing must."""
    if sent and sent[-1]["role"] == "user":
        return None
    return {"role": "user", "content": [_text(CONTINUES if sent else BEGINS)]}


def _as(role: str, blocks: list[Sent]) -> list[Sent]:
    """A message is never empty: one that has nothing to say is not sent."""
    if blocks:
        return [{"role": role, "content": blocks}]
    return []


def _cached(block: Sent) -> Sent:
    return {**block, "cache_control": {"type": "ephemeral"}}


def _marked(message: Sent, block: int) -> Sent:
    blocks = message["content"]
    return {**message, "content": [*blocks[:block], _cached(blocks[block]), *blocks[block + 1 :]]}


# -- blocks ---------------------------------------------------------------------------------------------------------


def _text(text: str) -> Sent:
    return {"type": "text", "text": text}


def _texts(parts: Content) -> list[Sent]:
    return list(_placed(parts, {}))


def _placed(parts: Content, allowed: Mapping[str, _Fields]) -> Iterator[Sent]:
    """`parts` as blocks; only `allowed` ones as recorded, and no text without a letter in it (it is rejected)."""
    for part in parts:
        block = _block(part, allowed)
        if block["type"] != "text" or block["text"].strip():
            yield block


def _block(part: Part, allowed: Mapping[str, _Fields]) -> Sent:
    if isinstance(part, Text):
        return _text(part.text)
    return _own(part, allowed) or (_image(part) if "image" in allowed else None) or _text(in_words(part))


def _own(part: Opaque, allowed: Mapping[str, _Fields]) -> Sent | None:
    """As recorded, but for a recorded breakpoint: there may be four in all, and they are the view's."""
    fields = allowed.get(part.kind)
    if fields is None or part.data is None:
        return None
    if not all(isinstance(part.data.get(name, ...), kind) and name in part.data for name, kind in fields.items()):
        return None
    return {name: value for name, value in part.data.items() if name != "cache_control"}


def _image(part: Opaque) -> Sent | None:
    image = image_in(part)
    if image is None or (image.data and image.media not in _MEDIA_TYPES):
        return None
    if image.data:
        source = {"type": "base64", "media_type": image.media, "data": image.data}
    else:
        source = {"type": "url", "url": image.url}
    return {"type": "image", "source": source}


def _call(id: str, action: Action) -> Sent:
    name = _FORBIDDEN.sub("_", action.name) or "unknown"
    return {"type": "tool_use", "id": id, "name": name, "input": _input(action.arguments)}


def _input(arguments: str) -> dict[str, Any]:
    """Arguments as the object that they must be here; anything else stands under "arguments"."""
    if not arguments.strip():
        return {}
    try:
        value = json.loads(arguments, parse_constant=_reject)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        return value
    return {"arguments": arguments}


def _reject(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")
