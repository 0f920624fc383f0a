"""OpenHands V1: one JSON file an event, and `base_state.json` with the usage of every response.

Several ActionEvents of one `llm_response_id` are one assistant message with parallel calls. Event times are the local
time of the recorder without a zone; `base_state.json` has real ones, which are preferred.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from elision.dialects import Json, arguments_in, content_of, mapping_in, mappings_in, number_in, opaque, text_in
from elision.dialects.openai_chat import actions_of, reasoning_of
from elision.errors import FormatError
from elision.formats.assembler import Assembler
from elision.formats.document import Document, Found
from elision.formats.lines import json_value
from elision.formats.litellm import PromptTokens
from elision.formats.moments import moment
from elision.formats.source import run_name
from elision.trajectory.content import Content, Text, content
from elision.trajectory.turn import Action
from elision.trajectory.usage import Usage


class OpenHandsEvents:
    """Reads folders (or tars) that hold `events/event-*.json`."""

    name = "openhands-events"

    def sniff(self, document: Document) -> bool:
        """A folder with event files."""
        return any(_is_event(name) for name in document.members)

    def read(self, document: Document) -> Iterator[Found]:
        """The one conversation of the folder."""
        run = V1Run(Assembler(document.path, observations="tools"))
        state = mapping_in(read_member(run.assembler, document, "base_state.json", required=False))
        run.bills = bills(_metrics(state))
        for number, name in enumerate(sorted(filter(_is_event, document.members)), start=1):
            run.take(read_member(run.assembler, document, name), number)
        model = text_in(mapping_in(mapping_in(state.get("agent")).get("llm")).get("model"))
        id = text_in(state.get("id")) or run_name(document.path)
        trajectory = run.assembler.finish(id, format=self.name, model=model)
        yield from run.assembler.problems
        if trajectory:
            yield trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """What is recorded of one response outside the events. at: when its request left, seconds since the epoch."""

    usage: Usage | None
    at: float | None


def bills(metrics: Iterable[Json]) -> Mapping[str, Bill]:
    """Response id -> bill, out of OpenHands metrics (V0 and V1). Costs name no response: they stand in its order."""
    services = [(mappings_in(each.get("token_usages")), each) for each in metrics]
    counted = PromptTokens.of_run(usage for usages, _ in services for usage in usages)
    found: dict[str, Bill] = {}
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
            if ended is None or took is None:
                at = None
            else:
                at = ended - took
            found[id] = Bill(usage=counted.usage(usage, usd=number_in(cost.get("cost"))), at=at)
    return found


@dataclass(slots=True)
class V1Run:
    """Gives V1 events to the assembler, one by one."""

    assembler: Assembler
    bills: Mapping[str, Bill] = field(default_factory=dict)
    _newest: str = ""
    _clock: float | None = None

    def take(self, event: Any, number: int) -> None:
        """The next event; unknown kinds say nothing to the model and are passed over."""
        if event is None:
            return
        handler = _HANDLERS.get(text_in(mapping_in(event).get("kind")))
        if handler:
            handler(self, event, number)
        elif not isinstance(event, dict):
            self.assembler.problem("an event that is no object; left out", number)
        self._clock = moment(mapping_in(event).get("timestamp")) or self._clock

    def system(self, event: Json, number: int) -> None:
        self.assembler.system(content_of(event.get("system_prompt")) + content_of(event.get("dynamic_context")))
        self.assembler.tools(mappings_in(event.get("tools")))

    def message(self, event: Json, number: int) -> None:
        message = mapping_in(event.get("llm_message"))
        said = content_of(message.get("content"))
        if event.get("source") != "agent" and message.get("role") != "assistant":
            self.assembler.user(said + content_of(event.get("extended_content")))
            return
        self._assistant(event, said, _reasoning(message) or _reasoning(event), actions_of(message), number)

    def action(self, event: Json, number: int) -> None:
        said = content_of(event.get("thought"))
        reasoning = _reasoning(event)
        actions = (_action(event),)
        response = text_in(event.get("llm_response_id"))
        if response and response == self._newest:
            self.assembler.amend(content=said, reasoning=reasoning, actions=actions)
        else:
            self._assistant(event, said, reasoning, actions, number)

    def _assistant(self, event: Json, said: Content, reasoning: str, actions: tuple[Action, ...], number: int) -> None:
        self._newest = text_in(event.get("llm_response_id"))
        bill = self.bills.get(self._newest)
        self.assembler.assistant(
            said,
            reasoning=reasoning,
            actions=actions,
            usage=bill.usage if bill else None,
            at=self._at(bill, event),
            line=number,
        )

    def _at(self, bill: Bill | None, event: Json) -> float | None:
        """Real times where every response has one; never mixed with event times, which may be hours off.

        By event times a request left with the event before it: its own event came with the answer.
        """
        if self.bills and all(each.at is not None for each in self.bills.values()):
            if bill:
                return bill.at
            return None
        return self._clock or moment(event.get("timestamp"))

    def observation(self, event: Json, number: int) -> None:
        shown = mapping_in(event.get("observation"))
        failed = shown.get("is_error", shown.get("error"))
        if isinstance(failed, bool | str):
            error = bool(failed)
        else:
            error = None
        self._result(event, _shown(shown), error, number)

    def agent_error(self, event: Json, number: int) -> None:
        self._result(event, content(text_in(event.get("error"))), True, number)

    def rejection(self, event: Json, number: int) -> None:
        self._result(event, content(f"Action rejected: {text_in(event.get('rejection_reason'))}"), True, number)

    def _result(self, event: Json, shown: Content, error: bool | None, number: int) -> None:
        tool = text_in(event.get("tool_name"))
        call = text_in(event.get("tool_call_id"))
        self.assembler.result(call, shown or (Text(""),), tool=tool, error=error, line=number)

    def condensation(self, event: Json, number: int) -> None:
        self.assembler.compaction(summary=text_in(event.get("summary")))


_HANDLERS: Mapping[str, Callable[[V1Run, Json, int], None]] = {
    "SystemPromptEvent": V1Run.system,
    "MessageEvent": V1Run.message,
    "ActionEvent": V1Run.action,
    "ObservationEvent": V1Run.observation,
    "AgentErrorEvent": V1Run.agent_error,
    "UserRejectObservation": V1Run.rejection,
    "Condensation": V1Run.condensation,
}
#: Kinds of V1 events that make a list of objects recognisable.
KINDS = frozenset(_HANDLERS)


def shell_text(output: str, metadata: Json) -> str:
    """A command's output as OpenHands shows it: with directory, interpreter and exit code behind it."""
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


