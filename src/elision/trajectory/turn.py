"""A turn: one assistant message and all its results. Atomic: never split."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import replace

from elision.trajectory.content import Content, join_text
from elision.trajectory.foreign_json import parse_object
from elision.trajectory.record_fields import write_always
from elision.trajectory.usage import Usage

#: Name of the tool of an action that was given as a bare text, which is its argument `input`.
TEXT_ACTION: Final = "action"


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message that is neither an assistant's nor a result: part of the head, or an interjection."""

    role: Literal["system", "developer", "user"]
    content: Content = ()
    pinned: bool = False

    @property
    def text(self) -> str:
        return join_text(self.content)


class Head(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """System prompt, tool definitions and the user messages before the first assistant message (the task).

    tools:         tool definitions as recorded (provider JSON, any dialect).
    hidden_tokens: tokens of a head that the recording leaves out: first billed prompt - counted text.
    warm_tokens:   how much of the head, in tokens, other runs keep in the provider's cache (recorded cache read of
                   the first call).
    """

    messages: tuple[Message, ...] = ()
    tools: tuple[Mapping[str, Any], ...] = ()
    hidden_tokens: int = 0
    warm_tokens: int = 0

    def __hash__(self) -> int:
        return hash((self.messages, self.hidden_tokens, self.warm_tokens))


class Action(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool call.

    id:        the provider's call id, unique within the turn; "" in a text protocol.
    name:      the tool.
    arguments: the arguments as the provider carries them: a JSON text; the bare command in a text protocol.
    implicit:  True in a text protocol: the call is part of the assistant's text and is not rendered again.
    """

    id: str
    name: str
    arguments: str = write_always("{}")
    implicit: bool = False

    @property
    def decoded_arguments(self) -> Mapping[str, Any]:
        """The arguments as a read-only mapping; {} if they are no JSON object."""
        return _decode_arguments(self.arguments)

    @property
    def given_text(self) -> str | None:
        """The action where it was given as a text, in a turn by hand; None for a tool call."""
        if self.name != TEXT_ACTION or list(self.decoded_arguments) != ["input"]:
            return None
        text = self.decoded_arguments["input"]
        return text if isinstance(text, str) else None


@lru_cache(maxsize=128)
def _decode_arguments(arguments: str) -> Mapping[str, Any]:
    # A call is looked at a dozen times when it is read, masked and digested: 16,000 times in a session of 1,000 turns.
    return parse_object(arguments) or {}


class Observation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One result.

    action_id: id of the call it answers; "" in a text protocol.
    tool:      the tool's name ("" if unknown).
    role:      how it is sent: as a tool result, or as a user message (text protocol).
    error:     whether the environment called it a failure; None where it did not say.
    tags:      rules may refer to them: tool_output, keep_output, remove_output, or the user's own.
    """

    action_id: str
    tool: str
    role: Literal["tool", "user"] = write_always("tool")
    error: bool | None = None
    content: Content = ()
    tags: frozenset[str] = frozenset()
    pinned: bool = False

    @property
    def text(self) -> str:
        return join_text(self.content)


class Turn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename={"index": "turn"}):
    """One assistant message, all its results, and the user messages that follow before the next one.

    index:         1, 2, ... within the trajectory; turn i answers call i.
    content:       what the assistant wrote.
    reasoning:     its recorded reasoning, in clear text ("" if none).
    actions:       its tool calls, in order; parallel calls follow each other.
    observations:  their results, in the order recorded; an unfinished turn has fewer results than calls.
    interjections: user messages between this turn and the next that are no observation.
    usage:         what the provider reported for the call that this turn answers.
    at:            when that request started, or the nearest recorded time, in seconds since the epoch.
    """

    index: int
    content: Content = ()
    reasoning: str = ""
    actions: tuple[Action, ...] = ()
    observations: tuple[Observation, ...] = ()
    interjections: tuple[Message, ...] = ()
    model: str = ""
    pinned: bool = False
    usage: Usage | None = None
    at: float | None = None

    def __post_init__(self) -> None:
        if self.index < 1:
            raise ValueError(f"turn index must be 1 or more, not {self.index}")
        known = {action.id for action in self.actions}
        for observation in self.observations:
            if observation.role == "tool" and observation.action_id not in known:
                raise ValueError(f"turn {self.index}: result {observation.action_id!r} answers no call of the turn")

    @property
    def text(self) -> str:
        return join_text(self.content)

    @property
    def is_finished(self) -> bool:
        """Whether at least one call was answered; such turns are MANIFEST's tool turns."""
        return bool(self.observations)

    def has_only_new_user_words(self, other: Turn) -> bool:
        """Return whether `other` is this turn with other words of the user after it."""
        return replace(self, interjections=()) == replace(other, interjections=())

    def find_action(self, observation: Observation) -> Action | None:
        """The call that `observation` answers."""
        for action in self.actions:
            if action.id == observation.action_id:
                return action
        return None
