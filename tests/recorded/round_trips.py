"""What recorded messages are, by hand: which calls wait for a client, what answers them, what repeats what was said."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import Any, Final

from anthropic._models import construct_type as anthropic_type
from anthropic.types.beta import BetaMessage
from openai._models import construct_type as openai_type
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

from elision import Advanced, Cache, ContextManager
from elision.providers.live.client_messages import convert_to_json, digest_pieces
from elision.providers.live.conversation import LiveTurns
from elision.providers.provider_table import PROVIDERS, recognize_provider
from elision.trajectory.turn import Turn
from tests.recorded.cassettes import Api, Exchange
from tests.recorded.hidden_views import MESSAGES, SYSTEM, list_answer_messages

#: Fields of what a model said that some clients send back and some leave out.
_LEFT_OUT: Final = frozenset(("id", "status", "annotations", "logprobs", "caller", "citations", "refusal"))


def check_round_trip(exchange: Exchange) -> Iterator[str]:
    """Say what of a request and its answer is lost or misread on the way into turns and back, one sentence each."""
    assert exchange.api is not None
    yield from _check_view(exchange)
    yield from _check_dialect(exchange)
    yield from _check_objects(exchange)
    for place, message in enumerate(read_messages(exchange)):
        pieces = PROVIDERS[exchange.api].live.split_message(message, place)
        parts = [part for piece in pieces for part in piece.location.blocks or ()]
        if not pieces or (parts and sorted(parts) != list(range(len(message["content"])))):
            yield f"message {place} is read as {pieces}"
    expected = find_results(exchange.api, read_messages(exchange))
    found = [each for turn in read_turns(exchange.api, read_messages(exchange)) for each in turn.observations]
    # A search that the service ran has no id; its observation is given one.
    named = [(each.action_id if id else "", each.text) for (id, _), each in zip(expected, found, strict=False)]
    if len(found) != len(expected) or named != expected:
        yield f"{len(expected)} results, {len(found)} observations"


def _check_view(exchange: Exchange) -> Iterator[str]:
    """A view that hides nothing is the request: each message the very object, in order."""
    body, messages = exchange.request_json(), read_messages(exchange)
    if exchange.status == 200 and not exchange.is_stream:
        messages = [*messages, *list_answer_messages(exchange), {"role": "user", "content": "Go on."}]
    with open_raw(exchange) as context:
        view = context.prepare(messages, system=body.get(SYSTEM.get(exchange.api, "")), tools=body.get("tools"))
    if [id(each) for each in view.messages] != [id(each) for each in messages]:
        yield "the view has other messages than the request"
    yield from (str(fault) for fault in view.diagnostics.faults)


def _check_objects(exchange: Exchange) -> Iterator[str]:
    """An answer as the objects of the provider's package is sent back as what the provider wrote."""
    if exchange.status != 200 or exchange.is_stream:
        return
    found, expected = (
        _drop_nulls(convert_to_json(_make_answer_objects(exchange))),
        _drop_nulls(list_answer_messages(exchange)),
    )
    if found != expected:
        yield f"the package's objects say {found}"


def _make_answer_objects(exchange: Exchange) -> list[Any]:
    """The messages that a client of the provider's package appends for a response."""
    body = exchange.response_json()
    match exchange.api:
        case "openai":
            return [openai_type(type_=ChatCompletion, value=body).choices[0].message]  # type: ignore[attr-defined]
        case "anthropic":
            content = anthropic_type(type_=BetaMessage, value=body).content  # type: ignore[attr-defined]
            return [{"role": "assistant", "content": content}] if content else []
        case _:
            return list(openai_type(type_=Response, value=body).output)  # type: ignore[attr-defined]


def _drop_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _drop_nulls(each) for name, each in value.items() if each is not None}
    return [_drop_nulls(each) for each in value] if isinstance(value, list) else value


def _check_dialect(exchange: Exchange) -> Iterator[str]:
    """A request that bears a sign of an API bears that of its own."""
    assert exchange.api is not None
    body = exchange.request_json()
    system, tools = body.get(SYSTEM.get(exchange.api, "")), body.get("tools")
    sign = recognize_provider(read_messages(exchange), system, tools, str(body["model"]))
    if sign is not None and sign.name != exchange.api:
        yield f"it is taken for {sign.name}"


