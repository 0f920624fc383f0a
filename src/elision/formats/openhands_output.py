"""OpenHands in JSON: `output.jsonl` of its evaluations, exported histories, lists of events, folders of V0 sessions.

V0 wrote a flat list of events, and before that pairs of action and observation; V1 events stand in lists too. The
resolver's `output.jsonl` holds an issue a line, its events without a frame.

A V0 session is a folder of `events/0.json`, `events/1.json` ... `event_cache/0-25.json` holds events 0 to 24 again, and
stands in for the files of those that are missing or broken. Source: `openhands/events/event_store.py` and
`openhands/storage/locations.py` of All-Hands-AI/OpenHands 0.62.

Each V0 event is an `action` or an `observation`. `tool_call_metadata` holds the provider's whole answer and is repeated
for every call of it and every result; before function calling there was none, and then the event itself is the call.
The resolver of 2024 wrote events flat: their arguments are in the event itself, and nothing names their source.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from elision.errors import FormatError
from elision.formats.assembler import Assembler, yield_run
from elision.formats.document import Document, RunOrProblem, peek_objects, peek_value, read_json_lines, read_json_value
from elision.formats.openhands_events import (
    V1_EVENT_KINDS,
    RecordedBill,
    V1RunFeeder,
    format_shell_output,
    read_bills,
    read_member,
)
from elision.formats.recorded_fields import PromptTokens, parse_timestamp
from elision.formats.source import derive_run_name
from elision.providers.openai_chat.messages import parse_assistant
from elision.providers.shared.json_reading import (
    AssistantMessage,
    Json,
    cost_in,
    count_in,
    dump_arguments,
    list_in,
    mapping_in,
    mappings_in,
    text_in,
)
from elision.trajectory.trajectory import Problem
from elision.trajectory.turn import Action, Text, make_content

#: Where a record keeps its events.
_HOLDERS = ("history", "trajectory")
#: Events of a history that are looked at to recognise it.
_PEEK_EVENTS = 10


class OpenHandsOutputReader:
    """Reads `output.jsonl` and histories as one JSON value, V0 and V1."""

    name = "openhands-output"

    def sniff(self, document: Document) -> bool:
        if _is_list(document):
            return _is_history(peek_value(document, "timestamp", "action"))
        if not any(f'"{name}"'.encode() in document.data for name in _HOLDERS):
            return False
        records = peek_objects(document) or [mapping_in(peek_value(document))]
        return any(_is_history(_find_history(record)) for record in records)

    def read(self, document: Document) -> Iterator[RunOrProblem]:
        # One record alone is a JSON value, on one line or several.
        if _is_list(document) or b"\n" not in document.data.rstrip() or not peek_objects(document, 1):
            value = read_json_value(document)
            yield from _read_record(
                document, {"history": value} if isinstance(value, list) else mapping_in(value), None
            )
            return
        for line in read_json_lines(document):
            if isinstance(line, Problem):
                yield line
            elif _is_history(_find_history(line.value)):
                yield from _read_record(document, line.value, line.number)
            else:
                reason = "a record without OpenHands events; left out"
                yield Problem(file=document.path, line=line.number, reason=reason)


def _read_record(document: Document, record: Json, line: int | None) -> Iterator[RunOrProblem]:
    history = _find_history(record)
    if not _is_history(history):
        raise FormatError(f"{document.path}: no OpenHands events in it: neither a list of them nor one in `history`")
    name = _name_record(record) or (f"line {line}" if line else derive_run_name(document.path))
    events: list[Any] = []
    for item in history:
        events += item if isinstance(item, list) else [item]
    assembler = Assembler(document.path, observations="tools")
    _feed_events(assembler, events, record)
    cost = cost_in(mapping_in(record.get("metrics")).get("accumulated_cost"))
    trajectory = assembler.finish(name, format=OpenHandsOutputReader.name, usd=cost)
    yield from yield_run(assembler, trajectory, missing=f"{name}: no assistant message in it", line=line)


def _name_record(record: Json) -> str:
    """Return the task of a benchmark, or the issue that the resolver worked on, `owner/repo#5`; "" if there is none."""
    task = text_in(record.get("instance_id"))
    if task:
        return task
    issue = mapping_in(record.get("issue"))
    owner = text_in(issue.get("owner"))
    repo = text_in(issue.get("repo"))
    number = count_in(issue.get("number"))
    return f"{owner}/{repo}#{number}" if repo and number else ""


def _feed_events(assembler: Assembler, events: list[Any], record: Json) -> None:
    recorded = read_bills([mapping_in(record.get("metrics"))])
    is_v1 = any("kind" in event for event in mappings_in(events))
    run: V0RunFeeder | V1RunFeeder
    if is_v1:
        run = V1RunFeeder(assembler, recorded)
    else:
        run = V0RunFeeder(assembler, detect_prompt_tokens(events), recorded)
    for number, event in enumerate(events, start=1):
        run.take_event(event, number)


def _is_list(document: Document) -> bool:
    return document.data[:256].lstrip().startswith(b"[")


def _find_history(record: Json) -> Any:
    return next((record[name] for name in _HOLDERS if isinstance(record.get(name), list)), None)


def _is_history(value: Any) -> bool:
    return isinstance(value, list) and any(map(_is_openhands_event, value[:_PEEK_EVENTS]))


def _is_openhands_event(item: Any) -> bool:
    """Return whether an item is an event of either version, or a pair of V0 events."""
    if isinstance(item, list):
        return any(map(is_event, item))
    # `source` sets V0 events apart from SWE-agent's steps, which act and observe in one object. Flat ones have none.
    is_flat = is_event(item) and "observation" not in item and item["action"] in _FLAT_ACTIONS
    is_v0 = is_flat or (is_event(item) and "source" in item)
    return is_v0 or text_in(mapping_in(item).get("kind")) in V1_EVENT_KINDS


_EVENT = re.compile(r"events/(\d+)\.json")
_PAGE = re.compile(r"event_cache/(\d+)-(\d+)\.json")
#: Files that are looked at to recognise a session: the first of them may be broken.
_PEEK_FILES = 10


class OpenHandsSessionReader:
    """Reads folders, tars and zips that hold `events/<number>.json`."""

    name: ClassVar[str] = "openhands-session"

    def sniff(self, document: Document) -> bool:
        """Return whether one of the first event files, or of the first page, holds a V0 event."""
        names = [name for name in document.members if _EVENT.fullmatch(name) or _PAGE.fullmatch(name)]
        for name in sorted(names, key=_read_first_number)[:_PEEK_FILES]:
            value = peek_value(Document(path=name, data=document.members[name]))
            if any(map(is_event, value if isinstance(value, list) else [value])):
                return True
        return False

    def read(self, document: Document) -> Iterator[RunOrProblem]:
        assembler = Assembler(document.path, observations="tools")
        events = _read_events(assembler, document)
        run = V0RunFeeder(assembler, detect_prompt_tokens(events.values()))
        for number in sorted(events):
            run.take_event(events[number], number)
        yield from yield_run(assembler, assembler.finish(derive_run_name(document.path), format=self.name))


def _read_first_number(name: str) -> int:
    found = _EVENT.fullmatch(name) or _PAGE.fullmatch(name)
    return int(found[1]) if found else 0


def _read_events(assembler: Assembler, document: Document) -> Mapping[int, Any]:
    """Return the events by their number, each from its own file, else from the page that holds it."""
    events: dict[int, Any] = {}
    for name in document.members:
        if found := _EVENT.fullmatch(name):
            value = read_member(assembler, document, name)
            if value is not None:
                events[int(found[1])] = value
    for name in document.members:
        found = _PAGE.fullmatch(name)
        if found is None or all(number in events for number in range(int(found[1]), int(found[2]))):
            continue
        page = read_member(assembler, document, name)
        for number, value in enumerate(list_in(page), start=int(found[1])):
            if value is not None:
                events.setdefault(number, value)
    return events


# -- what one run of V0 events says -----------------------------------------------------------------------------------


#: Actions that say nothing to the model: control of the session, and requests to OpenHands itself.
_SILENT_ACTIONS = frozenset(
    ("null", "recall", "change_agent_state", "condensation_request", "start", "pause", "resume", "stop", "initialize")
)
_SILENT_OBSERVATIONS = frozenset(("null", "agent_state_changed", "condense"))
#: Actions that only speak: no observation follows, and no call is made where none carries them.
_SPOKEN_ACTIONS = frozenset(("message", "finish", "reject"))
#: By these a flat event is recognised, which has no other mark.
_FLAT_ACTIONS = frozenset(
    ("message", "run", "run_ipython", "read", "write", "edit", "browse", "browse_interactive", "delegate", "finish")
)
#: Fields of an event that are no arguments of its action.
_FRAME_FIELDS = frozenset(("action", "id", "timestamp", "source", "cause", "message", "tool_call_metadata"))


def is_event(value: Any) -> bool:
    """Return whether a JSON value is a V0 event."""
    return isinstance(value, dict) and any(isinstance(value.get(name), str) for name in ("action", "observation"))


def detect_prompt_tokens(events: Iterable[Any]) -> PromptTokens:
    """Detect what the prompt tokens of a run's answers include."""
    return PromptTokens.detect(_get_response(mapping_in(event)).get("usage") for event in events)


