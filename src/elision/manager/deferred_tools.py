"""Tools whose definitions leave the prompt until the model asks for them; which, is decided once for a session.

Models that search tools themselves are given all definitions, with `defer_loading` and the provider's search tool. For
any other, definitions are outlined: a call looks the same without the words that explain it, and a tool of ours answers
with the whole definition. So no call needs a proxy, which would hide the tool's name, and no tool is undeclared, which
some servers refuse. The sessions of an agent have the same tools, so they are read once and shared.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from elision.manager.outgoing_request import IncomingRequest
from elision.manager.recall_tools import list_tools
from elision.providers.live.client_messages import convert_to_json, copy_structure
from elision.providers.provider import Provider
from elision.providers.shared.capabilities import Capabilities
from elision.providers.shared.json_reading import Json, mapping_in, text_in
from elision.trajectory.events import Deferral
from elision.trajectory.tokens import Sizer
from elision.trajectory.tool_definitions import FIND_TOOL, TOOL_GROUPS

#: Lists of tools that are kept.
MAX_KNOWN: Final = 32


@dataclass(frozen=True, slots=True)
class KnownTools:
    """Tools as a client gave them.

    given: its object, which it may change. copy: what that looked like. json: the tools as JSON, shared by sessions.
    """

    given: Any
    copy: Any
    json: tuple[Any, ...]


#: By the identity of the client's object, which is held here, so that no other one gets it.
_read_tools: dict[int, KnownTools] = {}


def find_known_tools(tools: Any) -> KnownTools | None:
    """Return what is known of `tools`; None where they are new, or were changed."""
    found = _read_tools.get(id(tools))
    if found is not None and found.given is tools and found.copy == tools:
        return found
    return None


def read_tools(tools: Any) -> KnownTools:
    """Return `tools` as JSON, read now if they are new."""
    found = find_known_tools(tools)
    if found is None:
        found = KnownTools(tools, copy_structure(tools), tuple(map(convert_to_json, list_tools(tools))))
        if len(_read_tools) >= MAX_KNOWN:
            _read_tools.clear()
        _read_tools[id(tools)] = found
    return found


#: Fields of a definition that hold the schema of its arguments.
_SCHEMAS: Final = ("input_schema", "parameters", "parametersJsonSchema", "parameters_json_schema")
#: Keywords of a schema that only explain.
_EXPLAINS: Final = frozenset(("description", "title", "examples", "example", "default", "$comment", "$schema"))
#: Keywords whose values are schemas by name, and keywords whose values are no schemas.
_NAMED: Final = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"))
_VALUES: Final = frozenset(("enum", "const", "required", "dependentRequired", "type", "$ref", "pattern", "format"))
_SENTENCE: Final = re.compile(r"(?<=[.!?])\s|\n")
#: Characters that an outline keeps of a description, and what it ends with.
_DESCRIPTION: Final = 120
OUTLINE_MARK: Final = "[outline]"


def outline_definition(definition: Json) -> dict[str, Any]:
    """Return a definition with the first sentence of its description, and its schema without explanations.

    A call that is valid against the one is valid against the other.
    """
    short = {
        name: strip_schema(value) if name in _SCHEMAS else value
        for name, value in definition.items()
        if name != "input_examples"
    }
    first = _SENTENCE.split(text_in(definition.get("description")).strip(), maxsplit=1)[0][:_DESCRIPTION]
    return short | {"description": f"{first} {OUTLINE_MARK}".strip()}


def strip_schema(schema: Any) -> Any:
    """Return a JSON Schema that accepts the same values, without what only explains."""
    if isinstance(schema, list):
        return [strip_schema(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    stripped: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in _NAMED and isinstance(value, Mapping):
            stripped[keyword] = {name: strip_schema(each) for name, each in value.items()}
        elif keyword in _VALUES:
            stripped[keyword] = value
        elif keyword not in _EXPLAINS:
            stripped[keyword] = strip_schema(value)
    return stripped


def list_definitions(tool: Json) -> Iterator[Json]:
    """Yield the definitions of functions in one element of a request's `tools`; none of a provider's own tool."""
    for group in TOOL_GROUPS:
        declared = tool.get(group)
        if isinstance(declared, list):
            yield from (each for each in declared if isinstance(each, dict) and text_in(each.get("name")))
            return
    function = tool.get("function")
    definition = function if isinstance(function, dict) else tool
    # A tool with a type of its own is the provider's, whatever else it has.
    is_function = tool.get("type") in (None, "function", "custom") and any(name in definition for name in _SCHEMAS)
    if is_function and text_in(definition.get("name")):
        yield definition


def map_definitions(tool: Json, change: Callable[[Json], Json]) -> Json:
    """Return an element of `tools` with each of its definitions changed; the same object where none changes."""
    changed = {id(each): change(each) for each in list_definitions(tool)}
    if all(id(new) == old for old, new in changed.items()):
        return tool
    if id(tool) in changed:
        return changed[id(tool)]
    if id(tool.get("function")) in changed:
        return {**tool, "function": changed[id(tool["function"])]}
    group = next(name for name in TOOL_GROUPS if isinstance(tool.get(name), list))
    return {**tool, group: [changed.get(id(each), each) for each in tool[group]]}


def list_words(definition: Json) -> Iterator[str]:
    """Yield what a definition says of itself: its name, its description, and its arguments with theirs."""
    yield text_in(definition.get("name"))
    yield text_in(definition.get("description"))
    for name in _SCHEMAS:
        properties = mapping_in(mapping_in(definition.get(name)).get("properties"))
        for argument, schema in properties.items():
            yield argument
            yield text_in(mapping_in(schema).get("description"))


#: Tokens of definitions that stay whole, in the client's order.
TOOL_BUDGET: Final = 2_000
#: Tokens of each prompt from which on a session defers: less does not pay for the rounds in which tools are found.
LEAST_SAVING: Final = 500
#: Tools that one search returns.
_MOST_FOUND: Final = 5
#: Sets of tools that are kept, as they are sent.
_MAX_KNOWN: Final = 32
NO_DEFERRAL: Final = Deferral()
#: The note of a request that is sent with the client's own tools.
NOTE_WHOLE_TOOLS: Final = (
    'tools="defer": a request that forces a call, searches tools itself, or asks a model that searches none, is sent '
    "with all definitions, so all of it is new to the cache"
)
_FREE_CHOICES: Final = frozenset(("", "auto", "AUTO", "MODE_UNSPECIFIED"))
_OFF: Final = frozenset(("none", "NONE"))
_WORD: Final = re.compile(r"[a-z0-9]+")

FIND_TOOL_DEFINITION: Final[Mapping[str, Any]] = {
    "name": FIND_TOOL,
    "description": (
        f"Read whole definitions of tools. Those whose description ends with {OUTLINE_MARK} are outlined: look a tool "
        "up here before its first call, unless its outline says all that you need."
    ),
    "input_schema": {
        "type": "object",
        "properties": {"query": {"type": "string", "description": "Names of tools, or words for what you want to do"}},
        "required": ["query"],
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SentTools:
    """Tools as a session sends them.

    tools: of the request. added: those of them whose calls Elision answers. counted: what of them is in the prompt.
    """

    given: KnownTools
    tools: list[Any]
    added: tuple[dict[str, Any], ...]
    counted: list[Any]


def choose_deferral(request: IncomingRequest, model: Capabilities, provider: Provider, sizer: Sizer) -> Deferral | str:
    """Return what a session that begins with `request` defers; as a text why it defers nothing."""
    tools = read_tools(request.tools).json
    if not all(isinstance(tool, dict) for tool in tools):
        return "a tool is no JSON object"
    if any(map(_searches_tools, tools)):
        return "the client defers tools itself"
    choice = read_tool_choice(request.body_fields)
    if choice not in _FREE_CHOICES:
        return f"the request's tool choice is {choice!r}"
    definitions = [each for tool in tools for each in list_definitions(tool)]
    names = [text_in(each.get("name")) for each in definitions]
    if len(set(names)) < len(names) or FIND_TOOL in names:
        return "two tools have one name"
    is_native = model.searches_tools and provider.search_tool is not None
    if is_native and any("input_examples" in each for each in definitions):
        return "tools with examples cannot be searched"
    return defer_definitions(definitions, sizer, provider, is_native=is_native)


def defer_definitions(
    definitions: Sequence[Json], sizer: Sizer, provider: Provider, *, is_native: bool, budget: int = TOOL_BUDGET
) -> Deferral:
    """Return what of `definitions` is deferred: those beyond `budget` tokens, where that takes off enough.

    is_native: whether the model searches tools itself.
    """
    saved = -count_definition(provider.search_tool if is_native else FIND_TOOL_DEFINITION, sizer)
    left = budget
    deferred = []
    for each in definitions:
        tokens = count_definition(each, sizer)
        if tokens <= left:
            left -= tokens
            continue
        staying = provider.list_seen_deferred(each) if is_native else [outline_definition(each)]
        saved += tokens - sum(count_definition(part, sizer) for part in staying)
        deferred.append(text_in(each.get("name")))
    if saved < LEAST_SAVING:
        return NO_DEFERRAL
    return Deferral(form="native" if is_native else "outline", tools=tuple(deferred), saved=saved)


def count_definition(definition: Any, sizer: Sizer) -> int:
    return sizer.count(json.dumps(definition, ensure_ascii=False))


def read_tool_choice(fields: Mapping[str, Any]) -> str:
    """Return what a request says of calls: "auto" or "" for the model's own choice, "none", or what it forces."""
    choice = convert_to_json(fields.get("tool_choice"))
    if choice is None:
        config = mapping_in(convert_to_json(fields.get("toolConfig", fields.get("tool_config"))))
        calling = mapping_in(config.get("functionCallingConfig", config.get("function_calling_config")))
        names = calling.get("allowedFunctionNames", calling.get("allowed_function_names"))
        return "allowed names" if names else text_in(calling.get("mode"))
    return text_in(choice) or text_in(mapping_in(choice).get("type")) or "unknown"


