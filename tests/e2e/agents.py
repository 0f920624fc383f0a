"""An agent on each provider's own client, written as its documentation says: what it gets back is what it sends on."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import anthropic
import openai

from elision.providers.provider import Api
from elision.testing.builders import long_text

Json = dict[str, Any]
APIS: Final[tuple[Api, ...]] = ("openai", "openai-responses", "anthropic")
_SCHEMA: Final = {"type": "object", "properties": {"command": {"type": "string"}}}
TOOLS: Final[Mapping[Api, Json]] = {
    "openai": {"type": "function", "function": {"name": "bash", "parameters": _SCHEMA}},
    "openai-responses": {"type": "function", "name": "bash", "parameters": _SCHEMA, "strict": False},
    "anthropic": {"name": "bash", "input_schema": _SCHEMA},
}


@dataclass(slots=True)
class Agent:
    """client: of the API's package. streamed: whether it uses its client's streams and their accumulators.

    answers: what the client made of each answer. history: as the next request holds it.
    """

    api: Api
    client: Any
    streamed: bool
    model: str = ""
    task: str = "Mend the parser."
    more: Json = field(default_factory=dict)
    answers: list[Any] = field(default_factory=list)
    history: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.model = self.model or ("claude-sonnet-5" if self.api == "anthropic" else "gpt-5")
        self.history.append({"role": "user", "content": self.task})

    def step(self) -> bool:
        """Ask once and run what was called; whether anything was."""
        answer = _ASK[self.api](self)
        self.answers.append(answer)
        return _TAKE[self.api](self, answer)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            if not self.step():
                self.say("Go on.")

    def say(self, words: str) -> None:
        self.history.append({"role": "user", "content": words})

    @property
    def seen(self) -> str:
        """Everything that the client was given."""
        return "\n".join(answer.model_dump_json(warnings=False) for answer in self.answers)


def observed(command: str) -> str:
    """What a command prints: long, and its own."""
    return f"ran {command}\n{long_text(int(command.rpartition('-')[2]), 20)}"


def _chat(agent: Agent) -> Any:
    asked: Json = {"model": agent.model, "messages": agent.history, "tools": [TOOLS["openai"]], **agent.more}
    client: openai.OpenAI = agent.client
    if not agent.streamed:
        return client.chat.completions.create(**asked)
    with client.chat.completions.stream(stream_options={"include_usage": True}, **asked) as stream:
        return stream.get_final_completion()


def _took_chat(agent: Agent, answer: Any) -> bool:
    message = answer.choices[0].message
    agent.history.append(message)
    calls = message.tool_calls or ()
    for call in calls:
        found = observed(_command(call.function.arguments))
        agent.history.append({"role": "tool", "tool_call_id": call.id, "content": found})
    return bool(calls)


def _responses(agent: Agent) -> Any:
    asked: Json = {"model": agent.model, "input": agent.history, "tools": [TOOLS["openai-responses"]], **agent.more}
    client: openai.OpenAI = agent.client
    if not agent.streamed:
        return client.responses.create(store=False, **asked)
    with client.responses.stream(store=False, **asked) as stream:
        return stream.get_final_response()


def _took_responses(agent: Agent, answer: Any) -> bool:
    agent.history += [item.model_dump(mode="json", exclude_none=True, warnings=False) for item in answer.output]
    calls = [item for item in answer.output if item.type == "function_call"]
    for call in calls:
        found = observed(_command(call.arguments))
        agent.history.append({"type": "function_call_output", "call_id": call.call_id, "output": found})
    return bool(calls)


def _messages(agent: Agent) -> Any:
    asked: Json = {
        "model": agent.model,
        "max_tokens": 5_000,
        "messages": agent.history,
        "tools": [TOOLS["anthropic"]],
        **agent.more,
    }
    client: anthropic.Anthropic = agent.client
    if not agent.streamed:
        return client.messages.create(**asked)
    with client.messages.stream(**asked) as stream:
        return stream.get_final_message()


def _took_messages(agent: Agent, answer: Any) -> bool:
    agent.history.append({"role": "assistant", "content": answer.content})
    calls = [block for block in answer.content if block.type == "tool_use"]
    found = [
        {"type": "tool_result", "tool_use_id": call.id, "content": observed(call.input["command"])} for call in calls
    ]
    if found:
        agent.history.append({"role": "user", "content": found})
    return bool(found)


def _command(arguments: str) -> str:
    return str(json.loads(arguments)["command"])


_ASK: Final[Mapping[Api, Callable[[Agent], Any]]] = {
    "openai": _chat,
    "openai-responses": _responses,
    "anthropic": _messages,
}
_TAKE: Final[Mapping[Api, Callable[[Agent, Any], bool]]] = {
    "openai": _took_chat,
    "openai-responses": _took_responses,
    "anthropic": _took_messages,
}
