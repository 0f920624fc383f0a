"""Gemini's generateContent: contents, calls, responses and usage read into values, and views rendered as contents.

A content is one message: a role and a list of parts. The API takes the names of fields in both of its spellings
(`functionCall`, `function_call`), and its Python package writes the second where an object is dumped, so both are read.
Shapes: https://ai.google.dev/api/caching#Content and the types of google-genai 3.4. Live, each function response of a
user's message is a piece, and the other parts are one more.

A request has the system instruction apart, and responses right after the calls that they answer. Thoughts are left out.
They go back only with the signature that the model gave to a part, which stays where a client's own messages are sent.
A call that was recorded without one bears the words that the API takes in its place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from elision.providers.live.client_messages import BlockMessageDialect, Location, Piece
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
from elision.providers.shared.json_reading import (
    GEMINI_SEAL,
    AssistantMessage,
    Json,
    ToolResult,
    count_in,
    dump_arguments,
    dump_json,
    join_contents,
    join_lines,
    make_opaque,
    make_sealed,
    mapping_in,
    mappings_in,
    text_in,
)
from elision.trajectory.turn import IMAGE_TOKENS, Action, Content, Opaque, Part, Text, make_content
from elision.trajectory.usage import Usage

#: Fields of a part that holds bytes, or says where they are.
_MEDIA: Final = ("inlineData", "fileData")
#: Fields of a response that hold a text alone: the API names `output` and `error`, its package `result`.
_TEXT_FIELDS: Final = ("output", "result", "error", "content")
_WORD_START: Final = re.compile(r"(?=[A-Z])")


def get_field(value: Json, name: str) -> Any:
    """Return the field `name` of an object, in whichever spelling it has it; None if it has none."""
    if name in value:
        return value[name]
    return value.get(_spell_snake(name))


def spell_field(value: Json, name: str) -> str:
    """Return how `value` spells the field `name`."""
    snake = _spell_snake(name)
    return snake if snake in value else name


def _spell_snake(name: str) -> str:
    return _WORD_START.sub("_", name).lower()


def defines_tool(definition: Json) -> bool:
    """Return whether a tool's definition is of this API: a list of functions, or a tool of Google's own."""
    own = ("functionDeclarations", "googleSearch", "codeExecution", "urlContext", "googleMaps", "computerUse")
    return any(get_field(definition, name) is not None for name in own)


def has_own_signs(messages: Iterable[Json], request: Json) -> bool:
    """Return whether a conversation bears a sign of this API: messages of parts, or its lists of functions.

    request: the object that holds the messages.
    """
    if any(map(defines_tool, mappings_in(request.get("tools")))):
        return True
    return any(_is_content(message) for message in messages)


def _is_content(message: Json) -> bool:
    parts = message.get("parts")
    if not isinstance(parts, list) or "content" in message:
        return False
    # Parts with a type, or a kind, are those of other packages.
    return all(isinstance(part, dict) and not part.keys() & {"type", "part_kind"} for part in parts)


def list_parts(value: object) -> list[Json]:
    """Return the parts of a content, of a list of parts, or of a text."""
    if isinstance(value, str):
        return [{"text": value}]
    if isinstance(value, list):
        return [each if isinstance(each, dict) else {"text": dump_json(each)} for each in value]
    content = mapping_in(value)
    if "parts" in content:
        return list_parts(content["parts"])
    return [content] if content else []


def parse_assistant(message: Json) -> AssistantMessage:
    """Read a message of the model. A function call without an id gets its function's name as id."""
    parts = list_parts(message)
    return AssistantMessage(
        content=join_contents(map(_parse_model_part, parts)),
        reasoning=join_lines(text_in(part.get("text")) for part in parts if part.get("thought") is True),
        actions=tuple(_parse_action(call) for part in parts if (call := mapping_in(get_field(part, "functionCall")))),
    )


def _parse_model_part(part: Json) -> Content:
    """Return what a part of the model adds to the content of its message: nothing where it is a thought or a call."""
    if mapping_in(get_field(part, "functionCall")) or part.get("thought") is True:
        return _keep_signature(part)
    return parse_part(part) + _keep_signature(part)


