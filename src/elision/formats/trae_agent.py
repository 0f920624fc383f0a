"""trae-agent trajectories.

ByteDance's trae-agent keeps each call in `llm_interactions`: the messages that were new, and the response. The results
of the last call are in `agent_steps` alone. A TypeScript port keeps `steps`, each with the whole conversation so far;
when the task changes, a conversation begins anew. Its first versions record no text of a response, and name no call in
a result: results are in the order of the calls. Source: `trae_agent/utils/trajectory_recorder.py` of
bytedance/trae-agent; the port is read off recordings of wangrenren611/trae-agent-ts.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any, ClassVar

from elision.formats.assembler import Assembler, yield_run
from elision.formats.document import Document, RunOrProblem, peek_value, read_json_value
from elision.formats.openai_chat import ChatMessageFeeder
from elision.formats.recorded_fields import PromptTokens, parse_timestamp, read_call
from elision.formats.source import derive_run_name
from elision.providers.shared.json_reading import (
    Json,
    dump_json,
    join_lines,
    mapping_in,
    mappings_in,
    parse_content,
    text_in,
)
from elision.trajectory.turn import Text, make_content

#: What each step of the port holds.
_STEP_LISTS = ("messages", "tool_calls", "tool_results")


class TraeAgentReader:
    """One run a file, or one for each conversation of it."""

    name: ClassVar[str] = "trae-agent"

    def sniff(self, document: Document) -> bool:
        """Return whether there are interactions and steps, or steps that each hold messages, calls and results."""
        recorded = mapping_in(peek_value(document, '"llm_interactions"', '"agent_steps"'))
        if all(isinstance(recorded.get(name), list) for name in ("llm_interactions", "agent_steps")):
            return True
        steps = mapping_in(peek_value(document, '"step_id"', '"steps"', '"tool_results"')).get("steps")
        return any(all(isinstance(step.get(name), list) for name in _STEP_LISTS) for step in mappings_in(steps))

    def read(self, document: Document) -> Iterator[RunOrProblem]:
        value = mapping_in(read_json_value(document))
        if "llm_interactions" in value:
            assemblers = [_read_interactions(document, value)]
        else:
            assemblers = _read_steps(document, value)
        for number, assembler in enumerate(assemblers, start=1):
            name = f"conversation {number}" if len(assemblers) > 1 else derive_run_name(document.path)
            run = assembler.finish(name, format=self.name, model=text_in(value.get("model")))
            yield from yield_run(assembler, run)


# -- trae-agent -------------------------------------------------------------------------------------------------------


def _read_interactions(document: Document, value: Json) -> Assembler:
    assembler = Assembler(document.path, observations="tools")
    calls = mappings_in(value.get("llm_interactions"))
    counted = PromptTokens.detect(mapping_in(call.get("response")).get("usage") for call in calls)
    clock = parse_timestamp(value.get("start_time"))
    answered: set[str] = set()
    for number, call in enumerate(calls, start=1):
        for message in mappings_in(call.get("input_messages")):
            _add_input(assembler, message, answered, number)
        response = mapping_in(call.get("response"))
        ended = parse_timestamp(call.get("timestamp"))
        assembler.add_assistant(
            parse_content(response.get("content")),
            actions=[read_call(call, id="call_id") for call in mappings_in(response.get("tool_calls"))],
            usage=counted.parse_usage(response.get("usage")),
            at=ended if clock is None else clock,
            model=text_in(response.get("model")) or text_in(call.get("model")),
            line=number,
        )
        clock = ended
    for step in mappings_in(value.get("agent_steps")):
        for result in mappings_in(step.get("tool_results")):
            _add_result(assembler, result, answered, len(calls))
    return assembler


def _add_input(assembler: Assembler, message: Json, answered: set[str], number: int) -> None:
    """Add a message that was new to the model."""
    if result := mapping_in(message.get("tool_result")):
        _add_result(assembler, result, answered, number)
    elif message.get("role") == "system":
        assembler.add_system(parse_content(message.get("content")))
    elif message.get("role") == "user":
        assembler.add_user(parse_content(message.get("content")))


def _add_result(assembler: Assembler, result: Json, answered: set[str], number: int) -> None:
    """Add a result as the model was shown it, once: interactions and steps both keep it."""
    call = text_in(result.get("call_id"))
    if call in answered:
        return
    answered.add(call)
    success = result.get("success")
    failed = not success if isinstance(success, bool) else None
    error = text_in(result.get("error"))
    said = join_lines((text_in(result.get("result")), f"Tool call failed with error:\n{error}" if error else ""))
    assembler.add_result(call, make_content(said) or (Text(""),), error=failed, line=number)


# -- the port ---------------------------------------------------------------------------------------------------------


def _read_steps(document: Document, value: Json) -> list[Assembler]:
    """Return a conversation for each chain of steps that continue each other."""
    chains: list[list[Json]] = []
    for step in mappings_in(value.get("steps")):
        messages = mappings_in(step.get("messages"))
        before = mappings_in(chains[-1][-1].get("messages")) if chains else []
        if before and messages[: len(before)] == before:
            chains[-1].append(step)
        else:
            chains.append([step])
    return [_read_conversation(document, steps) for steps in chains]


def _read_conversation(document: Document, steps: list[Json]) -> Assembler:
    """Read the conversation from the last step, which holds all of it; each step has the time of its own response."""
    assembler = Assembler(document.path, observations="tools")
    messages = ChatMessageFeeder(assembler)
    # A response stands after the messages of its request; those without calls are sent once more, and not kept.
    times = {len(mappings_in(step.get("messages"))): step.get("timestamp") for step in steps}
    last = steps[-1]
    calls = mappings_in(last.get("tool_calls"))
    response = {"role": "assistant", "content": last.get("llm_response_content"), "tool_calls": calls}
    pairs = zip_longest(mappings_in(last.get("tool_results")), calls)
    results = [_make_tool_message(result, call or {}) for result, call in pairs if result is not None]
    for place, message in enumerate([*mappings_in(last.get("messages")), response, *results]):
        if message.get("role") == "assistant":
            message = {**message, "created": parse_timestamp(times.get(place))}
        messages.feed_message(message, place + 1)
    return assembler


def _make_tool_message(result: Json, call: Json) -> dict[str, Any]:
    """Return a result as a message. call: the call at its place, which it answers unless it names another."""
    shown = {name: value for name, value in result.items() if name != "tool_call_id"}
    answered = text_in(result.get("tool_call_id")) or text_in(call.get("id"))
    return {"role": "tool", "tool_call_id": answered, "content": dump_json(shown)}
