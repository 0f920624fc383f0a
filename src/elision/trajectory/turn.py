"""A turn: one assistant message and all its results, atomic and never split; and how it is built from messages.

An agent that acts in plain text has its action in the assistant's text, where `find_action` finds it. `observations =
tools | user | auto` (design 1) says which messages are results. `auto` decides once: an agent with tool definitions,
tool calls or tool results speaks the tool protocol; else it acts in text if its first message holds an action; else it
only chats, and a chat has no observations.

What a message says is text, and opaque parts that are kept and counted but never read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from elision.trajectory.foreign_text import parse_object
from elision.trajectory.usage import Usage, write_always

#: Kinds of parts that hold reasoning which only the provider that sealed it can read.
SEALED_KINDS = frozenset(("thinking", "redacted_thinking", "reasoning"))
#: Tokens booked for an image whose size is not known. Anthropic bills (width x height) / 750, at most about 1,600;
#: OpenAI 85 to about 1,100 (providers' vision guides). An estimate, and labelled as one wherever it is shown.
IMAGE_TOKENS = 1_200


class Text(msgspec.Struct, frozen=True):
    """A run of text."""

    text: str


class Opaque(msgspec.Struct, frozen=True, omit_defaults=True, rename={"kind": "opaque"}):
    """A part that Elision keeps and counts but does not understand: an image, audio, a signed block, an unknown type.

    kind:   the provider's own word for it (``image``, ``input_audio``, ``redacted_thinking`` ...).
    tokens: as which it is counted; an estimate unless the provider reported them.
    data:   the part as it was recorded, for rendering it again; never read, never shown.
    """

    kind: str
    tokens: int = 0
    data: Mapping[str, Any] | None = None

    def __hash__(self) -> int:
        return hash((self.kind, self.tokens))

    def __repr__(self) -> str:
        return f"Opaque(kind={self.kind!r}, tokens={self.tokens})"


Part: TypeAlias = Text | Opaque
if TYPE_CHECKING:
    Content: TypeAlias = tuple[Part, ...]
else:
    # The JSON of a part has no tag, so that msgspec cannot decode it: `event_json` makes the parts before.
    Content = tuple[Any, ...]


def make_content(text: str) -> Content:
    """Content that is just `text`; empty text is no part at all."""
    if text:
        return (Text(text),)
    return ()


def has_sealed_reasoning(parts: Content) -> bool:
    """Return whether one of `parts` is reasoning that only its provider can read."""
    return any(isinstance(part, Opaque) and part.kind in SEALED_KINDS for part in parts)


def join_text(parts: Content) -> str:
    """The text of `parts`, opaque parts left out, parts joined by a newline."""
    if len(parts) == 1 and isinstance(parts[0], Text):
        return parts[0].text
    return "\n".join(part.text for part in parts if isinstance(part, Text))


#: Name of the tool of an action that was given as a bare text, which is its argument `input`.
TEXT_ACTION: Final = "action"


#: The tag by which a user message is an observation, whatever the protocol is.
TOOL_OUTPUT: Final = "tool_output"
#: Assistant messages that `auto` looks at: agents greet or think aloud before they act.
OPENING_TURNS = 3
#: Most turns have no tags, so they share one mapping.
_NOTHING: Final[Mapping[Any, frozenset[str]]] = MappingProxyType({})

ObservationRole: TypeAlias = Literal["tools", "user", "auto"]

# An opening line has an end: without one, marks in a row without a newline are quadratic.
_FENCE = re.compile(r"```([\w+-]{0,40})[^\n]{0,400}\n(.*?)\n?```", re.DOTALL)
_TAG = re.compile(r"<(command|execute_bash|execute_ipython|tool_call|action|function=[\w.-]+)>")
_REACT = re.compile(r"^Action:\s*([\w.-]+)\s*\n+Action Input:\s*(.+)", re.MULTILINE)
_SHELLS = frozenset({"bash", "sh", "shell", "console", "mswea_bash_command"})
_NOT_ACTIONS = frozenset({"json", "diff", "patch", "yaml", "toml", "text", "markdown", "md"})


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


def find_action(text: str) -> Action | None:
    """The action that an assistant's `text` holds, or None: last runnable fence, tag or ReAct line."""
    for language, body in reversed(_FENCE.findall(text)):
        if language.lower() not in _NOT_ACTIONS and body.strip():
            if language.lower() in _SHELLS or not language:
                name = "bash"
            else:
                name = language.lower()
            return Action(id="", name=name, arguments=body.strip(), implicit=True)
    if tagged := _find_tagged_action(text):
        return tagged
    if found := _REACT.search(text):
        return Action(id="", name=found[1], arguments=found[2].strip(), implicit=True)
    return None