def check_continuation(one: Exchange, other: Exchange) -> Iterator[str]:
    """Say why `other`, which sends the messages of `one` again, would not continue its session."""
    with open_raw(one) as context:
        branches = {context.prepare(read_messages(each)).diagnostics.branch for each in (one, other)}
    if len(branches) > 1:
        yield f"{other.name} begins a branch of its own"
    for said, repeated in find_repeated(one, other):
        assert one.api is not None
        pieces = PROVIDERS[one.api].live.split_message
        if digest_pieces(pieces(said, 0), is_behind_head=True) != digest_pieces(
            pieces(repeated, 0), is_behind_head=True
        ):
            yield f"the answer and its copy in {other.name} have two names: {said}"


def open_raw(exchange: Exchange) -> ContextManager:
    """Open a session that hides nothing and marks nothing."""
    assert exchange.api is not None
    model = str(exchange.request_json()["model"])
    return ContextManager(
        "raw",
        model=model,
        advanced=Advanced(dialect=exchange.api, cache=Cache(control="client")),
        store="memory:",
    )


def read_messages(exchange: Exchange) -> list[dict[str, Any]]:
    """Return the messages of a request; a bare text is one message of the user's."""
    assert exchange.api is not None
    given = exchange.request_json()[MESSAGES[exchange.api]]
    return [{"role": "user", "content": given}] if isinstance(given, str) else given


def read_turns(api: Api, messages: Sequence[dict[str, Any]]) -> list[Turn]:
    """Read a conversation into turns, as a session does."""
    live = PROVIDERS[api].live
    conversation = LiveTurns(joins_assistant_messages=live.joins_assistant_messages, has_tools=True)
    for place, message in enumerate(messages):
        conversation.add_pieces(live.split_message(message, place))
    return [conversation.build_turn(index)[0] for index in range(1, conversation.turn_count + 1)]


def find_results(api: Api, messages: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return (id of the call, text) of every result whose call is in the conversation, in order."""
    asked: set[str] = set()
    found: list[tuple[str, str]] = []
    for message in messages:
        asked.update(_list_calls(api, message))
        found += [(id, text) for id, text in _list_results(api, message) if id in asked]
    return found


def find_repeated(one: Exchange, other: Exchange) -> list[tuple[Any, Any]]:
    """Return each message of an answer with its copy in the next request, where that repeats all of it."""
    if one.is_stream:
        return []
    answer, start = list_answer_messages(one), len(read_messages(one))
    repeated = read_messages(other)[start : start + len(answer)]
    return (
        list(zip(answer, repeated, strict=True)) if _reduce_to_essence(repeated) == _reduce_to_essence(answer) else []
    )


def find_continued(exchanges: Sequence[Exchange]) -> Iterator[tuple[Exchange, Exchange]]:
    """Yield each exchange with the one behind it, where that sends all of its messages again, and more."""
    for _, group in groupby(exchanges, key=lambda exchange: (exchange.file, exchange.api)):
        for one, other in pairwise(group):
            sent, again = read_messages(one), read_messages(other)
            if len(again) > len(sent) and again[: len(sent)] == sent:
                yield one, other


def _list_calls(api: Api, message: dict[str, Any]) -> list[str]:
    if api == "openai":
        return [call["id"] for call in message.get("tool_calls") or ()]
    if api == "anthropic":
        return [block["id"] for block in _list_blocks(message) if block["type"] == "tool_use"]
    kind = str(message.get("type"))
    return [_get_item_id(message)] if kind.endswith("_call") else []


def _list_results(api: Api, message: dict[str, Any]) -> list[tuple[str, str]]:
    if api == "openai":
        return [(message["tool_call_id"], _join_text(message["content"]))] if message["role"] == "tool" else []
    if api == "anthropic":
        results = [block for block in _list_blocks(message) if block["type"] == "tool_result"]
        return [(block["tool_use_id"], _join_text(block.get("content"))) for block in results]
    kind = str(message.get("type"))
    return [(_get_item_id(message), _join_text(message.get("output")))] if kind.endswith("_output") else []


def _get_item_id(item: dict[str, Any]) -> str:
    """The id that call and output share; a search that the service ran has none."""
    return str(item.get("call_id") or "")


def _list_blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message["content"]
    return content if isinstance(content, list) else []


def _join_text(content: Any) -> str:
    """The words of a result."""
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content or () if "text" in part)


def _reduce_to_essence(value: Any) -> Any:
    """A value without what clients leave out, and with every text in one form."""
    if isinstance(value, list):
        return [_reduce_to_essence(each) for each in value]
    if not isinstance(value, dict):
        return value
    kept = {
        name: _reduce_to_essence(each)
        for name, each in value.items()
        if each not in (None, []) and name not in _LEFT_OUT
    }
    if kept.get("type") == "message":
        del kept["type"]
    match kept.get("content"):
        case [{"type": "text" | "output_text", "text": str() as text}]:
            kept["content"] = text
    return kept
