"""Event logs of Anthropic's managed agents: what `client.beta.sessions.events.list` and `.stream` return, kept as JSON.

A log is one thread of a session. A request begins with `span.model_request_start`; what the agent says and calls until
the next one begins is its response; `span.model_request_end` holds its usage. The end may come before the messages of
its response. What the user says while a request is under way is sent with the next one. Thinking has no text here.
Source: the types under `anthropic/types/beta/sessions` of the `anthropic` package, 2.12.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from elision.errors import FormatError
from elision.formats.assembler import Assembler, yield_run
from elision.formats.document import (
    PEEK_LINES,
    Document,
    RunOrProblem,
    peek_objects,
    peek_value,
    read_json_lines,
    read_json_value,
)
from elision.formats.recorded_fields import parse_timestamp, read_call
from elision.formats.source import derive_run_name
from elision.providers.anthropic import messages as anthropic
from elision.providers.shared.json_reading import Json, bool_in, mapping_in, mappings_in, parse_content, text_in
from elision.trajectory.trajectory import Problem
from elision.trajectory.turn import Action, Content, Text, make_content
from elision.trajectory.usage import Usage

#: Where a page of events, or a session with its events, keeps them.
_HOLDERS = ("data", "events")
#: Where a recorder with fields of its own keeps an event as it came.
_WRAPPED = "raw"
#: Event types that no other recorder writes.
_OWN_PREFIXES = ("agent.", "span.model_request_")
#: Fields that name the call that a result answers.
_ANSWERED_FIELDS = ("tool_use_id", "mcp_tool_use_id", "custom_tool_use_id")


class ManagedAgentsReader:
    """Reads a log as JSON lines, as a list, or as pages (`{"data": [...]}`); each thread of it is a run."""

    name: ClassVar[str] = "managed-agents"

    def sniff(self, document: Document) -> bool:
        if not any(f'"{mark}'.encode() in document.data for mark in _OWN_PREFIXES):
            return False
        values = peek_objects(document, PEEK_LINES) or [peek_value(document)]
        return any(_is_own(event) for value in values for event in _list_events(value)[:PEEK_LINES])

    def read(self, document: Document) -> Iterator[RunOrProblem]:
        events: list[tuple[int, Json]] = []
        agent: Json = {}
        for place, value in _read_values(document):
            if isinstance(value, Problem):
                yield value
                continue
            held = mapping_in(value)
            agent = mapping_in(held.get("agent")) or mapping_in(mapping_in(held.get("session")).get("agent")) or agent
            for number, event in enumerate(_list_events(value), start=1):
                if isinstance(event, dict) and text_in(event.get("type")):
                    events.append((place or number, event))
                else:
                    yield Problem(file=document.path, line=place or number, reason="no event; left out")
        for thread, own in _group_threads(events).items():
            run = _AgentThread(Assembler(document.path, observations="tools"))
            run.add_head(agent)
            for line, event in own:
                run.take_event(event, line)
            yield from run.finish(thread or derive_run_name(document.path), self.name, _read_model_name(agent))


def _read_values(document: Document) -> Iterator[tuple[int, Any]]:
    """Yield (line, value) of JSON lines, or (0, value) of the one value that the file is."""
    try:
        value = read_json_value(document)
    except FormatError:
        if not peek_objects(document, 1):
            raise
        for line in read_json_lines(document):
            if isinstance(line, Problem):
                yield line.line or 0, line
            else:
                yield line.number, line.value
    else:
        yield 0, value


def _list_events(value: Any) -> list[Any]:
    """Return the events that a value is or holds: one, a list, a page, a list of pages, or what a recorder wrapped."""
    if isinstance(value, list):
        events: list[Any] = []
        for item in value:
            events += _list_events(item) if isinstance(item, dict) else [item]
        return events
    held = mapping_in(value)
    for name in _HOLDERS:
        if isinstance(held.get(name), list):
            return _list_events(held[name])
    if isinstance(held.get(_WRAPPED), dict):
        return _list_events(held[_WRAPPED])
    return [value]


def _is_own(event: Any) -> bool:
    return text_in(mapping_in(event).get("type")).startswith(_OWN_PREFIXES)


def _group_threads(events: Sequence[tuple[int, Json]]) -> dict[str, list[tuple[int, Json]]]:
    """Group the events by thread, from the oldest on; the API lists them either way.

    A thread's own events name none; others were posted in it to ask for permission.
    """
    times = [at for _, event in events if (at := parse_timestamp(event.get("processed_at"))) is not None]
    is_backward = bool(times) and times[0] > times[-1]
    threads: dict[str, list[tuple[int, Json]]] = {}
    for line, event in reversed(events) if is_backward else events:
        threads.setdefault(text_in(event.get("session_thread_id")), []).append((line, event))
    own = threads.get("", [])
    if any(_is_own(event) for _, event in own):
        return {"": own}
    return {key: threads[key] for key in threads if key}


def _read_model_name(holder: Json) -> str:
    """Return the model that an agent's definition or a request names: a text, or an object with its id."""
    return text_in(holder.get("model")) or text_in(mapping_in(holder.get("model")).get("id"))


