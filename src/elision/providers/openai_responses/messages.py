"""OpenAI Responses: items and usage read into values, and views rendered as items. Types as of openai 3.52.

A hosted tool whose item holds arguments *and* readable output (`mcp_call`, `file_search_call`, `code_interpreter_call`)
is a call with its result; one whose output cannot be read (`web_search_call`, `image_generation_call`) stays opaque.
Live, every item is one piece, and adjacent output items are one turn. A hosted tool whose item holds call and result at
once stays as it is: nothing of it could be hidden alone.

Every request sends all items (`store=False`). Sealed reasoning goes back as it was recorded, before what the model said
or did next; without that it is rejected. Reasoning in clear text is left out: the service takes its own sealed items
only. Item ids are left out, except those of reasoning and of hosted tools, which need them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from elision.providers.live.client_messages import LiveDialect, Location, Piece, read_plain_message
from elision.providers.shared.base_renderer import (
    JsonMessage,
    RecordedParts,
    TurnCalls,
    ViewRenderer,
    copy_recorded,
    describe_part,
    find_image,
)
from elision.providers.shared.json_reading import (
    KEEP_OUTPUT,
    OPENAI_SEAL,
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
    parse_content,
    text_in,
)
from elision.trajectory.turn import Action, Content, Message, Opaque, Part, Text, make_content
from elision.trajectory.usage import Usage

#: Call type -> (tool name where the item names none, the field that holds the arguments).
CALLS: Mapping[str, tuple[str, str]] = {
    "function_call": ("", "arguments"),
    "custom_tool_call": ("", "input"),
    "mcp_call": ("", "arguments"),
    "tool_search_call": ("tool_search", "arguments"),
    "local_shell_call": ("local_shell", "action"),
    "shell_call": ("shell", "action"),
    "apply_patch_call": ("apply_patch", "operation"),
    "computer_call": ("computer", "action"),
    "code_interpreter_call": ("code_interpreter", "code"),
    "file_search_call": ("file_search", "queries"),
    "program": ("program", "code"),
}
#: Output items, each answering a call by `call_id`.
OUTPUTS = frozenset(
    [
        "function_call_output",
        "custom_tool_call_output",
        "tool_search_output",
        "local_shell_call_output",
        "shell_call_output",
        "apply_patch_call_output",
        "computer_call_output",
        "program_output",
    ]
)
#: Outputs that no text can stand for: a screenshot must be one, and tools that were loaded may be called from then on.
_UNHIDABLE = frozenset(("computer_call_output", "tool_search_output"))
#: A search for tools and what it found. Where the provider runs it, neither has a `call_id`.
_SEARCHES = frozenset(("tool_search_call", "tool_search_output"))
#: Items that say nothing to the model: settings, pointers and triggers.
SILENT = frozenset(("item_reference", "compaction_trigger", "configuration_update"))
#: Every item type that no other dialect knows (`message` is left out: many use the word).
ITEMS = frozenset(CALLS) | OUTPUTS | SILENT | {"reasoning", "compaction", "web_search_call", "image_generation_call"}


#: Content parts that no other dialect knows.
_OWN_PARTS = frozenset(("input_text", "output_text", "summary_text"))


#: Types of tools that are another API's: Anthropic dates the tools that it runs or defines (`web_search_20250305`).
_FOREIGN_TOOLS = re.compile(r".*_\d{8}|mcp_toolset")


def defines_tool(definition: Json) -> bool:
    """Return whether a tool's definition is of this API: it has a type, and no envelope as in chat."""
    kind = text_in(definition.get("type"))
    if "function" in definition or "custom" in definition or not kind:
        return False
    return not _FOREIGN_TOOLS.fullmatch(kind)


