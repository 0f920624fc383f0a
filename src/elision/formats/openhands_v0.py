"""OpenHands V0 events: what one run of them says.

Each event is an `action` or an `observation`. `tool_call_metadata` holds the provider's whole answer and is repeated
for every call of it and every result; before function calling there was none, and then the event itself is the call.
The resolver of 2024 wrote events flat: their arguments are in the event itself, and nothing names their source.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from elision.formats.assembler import Assembler
from elision.formats.openhands_events import RecordedBill, format_shell_output
from elision.formats.recorded_fields import PromptTokens, parse_timestamp
from elision.providers.openai_chat.parse import parse_assistant
from elision.providers.shared.json_reading import (
    AssistantMessage,
    Json,
    dump_arguments,
    mapping_in,
    mappings_in,
    text_in,
)
from elision.trajectory.content import Text, make_content
from elision.trajectory.turn import Action

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


def is_flat_event(value: Any) -> bool:
    """Return whether a JSON value is a V0 action without a frame, as the resolver wrote it."""
    return is_event(value) and "observation" not in value and value["action"] in _FLAT_ACTIONS


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
            self.assembler.add_user(make_content(_join_recalled(extras)))
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


def _join_recalled(extras: Json) -> str:
    """Return what OpenHands adds to the user's message: instructions of repository and user, and knowledge."""
    names = ("repo_instructions", "additional_agent_instructions", "conversation_instructions")
    knowledge = (text_in(each.get("content")) for each in mappings_in(extras.get("microagent_knowledge")))
    return "\n\n".join(filter(None, (*(text_in(extras.get(name)) for name in names), *knowledge)))


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