def _is_event(name: str) -> bool:
    return name.rsplit("/", 1)[-1].startswith("event-")


def read_member(assembler: Assembler, document: Document, name: str, *, required: bool = True) -> Any:
    """Return the JSON of one file of a folder; None, and report a problem, if it is broken."""
    if name not in document.members and not required:
        return None
    try:
        return json_value(Document(path=f"{document.path}/{name}", data=document.members[name]))
    except FormatError as error:
        assembler.problem(f"left out: {error}")
        return None


def _metrics(state: Json) -> list[Json]:
    """The metrics of every service of a conversation, the condenser's too."""
    stats = mapping_in(state.get("stats"))
    services = mapping_in(stats.get("usage_to_metrics")) or mapping_in(stats.get("service_to_metrics"))
    return [mapping_in(each) for each in services.values()]


def _action(event: Json) -> Action:
    if recorded := actions_of({"tool_calls": [event.get("tool_call")]}):
        return recorded[0]
    arguments = {key: value for key, value in mapping_in(event.get("action")).items() if key != "kind"}
    name = text_in(event.get("tool_name"))
    return Action(id=text_in(event.get("tool_call_id")), name=name, arguments=arguments_in(arguments))


def _reasoning(holder: Json) -> str:
    blocks = (text_in(block.get("thinking")) for block in mappings_in(holder.get("thinking_blocks")))
    item = mapping_in(holder.get("responses_reasoning_item"))
    summary = item.get("content") or item.get("summary")
    texts = (text_in(each) for each in summary) if isinstance(summary, list) else ()
    return reasoning_of(holder) or "\n".join(filter(None, (*blocks, *texts)))


def _shown(observation: Json) -> Content:
    """What the model saw of an observation; where it stands differs by tool and version."""
    metadata = mapping_in(observation.get("metadata"))
    error = text_in(observation.get("error"))
    for name in ("content", "output", "message", "text"):
        value = observation.get(name)
        if isinstance(value, list):
            return content_of(value) + content(shell_text("", metadata).strip("\n"))
        if isinstance(value, str):
            return content("\n".join(filter(None, (shell_text(value, metadata), error)))) + _screenshot(observation)
    rest = {key: value for key, value in observation.items() if key != "kind"}
    return content(error or (json.dumps(rest, ensure_ascii=False) if rest else ""))


def _screenshot(observation: Json) -> Content:
    data = text_in(observation.get("screenshot_data"))
    if data:
        return (opaque("image", {"type": "image", "data": data}),)
    return ()