def has_own_signs(items: Iterable[Json], request: Json) -> bool:
    """Return whether a conversation bears a sign of this API: an item or a content part of its own."""
    for item in items:
        kinds = {text_in(part.get("type")) for part in mappings_in(item.get("content"))}
        if text_in(item.get("type")) in ITEMS or not _OWN_PARTS.isdisjoint(kinds):
            return True
    return False


def read_call_id(item: Json) -> str:
    """Return the id that results refer to; "" for a search that the provider runs (its output comes right after it)."""
    named = text_in(item.get("call_id"))
    if named or text_in(item.get("type")) in _SEARCHES:
        return named
    return text_in(item.get("id"))


def parse_item(item: Json) -> AssistantMessage:
    """Read what one output item adds to the assistant message that it is part of."""
    kind = text_in(item.get("type")) or "message"
    if kind == "message":
        return AssistantMessage(content=parse_content(item.get("content")))
    if kind == "reasoning":
        return AssistantMessage(content=_keep_sealed_reasoning(item), reasoning=_read_reasoning(item))
    if kind in CALLS:
        return AssistantMessage(actions=(_parse_action(kind, item),))
    return AssistantMessage(content=(make_opaque(kind, item),))


def _read_reasoning(item: Json) -> str:
    """Return the reasoning text if it was sent (open models), else its summary."""
    texts = [text_in(part.get("text")) for part in mappings_in(item.get("content"))]
    texts = texts or [text_in(part.get("text")) for part in mappings_in(item.get("summary"))]
    return join_lines(texts)


def _keep_sealed_reasoning(item: Json) -> Content:
    secret = text_in(item.get("encrypted_content"))
    if secret:
        return (make_sealed("reasoning", item, secret, OPENAI_SEAL),)
    return ()


def _parse_action(kind: str, item: Json) -> Action:
    tool, field = CALLS[kind]
    arguments = item.get(field)
    if kind == "computer_call" and arguments is None:
        arguments = item.get("actions")
    return Action(id=read_call_id(item), name=text_in(item.get("name")) or tool, arguments=dump_arguments(arguments))


def parse_inline_result(item: Json) -> ToolResult | None:
    """Read the result that a hosted tool's call item carries itself; None if it carries none."""
    take = _INLINE_PARSERS.get(text_in(item.get("type")))
    if take:
        return take(item)
    return None


def _parse_mcp_result(item: Json) -> ToolResult | None:
    error = item.get("error")
    output = item.get("output")
    if output is None and error is None:
        return None
    return ToolResult(
        action_id=read_call_id(item),
        content=_parse_output(error if output is None else output),
        error=error is not None,
    )


def _parse_listed_result(field: str) -> Callable[[Json], ToolResult | None]:
    def take(item: Json) -> ToolResult | None:
        found = item.get(field)
        if isinstance(found, list):
            # Logs of a code interpreter or hits of a file search: their text, else opaque.
            content = tuple(_parse_entry(entry) for entry in found if entry)
            return ToolResult(action_id=read_call_id(item), content=content)
        return None

    return take


def _parse_entry(entry: object) -> Part:
    if not isinstance(entry, dict):
        return Text(dump_json(entry))
    text = text_in(entry.get("logs")) or text_in(entry.get("text"))
    if text:
        return Text(join_lines((text_in(entry.get("filename")), text)))
    return make_opaque(text_in(entry.get("type")) or "unknown", entry)


_INLINE_PARSERS: Mapping[str, Callable[[Json], ToolResult | None]] = {
    "mcp_call": _parse_mcp_result,
    "code_interpreter_call": _parse_listed_result("outputs"),
    "file_search_call": _parse_listed_result("results"),
}


def parse_result(item: Json) -> ToolResult:
    """Read an output item."""
    outputs = [item[name] for name in ("output", "result", "tools") if item.get(name) is not None]
    return ToolResult(
        action_id=read_call_id(item),
        content=_parse_output(outputs[0] if outputs else None),
        tool=text_in(item.get("name")),
        error=_has_failed(item),
        tags=KEEP_OUTPUT if text_in(item.get("type")) in _UNHIDABLE else frozenset(),
    )


