"""Where the tokens of a trajectory are: in observations, in what the assistant thought and said, in its calls."""

from __future__ import annotations

from dataclasses import dataclass

from elision.trajectory.assistant_text import join_argument_text
from elision.trajectory.tokens import Sizer
from elision.trajectory.turn import Head, Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenComposition:
    """Tokens of a trajectory with nothing hidden, each counted once, message frames included.

    head:         system prompt, tool definitions, task.
    observations: tool results.
    reasoning:    what the assistant thought and said.
    actions:      its tool calls. In a text protocol the call is a part of the text, and is counted here alone.
    user:         messages of the user between the turns.
    """

    head: int = 0
    observations: int = 0
    reasoning: int = 0
    actions: int = 0
    user: int = 0

    def __add__(self, other: TokenComposition) -> TokenComposition:
        return TokenComposition(
            head=self.head + other.head,
            observations=self.observations + other.observations,
            reasoning=self.reasoning + other.reasoning,
            actions=self.actions + other.actions,
            user=self.user + other.user,
        )

    def scale(self, rate: float) -> TokenComposition:
        """Return the same in tokens of which one of these is `rate`."""
        return TokenComposition(
            head=round(self.head * rate),
            observations=round(self.observations * rate),
            reasoning=round(self.reasoning * rate),
            actions=round(self.actions * rate),
            user=round(self.user * rate),
        )

    @property
    def total(self) -> int:
        """Return all tokens: the length of a prompt with nothing hidden."""
        return self.head + self.observations + self.reasoning + self.actions + self.user

    @property
    def turn_tokens(self) -> int:
        """Return the tokens of all turns: everything but the head."""
        return self.total - self.head

    @property
    def observation_share(self) -> float:
        """Return the share of the turns' tokens that is in observations, 0 to 1; 0 where there are no turns.

        The literature gives 84 % for software engineering agents.
        """
        if self.turn_tokens:
            return self.observations / self.turn_tokens
        return 0.0


def measure_head(head: Head, sizer: Sizer) -> TokenComposition:
    """Return the composition of a head, its unrecorded part included."""
    messages = sum(sizer.count_message(message) for message in head.messages)
    return TokenComposition(head=head.hidden_tokens + sizer.count_tools(head) + messages)


def measure_turn(turn: Turn, sizer: Sizer) -> TokenComposition:
    """Return the composition of one turn."""
    calls = sum(sizer.count_call(action) for action in turn.actions if not action.implicit)
    commands = sum(sizer.count(join_argument_text(action)) for action in turn.actions if action.implicit)
    # A text cut in two may have more tokens than the whole.
    spoken = sizer.count_assistant(turn)
    # Reported output may be less than what we count.
    actions = min(calls + min(commands, sizer.count_content(turn.content)), spoken)
    return TokenComposition(
        observations=sum(sizer.count_observation(observation) for observation in turn.observations),
        reasoning=spoken - actions,
        actions=actions,
        user=sum(sizer.count_message(message) for message in turn.interjections),
    )
