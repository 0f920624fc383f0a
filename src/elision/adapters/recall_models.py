"""The recall tools' arguments as pydantic models, for frameworks that take no JSON Schema."""

from __future__ import annotations

from typing import Any, Final, TypeVar

from pydantic import BaseModel, Field, create_model

from elision.adapters.guarded_calls import RecallDefinition

_Model = TypeVar("_Model", bound=BaseModel)

_TYPES: Final[dict[str, Any]] = {"string": str, "integer": int}


def make_argument_model(definition: RecallDefinition, name: str, base: type[_Model]) -> type[_Model]:
    """Return a subclass `name` of `base` with the arguments of a recall tool. Those that may be left out are None."""
    required = definition.schema["required"]
    fields: dict[str, Any] = {}
    for argument, schema in definition.schema["properties"].items():
        kind = _TYPES[schema["type"]]
        if argument in required:
            fields[argument] = (kind, Field(description=schema["description"]))
        else:
            fields[argument] = (kind | None, Field(default=None, description=schema["description"]))
    return create_model(name, __base__=base, __doc__=definition.description, **fields)
