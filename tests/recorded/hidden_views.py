"""Hide things in recorded conversations: results that are old, and turns that a summary covers.

Recorded conversations are short, so they are carried on: the recorded answer, results for its calls, and a few rounds
of a made-up agent. Results get filler behind their words, so that hiding them is worth while.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from anthropic.types.beta import BetaMessageParam
from openai.types.chat import ChatCompletionMessageParam
from openai.types.responses import ResponseInputItemParam
from pydantic import TypeAdapter, ValidationError

from elision import Advanced, Cache, ContextManager
from elision.testing.request_rules import list_new_violations
from tests.providers.render_checks import validate_elements
from tests.recorded.cassettes import Api, Exchange

#: Where a request holds its messages, and its system prompt where that stands apart.
MESSAGES: Final[dict[Api, str]] = {"openai": "messages", "openai-responses": "input", "anthropic": "messages"}
SYSTEM: Final[dict[Api, str]] = {"openai-responses": "instructions", "anthropic": "system"}
STRATEGIES: Final = (
    "masking(window=1, schedule=every-turn)",
    "summarization(every=2, tail=1, schedule=every-turn)",
    "summarization(every=1, tail=4, schedule=every-turn)",
    "hybrid(window=1, summarize_at=3, tail=1, schedule=every-turn)",
)
ROUNDS: Final = 3
FILLER: Final = "".join(f"\nsrc/part_{row}.py: {row * 7} lines, changed in commit {row * 7919:x}" for row in range(60))
_TYPES: Final[dict[Api, TypeAdapter[Any]]] = {
    "openai": TypeAdapter(ChatCompletionMessageParam),
    "openai-responses": TypeAdapter(ResponseInputItemParam),
    "anthropic": TypeAdapter(BetaMessageParam),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenView:
    """A request, and the view of it that a strategy sends."""

    exchange: Exchange
    strategy: str
    request: dict[str, Any] = field(repr=False)
    view: dict[str, Any] = field(repr=False)

    @property
    def is_changed(self) -> bool:
        """Whether anything is hidden."""
        return self.request != self.view

    def list_faults(self) -> Iterator[str]:
        """Say what the view breaks that the request did not break, one sentence each."""
        api = self.exchange.api
        assert api is not None
        yield from (str(each) for each in list_new_violations(api, self.request, self.view))
        known = [message for message in self.request[MESSAGES[api]] if not _has_its_type(api, message)]
        found = [message for message in self.view[MESSAGES[api]] if not _has_its_type(api, message)]
        if len(found) > len(known):
            yield f"{len(found) - len(known)} messages more that break their type: {json.dumps(found)[:300]}"


def build_hidden_view(exchange: Exchange, strategy: str) -> HiddenView:
    """Carry a recorded conversation on, and hide what the strategy allows, whether it pays or not."""
    assert exchange.api is not None
    body = exchange.request_json()
    place, system = MESSAGES[exchange.api], SYSTEM.get(exchange.api, "")
    body[place] = carry_on(exchange)
    with ContextManager(
        strategy,
        model=str(body.get("model")),
        advanced=Advanced(dialect=exchange.api, cache=Cache(control="client")),
        store="memory:",
    ) as context:
        context.compact()
        view = context.prepare(body[place], system=body.get(system), tools=body.get("tools"))
    return HiddenView(exchange=exchange, strategy=strategy, request=body, view={**body, **view.request})


def carry_on(exchange: Exchange) -> list[Any]:
    """The messages of a request, its answer where that came whole, and what an agent might do next."""
    assert exchange.api is not None
    given = exchange.request_json()[MESSAGES[exchange.api]]
    messages = [{"role": "user", "content": given}] if isinstance(given, str) else list(map(_lengthen_message, given))
    if not exchange.is_stream:
        messages += list_answer_messages(exchange)
    messages += _make_results(exchange.api, _find_open_calls(exchange.api, messages))
    for number in range(ROUNDS):
        call = _make_call(exchange.api, f"call_{number}")
        messages += [call, *_make_results(exchange.api, _find_open_calls(exchange.api, [call]))]
    return messages


def list_answer_messages(exchange: Exchange) -> list[dict[str, Any]]:
    """The messages that a client appends for a response that came whole."""
    body = exchange.response_json()
    match exchange.api:
        case "openai":
            return [choice["message"] for choice in body["choices"][:1]]
        case "anthropic":
            return [{"role": "assistant", "content": body["content"]}] if body["content"] else []
        case _:
            return list(body["output"])


def _lengthen_message(message: dict[str, Any]) -> dict[str, Any]:
    """A message with filler in each of its results that is a text."""
    if message.get("role") == "tool" and isinstance(message.get("content"), str):
        return {**message, "content": message["content"] + FILLER}
    if str(message.get("type")).endswith("_output") and isinstance(message.get("output"), str):
        return {**message, "output": message["output"] + FILLER}
    if message.get("role") == "user" and isinstance(message.get("content"), list):
        return {**message, "content": list(map(_lengthen_block, message["content"]))}
    return message


def _lengthen_block(block: dict[str, Any]) -> dict[str, Any]:
    content = block.get("content")
    if block.get("type") != "tool_result" or not isinstance(content, list) or not content:
        return block
    last = content[-1]
    return {**block, "content": [*content[:-1], {**last, "text": last["text"] + FILLER}]} if "text" in last else block


def _find_open_calls(api: Api, messages: Sequence[dict[str, Any]]) -> list[str]:
    """Calls of the trailing assistant messages that the client has to answer."""
    found: list[str] = []
    for message in reversed(messages):
        if api == "openai-responses":
            if message.get("role", "assistant") != "assistant" or str(message.get("type")).endswith("_output"):
                break
            found += [message["call_id"]] if message.get("type") == "function_call" else []
        elif message["role"] != "assistant":
            break
        elif api == "openai":
            found += [call["id"] for call in message.get("tool_calls") or ()]
        else:
            found += [block["id"] for block in message["content"] if block["type"] == "tool_use"]
    return found[::-1]


def _make_results(api: Api, ids: Sequence[str]) -> list[dict[str, Any]]:
    if api == "openai":
        return [{"role": "tool", "tool_call_id": id, "content": id + FILLER} for id in ids]
    if api == "openai-responses":
        return [{"type": "function_call_output", "call_id": id, "output": id + FILLER} for id in ids]
    blocks = [{"type": "tool_result", "tool_use_id": id, "content": id + FILLER} for id in ids]
    return [{"role": "user", "content": [*blocks, {"type": "text", "text": "Go on."}]}]


def _make_call(api: Api, id: str) -> dict[str, Any]:
    if api == "openai":
        call = {"id": id, "type": "function", "function": {"name": "look", "arguments": "{}"}}
        return {"role": "assistant", "content": None, "tool_calls": [call]}
    if api == "openai-responses":
        return {"type": "function_call", "call_id": id, "name": "look", "arguments": "{}"}
    return {"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": "look", "input": {}}]}


def _has_its_type(api: Api, message: Any) -> bool:
    try:
        validate_elements(_TYPES[api].validate_python(message, strict=True))
    except ValidationError:
        return False
    return True
