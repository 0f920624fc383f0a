"""A client's conversation: its messages, the names of the histories that they form, and the head and turns in it.

Gateway and library both use it. Messages are read one by one, and the place of each part is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from elision.providers.live.client_messages import (
    LiveDialect,
    Location,
    ParsedMessage,
    Piece,
    chain_digest,
    digest_pieces,
)
from elision.providers.shared.json_reading import ToolResult, join_lines
from elision.trajectory.turn import (
    OPENING_TURNS,
    Action,
    Message,
    Observation,
    ObservationRole,
    Turn,
    TurnBuilder,
    choose_observation_role,
    find_opening_text,
)
from elision.trajectory.usage import Usage


class Conversation:
    """The messages that were read, and for each the name of the history that ends with it.

    A name is made of what the messages say, so moved cache markers, new ids and other white space do not change it.

    seed: begins every name, so that clients with different seeds share none.
    """

    def __init__(self, dialect: LiveDialect, seed: bytes) -> None:
        self.dialect = dialect
        self.seed = seed
        self.messages: list[ParsedMessage] = []
        self.nodes: list[bytes] = []
        #: Index of the assistant's first message.
        self._first_answer: int | None = None

    @classmethod
    def for_family(cls, dialect: LiveDialect, family: str) -> Conversation:
        """Return an empty conversation, which has the same names as every other of that family."""
        return Conversation(dialect, family.encode("utf-8", "surrogatepass"))

    def __len__(self) -> int:
        return len(self.messages)

    def copy(self) -> Conversation:
        """Return a copy, for another thread or for a request under way."""
        copied = Conversation(self.dialect, self.seed)
        copied.messages = self.messages.copy()
        copied.nodes = self.nodes.copy()
        copied._first_answer = self._first_answer
        return copied

    @property
    def node(self) -> bytes:
        """Return the name of the whole history."""
        return self.nodes[-1] if self.nodes else self.seed

    @property
    def has_answers(self) -> bool:
        """Return whether it has a message of the assistant."""
        return self._first_answer is not None

    @property
    def head_length(self) -> int:
        """Return how many messages come before the assistant's first."""
        return len(self) if self._first_answer is None else self._first_answer

    @property
    def newest_answer_index(self) -> int:
        """Return the index of the assistant's newest message; -1 if there is none."""
        return next((place for place in range(len(self) - 1, -1, -1) if self.messages[place].is_from_assistant), -1)

    def append_message(self, message: ParsedMessage) -> None:
        """Add the next message."""
        place = len(self)
        digest = self.choose_digest(message, place)
        self.nodes.append(chain_digest(self.node, digest))
        self.messages.append(message)
        if message.is_from_assistant and self._first_answer is None:
            self._first_answer = place

    def drop_messages(self, first: int) -> None:
        """Remove the messages from index `first` on."""
        del self.messages[first:], self.nodes[first:]
        if self._first_answer is not None and self._first_answer >= first:
            self._first_answer = None

    def choose_digest(self, message: ParsedMessage, place: int) -> bytes:
        """Return the digest that `message` has as message `place`."""
        if self._first_answer is None or place <= self._first_answer:
            return message.opening_digest
        return message.digest

    def get_digest(self, place: int) -> bytes:
        """Return the digest of message `place`; b"" where it has no content."""
        return self.choose_digest(self.messages[place], place)

    def collect_digests(self, first: int = 0, end: int | None = None) -> set[bytes]:
        """Return the digests of the messages from `first` to `end`. Messages without content have none."""
        digests = {self.get_digest(place) for place in range(len(self))[first:end]}
        digests.discard(b"")
        return digests

    def count_answers_from(self, first: int) -> int:
        """Count the assistant's answers from message `first` on; its messages in a row are one answer."""
        spoken = [message.is_from_assistant for message in self.messages[max(first - 1, 0) :]]
        before = spoken.pop(0) if first else False
        return sum(now and not then for then, now in zip([before, *spoken], spoken, strict=False))

    def name_continuation(self, messages: Sequence[dict[str, Any]]) -> bytes:
        """Return the name of this history with `messages` after it."""
        node = self.node
        for place, message in enumerate(messages, start=len(self)):
            digest = digest_pieces(self.dialect.split_message(message, place), is_behind_head=True)
            node = chain_digest(node, digest)
        return node


def count_answers(spoken: Sequence[bool]) -> int:
    """Count the assistant's answers; its messages in a row are one answer."""
    return sum(now and not before for before, now in zip([False, *spoken], spoken, strict=False))


