"""Render views as Gemini's contents: the system instruction apart, responses right after the calls that they answer.

Thoughts are left out. They go back only with the signature that the model gave to a part, which stays where a client's
own messages are sent. A call that was recorded without one bears the words that the API takes in its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elision.providers.gemini.parse import get_field
from elision.providers.shared.base_renderer import (
    CONTINUE_TEXT,
    NO_RESULT_TEXT,
    OPENING_TEXT,
    BlockRenderer,
    JsonMessage,
    TurnCalls,
    describe_part,
    find_image,
    parse_input,
)
from elision.trajectory.content import Content, Part, Text
from elision.trajectory.turn import Action

#: Parts that go back as they were recorded, by the field that they have.
_RECORDED = ("inlineData", "fileData", "executableCode", "codeExecutionResult")
#: Stands for the signature of a call that another model made, or that was not recorded:
#: https://ai.google.dev/gemini-api/docs/thought-signatures#faqs
UNSIGNED = "skip_thought_signature_validator"


def render_tool(tool: Mapping[str, Any]) -> JsonMessage:
    """Return `tool`, of `name`, `description` and `input_schema`, as a list of one function."""
    function = {
        "name": tool["name"],
        "description": tool["description"],
        "parametersJsonSchema": tool["input_schema"],
    }
    return {"functionDeclarations": [function]}


class GeminiRenderer(BlockRenderer):
    """One session's contents."""

    content_field = "parts"

    def __init__(self, *, no_result_text: str = NO_RESULT_TEXT) -> None:
        super().__init__(no_result_text=no_result_text)
        #: Id of a call -> its function, which the response names too.
        self._functions: dict[str, str] = {}

    def _render_system(self, parts: Content) -> list[JsonMessage]:
        return _render_parts(parts)

    def _render_user(self, parts: Content) -> list[JsonMessage]:
        return self._make_messages("user", _render_parts(parts))

    def _render_assistant(self, calls: TurnCalls) -> list[JsonMessage]:
        parts = _render_parts(calls.turn.content)
        for id, action in calls.calls:
            self._functions[id] = action.name or "unknown"
            parts.append(_render_call(id, action))
        if calls.calls:
            first = len(parts) - len(calls.calls)
            # The first call of a message bears the signature for all.
            parts[first] = {**parts[first], "thoughtSignature": UNSIGNED}
        return self._make_messages("model", parts)

    def _render_result(self, id: str, parts: Content, error: bool | None) -> JsonMessage:
        # Bytes have no place in a response of every model: they are described.
        text = "\n".join(part.text if isinstance(part, Text) else describe_part(part) for part in parts)
        response = {"error" if error else "output": text}
        answer = {"id": id, "name": self._functions[id], "response": response}
        return {"role": "user", "parts": [{"functionResponse": answer}]}

    def _append_message(self, message: JsonMessage) -> None:
        """Append a content. The responses to one message of the model are one content, and so are a user's words."""
        if message["role"] == "model" and (not self._messages or self._messages[-1]["role"] == "model"):
            filler = CONTINUE_TEXT if self._messages else OPENING_TEXT
            self._messages += self._make_messages("user", [{"text": filler}])
        last = self._messages[-1] if self._messages else None
        if last is not None and _says_alike(last, message):
            self._messages[-1] = {**last, "parts": [*last["parts"], *message["parts"]]}
            return
        self._messages.append(message)


def _says_alike(last: JsonMessage, message: JsonMessage) -> bool:
    """Return whether both are the user's, and both responses or neither."""
    if last["role"] != "user" or message["role"] != "user":
        return False
    kinds = {"functionResponse" in part for part in (*last["parts"], *message["parts"])}
    return len(kinds) == 1


def _render_parts(parts: Content) -> list[JsonMessage]:
    rendered = [_render_part(part) for part in parts]
    return [part for part in rendered if part.get("text") != ""]


def _render_part(part: Part) -> JsonMessage:
    if isinstance(part, Text):
        return {"text": part.text}
    data = part.data or {}
    for name in _RECORDED:
        value = get_field(data, name)
        if isinstance(value, dict):
            return {name: value}
    image = find_image(part)
    if image is not None and image.data:
        return {"inlineData": {"mimeType": image.media, "data": image.data}}
    return {"text": describe_part(part)}


def _render_call(id: str, action: Action) -> JsonMessage:
    return {"functionCall": {"id": id, "name": action.name or "unknown", "args": parse_input(action.arguments)}}
