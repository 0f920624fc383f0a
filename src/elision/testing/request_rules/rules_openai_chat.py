"""What OpenAI's chat completions reject about a request. Errors quoted as the service writes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from elision.providers.shared.capabilities import find_capabilities
from elision.providers.shared.json_reading import Json, list_objects, mapping_in, text_in
from elision.testing.request_rules.violation import Rule, Violation, find_doubled_names, find_unknown_roles

ROLES: Final = frozenset(("system", "developer", "user", "assistant", "tool", "function"))


def there_are_messages(request: Json) -> Iterator[Violation]:
    """A request without messages asks nothing: "[] is too short - 'messages'"."""
    if not list_objects(request.get("messages")):
        yield Violation("messages", "no messages")


def roles_are_known(request: Json) -> Iterator[Violation]:
    """Every message says whose it is, in a word that the API knows."""
    return find_unknown_roles(list_objects(request.get("messages")), ROLES)


def calls_are_answered(request: Json) -> Iterator[Violation]:
    """The model was told that its call ran, so it must see what came of it, before anything else is said: "An assistant
    message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'"."""
    waiting: dict[str, str] = {}
    for place, message in [*list_objects(request.get("messages")), (-1, {})]:
        if message.get("role") == "tool":
            waiting.pop(text_in(message.get("tool_call_id")), None)
            continue
        for id, where in waiting.items():
            yield Violation(where, f"call {id!r} is not answered behind it", id)
        waiting = {id: f"messages.{place}.tool_calls.{position}" for position, id in _list_calls(message)}


def results_stand_behind_their_call(request: Json) -> Iterator[Violation]:
    """A result without a call answers nothing: "messages with role 'tool' must be a response to a preceeding message
    with 'tool_calls'". One after another message, or a second one for a call, has none either."""
    waiting: set[str] = set()
    for place, message in list_objects(request.get("messages")):
        if message.get("role") != "tool":
            waiting = {id for _, id in _list_calls(message)}
            continue
        id = text_in(message.get("tool_call_id"))
        if id not in waiting:
            reason = f"result {id!r} does not stand behind a call that waits for it"
            yield Violation(f"messages.{place}", reason, id)
        waiting.discard(id)


def call_ids_are_unique(request: Json) -> Iterator[Violation]:
    """Two calls of one message under one id, or under none, cannot be told apart by their results."""
    for place, message in list_objects(request.get("messages")):
        seen: set[str] = set()
        for position, id in _list_calls(message):
            if not id or id in seen:
                where = f"messages.{place}.tool_calls.{position}.id"
                if id:
                    reason = f"call id {id!r} stands twice in one message"
                else:
                    reason = "a call without an id"
                yield Violation(where, reason, id)
            seen.add(id)


def assistants_say_something(request: Json) -> Iterator[Violation]:
    """An assistant message is words, calls, or both, and a list of calls is not empty: "[] is too short -
    'messages.1.tool_calls'"."""
    for place, message in list_objects(request.get("messages")):
        if message.get("role") != "assistant":
            continue
        if message.get("tool_calls") == []:
            yield Violation(f"messages.{place}.tool_calls", "an empty list of calls")
        elif all(message.get(name) is None for name in ("content", "tool_calls", "function_call", "refusal", "audio")):
            yield Violation(f"messages.{place}", "neither content nor calls")


def content_is_there(request: Json) -> Iterator[Violation]:
    """All but an assistant must say something, be it nothing at all ("" is content; null and [] are not)."""
    for place, message in list_objects(request.get("messages")):
        content = message.get("content")
        if content == [] or (content is None and message.get("role") not in ("assistant", "function")):
            if content is None:
                reason = "no content"
            else:
                reason = "an empty list of parts"
            yield Violation(f"messages.{place}.content", reason)


def audio_needs_a_model_that_takes_it(request: Json) -> Iterator[Violation]:
    """Most of OpenAI's models read: "Content blocks are expected to be either text or image_url type"."""
    if find_capabilities(text_in(request.get("model"))).takes_audio:
        return
    for place, message in list_objects(request.get("messages")):
        for position, part in list_objects(message.get("content")):
            if part.get("type") == "input_audio":
                yield Violation(f"messages.{place}.content.{position}", f"{request.get('model')} takes no audio")


def tools_are_named_once(request: Json) -> Iterator[Violation]:
    """A call says which tool by its name alone."""
    names = (_read_tool_name(tool) for _, tool in list_objects(request.get("tools")))
    return find_doubled_names(names, "tools")


RULES: Final[Sequence[Rule]] = (
    there_are_messages,
    roles_are_known,
    content_is_there,
    assistants_say_something,
    calls_are_answered,
    results_stand_behind_their_call,
    call_ids_are_unique,
    audio_needs_a_model_that_takes_it,
    tools_are_named_once,
)


def _list_calls(message: Json) -> list[tuple[int, str]]:
    """Return (position, id) of every call of a message."""
    if message.get("role") != "assistant":
        return []
    return [(position, text_in(call.get("id"))) for position, call in list_objects(message.get("tool_calls"))]


def _read_tool_name(tool: Json) -> str:
    inner = mapping_in(tool.get("function")) or mapping_in(tool.get("custom")) or tool
    return text_in(inner.get("name"))
