"""A recorded run as a provider would have answered it: which turn follows a history, and under which call ids.

The assistant's words identify a history, not its length. So a client that masks, summarizes, undoes or forks gets the
turn after its newest words, and a retry gets the same turn again. By its words a request also finds its run among many.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from elision.providers.shared.json_reading import AssistantMessage
from elision.testing.parsed_request import ParsedRequest
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.turn import Action, Turn, join_text, make_content

#: Served where a recorded turn has neither words nor calls (an aborted answer): providers take no empty message back.
SILENT_TEXT = "[The recording is silent here.]"
#: Served after the last recorded turn.
ENDING_TEXT = "[The recording ends here.]"

_FORBIDDEN = re.compile(r"[^a-zA-Z0-9_-]")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedReply:
    """One assistant message as it is served.

    turn:   the recorded turn; None after the last one.
    number: its index, or one more than the last.
    calls:  its calls with ids that are unique in the run and have only letters that every provider takes.
    """

    number: int
    text: str
    reasoning: str = ""
    calls: tuple[Action, ...] = ()
    turn: Turn | None = None


class RecordedRun:
    """One run, ready to be served.

    run: any trajectory. Opaque parts of assistant messages (sealed reasoning, images) are not served.
    """

    def __init__(self, run: Trajectory) -> None:
        self.run = run
        self._used_ids: set[str] = set()
        self.replies = tuple(self._build_reply(turn) for turn in run.turns)
        self._by_id = {call.id: reply.number for reply in self.replies for call in reply.calls}
        self._by_text: dict[str, list[int]] = {}
        for reply in self.replies:
            if not reply.calls:
                self._by_text.setdefault(reply.text.strip(), []).append(reply.number)

    @property
    def task(self) -> str:
        """Return the first user message of the run; "" if there is none."""
        for message in self.run.head.messages:
            if message.role == "user":
                return message.text
        return ""

    def get_reply(self, number: int) -> RecordedReply:
        """Return the answer of turn `number`; after the last turn the words `ENDING_TEXT`."""
        if number <= len(self.replies):
            return self.replies[number - 1]
        return RecordedReply(number=len(self.replies) + 1, text=ENDING_TEXT)

    def find_turn(self, call_id: str) -> int | None:
        """Return the turn that made the call served as `call_id`."""
        return self._by_id.get(call_id)

    def find_next_turn(self, messages: Sequence[AssistantMessage]) -> int | None:
        """Return the turn that follows assistant messages `messages`; None if none of them is of this run.

        Messages of other runs (another tool's rounds, for example) are passed over.
        """
        if not messages:
            return 1
        place: int | None = None
        for spoken in messages:
            place = self._find_spoken_turn(spoken, place or 0) or place
        if place is None:
            return None
        return place + 1

    def _find_spoken_turn(self, message: AssistantMessage, after_turn: int) -> int | None:
        """Return the turn that said `message`: the first after turn `after_turn` if several did."""
        if message.actions:
            turns = [self._by_id[call.id] for call in message.actions if call.id in self._by_id]
            return turns[0] if turns else None
        # Clients may have changed the white space around it.
        numbers = self._by_text.get(join_text(message.content).strip(), [])
        for number in numbers:
            if number > after_turn:
                return number
        return numbers[-1] if numbers else None

    def _build_reply(self, turn: Turn) -> RecordedReply:
        calls = tuple(self._name_calls(turn))
        return RecordedReply(
            number=turn.index,
            text=turn.text if turn.text.strip() or calls else SILENT_TEXT,
            reasoning=turn.reasoning,
            calls=calls,
            turn=turn,
        )

    def _name_calls(self, turn: Turn) -> Iterable[Action]:
        for position, action in enumerate(turn.actions, start=1):
            if not action.implicit:
                name = _FORBIDDEN.sub("_", action.name) or "unknown"
                yield Action(id=self._assign_id(turn.index, position, action.id), name=name, arguments=action.arguments)

    def _assign_id(self, turn: int, position: int, recorded: str) -> str:
        id = _FORBIDDEN.sub("_", recorded) or f"call_{turn}_{position}"
        while id in self._used_ids:
            id = f"{id}_{turn}_{position}"
        self._used_ids.add(id)
        return id


def make_assistant_message(text: str, *calls: Action) -> AssistantMessage:
    """Make an assistant message of that text and those calls."""
    return AssistantMessage(content=make_content(text), actions=calls)


#: How a model name begins that names a run: "run:airline-13".
RUN_PREFIX = "run:"


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchedReply:
    """The run that a request belongs to, and what answers it."""

    recorded: RecordedRun
    reply: RecordedReply


class RunIndex:
    """Recorded runs by name. Two runs with one id differ only by what was said in them."""

    def __init__(self, runs: Iterable[Trajectory]) -> None:
        self.recorded = [RecordedRun(run) for run in runs]
        if not self.recorded:
            raise ValueError("a playback server needs at least one run")

    @property
    def names(self) -> list[str]:
        """Return what a client may ask for as its model, each once, in the order given."""
        return list(dict.fromkeys(f"{RUN_PREFIX}{each.run.id}" for each in self.recorded))

    def find_reply(self, request: ParsedRequest) -> MatchedReply | None:
        """Find the reply to a request: by the run that the model names, else by history, task and recorded model.

        None if no run fits. A run that is named but does not have the history fits none.
        """
        candidates = self.recorded
        if request.model.startswith(RUN_PREFIX):
            candidates = [each for each in candidates if f"{RUN_PREFIX}{each.run.id}" == request.model]
        placed = [(each, each.find_next_turn(request.assistant_messages)) for each in candidates]
        fitting = [(each, number) for each, number in placed if number is not None]
        if not fitting:
            return None
        recorded, number = min(fitting, key=lambda pair: self._measure_distance(pair[0], request))
        return MatchedReply(recorded=recorded, reply=recorded.get_reply(number))

    def _measure_distance(self, recorded: RecordedRun, request: ParsedRequest) -> tuple[bool, bool, bool]:
        """Return how badly a run fits apart from its history; less is better."""
        task = recorded.task.strip()
        same = any(text.strip() == task for text in request.user_texts)
        return (
            not same,
            not any(task and task in text for text in request.user_texts),
            recorded.run.model != request.model,
        )
