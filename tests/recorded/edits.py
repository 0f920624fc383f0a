"""What a gateway may change in a request, and a check that it changed nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from elision.testing.request_checks import find_problems
from elision.testing.request_rules import list_new_violations
from tests.recorded.cassettes import Api, Exchange

#: Stands in every placeholder of `HIDING`.
MARK: Final = "out of sight"
#: Hides each result but the newest turn's that is longer than its placeholder, at once, and offers recall with it.
HIDING: Final = f'masking(window=1, gist=0, placeholder="{MARK}", schedule=every-turn)'
MESSAGES: Final[Mapping[Api, str]] = {"openai": "messages", "openai-responses": "input", "anthropic": "messages"}
_RECALL: Final = ("elision_recall", "elision_search")


def explain_edits(exchange: Exchange, body: bytes) -> Iterator[str]:
    """Say, one sentence each, what in `body` is neither the client's nor a change that a gateway may make.

    It may hide results, set cache breakpoints, and append the recall tools.
    """
    assert exchange.api is not None
    client, sent = exchange.request_json(), json.loads(body)
    for field in sorted((client.keys() | sent.keys()) - {MESSAGES[exchange.api]}):
        found = sent.get(field)
        if field == "tools" and found:
            found = [tool for tool in found if _get_tool_name(tool) not in _RECALL] or None
        if not _is_same(client.get(field), found, {}):
            yield f"field {field} is {json.dumps(found)[:200]}, the client's is {json.dumps(client.get(field))[:200]}"
    yield from _explain_messages(client[MESSAGES[exchange.api]], sent[MESSAGES[exchange.api]], body)
    yield from (f"breaks a rule: {each}" for each in list_new_violations(exchange.api, client, sent))
    known = set(find_problems(exchange.api, client))
    yield from (f"breaks a type: {each}" for each in find_problems(exchange.api, sent) if each not in known)


def _explain_messages(client: list[Any], sent: list[Any], body: bytes) -> Iterator[str]:
    if len(sent) != len(client):
        yield f"{len(sent)} messages, the client's are {len(client)}"
        return
    for place, (one, other) in enumerate(zip(client, sent, strict=True)):
        if not _is_same(one, other, {}):
            yield f"message {place} is {json.dumps(other)[:300]}, the client's is {json.dumps(one)[:300]}"
        if one == other and json.dumps(one, ensure_ascii=False, separators=(",", ":")).encode() not in body:
            yield f"message {place} says the same in other bytes"


def _is_same(one: Any, other: Any, parent: Mapping[str, Any]) -> bool:
    """Whether `other` is `one`, but for breakpoints and for text that stands for a result."""
    if isinstance(other, str) and MARK in other and one != other:
        # A tool that a result refers to may be called later.
        return _is_result(parent) and "tool_reference" not in json.dumps(one)
    if isinstance(one, str) and isinstance(other, list):
        # A breakpoint needs a block.
        return len(other) == 1 and _is_same({**other[0], "text": one}, {**other[0], "text": other[0]["text"]}, parent)
    if isinstance(one, dict) and isinstance(other, dict):
        names = (one.keys() | other.keys()) - {"cache_control", "prompt_cache_breakpoint"}
        # A block of text is a part of the result that it stands in.
        within = parent if one.get("type") in ("text", "input_text") else one
        return all(name in one and name in other and _is_same(one[name], other[name], within) for name in names)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(_is_same(*pair, parent) for pair in zip(one, other, strict=True))
    return bool(one == other)


def _is_result(parent: Mapping[str, Any]) -> bool:
    kind = str(parent.get("type") or parent.get("role"))
    return kind in ("tool", "tool_result") or kind.endswith("_output")


def _get_tool_name(tool: Mapping[str, Any]) -> str:
    return str(tool.get("name") or tool.get("function", {}).get("name"))