def _keep_signature(part: Json) -> Content:
    """Keep the sealed thought that a part bears: it is part of the prompt and billed."""
    signature = text_in(get_field(part, "thoughtSignature"))
    if not signature:
        return ()
    return (make_sealed("thinking", {"thoughtSignature": signature}, signature, GEMINI_SEAL),)


def _parse_action(call: Json) -> Action:
    name = text_in(call.get("name"))
    return Action(id=text_in(call.get("id")) or name, name=name, arguments=dump_arguments(call.get("args")))


def parse_part(part: Json) -> Content:
    """Read a part that is neither a call nor a response."""
    text = part.get("text")
    if isinstance(text, str):
        return make_content(text)
    for name in _MEDIA:
        media = mapping_in(get_field(part, name))
        if media:
            kind = text_in(get_field(media, "mimeType")).partition("/")[0]
            return (Opaque(kind if kind in ("image", "audio", "video") else "document", IMAGE_TOKENS, part),)
    kind = next(iter(part), "unknown")
    return (make_opaque(kind, part),) if part else ()


def is_response(part: object) -> bool:
    """Return whether a part answers a function call."""
    return bool(mapping_in(get_field(mapping_in(part), "functionResponse")))


def parse_response(part: Json) -> ToolResult:
    """Read a part that answers a function call."""
    answer = mapping_in(get_field(part, "functionResponse"))
    name = text_in(answer.get("name"))
    response = answer.get("response")
    field = find_text_field(response)
    if field:
        words = make_content(mapping_in(response)[field])
    else:
        words = () if response is None else make_content(dump_json(response))
    media = join_contents(parse_part(each) for each in mappings_in(answer.get("parts")))
    return ToolResult(
        action_id=text_in(answer.get("id")) or name,
        content=words + media,
        tool=name,
        error=True if field == "error" else None,
    )


def find_text_field(response: object) -> str:
    """Return the field of a response that holds all that it says, as a text; "" if it says more, or otherwise."""
    fields = mapping_in(response)
    if len(fields) != 1:
        return ""
    (name,) = fields
    return name if name in _TEXT_FIELDS and isinstance(fields[name], str) else ""


def parse_words(parts: Iterable[Json]) -> Content:
    """Read the parts of a user, or of a system instruction."""
    return join_contents(map(parse_part, parts))


def parse_usage(value: object) -> Usage | None:
    """Read a `usageMetadata` object; None if there is none. `promptTokenCount` includes what was read from a cache.

    Thoughts and the candidates are output; what tools of Google's own put into the prompt is input.
    """
    counts = mapping_in(value)
    if get_field(counts, "promptTokenCount") is None:
        return None
    tools = count_in(get_field(counts, "toolUsePromptTokenCount"))
    thoughts = count_in(get_field(counts, "thoughtsTokenCount"))
    return Usage.from_inclusive(
        prompt=count_in(get_field(counts, "promptTokenCount")) + tools,
        output=count_in(get_field(counts, "candidatesTokenCount")) + thoughts,
        cache_read=count_in(get_field(counts, "cachedContentTokenCount")),
        cache_write=0,
        played=counts.get("played") is True,
    )


class LiveGemini(BlockMessageDialect):
    """generateContent."""

    name = "gemini"
    roles = frozenset(("", "user", "model", "function"))
    client_roles = frozenset(("user", "function"))
    content_field = "parts"

    def split_message(self, message: Json, index: int) -> list[Piece]:
        if text_in(message.get("role")) == "model":
            return [Piece(kind="assistant", location=Location(index), assistant=parse_assistant(message))]
        return self.split_user_message(message, index)

    def parse_words(self, value: object) -> Content:
        return parse_words(list_parts(value))

    def parse_block_result(self, block: object) -> ToolResult | None:
        return parse_response(mapping_in(block)) if is_response(block) else None

    def replace_result(self, part: Json, text: str) -> dict[str, Any]:
        """Return a response that says `text` in the field in which it said all, or in `output`; media are left out."""
        field = spell_field(part, "functionResponse")
        answer = mapping_in(part.get(field))
        if not answer:
            return self.make_block(text)
        kept = {name: value for name, value in answer.items() if name != "parts"}
        response = {find_text_field(answer.get("response")) or "output": text}
        return {**part, field: {**kept, "response": response}}

    def make_block(self, text: str) -> dict[str, Any]:
        return {"text": text}


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
