"""A client's messages as a head and turns, read as they come; where each stands is kept beside it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from elision.dialects.live.pieces import Piece, Spot
from elision.trajectory.draft import OPENING, Draft, opening
from elision.trajectory.text_protocol import Observations, decide
from elision.trajectory.turn import Action, Message, Observation, Turn
from elision.trajectory.usage import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where the parts of a turn stand in the client's messages."""

    said: tuple[Spot, ...]
    observations: tuple[Spot, ...]
    interjections: tuple[Spot, ...]


@dataclass(slots=True)
class _Live:
    """A turn that still grows, and where it came from. first: the message that it begins with."""

    first: int
    draft: Draft = field(default_factory=Draft)
    said: list[Spot] = field(default_factory=list)
    results: list[Spot] = field(default_factory=list)
    users: list[Spot] = field(default_factory=list)
    #: Ids given to calls that came without one, in order: results without an id answer them.
    unnamed: deque[str] = field(default_factory=deque)


class Conversation:
    """What was read so far. runs: whether assistant messages one behind the other are one turn.

    observations: which messages are observations; `auto` is settled as turns are asked for.
    """

    def __init__(self, *, runs: bool = False, observations: Observations = "auto", tools: bool = False) -> None:
        self.runs = runs
        self.observations: Observations = observations
        self.tools = tools
        self.head: list[Message] = []
        self.head_spots: list[Spot] = []
        self._live: list[_Live] = []

    @property
    def turns(self) -> int:
        return len(self._live)

    def first(self, index: int) -> int:
        """The message that turn `index` (1-based) begins with."""
        return self._live[index - 1].first

    def answered(self, index: int) -> int:
        """The first message behind what the assistant said in turn `index`."""
        return self._live[index - 1].said[-1].place + 1

    def read(self, pieces: Iterable[Piece]) -> None:
        """The pieces of the next message."""
        for piece in pieces:
            match piece.kind:
                case "assistant":
                    self._assistant(piece)
                case "result":
                    self._result(piece)
                case _:
                    self._message(piece)

    def reword(self, pieces: Iterable[Piece]) -> None:
        """Take the words of system messages of the head as they are now."""
        for piece in pieces:
            if piece.kind == "system" and piece.spot in self.head_spots:
                self.head[self.head_spots.index(piece.spot)] = Message(role=piece.role, content=piece.words)

    def cut(self, turns: int) -> None:
        """Forget all but the first `turns` turns."""
        del self._live[turns:]

    def tell(self, index: int, *, usage: Usage | None, at: float | None, model: str) -> None:
        """What is known of the call that turn `index` answers."""
        draft = self._live[index - 1].draft
        draft.usage = usage
        draft.at = at
        draft.model = model

    def turn(self, index: int) -> tuple[Turn, Sources]:
        """Turn `index` as it stands, and where its parts come from."""
        live = self._live[index - 1]
        turn = live.draft.turn(index, self.settle())
        kept = {id(message) for message in turn.interjections}
        users = list(zip(live.draft.users, live.users, strict=True))
        answers = [spot for message, spot in users if id(message) not in kept]
        return turn, Sources(
            said=tuple(live.said),
            observations=tuple(live.results or answers[: len(turn.observations)]),
            interjections=tuple(spot for message, spot in users if id(message) in kept),
        )

    def settle(self) -> Literal["tools", "user"]:
        """Which messages are observations; settled by the first action, or by the opening where that holds none."""
        if self.observations != "auto":
            return self.observations
        drafts = [live.draft for live in self._live]
        seen = self.tools or any(draft.results or draft.actions for draft in drafts)
        if drafts:
            found = decide(opening(drafts), has_tools=seen)
        else:
            found = "tools"
        # A greeting settles nothing: it reads the same either way.
        if found == "user" or seen or len(drafts) > OPENING:
            self.observations = found
        return found

    # -- pieces --------------------------------------------------------------------------------------------------

    def _assistant(self, piece: Piece) -> None:
        assert piece.said is not None
        if self._live and self.runs and self._open(self._live[-1]):
            live = self._live[-1]
        else:
            live = None
        if live is None:
            live = _Live(piece.spot.place)
            self._live.append(live)
        said = piece.said
        draft = live.draft
        known = {action.id for action in draft.actions}
        draft.content += said.content
        draft.reasoning = "\n".join(filter(None, (draft.reasoning, said.reasoning)))
        draft.actions += tuple(self._named(live, said.actions, known))
        live.said.append(piece.spot)

    def _open(self, live: _Live) -> bool:
        return not live.results and not live.users

    def _named(self, live: _Live, actions: Sequence[Action], known: set[str]) -> Iterable[Action]:
        """Calls with ids that are unique within the turn; of two under one id the first stands for both."""
        for action in actions:
            if not action.id:
                action = replace(action, id=f"call_{len(self._live)}_{len(known) + 1}")
                live.unnamed.append(action.id)
            if action.id not in known:
                known.add(action.id)
                yield action

    def _result(self, piece: Piece) -> None:
        """A result of the newest turn's calls. Any other (its call is gone, or long past) passes as it came."""
        result = piece.result
        live = self._live[-1] if self._live else None
        assert result is not None
        if live is None or live.users:
            self._aside(piece)
            return
        id = result.action_id or (live.unnamed.popleft() if live.unnamed else "")
        action = next((action for action in live.draft.actions if action.id == id), None)
        if action is None or any(known.action_id == id for known in live.draft.results):
            self._aside(piece)
            return
        live.draft.results.append(
            Observation(
                action_id=id,
                tool=result.tool or action.name,
                content=result.content,
                error=result.error,
                tags=result.tags,
            )
        )
        live.results.append(piece.spot)

    def _aside(self, piece: Piece) -> None:
        assert piece.result is not None
        self._put(Message(role="user", content=piece.result.content), piece.spot)

    def _message(self, piece: Piece) -> None:
        self._put(Message(role=piece.role, content=piece.words, pinned=piece.pinned), piece.spot)

    def _put(self, message: Message, spot: Spot) -> None:
        if self._live:
            self._live[-1].draft.users.append(message)
            self._live[-1].users.append(spot)
        else:
            self.head.append(message)
            self.head_spots.append(spot)