#: By the identity of the client's tools and what is deferred of them.
_known: dict[tuple[int, Deferral, str], SentTools] = {}


def arrange_tools(tools: Any, deferral: Deferral, provider: Provider) -> SentTools:
    """Return the client's tools as a session with `deferral` sends them: the same bytes for the same tools."""
    given = read_tools(tools)
    key = (id(given.given), deferral, provider.name)
    found = _known.get(key)
    if found is None or found.given is not given:
        if len(_known) >= _MAX_KNOWN:
            _known.clear()
        found = _known[key] = _arrange(given, deferral, provider)
    return found


def _arrange(given: KnownTools, deferral: Deferral, provider: Provider) -> SentTools:
    names = frozenset(deferral.tools)
    if deferral.form == "outline":
        added = (provider.render_tool(FIND_TOOL_DEFINITION),)
        outlined = [
            map_definitions(tool, lambda each: outline_definition(each) if each.get("name") in names else each)
            for tool in given.json
        ]
        sent = [*outlined, *added]
        return SentTools(given=given, tools=sent, added=added, counted=sent)
    assert provider.search_tool is not None
    search = dict(provider.search_tool)
    tools: list[Any] = []
    counted: list[Any] = [search]
    for tool in given.json:
        if text_in(tool.get("name")) in names:
            tools.append({**tool, "defer_loading": True})
            counted += provider.list_seen_deferred(tool)
        else:
            tools.append(tool)
            counted.append(tool)
    return SentTools(given=given, tools=_move_mark([search, *tools]), added=(), counted=counted)