@dataclass(slots=True)
class V0RunFeeder:
    """Gives V0 events to the assembler, one by one.

    bills: usage by response id where the record keeps it apart; the answer's own usage comes first.
    """

    assembler: Assembler
    counted: PromptTokens
    bills: Mapping[str, RecordedBill] = field(default_factory=dict)
    _calls: dict[str, str] = field(default_factory=dict)
    _by_user: set[str] = field(default_factory=set)
    _newest: str = ""
    _open_call: str = ""
    _clock: float | None = None

    def take_event(self, event: Any, number: int) -> None:
        """Take the next event; unknown ones say nothing to the model and are passed over."""
        if not isinstance(event, dict):
            self.assembler.report_problem("an event that is not an object; left out", number)
        elif isinstance(event.get("observation"), str):
            self._add_observation(event, number)
        elif isinstance(event.get("action"), str):
            self._add_action(event, number)
        self._clock = parse_timestamp(mapping_in(event).get("timestamp")) or self._clock

    def _add_action(self, event: Json, number: int) -> None:
        kind = event["action"]
        arguments = _get_arguments(event)
        if kind == "system":
            self.assembler.add_system(make_content(text_in(arguments.get("content"))))
            self.assembler.add_tools(mappings_in(arguments.get("tools")))
        elif kind == "condensation":
            self.assembler.add_compaction(summary=text_in(arguments.get("summary")))
        elif _is_user(event):
            self._add_user(event)
        elif kind not in _SILENT_ACTIONS:
            self._add_agent_action(event, number)

    def _add_user(self, event: Json) -> None:
        if event["action"] == "message":
            self.assembler.add_user(make_content(_read_words(event)))
        else:  # a command that the user ran: what it prints is shown to the model as the user's words
            self._by_user.add(_get_id(event))

    def _add_agent_action(self, event: Json, number: int) -> None:
        response = _get_response(event)
        newest = self._newest
        self._newest = text_in(response.get("id"))
        spoken = _parse_assistant(event, number)
        call = _get_call_id(event)
        if not call and spoken.actions:
            call = spoken.actions[0].id
        self._calls[_get_id(event)] = call
        self._open_call = "" if event["action"] in _SPOKEN_ACTIONS else call
        if self._newest and self._newest == newest:
            self.assembler.amend_assistant(actions=spoken.actions)
            return
        usage = self.counted.parse_usage(response.get("usage"))
        if usage is None and self._newest in self.bills:
            usage = self.bills[self._newest].usage
        self.assembler.add_assistant(
            spoken.content,
            reasoning=spoken.reasoning,
            actions=spoken.actions,
            usage=usage,
            at=self._clock or parse_timestamp(event.get("timestamp")),
            model=text_in(response.get("model")),
            line=number,
        )

    def _add_observation(self, event: Json, number: int) -> None:
        kind = event["observation"]
        if kind in _SILENT_OBSERVATIONS:
            return
        extras = mapping_in(event.get("extras"))
        if kind == "recall":
            # What OpenHands adds to the user's message: instructions of repository and user, and knowledge.
            names = ("repo_instructions", "additional_agent_instructions", "conversation_instructions")
            knowledge = [text_in(each.get("content")) for each in mappings_in(extras.get("microagent_knowledge"))]
            texts = [*(text_in(extras.get(name)) for name in names), *knowledge]
            self.assembler.add_user(make_content("\n\n".join(filter(None, texts))))
            return
        metadata = mapping_in(extras.get("metadata"))
        shown = make_content(format_shell_output(text_in(event.get("content")), metadata))
        call = self._find_answered_call(event)
        if call:
            self.assembler.add_result(call, shown or (Text(""),), error=_has_failed(event), line=number)
        elif kind == "error" or _get_cause(event) in self._by_user:
            self.assembler.add_user(shown)
        else:
            self.assembler.report_problem(f"{kind} observation answers no action; left out", number)

    def _find_answered_call(self, event: Json) -> str:
        """Return the call that an observation answers: by name, or by its cause; in bare pairs, the call before."""
        call = _get_call_id(event)
        cause = _get_cause(event)
        if not call and cause:
            call = self._calls.get(cause, "")
        elif not call:
            call = self._open_call
        if call == self._open_call:
            self._open_call = ""
        return call


