"""Clients of the property tests: histories in each provider's shape that go on, turn back and are tampered with."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

Message = dict[str, Any]
Kind = Literal["said", "result", "words", "system"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one turn does. results: one text a call; None where the call is not answered yet.

    order: in which the results come. words: what the user says behind them.
    """

    number: int
    results: tuple[str | None, ...] = ()
    order: tuple[int, ...] = ()
    words: str = ""
    thinking: bool = False


@dataclass(slots=True)
class Client:
    """One client's history. salt: goes into call ids, which some clients make anew for each request."""

    shape: str
    system: str = ""
    head: list[str] = field(default_factory=lambda: ["Mend the parser."])
    steps: list[Step] = field(default_factory=list)
    salt: str = ""
    nulls: bool = False
    thoughts: bool = True
    marked: int | None = None
    tagged: int | None = None
    tag: str = "mine"
    reminder: str = ""
    prefill: bool = False

    def messages(self) -> list[Message]:
        """The messages of the next call, made anew."""
        build = _SHAPES[self.shape]
        made = [{"role": "user", "content": words} for words in self.head]
        if self.system and self.shape != "anthropic":
            made.insert(0, {"role": "system", "content": self.system})
        for step in self.steps:
            made += build(step, self)
        if self.reminder:
            made.append({"role": "user", "content": self.reminder})
        self._decorate(made)
        if self.prefill and self.shape != "openai-responses":
            made.append({"role": "assistant", "content": "{"})
        return made

    def copy(self) -> Client:
        return copy.deepcopy(self)

    def make_id(self, step: Step, place: int) -> str:
        return f"c{self.salt}{step.number}x{place}"

    def _decorate(self, made: list[Message]) -> None:
        for message in made if self.nulls else ():
            message["name"] = None
        if self.marked is not None:
            message = made[-1 - self.marked % len(made)]
            content = message.get("content")
            inner = content[-1] if isinstance(content, list) and content else message
            inner["cache_control"] = {"type": "ephemeral"}
        if self.tagged is not None:
            message = made[self.tagged % len(made)]
            content = message.get("content")
            results = [block for block in content if block["type"] == "tool_result"] if is_blocks(content) else []
            (results[-1] if results else message)["tags"] = [self.tag]


def is_blocks(content: object) -> bool:
    return isinstance(content, list)


def _make_arguments(step: Step, place: int) -> str:
    return json.dumps({"command": f"cat f{step.number}_{place}.py"})


def _iterate_results(step: Step) -> Iterator[tuple[int, str]]:
    for place in step.order:
        if (result := step.results[place]) is not None:
            yield place, result


def _build_openai(step: Step, client: Client) -> list[Message]:
    calls = [
        {
            "id": client.make_id(step, place),
            "type": "function",
            "function": {"name": "bash", "arguments": _make_arguments(step, place)},
        }
        for place in range(len(step.results))
    ]
    said: Message = {"role": "assistant", "content": f"step {step.number}"}
    if calls:
        said["tool_calls"] = calls
    if step.thinking and client.thoughts:
        said["reasoning_content"] = f"thought {step.number}"
    results = [
        {"role": "tool", "tool_call_id": client.make_id(step, place), "content": result}
        for place, result in _iterate_results(step)
    ]
    words = [{"role": "user", "content": step.words}] if step.words else []
    return [said, *results, *words]


def _build_responses(step: Step, client: Client) -> list[Message]:
    items: list[Message] = []
    if step.thinking and client.thoughts:
        items.append({"type": "reasoning", "id": f"rs{step.number}", "summary": [], "encrypted_content": "x" * 40})
    items.append({"type": "message", "role": "assistant", "content": f"step {step.number}"})
    for place in range(len(step.results)):
        items.append(
            {
                "type": "function_call",
                "call_id": client.make_id(step, place),
                "name": "bash",
                "arguments": _make_arguments(step, place),
            }
        )
    for place, result in _iterate_results(step):
        items.append({"type": "function_call_output", "call_id": client.make_id(step, place), "output": result})
    return [*items, *([{"role": "user", "content": step.words}] if step.words else [])]


def _build_anthropic(step: Step, client: Client) -> list[Message]:
    blocks: list[Message] = []
    if step.thinking and client.thoughts:
        blocks.append({"type": "thinking", "thinking": f"thought {step.number}", "signature": "s" * 20})
    blocks.append({"type": "text", "text": f"step {step.number}"})
    for place in range(len(step.results)):
        command = json.loads(_make_arguments(step, place))
        blocks.append({"type": "tool_use", "id": client.make_id(step, place), "name": "bash", "input": command})
    answers: list[Message] = [
        {"type": "tool_result", "tool_use_id": client.make_id(step, place), "content": result}
        for place, result in _iterate_results(step)
    ]
    if step.words:
        answers.append({"type": "text", "text": step.words})
    made: list[Message] = [{"role": "assistant", "content": blocks}]
    return [*made, {"role": "user", "content": answers}] if answers else made


def _build_text(step: Step, client: Client) -> list[Message]:
    action = f"\n```bash\ncat f{step.number}.py\n```" if step.results else ""
    made: list[Message] = [{"role": "assistant", "content": f"step {step.number}{action}"}]
    made += [{"role": "user", "content": result} for _, result in _iterate_results(step)]
    return [*made, *([{"role": "user", "content": step.words}] if step.words else [])]


_SHAPES: dict[str, Callable[[Step, Client], list[Message]]] = {
    "openai": _build_openai,
    "openai-responses": _build_responses,
    "anthropic": _build_anthropic,
    "text": _build_text,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Atom:
    """The smallest thing that may be hidden alone. turn: 1-based, 0 for the head; whole: the message it stands in."""

    kind: Kind
    turn: int
    id: str
    said: str
    whole: Message = field(compare=False)


def split_atoms(messages: list[Message], *, runs: bool) -> list[Atom]:
    """What messages are made of, in order. runs: whether assistant items one behind the other are one turn."""
    found: list[Atom] = []
    turn = 0
    for message in messages:
        for kind, id, said in _iterate_parts(message):
            going_on = runs and found and found[-1].kind == "said"
            turn += kind == "said" and not going_on
            found.append(Atom(kind=kind, turn=turn, id=id, said=said, whole=message))
    return found


def _iterate_parts(message: Message) -> Iterator[tuple[Kind, str, str]]:
    role, kind, content = message.get("role"), message.get("type", "message"), message.get("content")
    if kind == "function_call_output":
        yield "result", message["call_id"], message["output"]
    elif role == "tool":
        yield "result", message["tool_call_id"], str(content)
    elif role == "assistant" or kind != "message":
        yield "said", "", json.dumps(message, sort_keys=True)
    elif role == "system":
        yield "system", "", str(content)
    elif isinstance(content, list):
        for block in content:
            if block["type"] == "tool_result":
                yield "result", block["tool_use_id"], str(block["content"])
            else:
                yield "words", "", block["text"]
    else:
        yield "words", "", str(content)
