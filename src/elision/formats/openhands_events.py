"""OpenHands V1: one JSON file an event, and `base_state.json` with the usage of every response.

Several ActionEvents of one `llm_response_id` are one assistant message with parallel calls. Event times are the local
time of the recorder without a zone; `base_state.json` has real ones, which are preferred.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from elision.errors import FormatError
from elision.formats.assembler import Assembler, yield_run
from elision.formats.document import Document, RunOrProblem, read_json_value
from elision.formats.recorded_fields import PromptTokens, parse_timestamp
from elision.formats.source import derive_run_name
from elision.providers.openai_chat.messages import parse_actions, parse_reasoning
from elision.providers.shared.json_reading import (
    Json,
    cost_in,
    dump_arguments,
    join_lines,
    list_in,
    make_opaque,
    mapping_in,
    mappings_in,
    number_in,
    parse_content,
    text_in,
)
from elision.trajectory.turn import Action, Content, Text, make_content
from elision.trajectory.usage import Usage


class OpenHandsEventsReader:
    """Reads folders (or tars) that hold `events/event-*.json`."""

    name = "openhands-events"

    def sniff(self, document: Document) -> bool:
        return any(_is_event_file(name) for name in document.members)

    def read(self, document: Document) -> Iterator[RunOrProblem]:
        run = V1RunFeeder(Assembler(document.path, observations="tools"))
        state = mapping_in(read_member(run.assembler, document, "base_state.json", required=False))
        stats = mapping_in(state.get("stats"))
        # Of every service of a conversation, the condenser's too.
        services = mapping_in(stats.get("usage_to_metrics")) or mapping_in(stats.get("service_to_metrics"))
        run.bills = read_bills(map(mapping_in, services.values()))
        run.condenser_bills = iter(read_bills([mapping_in(services.get("condenser"))]).values())
        for number, name in enumerate(sorted(filter(_is_event_file, document.members)), start=1):
            run.take_event(read_member(run.assembler, document, name), number)
        model = text_in(mapping_in(mapping_in(state.get("agent")).get("llm")).get("model"))
        id = text_in(state.get("id")) or derive_run_name(document.path)
        yield from yield_run(run.assembler, run.assembler.finish(id, format=self.name, model=model))


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedBill:
    """What is recorded of one response outside the events. at: when its request left, seconds since the epoch."""

    usage: Usage | None
    at: float | None


def read_bills(metrics: Iterable[Json]) -> Mapping[str, RecordedBill]:
    """Return response id -> bill, out of OpenHands metrics (V0 and V1). Costs name no response, but have its order."""
    services = [(mappings_in(each.get("token_usages")), each) for each in metrics]
    counted = PromptTokens.detect(usage for usages, _ in services for usage in usages)
    found: dict[str, RecordedBill] = {}
    for usages, service in services:
        costs = mappings_in(service.get("costs"))
        latencies = {
            text_in(each.get("response_id")): number_in(each.get("latency"))
            for each in mappings_in(service.get("response_latencies"))
        }
        for number, usage in enumerate(usages):
            cost: Json = costs[number] if len(costs) == len(usages) else {}
            id = text_in(usage.get("response_id"))
            ended = number_in(cost.get("timestamp"))
            took = latencies.get(id)
            at = None if ended is None or took is None else ended - took
            found[id] = RecordedBill(usage=counted.parse_usage(usage, usd=cost_in(cost.get("cost"))), at=at)
    return found


@dataclass(slots=True)
class V1RunFeeder:
    """Gives V1 events to the assembler, one by one."""

    assembler: Assembler
    bills: Mapping[str, RecordedBill] = field(default_factory=dict)
    #: Of the summaries, in their order: no event names its response.
    condenser_bills: Iterator[RecordedBill] = field(default_factory=lambda: iter(()))
    _newest: str = ""
    #: Id of each event -> the turn that it is part of.
    _turns: dict[str, int] = field(default_factory=dict)
    _clock: float | None = None

    def take_event(self, event: Any, number: int) -> None:
        """Take the next event; unknown kinds say nothing to the model and are passed over."""
        if event is None:
            return
        handler = _HANDLERS.get(text_in(mapping_in(event).get("kind")))
        if handler:
            handler(self, event, number)
            self._turns[text_in(event.get("id"))] = self.assembler.turn_count
        elif not isinstance(event, dict):
            self.assembler.report_problem("an event that is not an object; left out", number)
        self._clock = parse_timestamp(mapping_in(event).get("timestamp")) or self._clock

    def add_system(self, event: Json, number: int) -> None:
        self.assembler.add_system(
            parse_content(event.get("system_prompt")) + parse_content(event.get("dynamic_context"))
        )
        self.assembler.add_tools(mappings_in(event.get("tools")))

    def add_message(self, event: Json, number: int) -> None:
        message = mapping_in(event.get("llm_message"))
        said = parse_content(message.get("content"))
        if event.get("source") != "agent" and message.get("role") != "assistant":
            self.assembler.add_user(said + parse_content(event.get("extended_content")))
            return
        self._add_assistant(
            event, said, _read_reasoning(message) or _read_reasoning(event), parse_actions(message), number
        )

    def add_action(self, event: Json, number: int) -> None:
        said = parse_content(event.get("thought"))
        reasoning = _read_reasoning(event)
        actions = (_parse_action(event),)
        response = text_in(event.get("llm_response_id"))
        if response and response == self._newest:
            self.assembler.amend_assistant(content=said, reasoning=reasoning, actions=actions)
        else:
            self._add_assistant(event, said, reasoning, actions, number)

    def _add_assistant(
        self, event: Json, said: Content, reasoning: str, actions: tuple[Action, ...], number: int
    ) -> None:
        self._newest = text_in(event.get("llm_response_id"))
        bill = self.bills.get(self._newest)
        self.assembler.add_assistant(
            said,
            reasoning=reasoning,
            actions=actions,
            usage=bill.usage if bill else None,
            at=self._choose_time(bill, event),
            line=number,
        )

    def _choose_time(self, bill: RecordedBill | None, event: Json) -> float | None:
        """Return real times if every response has one. They are not mixed with event times, which may be hours off.

        By event times a request started with the event before it: its own event came with the answer.
        """
        if self.bills and all(each.at is not None for each in self.bills.values()):
            return bill.at if bill else None
        return self._clock or parse_timestamp(event.get("timestamp"))

    def add_observation(self, event: Json, number: int) -> None:
        shown = mapping_in(event.get("observation"))
        failed = shown.get("is_error", shown.get("error"))
        error = bool(failed) if isinstance(failed, bool | str) else None
        self._add_result(event, _read_observation(shown), error, number)

    def add_failure(self, event: Json, number: int) -> None:
        said = text_in(event.get("error"))
        if event["kind"] == "UserRejectObservation":
            said = f"Action rejected: {text_in(event.get('rejection_reason'))}"
        self._add_result(event, make_content(said), True, number)

    def _add_result(self, event: Json, shown: Content, error: bool | None, number: int) -> None:
        tool = text_in(event.get("tool_name"))
        call = text_in(event.get("tool_call_id"))
        self.assembler.add_result(call, shown or (Text(""),), tool=tool, error=error, line=number)

    def add_condensation(self, event: Json, number: int) -> None:
        forgotten = [
            self._turns[id] for id in map(text_in, list_in(event.get("forgotten_event_ids"))) if id in self._turns
        ]
        bill = next(self.condenser_bills, None)
        self.assembler.add_compaction(
            summary=text_in(event.get("summary")),
            kept_from=max(forgotten) + 1 if forgotten else None,
            usage=bill.usage if bill else None,
        )


_HANDLERS: Mapping[str, Callable[[V1RunFeeder, Json, int], None]] = {
    "SystemPromptEvent": V1RunFeeder.add_system,
    "MessageEvent": V1RunFeeder.add_message,
    "ActionEvent": V1RunFeeder.add_action,
    "ObservationEvent": V1RunFeeder.add_observation,
    "AgentErrorEvent": V1RunFeeder.add_failure,
    "UserRejectObservation": V1RunFeeder.add_failure,
    "Condensation": V1RunFeeder.add_condensation,
}
#: Kinds of V1 events that make a list of objects recognisable.
V1_EVENT_KINDS = frozenset(_HANDLERS)


def format_shell_output(output: str, metadata: Json) -> str:
    """Return a command's output as OpenHands shows it, followed by directory, interpreter and exit code."""
    if not metadata:
        return output
    lines = [f"{text_in(metadata.get('prefix'))}{output}{text_in(metadata.get('suffix'))}"]
    if directory := text_in(metadata.get("working_dir")):
        lines.append(f"[Current working directory: {directory}]")
    if python := text_in(metadata.get("py_interpreter_path")):
        lines.append(f"[Python interpreter: {python}]")
    if metadata.get("exit_code", -1) != -1:
        lines.append(f"[Command finished with exit code {metadata['exit_code']}]")
    return "\n".join(lines)