def _parse_assistant(event: Json, number: int) -> AssistantMessage:
    """Return the assistant message of an action: the provider's own, else one made from the event."""
    choices = mappings_in(_get_response(event).get("choices"))
    if choices:
        spoken = parse_assistant(mapping_in(choices[0].get("message")))
    else:
        spoken = AssistantMessage(content=make_content(_read_words(event)))
    call = _get_call_id(event)
    name = text_in(_get_call_metadata(event).get("function_name"))
    if not call and event["action"] in _SPOKEN_ACTIONS:
        return spoken
    if call and any(action.id == call for action in spoken.actions):
        return spoken
    arguments = {key: value for key, value in _get_arguments(event).items() if key != "thought"}
    own = Action(id=call or f"event {number}", name=name or event["action"], arguments=dump_arguments(arguments))
    return AssistantMessage(content=spoken.content, reasoning=spoken.reasoning, actions=(*spoken.actions, own))


def _get_arguments(event: Json) -> Json:
    """Return the arguments of an action; those of a flat event are in the event itself."""
    if "args" in event:
        return mapping_in(event["args"])
    return {key: value for key, value in event.items() if key not in _FRAME_FIELDS}


def _is_user(event: Json) -> bool:
    """Return whether the user acts here. Without a source, a message is the user's unless it waits for the user's
    answer."""
    if "source" in event:
        return text_in(event["source"]) == "user"
    return (
        event["action"] == "message" and not _get_arguments(event).get("wait_for_response") and not _get_call_id(event)
    )


def _read_words(event: Json) -> str:
    arguments = _get_arguments(event)
    thought = arguments.get("thought")
    thought = thought if isinstance(thought, str) else mapping_in(thought).get("text")  # an object in late versions
    texts = (arguments.get("content"), thought, arguments.get("final_thought"))
    return next(filter(None, map(text_in, texts)), "")


def _has_failed(event: Json) -> bool | None:
    if event["observation"] == "error":
        return True
    success = event.get("success")
    exit_code = event.get("exit_code")
    if isinstance(success, bool):
        return not success
    # Of flat events; -1 means that the command still runs.
    if isinstance(exit_code, int) and not isinstance(exit_code, bool):
        return exit_code > 0
    return None


def _get_call_metadata(event: Json) -> Json:
    return mapping_in(event.get("tool_call_metadata"))


def _get_response(event: Json) -> Json:
    return mapping_in(_get_call_metadata(event).get("model_response"))


def _get_call_id(event: Json) -> str:
    return text_in(_get_call_metadata(event).get("tool_call_id"))


def _get_id(event: Json) -> str:
    return str(event.get("id"))


def _get_cause(event: Json) -> str:
    cause = event.get("cause")
    return "" if cause is None else str(cause)
