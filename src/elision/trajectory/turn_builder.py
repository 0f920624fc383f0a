"""A turn while its results still come in, recorded or live."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Literal

from msgspec.structs import replace

from elision.trajectory.content import Content, join_text
from elision.trajectory.text_protocol import find_action
from elision.trajectory.turn import Action, Message, Observation, Turn
from elision.trajectory.usage import Usage

#: The tag by which a user message is an observation, whatever the protocol is.
TOOL_OUTPUT: Final = "tool_output"
#: Assistant messages that `auto` looks at: agents greet or think aloud before they act.
OPENING_TURNS = 3
#: Most turns have no tags, so they share one mapping.
_NOTHING: Final[Mapping[Any, frozenset[str]]] = MappingProxyType({})


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
        actions = self.actions
        results = self._tag_results() if self.tags or self.call_tags else self.results
        users = list(enumerate(self.users))
        if mode == "user" and users and not results:
            # The user message that answers an action is its observation; a text without one is answered by a person.
            found = actions or self._find_actions()
            answer = next((each for each in users if each[1].role == "user"), None)
            if found and answer is not None:
                actions = tuple(replace(action, implicit=True) for action in found)
                users.remove(answer)
                results = (self._make_user_observation(actions[0], *answer),)
        while users and self._is_declared_observation(*users[0]):
            if not actions:
                actions = self._find_actions()
            results += (self._make_user_observation(None if results or not actions else actions[0], *users.pop(0)),)
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

    def _tag_results(self) -> tuple[Observation, ...]:
        nothing: frozenset[str] = frozenset()
        return tuple(
            replace(result, tags=result.tags | self.tags | self.call_tags.get(result.action_id, nothing))
            for result in self.results
        )

    def _is_declared_observation(self, place: int, message: Message) -> bool:
        return message.role == "user" and TOOL_OUTPUT in self.user_tags.get(place, ())

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
