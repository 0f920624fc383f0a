"""Check a request as its provider would: its JSON against the provider's own types, its history against the rules.

The types are those of the `openai`, `anthropic` and `google-genai` packages if they are installed. Without them only
the few fields are checked that every request must have.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

from elision.providers.provider import Api
from elision.providers.shared.json_reading import Json
from elision.testing.request_rules import list_violations

#: API -> module and name of the type that its package gives a request.
_TYPES: Final[Mapping[Api, tuple[str, str]]] = {
    "openai": ("openai.types.chat.completion_create_params", "CompletionCreateParamsNonStreaming"),
    "openai-responses": ("openai.types.responses.response_create_params", "ResponseCreateParamsNonStreaming"),
    "anthropic": ("anthropic.types.message_create_params", "MessageCreateParamsNonStreaming"),
}
#: API -> fields that a request cannot be without, and of which JSON type.
_REQUIRED_FIELDS: Final[Mapping[Api, Mapping[str, type | tuple[type, ...]]]] = {
    "openai": {"model": str, "messages": list},
    "openai-responses": {"model": str, "input": (str, list)},
    "anthropic": {"model": str, "messages": list, "max_tokens": int},
    # The model is part of the path.
    "gemini": {"contents": list},
}
#: Field of Gemini's body -> name of its type. The package has none for the whole body.
_GEMINI_FIELDS: Final[Mapping[str, str]] = {
    "systemInstruction": "Content",
    "toolConfig": "ToolConfig",
    "generationConfig": "GenerationConfig",
}
#: The same for lists: name of the type of an element.
_GEMINI_LISTS: Final[Mapping[str, str]] = {"contents": "Content", "tools": "Tool", "safetySettings": "SafetySetting"}
#: Problems of one request that are reported; the others are left out.
MAX_PROBLEMS = 5


def find_problems(api: Api, body: Json) -> list[str]:
    """Return what the provider would refuse `body` for, each as one sentence; [] for a sound request."""
    problems = list(_check_fields(api, body))
    if not problems:
        problems = list(_check_types(api, body))[:MAX_PROBLEMS]
    if not problems:
        problems = [str(violation) for violation in list_violations(api, body)]
    return problems


def _check_fields(api: Api, body: Json) -> Iterator[str]:
    for name, kind in _REQUIRED_FIELDS[api].items():
        if name not in body:
            yield f"{name}: Field required"
        elif not isinstance(body[name], kind) or isinstance(body[name], bool):
            yield f"{name}: Input should be a valid {_name_kind(kind)}"


def _name_kind(kind: type | tuple[type, ...]) -> str:
    kinds = kind if isinstance(kind, tuple) else (kind,)
    return " or ".join({str: "string", list: "list", int: "integer"}[each] for each in kinds)


def _check_types(api: Api, body: Json) -> Iterator[str]:
    validate = _load_validator(api)
    if validate is not None:
        # How an answer is sent is checked apart: it makes two types of one.
        yield from validate({name: _relax_tools(name, value) for name, value in body.items() if name != "stream"})


def _relax_tools(name: str, value: Any) -> Any:
    """Add `strict` to tools without it: only the package's type requires it.

    Responses take a missing `strict` for true, and mini-swe-agent and LiteLLM leave it out.
    """
    if name != "tools" or not isinstance(value, list):
        return value
    tools: list[Any] = []
    for tool in value:
        if isinstance(tool, dict) and tool.get("type") == "function" and "function" not in tool:
            tool = {"strict": None, **tool}
        tools.append(tool)
    return tools


@cache
def _load_validator(api: Api) -> Callable[[Any], list[str]] | None:
    """Return a check of values against the type of `api`'s package; None if the package is not installed."""
    if api == "gemini":
        return _load_gemini_validator()
    module, name = _TYPES[api]
    try:
        pydantic = importlib.import_module("pydantic")
        kind = getattr(importlib.import_module(module), name)
    except ImportError:
        return None
    adapter = pydantic.TypeAdapter(kind)
    failure = pydantic.ValidationError

    def validate(value: Any) -> list[str]:
        try:
            return [*_check_elements(adapter.validate_python(value, strict=True), (), failure)]
        except failure as error:
            return _list_errors((), error.errors())

    return validate


def _load_gemini_validator() -> Callable[[Any], list[str]] | None:
    """Return a check of Gemini's bodies, field by field; None if Google's package is not installed."""
    try:
        pydantic = importlib.import_module("pydantic")
        types = importlib.import_module("google.genai.types")
    except ImportError:
        return None
    kinds = {name: getattr(types, kind) for name, kind in _GEMINI_FIELDS.items()}
    kinds |= {name: list[getattr(types, kind)] for name, kind in _GEMINI_LISTS.items()}  # type: ignore[misc]
    adapters = {name: pydantic.TypeAdapter(kind) for name, kind in kinds.items()}

    def validate(value: Any) -> list[str]:
        problems: list[str] = []
        for name, field in value.items():
            if name not in adapters:
                continue
            try:
                # As JSON: bytes are base64 there. Half a character pair, which some clients send, is none of its types.
                written = json.dumps(field, ensure_ascii=False).encode("utf-8", "replace")
                adapters[name].validate_json(written, strict=True)
            except pydantic.ValidationError as error:
                problems += _list_errors((name,), error.errors())
        return problems

    return validate


def _check_elements(value: Any, place: tuple[str | int, ...], failure: type[Exception]) -> Iterator[str]:
    """Look at every element: pydantic checks iterables (messages, parts, calls) only when they are read."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _check_elements(each, (*place, name), failure)
    elif not isinstance(value, str | bytes | int | float | bool | None):
        try:
            for number, each in enumerate(value):
                yield from _check_elements(each, (*place, number), failure)
        except failure as error:
            yield from _list_errors(place, error.errors())  # type: ignore[attr-defined]


def _list_errors(place: tuple[str | int, ...], errors: Sequence[Json]) -> list[str]:
    """Return errors as sentences. Of a union, only errors of members with the value's `type` count, if there is one."""
    others = {each["loc"][:-1] for each in errors if each["loc"][-1:] in (("type",), ("role",))}
    relevant = [each for each in errors if each["loc"][:-1] not in others] or errors
    return [f"{'.'.join(map(str, (*place, *each['loc'])))}: {each['msg']}" for each in relevant]
