"""A recorded or live run: its head and turns, what its agent wrote, where its tokens are, its task in one line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Literal

import msgspec

from elision.trajectory.events import Event, HeadSet
from elision.trajectory.foreign_text import escape_controls
from elision.trajectory.run_roles import SaidRole
from elision.trajectory.tokens import Sizer
from elision.trajectory.turn import Action, Head, Turn
from elision.trajectory.usage import Usage

#: Values nested deeper are left out: they are not written by hand.
_DEEPEST = 8
#: Characters of a task that are kept.
MAX_TASK_CHARS: Final = 300
#: Characters of a message that are searched for it.
_MAX_SEARCHED: Final = 100_000
#: Records among which the head of a log is.
_FIRST_RECORDS: Final = 4
#: Blocks that clients put before the user's own words.
_CLIENT_BLOCKS: Final = re.compile(
    r"<(system-reminder|environment_context|user_instructions|command-message)>.*?</\1>", re.DOTALL
)
#: A tag around the task, such as <pr_description>.
_OPENING_TAG: Final = re.compile(r"\A<[a-z]+[_-][a-z_-]+>\s*")
#: How a recording agent, or its provider, condensed the context: older turns gave way to a summary, or left; results
#: were cleared and their turns stayed; or the recording does not say how.
CompactionKind = Literal["summary", "cleared", "unknown"]


class Compaction(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The recording agent itself rewrote its context before call `before` (1-based).

    kept_from: the first turn that stayed; None where the recording does not say. usage: of the call that wrote the
    summary, where it is recorded.
    """

    before: int
    summary: str = ""
    tokens_before: int | None = None
    kind: CompactionKind = "summary"
    kept_from: int | None = None
    usage: Usage | None = None


class PromptChange(msgspec.Struct, frozen=True, kw_only=True):
    """Before call `before` (1-based) something was changed that is no turn, and that the cache goes by.

    what: as a report calls it: "the tools", "the thinking level".
    """

    before: int
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something in a file that could not be read; the rest was loaded.

    line: 1-based line, record or step number; None where the file has no such thing.
    kind: "input" if the file is at fault, "bug" if a reader of ours is; commands then exit with a code of their own.
    """

    file: str
    line: int | None
    reason: str
    kind: Literal["input", "bug"] = "input"

    def __str__(self) -> str:
        if self.line is None:
            place = self.file
        else:
            place = f"{self.file}:{self.line}"
        return f"{place}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """One run of one agent.

    id:          unique within its file, readable ("airline-13", "main", "sidechain a1b2c3").
    file:        where it was read from, as the user named it; "" if live.
    format:      the reader's name ("swe-agent", "claude-code", ...); "" if live.
    model:       the model that ran it, as recorded; the most frequent where there were several.
    parent:      id of the trajectory that started it (a sub-agent's), if known.
    compactions: where the recording agent rewrote its own context.
    observations: whether its observations came as tool results or, in a text protocol, as user messages.
    changes:     of settings, system prompt and tools, as far as the recording states them.
    recorded_window: how many observations the recording agent itself kept visible (1 ... ), None if all.
    usd:         what the whole run cost, as the recording states it beside its calls; None if it states nothing.
    role:        of its agent, as the recording states it; "" if it states nothing.
    """

    id: str
    head: Head
    turns: tuple[Turn, ...]
    file: str = ""
    format: str = ""
    model: str = ""
    parent: str | None = None
    compactions: tuple[Compaction, ...] = ()
    changes: tuple[PromptChange, ...] = ()
    recorded_window: int | None = None
    observations: Literal["tools", "user"] = "tools"
    usd: float | None = None
    role: SaidRole = ""

    def __post_init__(self) -> None:
        for expected, turn in enumerate(self.turns, start=1):
            if turn.index != expected:
                raise ValueError(f"trajectory {self.id!r}: turn {turn.index} stands where turn {expected} belongs")

    @property
    def tool_turns(self) -> int:
        """Turns with at least one answered call."""
        return sum(turn.is_finished for turn in self.turns)


def _iterate_strings(value: Any, depth: int = 0) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            if depth < _DEEPEST:
                yield from _iterate_strings(inner, depth + 1)
    elif value is not None and not isinstance(value, bool):
        yield str(value)


def join_argument_text(action: Action) -> str:
    """Return the decoded arguments of `action`, a value a line; unchanged if they are no JSON object."""
    decoded = action.decoded_arguments
    if decoded:
        return "\n".join(_iterate_strings(dict(decoded)))
    return action.arguments


def join_assistant_text(turn: Turn) -> str:
    """Return everything that the agent wrote in `turn`, decoded; implicit actions are in the text already."""
    calls = (join_argument_text(action) for action in turn.actions if not action.implicit)
    return "\n".join(filter(None, (turn.reasoning, turn.text, *calls)))


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


def find_task(head: Head) -> str:
    """Return the beginning of the first user message in one line, without blocks of the client; "" for none.

    Nothing in it acts on a terminal.
    """
    for message in head.messages:
        if message.role == "user":
            text = _CLIENT_BLOCKS.sub(" ", message.text[:_MAX_SEARCHED]).strip()
            line = " ".join(escape_controls(_OPENING_TAG.sub("", text, count=1)).split())
            if line:
                return line if len(line) <= MAX_TASK_CHARS else f"{line[: MAX_TASK_CHARS - 1]}…"
    return ""


def read_task(events: Iterable[Event]) -> str:
    """Return the task of a log from its first records; "" if they have none."""
    for event in islice(events, _FIRST_RECORDS):
        if isinstance(event, HeadSet):
            return find_task(event.head)
    return ""
