"""Read a stored session as a trajectory, so that it can be replayed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from msgspec.structs import replace

from elision.errors import FormatError
from elision.stores.store import Store
from elision.trajectory.events import Event, HeadSet, PassDecided, RequestSent, SessionOpened, UsageReported
from elision.trajectory.run_roles import SaidRole, find_run_role
from elision.trajectory.trajectory import Compaction, PromptChange, Trajectory
from elision.trajectory.turn import Head, Turn
from elision.trajectory.usage import Usage


def load_stored_session(store: Store, key: str) -> Trajectory:
    """Load the run of session `key`: its raw turns as they are now, under its newest head.

    Turns get usage, times and models from the session's calls; summaries become compactions. Raises UnknownHandle,
    StoreError; FormatError if turns are missing.
    """
    info = store.info(key)
    facts = _read_log(store.events(key))
    turns = tuple(facts.complete_turn(turn) for turn in store.turns(key))
    models = Counter(turn.model for turn in turns if turn.model)
    results = {observation.role for turn in turns for observation in turn.observations}
    try:
        return Trajectory(
            id=key,
            head=facts.head,
            turns=turns,
            model=models.most_common(1)[0][0] if models else "",
            parent=info.parent or None,
            compactions=tuple(facts.compactions),
            changes=tuple(facts.changes),
            observations="user" if results == {"user"} else "tools",
            role=find_run_role(facts.head, turns, is_started=info.relation == "sub-agent", said=facts.role),
        )
    except ValueError as error:
        raise FormatError(f"session {key!r} is not a complete run: {error}") from error


@dataclass(slots=True)
class _LogFacts:
    """What a log says beside its turns."""

    head: Head = field(default_factory=Head)
    calls: dict[int, RequestSent] = field(default_factory=dict)
    usage: dict[int, Usage] = field(default_factory=dict)
    compactions: list[Compaction] = field(default_factory=list)
    changes: list[PromptChange] = field(default_factory=list)
    role: SaidRole = ""

    def note_head(self, head: Head) -> None:
        """Take the head of the next call, and note what of it is another one than at the call before."""
        if self.calls:
            before = max(self.calls) + 1
            if head.tools != self.head.tools:
                self.changes.append(PromptChange(before=before, what="the tools"))
            if head.messages[: len(self.head.messages)] != self.head.messages:
                self.changes.append(PromptChange(before=before, what="the system prompt or the task"))
        self.head = head

    def complete_turn(self, turn: Turn) -> Turn:
        """Return `turn` with what is known of the call that it answers."""
        turn = replace(turn, usage=turn.usage or self.usage.get(turn.index))
        call = self.calls.get(turn.index)
        if call is None:
            return turn
        at = call.at if turn.at is None else turn.at
        return replace(turn, at=at, model=turn.model or call.model)


def _read_log(events: Iterable[Event]) -> _LogFacts:
    facts = _LogFacts()
    for event in events:
        match event:
            case SessionOpened():
                facts.role = facts.role or event.role
            case HeadSet():
                facts.note_head(event.head)
            case RequestSent():
                facts.calls[event.call] = event
            case UsageReported():
                facts.usage[event.call] = event.usage
            case PassDecided() if event.summary is not None:
                facts.compactions.append(Compaction(before=event.call, summary=event.summary.text))
    return facts
