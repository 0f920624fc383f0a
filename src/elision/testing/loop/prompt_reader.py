"""Read a prompt as a model sees it: what was said, called and returned, in order, in the shape of either provider."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from elision.agent.model import Json, Prompt

#: Characters of a token, about.
_CHARACTERS_PER_TOKEN = 3.5


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptPiece:
    """One thing in a prompt.

    text:  what it says; of a call its arguments.
    name, arguments: of a call. call: id of the call, and of the result that answers it.
    """

    kind: Literal["system", "user", "said", "call", "result"]
    text: str
    name: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    call: str = ""

    @property
    def tokens(self) -> float:
        return len(self.text) / _CHARACTERS_PER_TOKEN


class PromptReader:
    """Reads prompts of one conversation. A message that was read is known again: views repeat the very object."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Json, tuple[PromptPiece, ...]]] = {}

    def read(self, prompt: Prompt) -> list[PromptPiece]:
        pieces = [PromptPiece(kind="system", text=_join_texts(prompt.system))] if prompt.system else []
        for message in prompt.messages:
            known = self._known.get(id(message))
            if known is None or known[0] is not message:
                # The message is kept, so that no other gets its id.
                known = self._known[id(message)] = (message, tuple(_split_message(message)))
            pieces += known[1]
        return pieces


def _split_message(message: Json) -> Iterator[PromptPiece]:
    role, content = message["role"], message.get("content")
    if role == "tool":
        yield _make_result(message["tool_call_id"], content)
        return
    kind: Any = {"assistant": "said", "user": "user"}.get(role, "system")
    if isinstance(content, str):
        yield PromptPiece(kind=kind, text=content)
    for block in content if isinstance(content, list) else ():
        if block["type"] == "tool_use":
            yield _make_call(block["id"], block["name"], block["input"])
        elif block["type"] == "tool_result":
            yield _make_result(block["tool_use_id"], block.get("content"))
        elif "text" in block:
            yield PromptPiece(kind=kind, text=block["text"])
    for call in message.get("tool_calls") or ():
        yield _make_call(call["id"], call["function"]["name"], json.loads(call["function"]["arguments"]))


def _make_call(call: str, name: str, arguments: Mapping[str, Any]) -> PromptPiece:
    return PromptPiece(kind="call", text=json.dumps(arguments), name=name, arguments=arguments, call=call)


def _make_result(call: str, content: Any) -> PromptPiece:
    text = _join_texts(content)
    if text.startswith('{"output"'):
        # The JSON form of a command's result. One that was cut or hidden is text.
        try:
            text = json.loads(text)["output"]
        except ValueError:
            text = text.replace("\\n", "\n").replace('\\"', '"')
    return PromptPiece(kind="result", text=text, call=call)


def _join_texts(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(block["text"] for block in content or () if "text" in block)
