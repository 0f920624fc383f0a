"""tau2-bench results: one file holds many simulations, each a run of one agent with a simulated user.

The simulated user has tools of its own (its phone, in the telecom domain). Those calls and their results go between the
user and the environment; the agent never sees them, so they are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from elision.errors import FormatError
from elision.formats.assembler import Assembler, yield_run
from elision.formats.document import Document, RunOrProblem, peek_value, read_json_value
from elision.formats.recorded_fields import parse_timestamp, read_call
from elision.providers.openai_chat import parse as openai_chat
from elision.providers.shared.json_reading import (
    Json,
    bool_in,
    cost_in,
    count_in,
    mapping_in,
    mappings_in,
    parse_content,
    text_in,
)
from elision.trajectory.trajectory import Problem
from elision.trajectory.usage import Usage


class Tau2Reader:
    name = "tau2-bench"

    def sniff(self, document: Document) -> bool:
        """Return whether there are simulations with messages; leaderboard submissions leave out what they share."""
        simulations = mapping_in(peek_value(document, '"simulations"')).get("simulations")
        return isinstance(simulations, list) and (
            b'"environment_info"' in document.data
            or any("task_id" in each and isinstance(each.get("messages"), list) for each in mappings_in(simulations))
        )

    def read(self, document: Document) -> Iterator[RunOrProblem]:
        value = mapping_in(read_json_value(document))
        simulations = value.get("simulations")
        if not isinstance(simulations, list):
            raise FormatError(f"{document.path}: no list of `simulations`; is it a tau2-bench results file?")
        setting = _ResultsFile(document.path, value, self.name)
        for number, simulation in enumerate(simulations, start=1):
            yield from setting.read_simulation(simulation, number)


class _ResultsFile:
    """What all simulations of a file share: domain, policy, tools, model. Submissions name domain and model alone."""

    def __init__(self, file: str, results: Json, format: str) -> None:
        info = mapping_in(results.get("info"))
        environment = mapping_in(info.get("environment_info"))
        tools = environment.get("tool_defs")
        if isinstance(tools, dict):
            tools = list(tools.values())
        self._file = file
        self._format = format
        self._domain = text_in(environment.get("domain_name")) or text_in(results.get("domain"))
        self._policy = parse_content(environment.get("policy"))
        self._tools = mappings_in(tools)
        self._model = text_in(mapping_in(info.get("agent_info")).get("llm")) or text_in(results.get("model"))
        self._ids: set[str] = set()

    def read_simulation(self, simulation: Any, number: int) -> Iterator[RunOrProblem]:
        """Yield the run of one simulation, and its problems."""
        messages = mapping_in(simulation).get("messages")
        if not isinstance(messages, list):
            yield Problem(file=self._file, line=number, reason="a simulation without messages; left out")
            return
        assembler = Assembler(self._file)
        assembler.add_tools(self._tools)
        assembler.add_system(self._policy)
        try:
            _feed_simulation(assembler, messages, number)
        except RecursionError:
            yield Problem(file=self._file, line=number, reason="nested too deeply to read; left out")
            return
        name = self._name_run(simulation, number)
        yield from yield_run(assembler, assembler.finish(name, format=self._format, model=self._model))

    def _name_run(self, simulation: Json, number: int) -> str:
        """Return a name such as "airline task 13 trial 0", with the simulation's number if it was taken before."""
        words = [self._domain] if self._domain else []
        words += ["task", str(simulation.get("task_id", number)), "trial", str(count_in(simulation.get("trial")))]
        name = " ".join(words)
        if name in self._ids:
            name = f"{name} simulation {number}"
        self._ids.add(name)
        return name


def _feed_simulation(assembler: Assembler, messages: list[Any], number: int) -> None:
    """Feed a simulation's messages; a call's request starts when the message before it was there."""
    at: float | None = None
    for message in messages:
        if isinstance(message, dict):
            _feed_message(assembler, message, at, number)
            at = parse_timestamp(message.get("timestamp")) or at
        else:
            assembler.report_problem(f"a JSON {type(message).__name__} instead of a message; left out", number)


def _feed_message(assembler: Assembler, message: Json, at: float | None, number: int) -> None:
    role = message.get("role")
    said = parse_content(message.get("content"))
    if role == "assistant":
        assembler.add_assistant(
            said,
            reasoning=text_in(message.get("reasoning")),
            actions=map(read_call, _select_agents_own(message.get("tool_calls"))),
            usage=_read_usage(message),
            at=at or parse_timestamp(message.get("timestamp")),
            line=number,
        )
    elif role == "user":
        assembler.add_user(said)
    elif role == "system":
        assembler.add_system(said)
    elif role == "tool":
        results: Sequence[Json] = mappings_in(message.get("tool_messages"))
        for result in _select_agents_own(results or [message]):
            said = parse_content(result.get("content"))
            assembler.add_result(text_in(result.get("id")), said, error=bool_in(result.get("error")), line=number)
    else:
        assembler.report_problem(f"a message of unknown role {str(role)[:40]!r}; left out", number)


def _select_agents_own(entries: object) -> list[Json]:
    """Return the calls or results that are the agent's."""
    return [entry for entry in mappings_in(entries) if entry.get("requestor", "assistant") == "assistant"]


def _read_usage(message: Json) -> Usage | None:
    usd = cost_in(message.get("cost"))
    answer = mapping_in(message.get("raw_data"))  # the provider's own, where it is kept, counts the cache too
    return openai_chat.parse_usage(answer.get("usage"), usd=usd) or openai_chat.parse_usage(
        message.get("usage"), usd=usd
    )