def replace_output(item: Json, text: str) -> dict[str, Any]:
    """Return the output item `item` with `text` in place of what it says, in the shape of its type."""
    kind = text_in(item.get("type"))
    if kind == "shell_call_output":
        outcomes = [run["outcome"] for run in mappings_in(item.get("output")) if "outcome" in run]
        if outcomes:
            outcome = outcomes[-1]
        else:
            outcome = {"type": "exit", "exit_code": 0}
        return {**item, "output": [{"stdout": text, "stderr": "", "outcome": outcome}]}
    field = "result" if kind == "program_output" else "output"
    return {**item, field: text}


def _parse_output(value: object) -> Content:
    if isinstance(value, list) and value and all(isinstance(part, dict) and "stdout" in part for part in value):
        return join_contents(map(_parse_command_output, value))
    if isinstance(value, dict) and "type" not in value:
        return make_content(dump_json(value))
    return parse_content(value)


def _parse_command_output(run: Json) -> Content:
    """Read the output of one command of a `shell_call_output`."""
    code = mapping_in(run.get("outcome")).get("exit_code")
    if isinstance(code, int) and code:
        ending = f"exit code {code}"
    else:
        ending = ""
    texts = (text_in(run.get("stdout")), text_in(run.get("stderr")), ending)
    return make_content(join_lines(texts))


def _has_failed(item: Json) -> bool | None:
    if item.get("type") == "apply_patch_call_output":
        return item.get("status") == "failed"
    outcomes = [mapping_in(run.get("outcome")) for run in mappings_in(item.get("output")) if "outcome" in run]
    if outcomes:
        return any(outcome.get("type") == "timeout" or bool(outcome.get("exit_code")) for outcome in outcomes)
    return None


def parse_usage(value: object) -> Usage | None:
    """Read a `usage` object; None if there is none. `input_tokens` include cache reads and writes."""
    counts = mapping_in(value)
    if "input_tokens" not in counts:
        return None
    details = mapping_in(counts.get("input_tokens_details"))
    return Usage.from_inclusive(
        prompt=count_in(counts.get("input_tokens")),
        output=count_in(counts.get("output_tokens")),
        cache_read=count_in(details.get("cached_tokens")),
        cache_write=count_in(details.get("cache_write_tokens")),
        played=counts.get("played") is True,
    )


#: Item types that are the client's though they are no message and no result.
_CLIENTS = frozenset(("mcp_approval_response", "item_reference", "compaction_trigger"))
#: Those that set what holds from there on.
_SETTINGS = frozenset(("additional_tools", "configuration_update"))


class LiveOpenAIResponses(LiveDialect):
    """`input` of the Responses API, as a list of items."""

    name = "openai-responses"
    joins_assistant_messages = True

    def split_message(self, message: Json, index: int) -> list[Piece]:
        kind = text_in(message.get("type")) or "message"
        role = text_in(message.get("role"))
        spot = Location(index)
        if kind in OUTPUTS:
            return [Piece(kind="result", location=spot, result=parse_result(message))]
        is_setting = kind in _SETTINGS or (kind != "message" and role in ("system", "developer"))
        if is_setting or kind in _CLIENTS:
            return [Piece(kind="user", location=spot, words=parse_item(message).content, is_pinned=is_setting)]
        if kind != "message" or role == "assistant":
            said = parse_item(message)
            return [Piece(kind="assistant", location=spot, assistant=said, is_silent=kind == "reasoning")]
        return read_plain_message(message, spot)

    def replace_result(self, part: Json, text: str) -> dict[str, Any]:
        if text_in(part.get("type")) in OUTPUTS:
            return replace_output(part, text)
        # Of a text protocol, results are the user's messages.
        return {**part, "content": text}


#: Letters that the service forbids in a tool's name.
_FORBIDDEN = re.compile(r"[^a-zA-Z0-9_-]")

