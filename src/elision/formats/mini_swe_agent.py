"""mini-swe-agent `.traj.json`: a flat list of messages, each with what the provider answered in `extra`.

Version 1 acts in text; 1.1 in text, by tool calls, or with whole Responses objects as messages. A run ends with a
message of role `exit` that is no part of the conversation; where it hands in the work, it is what the last command
printed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from elision.errors import FormatError
from elision.formats.assembler import Assembler, yield_run
from elision.formats.document import Document, RunOrProblem, peek_value, read_json_value
from elision.formats.recorded_fields import PromptTokens
from elision.formats.source import derive_run_name
from elision.providers.openai_chat import messages as openai_chat
from elision.providers.openai_responses import messages as openai_responses
from elision.providers.shared.json_reading import (
    AssistantMessage,
    Json,
    cost_in,
    join_contents,
    join_lines,
    mapping_in,
    mappings_in,
    number_in,
    parse_content,
    text_in,
)
from elision.trajectory.turn import Action, Text


class MiniSweAgentReader:
    """Reads trajectory formats mini-swe-agent-1 and mini-swe-agent-1.1."""

    name = "mini-swe-agent"

    def sniff(self, document: Document) -> bool:
        value = mapping_in(peek_value(document, "trajectory_format", "mini-swe-agent"))
        return text_in(value.get("trajectory_format")).startswith("mini-swe-agent")

    def read(self, document: Document) -> Iterator[RunOrProblem]:
        value = mapping_in(read_json_value(document))
        if not isinstance(value.get("messages"), list):
            raise FormatError(f"{document.path}: no `messages` list in it; was the run saved by mini-swe-agent?")
        messages = mappings_in(value["messages"])
        by_tools = any(message.get("tool_calls") or message.get("object") == "response" for message in messages)
        feed = _RunFeeder(Assembler(document.path, observations="tools" if by_tools else "user"), messages)
        for number, message in enumerate(value["messages"], start=1):
            feed.take_message(message, number)
        trajectory = feed.assembler.finish(
            text_in(value.get("instance_id")) or derive_run_name(document.path),
            format=self.name,
            model=feed.find_configured_model(value),
            usd=read_instance_cost(value),
        )
        yield from yield_run(feed.assembler, trajectory)


class _RunFeeder:
    """Gives the messages of one run to the assembler, one by one."""

    def __init__(self, assembler: Assembler, messages: Sequence[Json]) -> None:
        self.assembler = assembler
        self._counted = PromptTokens.detect(_get_response(message).get("usage") for message in messages)
        self._open_calls: list[str] = []
        self._has_models = False
        self._clock: float | None = None

    def take_message(self, message: Any, number: int) -> None:
        if not isinstance(message, dict):
            self.assembler.report_problem("a message that is not an object; left out", number)
            return
        kind = text_in(message.get("role")) or text_in(message.get("object")) or text_in(message.get("type"))
        handler = _HANDLERS.get(kind)
        if handler is None:
            self.assembler.report_problem(f"a message of unknown role {kind!r}; left out", number)
            return
        handler(self, message, number)
        self._clock = _read_time(message) or self._clock

    def find_configured_model(self, value: Json) -> str:
        """Return the configured model, for runs whose answers do not name theirs."""
        config = mapping_in(mapping_in(mapping_in(value.get("info")).get("config")).get("model"))
        return "" if self._has_models else text_in(config.get("model_name"))

    def add_system(self, message: Json, number: int) -> None:
        self.assembler.add_system(parse_content(message.get("content")))

    def add_user(self, message: Json, number: int) -> None:
        self.assembler.add_user(parse_content(message.get("content")))

    def add_assistant(self, message: Json, number: int) -> None:
        spoken = _parse_assistant(message)
        response = _get_response(message)
        extra = mapping_in(message.get("extra"))
        # The request left when the last result was in. That time is exact to the request's own set-up; `created` comes
        # from the provider, in whole seconds, and is the answer's time with some of them.
        at = self._clock or number_in(response.get("created")) or _read_time(message)
        model = text_in(response.get("model"))
        self._has_models = self._has_models or bool(model)
        self._open_calls = [action.id for action in spoken.actions]
        self.assembler.add_assistant(
            spoken.content,
            reasoning=spoken.reasoning,
            actions=spoken.actions,
            usage=self._counted.parse_usage(response.get("usage"), usd=cost_in(extra.get("cost"))),
            at=at,
            model=model,
            line=number,
        )

    def add_result(self, message: Json, number: int) -> None:
        parse_result = openai_chat.parse_result if "role" in message else openai_responses.parse_result
        result = parse_result(message)
        code = mapping_in(message.get("extra")).get("returncode")
        error = code != 0 if isinstance(code, int) else result.error
        self._answer_call(result.action_id, result.content or (Text(""),), number, error)

    def add_exit(self, message: Json, number: int) -> None:
        if mapping_in(message.get("extra")).get("exit_status") != "Submitted":
            return
        printed = parse_content(message.get("content")) or (Text(""),)
        if self._open_calls:
            self._answer_call(self._open_calls[0], printed, number, None)
        elif self.assembler.observations == "user":
            self.assembler.add_user(printed)

    def _answer_call(self, call: str, content: Any, number: int, error: bool | None) -> None:
        self._open_calls = [each for each in self._open_calls if each != call]
        self.assembler.add_result(call, content, error=error, line=number)


_HANDLERS = {
    "system": _RunFeeder.add_system,
    "user": _RunFeeder.add_user,
    "assistant": _RunFeeder.add_assistant,
    "response": _RunFeeder.add_assistant,
    "tool": _RunFeeder.add_result,
    "function_call_output": _RunFeeder.add_result,
    "exit": _RunFeeder.add_exit,
}


def read_instance_cost(run: Json) -> float | None:
    """Read what a run cost, as SWE-agent and mini-swe-agent record it."""
    return cost_in(mapping_in(mapping_in(run.get("info")).get("model_stats")).get("instance_cost"))


def _read_time(message: Json) -> float | None:
    """Return when a message was recorded: beside the text in the first versions, later in `extra`."""
    return number_in(mapping_in(message.get("extra")).get("timestamp")) or number_in(message.get("timestamp"))


def _get_response(message: Json) -> Json:
    """Return the provider's answer: beside the message, or (Responses) the message itself."""
    if message.get("object") == "response":
        return message
    return mapping_in(mapping_in(message.get("extra")).get("response"))


def _parse_assistant(message: Json) -> AssistantMessage:
    if message.get("object") == "response":
        items = [openai_responses.parse_item(item) for item in mappings_in(message.get("output"))]
        return AssistantMessage(
            content=join_contents(item.content for item in items),
            reasoning=join_lines(item.reasoning for item in items),
            actions=tuple(chain.from_iterable(item.actions for item in items)),
        )
    spoken = openai_chat.parse_assistant(message)
    if spoken.actions:
        return spoken
    commands = [text_in(each.get("command")) for each in mappings_in(mapping_in(message.get("extra")).get("actions"))]
    actions = tuple(Action(id="", name="bash", arguments=each, implicit=True) for each in commands[:1])
    return AssistantMessage(content=spoken.content, reasoning=spoken.reasoning, actions=actions)
