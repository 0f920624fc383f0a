"""A recorded run as a provider would have said it: which turn answers a history, and under which call ids.

A history is told by what the assistant said in it, not by its length: a client that masks, summarizes, undoes or forks
is still answered with the turn that belongs behind its newest words, and a retry with the same turn again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from elision.dialects import Said
from elision.trajectory.content import content, text_of
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.turn import Action, Turn

#: Served where a recorded turn has neither words nor calls (an aborted answer): providers take no empty message back.
SILENT = "[The recording is silent here.]"
#: Served behind the last recorded turn.
ENDING = "[The recording ends here.]"

_FORBIDDEN = re.compile(r"[^a-zA-Z0-9_-]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One assistant message as it is served.

    turn:   the recorded turn; None behind the last one.
    number: its index, or one more than the last.
    calls:  its calls with ids that are unique in the run and have only letters that every provider takes.
    """

    number: int
    text: str
    reasoning: str = ""
    calls: tuple[Action, ...] = ()
    turn: Turn | None = None


class Recorded:
    """One run, ready to be served.

    run: any trajectory. Opaque parts of assistant messages (sealed reasoning, images) are not served.
    """

    def __init__(self, run: Trajectory) -> None:
        self.run = run
        self._taken: set[str] = set()
        self.replies = tuple(self._reply(turn) for turn in run.turns)
        self._by_id = {call.id: reply.number for reply in self.replies for call in reply.calls}
        self._by_text: dict[str, list[int]] = {}
        for reply in self.replies:
            if not reply.calls:
                self._by_text.setdefault(_plain(reply.text), []).append(reply.number)

    @property
    def task(self) -> str:
        """What the first user message of the run says; "" if there is none."""
        return next((message.text for message in self.run.head.messages if message.role == "user"), "")

    def reply(self, number: int) -> Reply:
        """The answer of turn `number`; behind the last turn the words `ENDING`."""
        if number <= len(self.replies):
            return self.replies[number - 1]
        return Reply(number=len(self.replies) + 1, text=ENDING)

    def turn_of(self, call_id: str) -> int | None:
        """The turn that made the call served as `call_id`."""
        return self._by_id.get(call_id)

    def following(self, said: Sequence[Said]) -> int | None:
        """The turn that answers a history in which the assistant said `said`; None if none of it is of this run.

        Messages that are not of this run (another tool's rounds, say) are passed over.
        """
        if not said:
            return 1
        place: int | None = None
        for spoken in said:
            place = self._place(spoken, place or 0) or place
        if place is None:
            return None
        return place + 1

    def _place(self, spoken: Said, behind: int) -> int | None:
        """The turn in which `spoken` was said: the first behind turn `behind` if it was said several times."""
        if spoken.actions:
            return next((self._by_id[call.id] for call in spoken.actions if call.id in self._by_id), None)
        numbers = self._by_text.get(_plain(text_of(spoken.content)), ())
        return next((number for number in numbers if number > behind), numbers[-1] if numbers else None)

    def _reply(self, turn: Turn) -> Reply:
        calls = tuple(self._calls(turn))
        return Reply(
            number=turn.index,
            text=turn.text if turn.text.strip() or calls else SILENT,
            reasoning=turn.reasoning,
            calls=calls,
            turn=turn,
        )

    def _calls(self, turn: Turn) -> Iterable[Action]:
        for position, action in enumerate(turn.actions, start=1):
            if not action.implicit:
                name = _FORBIDDEN.sub("_", action.name) or "unknown"
                yield Action(id=self._id(turn.index, position, action.id), name=name, arguments=action.arguments)

    def _id(self, turn: int, position: int, recorded: str) -> str:
        id = _FORBIDDEN.sub("_", recorded) or f"call_{turn}_{position}"
        while id in self._taken:
            id = f"{id}_{turn}_{position}"
        self._taken.add(id)
        return id


def _plain(text: str) -> str:
    """`text` as clients may have changed it on the way: without white space around it."""
    return text.strip()


def spoken(text: str, *calls: Action) -> Said:
    """An assistant message of that text and those calls."""
    return Said(content=content(text), actions=calls)
