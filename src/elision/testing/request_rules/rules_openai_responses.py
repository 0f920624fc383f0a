"""What OpenAI's Responses API rejects about a request. Errors quoted as the service writes them.

The service keeps conversations: with `previous_response_id`, `conversation` or an `item_reference` part of the history
is not in the request, so what only the whole of it could break is not held against it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from elision.providers.openai_responses.messages import CALLS, OUTPUTS, read_call_id
from elision.providers.shared.json_reading import Json, list_objects, text_in
from elision.testing.request_rules.violation import Rule, Violation, find_doubled_names

#: Calls that the client runs, so that their outcome must come from it.
CLIENT_CALLS: Final = frozenset(
    ("function_call", "custom_tool_call", "computer_call", "local_shell_call", "apply_patch_call")
)
#: Item type -> what its ids begin with.
_PREFIXES: Final = {"message": "msg", "function_call": "fc", "reasoning": "rs"}
#: A file as a data URL of sound or moving pictures.
_RECORDING: Final = re.compile(r"data:(?:audio|video)/")


def there_is_input(request: Json) -> Iterator[Violation]:
    """Something must be asked: by `input`, a stored prompt or an earlier response."""
    given = request.get("input")
    if not given and not any(request.get(name) for name in ("prompt", "previous_response_id", "conversation")):
        yield Violation("input", "no input")


def calls_are_answered(request: Json) -> Iterator[Violation]:
    """The model must see what came of its call: "No tool output found for function call call_…". Anywhere after it
    will do here, while other servers of this API want it right after it."""
    waiting: dict[tuple[str, str], str] = {}
    for place, item in _list_items(request):
        kind = text_in(item.get("type"))
        id = read_call_id(item)
        if kind in CLIENT_CALLS:
            waiting[f"{kind}_output", id] = f"input.{place}"
        elif kind in OUTPUTS:
            waiting.pop((kind, id), None)
    for (_, id), where in waiting.items():
        yield Violation(where, f"no tool output found for call {id!r}", id)


def outputs_stand_behind_their_call(request: Json) -> Iterator[Violation]:
    """An output answers a call, once: "No tool call found for function call output with call_id …". Those of
    a search that the service ran have no id, and come in pairs."""
    if _is_continuation(request):
        return
    waiting: Counter[str] = Counter()
    for place, item in _list_items(request):
        kind = text_in(item.get("type"))
        id = read_call_id(item)
        if kind in CALLS:
            waiting[id] += 1
        elif kind in OUTPUTS:
            if waiting[id]:
                waiting[id] -= 1
                continue
            reason = f"no call found for {kind} with call_id {id!r}"
            yield Violation(f"input.{place}", reason, id)


def call_ids_are_unique(request: Json) -> Iterator[Violation]:
    """Calls are told apart by `call_id` alone, wherever they are."""
    seen: set[str] = set()
    for place, item in _list_items(request):
        if text_in(item.get("type")) not in CLIENT_CALLS:
            continue
        id = read_call_id(item)
        if not id or id in seen:
            if id:
                reason = f"call_id {id!r} stands twice"
            else:
                reason = "a call without call_id"
            yield Violation(f"input.{place}.call_id", reason, id)
        seen.add(id)


def item_ids_are_unique(request: Json) -> Iterator[Violation]:
    """The service stores items under their ids: "Duplicate item found with id rs_… Remove duplicate items from your
    input and try again"."""
    seen: set[str] = set()
    for place, item in _list_items(request):
        id = text_in(item.get("id"))
        if id and id in seen and item.get("type") != "item_reference":
            yield Violation(f"input.{place}.id", f"item id {id!r} stands twice", id)
        seen.add(id)


def item_ids_have_their_prefix(request: Json) -> Iterator[Violation]:
    """The service knows items by their ids: "Invalid 'input[1].id': 'item_1'. Expected an ID that begins with 'fc'"."""
    for place, item in _list_items(request):
        id = text_in(item.get("id"))
        prefix = _PREFIXES.get(text_in(item.get("type")))
        if id and prefix and not id.startswith(prefix):
            reason = f"{id!r} does not begin with {prefix!r}"
            yield Violation(f"input.{place}.id", reason, id)


def reasoning_leads_to_something(request: Json) -> Iterator[Violation]:
    """Reasoning belongs to what the model said or did next: "Item 'rs_…' of type 'reasoning' was provided without its
    required following item". Reasoning that the service stores it knows by its id, and a message after it too."""
    stored = request.get("store") is not False
    thought: tuple[int, Json] | None = None
    for place, item in [*_list_items(request), (-1, {"role": "user"})]:
        if item.get("type") == "reasoning":
            thought = (place, item)
            continue
        if thought is not None and not _can_follow(item, thought[1], is_stored=stored):
            where, reasoning = thought
            yield Violation(
                f"input.{where}", "reasoning without its required following item", text_in(reasoning.get("id"))
            )
        thought = None


def files_are_no_recordings(request: Json) -> Iterator[Violation]:
    """A file is something to read: "Expected a base64-encoded data URL with a valid file MIME type […], but got
    unsupported MIME type 'audio/mpeg'"."""
    for place, item in _list_items(request):
        for name in ("content", "output"):
            for position, part in list_objects(item.get(name)):
                if part.get("type") == "input_file":
                    data = text_in(part.get("file_data"))
                else:
                    data = ""
                if _RECORDING.match(data):
                    yield Violation(
                        f"input.{place}.{name}.{position}.file_data",
                        f"unsupported MIME type {data[5:].partition(';')[0]!r}",
                    )


def tools_are_named_once(request: Json) -> Iterator[Violation]:
    """A call says which tool by its name alone."""
    names = (text_in(tool.get("name")) for _, tool in list_objects(request.get("tools")))
    return find_doubled_names(names, "tools")


RULES: Final[Sequence[Rule]] = (
    there_is_input,
    calls_are_answered,
    outputs_stand_behind_their_call,
    call_ids_are_unique,
    item_ids_are_unique,
    item_ids_have_their_prefix,
    reasoning_leads_to_something,
    files_are_no_recordings,
    tools_are_named_once,
)


def _list_items(request: Json) -> list[tuple[int, dict[str, Any]]]:
    return list_objects(request.get("input"))


def _is_continuation(request: Json) -> bool:
    """Return whether part of the conversation is stored at the service only."""
    if request.get("previous_response_id") or request.get("conversation"):
        return True
    return any(
        item.get("type") in ("item_reference", "compaction", "compaction_summary") for _, item in _list_items(request)
    )


def _can_follow(item: Json, reasoning: Json, *, is_stored: bool) -> bool:
    """Return whether `item` may come right after `reasoning`. is_stored: whether the service stores this request's
    items."""
    if not _is_from_model(item):
        return False
    is_message = (text_in(item.get("type")) or "message") == "message"
    return not (is_stored and is_message and reasoning.get("id") and not item.get("id"))


def _is_from_model(item: Json) -> bool:
    """Return whether the model produced an item. Items of an unknown type are taken to be the model's."""
    kind = text_in(item.get("type")) or "message"
    if kind == "message":
        return item.get("role") == "assistant"
    return kind not in OUTPUTS