def _find_tagged_action(text: str) -> Action | None:
    opened = _TAG.search(text)
    # Looked for apart: a pattern with both ends is quadratic in tags that are never closed.
    end = text.find("</", opened.end()) if opened else -1
    if opened is None or end < 0:
        return None
    name = opened[1].removeprefix("function=")
    shell = name in ("command", "execute_bash")
    return Action(id="", name="bash" if shell else name, arguments=text[opened.end() : end].strip(), implicit=True)


def choose_observation_role(first_text: str, *, has_tools: bool) -> Literal["tools", "user"]:
    """What `auto` means for an agent whose first message says `first_text`.

    has_tools: tool definitions, tool calls or tool results were seen.
    """
    if not has_tools and find_action(first_text):
        return "user"
    return "tools"


@dataclass(slots=True)
class TurnBuilder:
    """What is known of a turn so far; results and user messages in the order in which they came.

    tags:      of all results of the turn. call_tags: of the results of single calls, by the call's id.
    user_tags: of user messages, by their place in `users`.
    """

    content: Content = ()
    reasoning: str = ""
    actions: tuple[Action, ...] = ()
    usage: Usage | None = None
    at: float | None = None
    model: str = ""
    results: tuple[Observation, ...] = ()
    users: tuple[Message, ...] = ()
    tags: frozenset[str] = frozenset()
    call_tags: Mapping[str, frozenset[str]] = field(default_factory=lambda: _NOTHING)
    user_tags: Mapping[int, frozenset[str]] = field(default_factory=lambda: _NOTHING)

    def build_turn(self, index: int, mode: Literal["tools", "user"]) -> Turn:
        """Return the turn so far. mode: which messages are observations; in "user", the answer to an action is one.

        Interjections are the same objects as in `users`, so that the caller can recognize them.
        """
        actions, results = self.actions, self.results
        if self.tags or self.call_tags:
            nothing: frozenset[str] = frozenset()
            results = tuple(
                replace(result, tags=result.tags | self.tags | self.call_tags.get(result.action_id, nothing))
                for result in results
            )
        users = list(enumerate(self.users))
        if mode == "user" and users and not results:
            actions, results = self._take_answer(users)
        # Messages that are tagged as observations are those, whatever the mode is.
        while users and users[0][1].role == "user" and TOOL_OUTPUT in self.user_tags.get(users[0][0], ()):
            actions = actions or self._find_actions()
            answered = actions[0] if actions and not results else None
            results += (self._make_user_observation(answered, *users.pop(0)),)
        return Turn(
            index=index,
            content=self.content,
            reasoning=self.reasoning,
            actions=actions,
            observations=results,
            interjections=tuple(message for _, message in users),
            usage=self.usage,
            at=self.at,
            model=self.model,
        )

    def _take_answer(self, users: list[tuple[int, Message]]) -> tuple[tuple[Action, ...], tuple[Observation, ...]]:
        """Take the user message that answers the action out of `users`. Return the actions, and it as their result.

        A text without an action is answered by a person.
        """
        found = self.actions or self._find_actions()
        answer = next((each for each in users if each[1].role == "user"), None)
        if not found or answer is None:
            return self.actions, ()
        users.remove(answer)
        actions = tuple(replace(action, implicit=True) for action in found)
        return actions, (self._make_user_observation(actions[0], *answer),)

    def add_tags(
        self, tags: frozenset[str], actions: Sequence[Action], call_tags: Mapping[str, frozenset[str]]
    ) -> None:
        """Add the tags of an assistant's message: of the results of its `actions`, or of the turn where it has none.

        call_tags: of single calls, by their id.
        """
        if not actions:
            self.tags |= tags
        for action in actions:
            self._add_call_tags(action.id, tags)
        for id, own in call_tags.items():
            self._add_call_tags(id, own)

    def _add_call_tags(self, id: str, tags: frozenset[str]) -> None:
        if tags:
            self.call_tags = {**self.call_tags, id: self.call_tags.get(id, frozenset()) | tags}

    def _find_actions(self) -> tuple[Action, ...]:
        """Return the action in the assistant's text, if there is one."""
        return tuple(filter(None, (find_action(join_text(self.content)),)))

    def _make_user_observation(self, action: Action | None, place: int, message: Message) -> Observation:
        """Return user message `place` as the observation of `action`; None where it answers none that is known."""
        tags = self.tags | self.user_tags.get(place, frozenset())
        if action is None:
            return Observation(action_id="", tool="", content=message.content, role="user", tags=tags)
        tags |= self.call_tags.get(action.id, frozenset())
        return Observation(action_id=action.id, tool=action.name, content=message.content, role="user", tags=tags)


def find_opening_text(drafts: Sequence[TurnBuilder]) -> str:
    """What `auto` decides by: the first of the opening messages that is answered and holds an action, or the first."""
    texts = (join_text(draft.content) for draft in drafts[:OPENING_TURNS] if draft.users)
    return next(filter(find_action, texts), join_text(drafts[0].content))