class TurnSources(msgspec.Struct, frozen=True, kw_only=True):
    """Where the parts of a turn are in the client's messages."""

    assistant: tuple[Location, ...]
    observations: tuple[Location, ...]
    interjections: tuple[Location, ...]


@dataclass(slots=True)
class _GrowingTurn:
    """A turn that still grows, and where it came from. first_message: the message that it begins with."""

    first_message: int
    draft: TurnBuilder = field(default_factory=TurnBuilder)
    assistant: tuple[Location, ...] = ()
    results: tuple[Location, ...] = ()
    users: tuple[Location, ...] = ()
    #: Whether words came after its results: a result after them answers no call of it.
    has_words: bool = False
    #: Ids given to calls that came without one, in order: results without an id answer them.
    unnamed: tuple[str, ...] = ()


class LiveTurns:
    """What was read so far. joins_assistant_messages: whether adjacent assistant messages are one turn.

    observations: which messages are observations; `auto` is settled as turns are asked for.
    """

    def __init__(
        self, *, joins_assistant_messages: bool = False, observations: ObservationRole = "auto", has_tools: bool = False
    ) -> None:
        self.joins_assistant_messages = joins_assistant_messages
        self.observations: ObservationRole = observations
        self.has_tools = has_tools
        self.head: list[Message] = []
        self.head_locations: list[Location] = []
        self._growing: list[_GrowingTurn] = []

    @property
    def turn_count(self) -> int:
        return len(self._growing)

    def find_first_message(self, index: int) -> int:
        """Return the message that turn `index` (1-based) begins with."""
        return self._growing[index - 1].first_message

    def find_answer_end(self, index: int) -> int:
        """Return the first message after the assistant's part of turn `index`."""
        return self._growing[index - 1].assistant[-1].message + 1

    def add_pieces(self, pieces: Iterable[Piece]) -> None:
        """Add the pieces of the next message."""
        for piece in pieces:
            match piece.kind:
                case "assistant":
                    self._add_assistant(piece)
                case "result":
                    self._add_result(piece)
                case _:
                    self._add_message(piece)

    def update_system(self, pieces: Iterable[Piece]) -> None:
        """Replace system messages of the head by `pieces`, which have their current words."""
        for piece in pieces:
            if piece.kind == "system" and piece.location in self.head_locations:
                self.head[self.head_locations.index(piece.location)] = Message(role=piece.role, content=piece.words)

    def skip_turns(self, count: int, first_message: int) -> None:
        """Begin with turn `count` + 1, which will begin with message `first_message`; those before are not known."""
        self._growing = [_GrowingTurn(first_message) for _ in range(count)]

    def truncate(self, turns: int) -> None:
        """Forget all but the first `turns` turns."""
        del self._growing[turns:]

    def set_call_facts(self, index: int, *, usage: Usage | None, at: float | None, model: str) -> None:
        """Set what is known of the call that turn `index` answers. at: seconds since the epoch."""
        draft = self._growing[index - 1].draft
        draft.usage = usage
        draft.at = at
        draft.model = model

    def build_turn(self, index: int) -> tuple[Turn, TurnSources]:
        """Return turn `index` as it is now, and where its parts come from."""
        live = self._growing[index - 1]
        role = self.observations if self.observations != "auto" else self.settle_observations()
        turn = live.draft.build_turn(index, role)
        kept = {id(message) for message in turn.interjections}
        users = list(zip(live.draft.users, live.users, strict=True))
        answers = [spot for message, spot in users if id(message) not in kept]
        return turn, TurnSources(
            assistant=live.assistant,
            observations=(live.results + tuple(answers))[: len(turn.observations)],
            interjections=tuple(spot for message, spot in users if id(message) in kept),
        )

    def adopt_tags(self, turn: Turn) -> None:
        """Give the parts of a turn that was read before the tags that they had then: the first ones hold."""
        draft = self._growing[turn.index - 1].draft
        if not (draft.tags or draft.call_tags or draft.user_tags or any(each.tags for each in turn.observations)):
            return
        by_tools = [each for each in turn.observations if each.role == "tool"]
        draft.results = tuple(
            replace(result, tags=by_tools[place].tags if place < len(by_tools) else result.tags)
            for place, result in enumerate(draft.results)
        )
        answered = {each.action_id for each in by_tools}
        nothing: frozenset[str] = frozenset()
        draft.call_tags = {
            action.id: draft.tags | draft.call_tags.get(action.id, nothing)
            for action in draft.actions
            if action.id not in answered
        }
        if turn.observations:
            draft.tags = nothing
        draft.user_tags = _adopt_user_tags(draft, turn)

    def settle_observations(self) -> Literal["tools", "user"]:
        """Decide which messages are observations: by the first action, or by the opening if that holds none."""
        if self.observations != "auto":
            return self.observations
        drafts = [live.draft for live in self._growing]
        seen = self.has_tools or any(draft.results or draft.actions for draft in drafts)
        if drafts:
            found = choose_observation_role(find_opening_text(drafts), has_tools=seen)
        else:
            found = "tools"
        # A greeting settles nothing: it reads the same either way.
        if found == "user" or seen or len(drafts) > OPENING_TURNS:
            self.observations = found
        return found

    # -- pieces --------------------------------------------------------------------------------------------------

    def _add_assistant(self, piece: Piece) -> None:
        assert piece.assistant is not None
        if self._growing and self.joins_assistant_messages and self._is_open(self._growing[-1]):
            live = self._growing[-1]
        else:
            live = None
        if live is None:
            live = _GrowingTurn(piece.location.message)
            self._growing.append(live)
        said = piece.assistant
        draft = live.draft
        known = {action.id for action in draft.actions}
        draft.content += said.content
        draft.reasoning = join_lines((draft.reasoning, said.reasoning))
        actions = tuple(self._name_calls(live, said.actions, known))
        draft.actions += actions
        if piece.tags or piece.call_tags:
            draft.add_tags(piece.tags, actions, dict(piece.call_tags))
        live.assistant += (piece.location,)

    def _is_open(self, live: _GrowingTurn) -> bool:
        # A turn that was skipped has nothing.
        return bool(live.assistant) and not live.results and not live.users

    def _name_calls(self, live: _GrowingTurn, actions: Sequence[Action], known: set[str]) -> Iterable[Action]:
        """Give calls unique ids within the turn. Of two calls with one id, the first stands for both.

        An id that is the tool's name is none: an API without ids has it for each call of the tool.
        """
        for action in actions:
            if not action.id or (action.id == action.name and action.id in known):
                action = replace(action, id=f"call_{len(self._growing)}_{len(known) + 1}")
                live.unnamed += (action.id,)
            if action.id not in known:
                known.add(action.id)
                yield action

    def _add_result(self, piece: Piece) -> None:
        """Add a result of the newest turn's calls. Any other (its call is gone or old) is kept as the user's words."""
        result = piece.result
        live = self._growing[-1] if self._growing else None
        assert result is not None
        action = None if live is None or live.has_words else _find_answered_call(live, result)
        if live is None or action is None:
            self._append_message(Message(role="user", content=result.content), piece)
            return
        live.draft.results += (
            Observation(
                action_id=action.id,
                tool=result.tool or action.name,
                content=result.content,
                error=result.error,
                tags=result.tags | piece.tags,
            ),
        )
        live.results += (piece.location,)

    def _add_message(self, piece: Piece) -> None:
        if self._growing:
            self._growing[-1].has_words = True
        self._append_message(Message(role=piece.role, content=piece.words, pinned=piece.is_pinned), piece)

    def _append_message(self, message: Message, piece: Piece) -> None:
        if self._growing:
            draft = self._growing[-1].draft
            # A stray result is no answer to a call, and stays as it is.
            if piece.tags and piece.kind == "user":
                draft.user_tags = {**draft.user_tags, len(draft.users): piece.tags}
            draft.users += (message,)
            self._growing[-1].users += (piece.location,)
        else:
            self.head.append(message)
            self.head_locations.append(piece.location)


def _find_answered_call(live: _GrowingTurn, result: ToolResult) -> Action | None:
    """Return the call of the turn that `result` answers: the one of its id.

    Without an id it is the first call that no result answers: of those without an id, and of those of its tool, where
    there are any. APIs and recorders that have no ids repeat the tool's name in its place.
    """
    answered = {known.action_id for known in live.draft.results}
    waiting = [action for action in live.draft.actions if action.id not in answered]
    for action in waiting:
        if action.id == result.action_id:
            return action
    if result.action_id not in ("", result.tool):
        return None
    candidates = [action for action in waiting if action.id in live.unnamed] or waiting
    of_tool = [action for action in candidates if action.name == result.tool]
    return next(iter(of_tool or candidates), None)


def _adopt_user_tags(draft: TurnBuilder, turn: Turn) -> dict[int, frozenset[str]]:
    """Return the tags of the user's messages in `draft`: those that they had in `turn`, and of later ones their own."""
    by_user = [each.tags for each in turn.observations if each.role == "user"]
    places = [place for place, message in enumerate(draft.users) if message.role == "user"]
    known = len(by_user) + len(turn.interjections)
    added = {place: tags for place, tags in draft.user_tags.items() if place >= known}
    return added | dict(zip(places, by_user, strict=False))
