"""tau2-bench results: one file holds many simulations, each a run of one agent with a simulated user.

The simulated user has tools of its own (its phone, in the telecom domain). Those calls and their results go between the
user and the environment; the agent never sees them, so they are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from elision.dialects import (
    Json,
    arguments_in,
    content_of,
    count_in,
    mapping_in,
    mappings_in,
    number_in,
    openai_chat,
    text_in,
)
from elision.errors import FormatError
from elision.formats.assembler import Assembler
from elision.formats.document import Document, Found
from elision.formats.lines import json_value, peek_value
from elision.formats.moments import moment
from elision.trajectory.trajectory import Problem
from elision.trajectory.turn import Action
from elision.trajectory.usage import Usage


class Tau2:
    name = "tau2-bench"

    def sniff(self, document: Document) -> bool:
        """Whether there are simulations with messages; submissions to the leaderboard leave out what they share."""
        simulations = mapping_in(peek_value(document, '"simulations"')).get("simulations")
        return isinstance(simulations, list) and (
            b'"environment_info"' in document.data or any(map(_is_simulation, mappings_in(simulations)))
        )

    def read(self, document: Document) -> Iterator[Found]:
        value = mapping_in(json_value(document))
        simulations = value.get("simulations")
        if not isinstance(simulations, list):
            raise FormatError(f"{document.path}: no list of `simulations`; is it a tau2-bench results file?")
        setting = _Setting(document.path, value, self.name)
        for number, simulation in enumerate(simulations, start=1):
            yield from setting.runs(simulation, number)


def _is_simulation(value: Json) -> bool:
    return "task_id" in value and isinstance(value.get("messages"), list)


class _Setting:
    """What all simulations of a file share: domain, policy, tools, model. Submissions name domain and model alone."""

    def __init__(self, file: str, results: Json, format: str) -> None:
        info = mapping_in(results.get("info"))
        environment = mapping_in(info.get("environment_info"))
        tools = environment.get("tool_defs")
        self._file = file
        self._format = format
        self._domain = text_in(environment.get("domain_name")) or text_in(results.get("domain"))
        self._policy = content_of(environment.get("policy"))
        self._tools = mappings_in(list(tools.values()) if isinstance(tools, dict) else tools)
        self._model = text_in(mapping_in(info.get("agent_info")).get("llm")) or text_in(results.get("model"))
        self._ids: set[str] = set()

    def runs(self, simulation: Any, number: int) -> Iterator[Found]:
        """The run of one simulation, with its problems."""
        messages = mapping_in(simulation).get("messages")
        if not isinstance(messages, list):
            yield Problem(file=self._file, line=number, reason="a simulation without messages; left out")
            return
        assembler = Assembler(self._file)
        assembler.tools(self._tools)
        assembler.system(self._policy)
        try:
            _feed(assembler, messages, number)
        except RecursionError:
            yield Problem(file=self._file, line=number, reason="nested too deeply to read; left out")
            return
        yield from assembler.problems
        if run := assembler.finish(self._name(simulation, number), format=self._format, model=self._model):
            yield run

    def _name(self, simulation: Json, number: int) -> str:
        """Such as "airline task 13 trial 0"; a simulation that repeats another's task and trial gets its number too."""
        words = [self._domain] if self._domain else []
        words += ["task", str(simulation.get("task_id", number)), "trial", str(count_in(simulation.get("trial")))]
        name = " ".join(words)
        if name in self._ids:
            name = f"{name} simulation {number}"
        else:
            name = name
        self._ids.add(name)
        return name


def _feed(assembler: Assembler, messages: list[Any], number: int) -> None:
    """Feed a simulation's messages; a call's request starts when the message before it was there."""
    at: float | None = None
    for message in messages:
        if isinstance(message, dict):
            _message(assembler, message, at, number)
            at = moment(message.get("timestamp")) or at
        else:
            assembler.problem(f"a JSON {type(message).__name__} where a message belongs; left out", number)


def _message(assembler: Assembler, message: Json, at: float | None, number: int) -> None:
    role = message.get("role")
    said = content_of(message.get("content"))
    if role == "assistant":
        assembler.assistant(
            said,
            reasoning=text_in(message.get("reasoning")),
            actions=map(_action, _own(message.get("tool_calls"))),
            usage=_usage(message),
            at=at or moment(message.get("timestamp")),
            line=number,
        )
    elif role == "user":
        assembler.user(said)
    elif role == "system":
        assembler.system(said)
    elif role == "tool":
        for result in _own(mappings_in(message.get("tool_messages")) or [message]):
            _result(assembler, result, number)
    else:
        assembler.problem(f"a message of unknown role {str(role)[:40]!r}; left out", number)


def _own(entries: object) -> list[Json]:
    """Calls or results that are the agent's."""
    return [entry for entry in mappings_in(entries) if entry.get("requestor", "assistant") == "assistant"]


def _action(call: Json) -> Action:
    return Action(
        id=text_in(call.get("id")), name=text_in(call.get("name")), arguments=arguments_in(call.get("arguments"))
    )


def _result(assembler: Assembler, result: Json, number: int) -> None:
    error = result.get("error")
    assembler.result(
        text_in(result.get("id")),
        content_of(result.get("content")),
        error=error if isinstance(error, bool) else None,
        line=number,
    )


def _usage(message: Json) -> Usage | None:
    # The benchmark books 0.0 USD for models that it has no price for: as good as no statement.
    usd = number_in(message.get("cost")) or None
    answer = mapping_in(message.get("raw_data"))  # the provider's own, where it is kept, counts the cache too
    return openai_chat.usage(answer.get("usage"), usd=usd) or openai_chat.usage(message.get("usage"), usd=usd)
