"""A long session as an agent's client holds it: as many turns and bytes as asked for, the same at every run.

Calls and results are those of the sample runs, over and over. Results are drawn out with more recorded output, which
begins elsewhere each time: real text at the size that was asked for, and no two results alike.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, cycle, islice
from typing import Any, TypeAlias

from benchmarks.recordings import SAMPLES
from elision.formats.registry import read_runs
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.turn import Turn

Message: TypeAlias = dict[str, Any]
#: The size of the session that the published figures are of.
TURNS, SIZE = 1_000, 4_500_000
#: How unlike in size results are: sigma of a log-normal distribution.
_SPREAD = 1.0
_TASK = "Find out why the tests fail, mend what is wrong, and show that they pass."


@dataclass(frozen=True, slots=True, kw_only=True)
class Chat:
    """head: the messages before the first turn; turns: those of each turn. tools, system: given beside them."""

    head: list[Message]
    turns: list[list[Message]]
    tools: list[Message] = field(default_factory=list)
    system: Any = None

    def calls(self) -> Iterator[list[Message]]:
        """The messages of each call: what a client that keeps one growing list passes; the same list each time."""
        messages = list(self.head)
        for turn in self.turns:
            yield messages
            messages.extend(turn)

    @property
    def bytes(self) -> int:
        """Of all texts, as UTF-8; without roles, ids and JSON."""
        return sum(len(text.encode()) for turn in [self.head, *self.turns] for text in texts(turn))


def chat(turns: int = TURNS, size: int = SIZE) -> Chat:
    """A session of `turns` turns and about `size` bytes, in OpenAI's shape."""
    runs = [run for run in read_runs(SAMPLES) if isinstance(run, Trajectory)]
    recorded = [turn for run in runs for turn in run.turns if turn.observations]
    output = "\n".join(each.text for turn in recorded for each in turn.observations)
    chosen = list(islice(cycle(recorded), turns))
    spoken = sum(len(turn.text.encode()) + len(_arguments(turn).encode()) for turn in chosen)
    sizes = _sizes(turns, max(0, size - spoken))
    starts = _starts(len(output))
    made = [
        _messages(turn, number, _result(turn, output, next(starts), length))
        for number, (turn, length) in enumerate(zip(chosen, sizes, strict=True), start=1)
    ]
    head = [{"role": "system", "content": _system(runs)}, {"role": "user", "content": _TASK}]
    return Chat(head=head, turns=made, tools=_tools(chosen))


def anthropic(found: Chat) -> Chat:
    """The same session in Anthropic's shape."""
    turns = [[_said(turn[0]), _results(turn[1:])] for turn in found.turns]
    tools = [{"name": tool["function"]["name"], "input_schema": tool["function"]["parameters"]} for tool in found.tools]
    system = [{"type": "text", "text": found.head[0]["content"]}]
    task = {"role": "user", "content": [{"type": "text", "text": found.head[1]["content"]}]}
    return Chat(head=[task], turns=turns, tools=tools, system=system)


def texts(messages: Sequence[Message]) -> Iterator[str]:
    """Every text of messages in OpenAI's shape that is counted: what was said, names, arguments, results."""
    for message in messages:
        if message["content"]:
            yield message["content"]
        for call in message.get("tool_calls", ()):
            yield call["function"]["name"]
            yield call["function"]["arguments"]


def _sizes(turns: int, size: int) -> list[int]:
    chance = random.Random(1_000)
    drawn = [chance.lognormvariate(0.0, _SPREAD) for _ in range(turns)]
    return [round(each * size / sum(drawn)) for each in drawn]


def _starts(length: int) -> Iterator[int]:
    """Where drawn-out results go on in the recorded output: never twice at one place within a session."""
    return (number * 7_919 % max(1, length) for number in count(1))


def _result(turn: Turn, output: str, start: int, size: int) -> str:
    """`size` bytes, near enough: the recorded result, then more output."""
    own = turn.observations[0].text[: size * 2 // 3]
    more = size - len(own.encode())
    doubled = output[start : start + more] + output[: max(0, start + more - len(output))]
    return f"{own}\n{doubled.encode()[:more].decode(errors='ignore')}"


def _messages(turn: Turn, number: int, result: str) -> list[Message]:
    name = turn.actions[0].name if turn.actions else "bash"
    call = {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": _arguments(turn)}}
    said = {"role": "assistant", "content": turn.text or None, "tool_calls": [call]}
    return [said, {"role": "tool", "tool_call_id": call["id"], "content": result}]


def _arguments(turn: Turn) -> str:
    action = turn.actions[0] if turn.actions else None
    if action is None:
        return "{}"
    return action.arguments if not action.implicit else json.dumps({"command": action.arguments})


def _system(runs: Sequence[Trajectory]) -> str:
    return max((message.text for run in runs for message in run.head.messages), key=len)


def _tools(turns: Sequence[Turn]) -> list[Message]:
    names = sorted({action.name for turn in turns for action in turn.actions[:1]})
    parameters = {"type": "object", "properties": {"command": {"type": "string"}, "path": {"type": "string"}}}
    return [
        {"type": "function", "function": {"name": name, "description": f"Runs {name}.", "parameters": parameters}}
        for name in names
    ]


def _said(message: Message) -> Message:
    blocks: list[Message] = [{"type": "text", "text": message["content"]}] if message["content"] else []
    for call in message["tool_calls"]:
        arguments = json.loads(call["function"]["arguments"])
        blocks.append({"type": "tool_use", "id": call["id"], "name": call["function"]["name"], "input": arguments})
    return {"role": "assistant", "content": blocks}


def _results(messages: Sequence[Message]) -> Message:
    blocks = [
        {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": message["content"]}
        for message in messages
    ]
    return {"role": "user", "content": blocks}
