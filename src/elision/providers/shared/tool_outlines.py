"""Definitions of tools in short: what a call must look like, without the words that explain it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from elision.providers.shared.json_reading import Json, mapping_in, text_in
from elision.trajectory.tool_definitions import TOOL_GROUPS

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