@dataclass(slots=True)
class _AgentThread:
    """Gives the events of a thread to the assembler, one by one.

    _request: id of the newest request, "" if the log holds none. _is_answered: whether its turn has begun. _at, _usage,
    _model: when it began, what it was billed, who answered. _waiting: what the user said since it began. _denied: calls
    that the user forbade, with the reason. _answered: calls that have a result.
    """

    assembler: Assembler
    _request: str = ""
    _is_answered: bool = False
    _at: float | None = None
    _usage: Usage | None = None
    _model: str = ""
    _waiting: list[Content] = field(default_factory=list)
    _denied: dict[str, str] = field(default_factory=dict)
    _answered: set[str] = field(default_factory=set)

    def add_head(self, agent: Json) -> None:
        """Add the head, if the log says which agent it is of."""
        self.assembler.add_system(parse_content(agent.get("system")))
        self.assembler.add_tools(mappings_in(agent.get("tools")))

    def take_event(self, event: Json, line: int) -> None:
        """Take the next event; kinds that say nothing to the model are passed over."""
        if handler := _HANDLERS.get(event["type"]):
            handler(self, event, line)

    def finish(self, id: str, format: str, model: str) -> Iterator[RunOrProblem]:
        """Yield the run and its problems."""
        self._close_request()
        yield from yield_run(self.assembler, self.assembler.finish(id, format=format, model=model))

    def begin_request(self, event: Json, line: int) -> None:
        """Begin a request: it is sent everything that came before."""
        self._close_request()
        self._request = text_in(event.get("id")) or f"line {line}"
        self._is_answered = False
        self._at = parse_timestamp(event.get("processed_at"))
        self._usage = None
        self._model = _read_model_name(event)

    def end_request(self, event: Json, line: int) -> None:
        """End a request. One that failed said nothing and is no turn."""
        usage = anthropic.parse_usage(event.get("model_usage"))
        if event.get("is_error") is True and not self._is_answered:
            self._request = ""
        elif self._is_answered or (not self._request and self.assembler.is_unanswered):
            self.assembler.amend_assistant(usage=usage)
        elif self._request:
            self._usage = usage

    def _close_request(self) -> None:
        """End the newest request: a response without words is a turn too if it was billed."""
        if self._request and not self._is_answered and self._usage is not None:
            self._add_response_part({}, 0)
        for call in self._denied.keys() - self._answered:
            self.assembler.add_result(call, make_content(self._denied[call]) or (Text(""),), error=True)
        for said in self._waiting:
            self.assembler.add_user(said)
        self._denied.clear()
        self._waiting.clear()

    def add_message(self, event: Json, line: int) -> None:
        self._add_response_part(event, line, parse_content(event.get("content")))

    def add_call(self, event: Json, line: int) -> None:
        self._add_response_part(event, line, actions=(read_call(event, arguments="input"),))

    def _add_response_part(
        self, event: Json, line: int, said: Content = (), *, actions: tuple[Action, ...] = ()
    ) -> None:
        """Add a part of the newest request's response; in a log without requests, of the newest message."""
        has_begun = self._is_answered if self._request else self.assembler.is_unanswered
        if has_begun:
            self.assembler.amend_assistant(content=said, actions=actions)
            return
        at = self._at if self._request else parse_timestamp(event.get("processed_at"))
        self.assembler.add_assistant(said, actions=actions, usage=self._usage, at=at, model=self._model, line=line)
        self._is_answered = True

    def add_result(self, event: Json, line: int) -> None:
        call = next(filter(None, (text_in(event.get(name)) for name in _ANSWERED_FIELDS)), "")
        shown = parse_content(event.get("content")) or (Text(""),)
        self._answered.add(call)
        self.assembler.add_result(call, shown, error=bool_in(event.get("is_error")), line=line)

    def note_confirmation(self, event: Json, line: int) -> None:
        """Note that the user forbade a call: it is answered with the reason, unless a result follows."""
        if event.get("result") == "deny":
            self._denied[text_in(event.get("tool_use_id"))] = text_in(event.get("deny_message"))

    def add_user(self, event: Json, line: int) -> None:
        self._add_user_words(parse_content(event.get("content")))

    def add_outcome(self, event: Json, line: int) -> None:
        """Add what the agent is to produce, and how that will be graded."""
        rubric = text_in(mapping_in(event.get("rubric")).get("content"))
        self._add_user_words(make_content("\n\n".join(filter(None, (text_in(event.get("description")), rubric)))))

    def _add_user_words(self, said: Content) -> None:
        if self._request:
            self._waiting.append(said)
        else:
            self.assembler.add_user(said)

    def add_system(self, event: Json, line: int) -> None:
        self.assembler.add_system(parse_content(event.get("content")))

    def add_compaction(self, event: Json, line: int) -> None:
        """Add a compaction by the harness. A request without words just before it was the summary's."""
        if not self._is_answered:
            self._usage = None
        self.assembler.add_compaction()


_HANDLERS: Mapping[str, Callable[[_AgentThread, Json, int], None]] = {
    "span.model_request_start": _AgentThread.begin_request,
    "span.model_request_end": _AgentThread.end_request,
    "agent.message": _AgentThread.add_message,
    "agent.thread_message_sent": _AgentThread.add_message,
    "agent.tool_use": _AgentThread.add_call,
    "agent.mcp_tool_use": _AgentThread.add_call,
    "agent.custom_tool_use": _AgentThread.add_call,
    "agent.tool_result": _AgentThread.add_result,
    "agent.mcp_tool_result": _AgentThread.add_result,
    "user.custom_tool_result": _AgentThread.add_result,
    "user.tool_result": _AgentThread.add_result,
    "user.tool_confirmation": _AgentThread.note_confirmation,
    "user.message": _AgentThread.add_user,
    "user.define_outcome": _AgentThread.add_outcome,
    "agent.thread_message_received": _AgentThread.add_user,
    "system.message": _AgentThread.add_system,
    "agent.thread_context_compacted": _AgentThread.add_compaction,
}