def _move_mark(tools: list[Any]) -> list[Any]:
    """Return the tools with the mark of a deferred one, which takes none, on the last one that is loaded."""
    mark = None
    moved = []
    for tool in tools:
        if tool.get("defer_loading") is True and "cache_control" in tool:
            mark = tool["cache_control"]
            tool = {name: value for name, value in tool.items() if name != "cache_control"}
        moved.append(tool)
    if mark is not None:
        place = max(place for place, tool in enumerate(moved) if not tool.get("defer_loading"))
        moved[place] = moved[place] if "cache_control" in moved[place] else {**moved[place], "cache_control": mark}
    return moved


def is_deferred_in(request: IncomingRequest, deferral: Deferral, model: Capabilities, provider: Provider) -> bool:
    """Return whether one request of a session can be sent with its tools deferred.

    A model that searches no tools, or a choice that the search would be against, needs the client's own. An outline is
    a definition like any other. Without any of the deferred tools, or beside a search of the client's, there is none.
    """
    tools = read_tools(request.tools).json
    names = {text_in(each.get("name")) for tool in tools if isinstance(tool, dict) for each in list_definitions(tool)}
    if names.isdisjoint(deferral.tools) or FIND_TOOL in names or any(map(_searches_tools, tools)):
        return False
    if deferral.form == "outline":
        return True
    choice = read_tool_choice(request.body_fields)
    return model.searches_tools and provider.search_tool is not None and choice in _FREE_CHOICES | _OFF


def _searches_tools(tool: Any) -> bool:
    fields = mapping_in(tool)
    return fields.get("defer_loading") is True or text_in(fields.get("type")).startswith("tool_search")


def describe_deferral(deferral: Deferral) -> str:
    """Return the note of the call with which a session begins to defer; "" where it defers nothing."""
    if not deferral.tools:
        return ""
    how = "the provider loads them when the model searches" if deferral.form == "native" else "outlines stand for them"
    return f'tools="defer": {len(deferral.tools)} definitions leave each prompt, {deferral.saved:,} tokens; {how}'


def find_definitions(tools: Sequence[Json], query: str) -> str:
    """Return the definitions that a model asks for, by name or by words, the best first, as one JSON text a line."""
    definitions = [each for tool in tools for each in list_definitions(tool)]
    names = frozenset(re.split(r"[\s,;\"'`]+", query))
    found = [each for each in definitions if text_in(each.get("name")) in names]
    if not found:
        wanted = set(_WORD.findall(query.lower()))
        scored = [(_score(each, wanted), each) for each in definitions]
        found = [each for score, each in sorted(scored, key=lambda pair: -pair[0]) if score]
    if not definitions:
        return "[the definitions are here with the next request: search again then]"
    if not found:
        return "[no tool fits these words; search by a name that you see among your tools]"
    return "\n".join(json.dumps(each, ensure_ascii=False) for each in found[:_MOST_FOUND])


def _score(definition: Json, wanted: set[str]) -> int:
    """Return how many of the words a definition has; those in its name count three times."""
    # A name such as getUserData or get_user-data is three words.
    texts = (re.sub(r"(?<=[a-z0-9])(?=[A-Z])|_", " ", text).lower() for text in list_words(definition))
    name, *others = (set(_WORD.findall(text)) for text in texts)
    return 3 * len(wanted & name) + len(wanted & set().union(*others))
