"""The bill of a recorded response, added up by hand from its fields, apart from every reader of ours.

What the fields mean is what the providers' own pages say of them:

- Anthropic: `input_tokens`, `cache_read_input_tokens` and `cache_creation_input_tokens` exclude each other. The counts
  at the top are the model's own; `iterations` lists what else was asked: server-side compaction, advisors.
- OpenAI: prompt tokens include cached and written ones, and audio; completion tokens include reasoning, audio, and
  predictions, also those that were rejected.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from math import isclose
from typing import Any, Final, TypeAlias

from elision.errors import PriceError
from elision.gateway.response_observer import ResponseObserver
from elision.manager.reported_usage import find_usage
from elision.trajectory.price_lookup import cost_reported_usage, find_prices
from elision.trajectory.prices import Prices
from elision.trajectory.usage import Usage
from tests.recorded.cassettes import Exchange

#: (model, kind) -> tokens; the model is "" for the one that answered.
Bill: TypeAlias = Counter[tuple[str, str]]

#: Bytes of a response that arrive at once.
CHUNK_BYTES: Final = 97


def check_bill(exchange: Exchange) -> Iterator[str]:
    """Say where what is read of a response is not its bill, one sentence each."""
    bill, read = add_up_bill(exchange), read_usage(exchange)
    if split_usage(read) != bill:
        yield f"the gateway reads {read}, the bill is {bill}"
    if not exchange.is_stream and find_usage(exchange.response_json()) != read:
        yield f"the library reads {find_usage(exchange.response_json())}, the gateway {read}"
    model = find_model(exchange)
    prices = find_known_prices(model)
    if bill is None or read is None or prices is None:
        return
    cost, by_hand = cost_reported_usage(read, prices), price_by_hand(bill, model)
    if by_hand is not None and not isclose(cost, by_hand, rel_tol=1e-12):
        yield f"{cost} USD, the bill is {by_hand} USD"


def read_usage(exchange: Exchange) -> Usage | None:
    """Return the usage that the gateway reads of a response that comes in pieces."""
    content_type = dict(exchange.response_headers).get("content-type", "")
    tap = ResponseObserver(exchange.api, status=exchange.status, content_type=content_type)
    for start in range(0, len(exchange.response_body), CHUNK_BYTES):
        tap.feed(exchange.response_body[start : start + CHUNK_BYTES])
    return tap.finish().usage


def split_usage(usage: Usage | None) -> Bill | None:
    """Return a usage in the words of a bill: what other models did apart from what the model did that was asked."""
    if usage is None:
        return None
    bill = _count_usage(usage, "")
    for other in usage.others:
        bill.subtract(_count_usage(other.usage, ""))
        bill.update(_count_usage(other.usage, other.model))
    return +bill


def _count_usage(usage: Usage, model: str) -> Bill:
    counts = {
        "input": usage.input,
        "cache_read": usage.cache_read,
        "cache_write_5m": usage.cache_write - usage.cache_write_1h,
        "cache_write_1h": usage.cache_write_1h,
        "output": usage.output,
    }
    return Counter({(model, kind): count for kind, count in counts.items()})


def add_up_bill(exchange: Exchange) -> Bill | None:
    """Return what the response reports, by model and kind, without zeros; None if it reports nothing."""
    usage: dict[str, Any] = {}
    for body in _list_bodies(exchange):
        # Of a stream, later counts replace earlier ones.
        usage |= {name: value for name, value in (body.get("usage") or {}).items() if value is not None}
    if not usage:
        return None
    return +(_add_up_anthropic(usage) if exchange.provider == "anthropic" else _add_up_openai(usage))


def price_by_hand(bill: Bill, model: str) -> float | None:
    """Return what a bill costs at the list prices of its models, in USD; None where one of them has none."""
    total = 0.0
    sent = sum(count for (other, kind), count in bill.items() if not other and kind != "output")
    for (other, kind), count in bill.items():
        prices = find_known_prices(other or model)
        if prices is None:
            return None
        total += count * _get_price(prices, kind, sent) / 1e6
    return total


def find_known_prices(model: str) -> Prices | None:
    """Return a model's price list; None where nobody knows one."""
    try:
        return find_prices(model)
    except PriceError:
        return None


def find_model(exchange: Exchange) -> str:
    """Return the model that answered, as the response names it."""
    return next((str(body["model"]) for body in _list_bodies(exchange) if body.get("model")), "")


def read_events(body: bytes) -> Iterator[dict[str, Any]]:
    """Read the JSON of every event of a stream."""
    for line in body.decode().splitlines():
        data = line.removeprefix("data:").strip()
        if line.startswith("data:") and data != "[DONE]":
            yield json.loads(data)


def _list_bodies(exchange: Exchange) -> Iterator[dict[str, Any]]:
    """The objects of a response that can hold `usage` and `model`, in the order in which they came."""
    if not exchange.is_stream:
        yield exchange.response_json()
        return
    for event in read_events(exchange.response_body):
        yield from (event[name] for name in ("message", "response") if isinstance(event.get(name), dict))
        yield event


def _add_up_anthropic(usage: Mapping[str, Any]) -> Bill:
    bill = _add_up_anthropic_part(usage, "")
    for part in usage.get("iterations") or ():
        if part["type"] != "message":
            bill += _add_up_anthropic_part(part, part.get("model", ""))
    return bill


def _add_up_anthropic_part(usage: Mapping[str, Any], model: str) -> Bill:
    written = usage.get("cache_creation_input_tokens") or 0
    hour = (usage.get("cache_creation") or {}).get("ephemeral_1h_input_tokens") or 0
    counts = {
        "input": usage["input_tokens"],
        "cache_read": usage.get("cache_read_input_tokens") or 0,
        "cache_write_5m": written - hour,
        "cache_write_1h": hour,
        "output": usage["output_tokens"],
    }
    return Counter({(model, kind): count for kind, count in counts.items()})


def _add_up_openai(usage: Mapping[str, Any]) -> Bill:
    is_chat = "prompt_tokens" in usage
    prompt, output = ("prompt_tokens", "completion_tokens") if is_chat else ("input_tokens", "output_tokens")
    details = usage.get(f"{prompt}_details") or {}
    read, written = details.get("cached_tokens") or 0, details.get("cache_write_tokens") or 0
    assert usage["total_tokens"] == usage[prompt] + usage[output], "details are part of the two counts, not beside them"
    counts = {
        "input": usage[prompt] - read - written,
        "cache_read": read,
        "cache_write_5m": written,
        "output": usage[output],
    }
    return Counter({("", kind): count for kind, count in counts.items()})


def _get_price(prices: Prices, kind: str, prompt: int) -> float:
    """USD per million tokens. An entry that lives an hour costs twice the input price (Anthropic)."""
    rates = prices.find_rates(prompt)
    listed = {
        "input": rates.input,
        "cache_read": rates.input if rates.cache_read is None else rates.cache_read,
        "cache_write_5m": rates.input if rates.cache_write is None else rates.cache_write,
        "cache_write_1h": 2 * rates.input,
        "output": rates.output,
    }
    return listed[kind]
