"""A turn while its results still come in, recorded or live."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from elision.trajectory.content import Content, join_text
from elision.trajectory.text_protocol import find_action
from elision.trajectory.turn import Action, Message, Observation, Turn
from elision.trajectory.usage import Usage

#: Assistant messages that `auto` looks at: agents greet or think aloud before they act.
OPENING_TURNS = 3


@dataclass(slots=True)
class TurnBuilder:
    """What is known of a turn so far; results and user messages in the order in which they came."""

    content: Content = ()
    reasoning: str = ""
    actions: tuple[Action, ...] = ()
    usage: Usage | None = None
    at: float | None = None
    model: str = ""
    results: list[Observation] = field(default_factory=list)
    users: list[Message] = field(default_factory=list)

    def build_turn(self, index: int, mode: Literal["tools", "user"]) -> Turn:
        """Return the turn so far. mode: which messages are observations; in "user", the answer to an action is one.

        Interjections are the same objects as in `users`, so that the caller can recognize them.
        """
        actions = self.actions
        results = tuple(self.results)
        users = tuple(self.users)
        if mode == "user" and users and not results:
            # The user message that answers an action is its observation; a text without one is answered by a person.
            found = actions or tuple(filter(None, (find_action(join_text(self.content)),)))
            answer = next((message for message in users if message.role == "user"), None)
            if found and answer is not None:
                actions = tuple(replace(action, implicit=True) for action in found)
                users = tuple(message for message in users if message is not answer)
                first = actions[0]
                results = (Observation(action_id=first.id, tool=first.name, content=answer.content, role="user"),)
        return Turn(
            index=index,
            content=self.content,
            reasoning=self.reasoning,
            actions=actions,
            observations=results,
            interjections=users,
            usage=self.usage,
            at=self.at,
            model=self.model,
        )


def find_opening_text(drafts: Sequence[TurnBuilder]) -> str:
    """What `auto` decides by: the first of the opening messages that is answered and holds an action, or the first."""
    texts = (join_text(draft.content) for draft in drafts[:OPENING_TURNS] if draft.users)
    return next(filter(find_action, texts), join_text(drafts[0].content))
