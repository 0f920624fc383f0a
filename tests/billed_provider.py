"""A provider with a meter, and an agent that follows a script: what each of them sends is billed without Elision."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Literal, TypeAlias

from elision.testing.billing_simulator import BillingSimulator, hash_prefixes
from elision.testing.parsed_request import split_into_blocks
from elision.testing.recorded_provider import RESPONSE_FORMATS
from elision.trajectory.price_lookup import find_prices
from elision.trajectory.tokens import make_counter
from elision.trajectory.usage import Usage
from tests.manager.agents import LONG

Json: TypeAlias = dict[str, Any]
Shape: TypeAlias = Literal["openai", "anthropic"]
MODELS: Final[dict[Shape, str]] = {"openai": "gpt-4.1", "anthropic": "claude-sonnet-4-5"}
TASK: Final = "Mend the parser. " * 300
MARK: Final = {"type": "ephemeral"}
_count = cache(make_counter("o200k").count)


class _Counter:
    """o200k, which counts each text once."""

    count = staticmethod(_count)


class BilledProvider:
    """Bills every request it is sent, ten seconds apart. usd: so far."""

    def __init__(self, shape: Shape) -> None:
        self.shape, self.usd, self.prompts = shape, 0.0, 0
        self._prices = find_prices(MODELS[shape])
        self._cache, self._now = BillingSimulator(), 0.0

    def bill(self, body: Json, answer: Json) -> Json:
        """Bill a request and its answer. Return its usage as the provider reports it."""
        self._now += 10.0
        prefixes = hash_prefixes("", [*split_into_blocks(self.shape, body, _Counter())])
        usage = self._cache.bill_request(prefixes, self._prices, self._now, output=_count(json.dumps(answer)))
        self.usd += self._prices.cost_usage(usage)
        self.prompts += usage.prompt
        return self.dump(usage)

    def dump(self, usage: Usage) -> Json:
        return RESPONSE_FORMATS[self.shape].dump_usage(usage)

    def lose_entries(self) -> None:
        """Lose all cache entries before their time."""
        self._cache = BillingSimulator()


@dataclass(frozen=True, slots=True)
class Call:
    id: str
    name: str
    arguments: Json
    result: str


def make_step(number: int) -> Call:
    """Step `number` of the script; some results are short, some are long, and every fourth repeats an earlier one."""
    file = number if number % 4 else number - 2
    length = 200 + file * 7_919 % len(LONG)
    text = LONG[:length].replace("\n", f" of {file}\n")
    return Call(f"c{number}", "bash", {"command": f"cat f{file}.py"}, f"{file}\n{text}")


def make_recall(number: int, handle: str, result: str) -> Call:
    return Call(f"r{number}", "elision_recall", {"handle": handle}, result)


def make_answer(shape: Shape, calls: Sequence[Call], text: str) -> Json:
    if shape == "anthropic":
        uses = [{"type": "tool_use", "id": each.id, "name": each.name, "input": each.arguments} for each in calls]
        return {"role": "assistant", "content": [{"type": "text", "text": text}, *uses]}
    made = [
        {
            "id": each.id,
            "type": "function",
            "function": {"name": each.name, "arguments": json.dumps(each.arguments)},
        }
        for each in calls
    ]
    return {"role": "assistant", "content": text, "tool_calls": made}


def make_results(shape: Shape, calls: Sequence[Call]) -> list[Json]:
    if shape == "anthropic":
        return [
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": each.id, "content": [{"type": "text", "text": each.result}]}
                    for each in calls
                ],
            }
        ]
    return [{"role": "tool", "tool_call_id": each.id, "content": each.result} for each in calls]


def make_request(shape: Shape, history: Sequence[Json], *more_tools: Json) -> Json:
    """The request of an agent that sets cache breakpoints where the API wants them."""
    if shape == "openai":
        function = {"name": "bash", "parameters": {"type": "object", "properties": {}}}
        tools = [{"type": "function", "function": function}, *more_tools]
        return {"model": MODELS[shape], "messages": [*history], "tools": tools}
    *before, newest = history
    *blocks, last = newest["content"]
    marked = {**newest, "content": [*blocks, {**last, "cache_control": MARK}]}
    return {
        "model": MODELS[shape],
        "max_tokens": 1_000,
        "system": [{"type": "text", "text": "You are an agent.", "cache_control": MARK}],
        "messages": [*before, marked],
        "tools": [{"name": "bash", "input_schema": {"type": "object", "properties": {}}}, *more_tools],
    }


def begin_history() -> list[Json]:
    return [{"role": "user", "content": [{"type": "text", "text": TASK}]}]


def bill_plain_agent(shape: Shape, steps: int, *, losing: Sequence[int] = ()) -> BilledProvider:
    """The bill of an agent without Elision. losing: steps before which the provider loses its cache entries."""
    provider, history = BilledProvider(shape), begin_history()
    for number in range(1, steps + 1):
        if number in losing:
            provider.lose_entries()
        step = make_step(number)
        answer = make_answer(shape, [step], f"step {number}")
        provider.bill(make_request(shape, history), answer)
        history += [answer, *make_results(shape, [step])]
    return provider