def _is_event_file(name: str) -> bool:
    return name.rsplit("/", 1)[-1].startswith("event-")


def read_member(assembler: Assembler, document: Document, name: str, *, required: bool = True) -> Any:
    """Return the JSON of one file of a folder; None, and report a problem, if it is broken."""
    if name not in document.members and not required:
        return None
    try:
        return read_json_value(Document(path=f"{document.path}/{name}", data=document.members[name]))
    except FormatError as error:
        assembler.report_problem(f"left out: {error}")
        return None


def _parse_action(event: Json) -> Action:
    if recorded := parse_actions({"tool_calls": [event.get("tool_call")]}):
        return recorded[0]
    arguments = {key: value for key, value in mapping_in(event.get("action")).items() if key != "kind"}
    name = text_in(event.get("tool_name"))
    return Action(id=text_in(event.get("tool_call_id")), name=name, arguments=dump_arguments(arguments))


def _read_reasoning(holder: Json) -> str:
    blocks = (text_in(block.get("thinking")) for block in mappings_in(holder.get("thinking_blocks")))
    item = mapping_in(holder.get("responses_reasoning_item"))
    summary = item.get("content") or item.get("summary")
    texts = map(text_in, list_in(summary))
    return parse_reasoning(holder) or join_lines((*blocks, *texts))


def _read_observation(observation: Json) -> Content:
    """Return what the model saw of an observation; the field differs by tool and version."""
    metadata = mapping_in(observation.get("metadata"))
    error = text_in(observation.get("error"))
    for name in ("content", "output", "message", "text"):
        value = observation.get(name)
        if isinstance(value, list):
            return parse_content(value) + make_content(format_shell_output("", metadata).strip("\n"))
        if isinstance(value, str):
            screenshot = text_in(observation.get("screenshot_data"))
            images = (make_opaque("image", {"type": "image", "data": screenshot}),) if screenshot else ()
            return make_content(join_lines((format_shell_output(value, metadata), error))) + images
    rest = {key: value for key, value in observation.items() if key != "kind"}
    return make_content(json.dumps(rest, ensure_ascii=False) if rest and not error else error)