#: Parts and items kept as they were recorded -> fields that they cannot be without, and of which type.
_IN_USER: RecordedParts = {"input_image": {"detail": str}, "input_file": {}}
_IN_ASSISTANT: RecordedParts = {
    "reasoning": {"id": str, "summary": list, "encrypted_content": str},
    "web_search_call": {"id": str, "action": dict, "status": str},
    "image_generation_call": {"id": str, "status": str, "result": str},
}


def render_tool(tool: Mapping[str, Any]) -> JsonMessage:
    """Return `tool`, of `name`, `description` and `input_schema`, as a function of Responses."""
    return {
        "type": "function",
        "name": tool["name"],
        "description": tool["description"],
        "parameters": tool["input_schema"],
        "strict": False,
    }


class OpenAIResponsesRenderer(ViewRenderer):
    """One session's items: messages, reasoning, calls and their outputs, each an item of its own."""

    def _render_message(self, message: Message, *, head: bool) -> list[JsonMessage]:
        if message.role == "user":
            return self._render_user(message.content)
        return [{"role": message.role, "content": _join_words(message.content)}]

    def _render_user(self, parts: Content) -> list[JsonMessage]:
        return [{"role": "user", "content": _render_parts(parts)}]

    def _render_assistant(self, calls: TurnCalls) -> list[JsonMessage]:
        items = [*_render_content(calls.turn.content), *(_render_call(id, action) for id, action in calls.calls)]
        while items and items[-1].get("type") == "reasoning":
            items.pop()
        return items

    def _render_result(self, id: str, parts: Content, error: bool | None) -> JsonMessage:
        return {"type": "function_call_output", "call_id": id, "output": _render_parts(parts)}


def _render_content(parts: Content) -> Iterator[JsonMessage]:
    """Yield what an assistant says: adjacent words are one message, and items keep their place."""
    words: list[Part] = []
    for part in (*parts, None):
        if isinstance(part, Opaque):
            item = _copy_recorded(part, _IN_ASSISTANT)
        else:
            item = None
        if part is not None and item is None:
            words.append(part)
            continue
        if said := _join_words(tuple(words)):
            yield {"role": "assistant", "content": said}
        words = []
        if item is not None:
            yield item


def _render_call(id: str, action: Action) -> JsonMessage:
    name = _FORBIDDEN.sub("_", action.name) or "unknown"
    return {"type": "function_call", "call_id": id, "name": name, "arguments": action.arguments}


def _join_words(parts: Content) -> str:
    """Join content that can hold only text."""
    return join_lines(part.text if isinstance(part, Text) else describe_part(part) for part in parts)


def _render_parts(parts: Content) -> Any:
    """Render content that may hold images: a text if there are none."""
    shown = [_render_part(part) for part in parts]
    shown = [part for part in shown if part.get("text") != ""]
    if all(part["type"] == "input_text" for part in shown) and len(shown) < 2:
        if shown:
            return shown[0]["text"]
        return ""
    return shown


def _render_part(part: Part) -> JsonMessage:
    if isinstance(part, Text):
        return _make_text(part.text)
    return _copy_recorded(part, _IN_USER) or _render_image(part) or _make_text(describe_part(part))


def _make_text(text: str) -> JsonMessage:
    return {"type": "input_text", "text": text}


def _copy_recorded(part: Opaque, allowed: RecordedParts) -> JsonMessage | None:
    """Copy a recorded item without nulls."""
    copied = copy_recorded(part, allowed, "prompt_cache_breakpoint")
    return copied and {name: value for name, value in copied.items() if value is not None}


def _render_image(part: Opaque) -> JsonMessage | None:
    image = find_image(part)
    if image is None:
        return None
    url = image.url or f"data:{image.media};base64,{image.data}"
    return {"type": "input_image", "detail": "auto", "image_url": url}
