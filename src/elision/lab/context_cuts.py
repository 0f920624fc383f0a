"""Where a recording agent condensed its own history, and what it sent from there on.

From a cut on, a request is the head, what stands for the dropped turns, and the newest turns. Where the bill of that
call is recorded, the prompt tells how many turns stayed: the recording's own word on it is taken where it agrees with
the prompt, else as many are kept as there was room for. What stands for the others has what is left of the prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, Literal, TypeAlias

from elision.trajectory.content import make_content
from elision.trajectory.trajectory import Compaction, Trajectory
from elision.trajectory.turn import Message, Turn

#: A billed prompt below this share of the one before it was cut: no agent forgets a tenth of its context by accident.
DROP: Final = 0.9
#: What stands for dropped turns where nothing of it is recorded.
NO_WORDS: Final = "(turns that the recording agent no longer sent)"
#: The recording's word on what stayed agrees with the prompt if this leaves so many times the summary's own length.
NEAR_LENGTH: Final = (0.5, 2.0)
#: Tokens of framing, and of first turns that some agents keep in front of the summary.
FRAME_TOKENS: Final = 1_000

#: How we know of a cut: the recording says so, or its billed prompt fell.
CutSource: TypeAlias = Literal["recorded", "inferred"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextCut:
    """The request of call `before` has turns 1 ... `through` no longer, and `words` in their place.

    tokens: of `words`, by the billed prompt; None where it is not recorded.
    """

    before: int
    through: int
    words: Message
    source: CutSource
    tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextCuts:
    """The cuts of one run. unclear: calls at which it was condensed, but nothing says what stayed."""

    cuts: tuple[ContextCut, ...] = ()
    unclear: tuple[Compaction, ...] = ()


def find_cuts(run: Trajectory, count_turn: Callable[[Turn], int], count_head: Callable[[], int]) -> ContextCuts:
    """Return where `run` was cut. count_turn, count_head: tokens on the scale of the recorded model."""
    recorded = {compaction.before: compaction for compaction in run.compactions}
    inferred = _list_falls(run)
    if not recorded and not inferred:
        return ContextCuts()
    ends = [0, *accumulate(map(count_turn, run.turns))]
    first = run.turns[0].usage
    head = first.prompt if first is not None and first.prompt else count_head()
    cuts: list[ContextCut] = []
    unclear: list[Compaction] = []
    dropped = 0
    for turn in run.turns[1:]:
        compaction = recorded.get(turn.index)
        if compaction is None and turn.index not in inferred:
            continue
        prompt = turn.usage.prompt if turn.usage is not None else 0
        noted = compaction or Compaction(before=turn.index, kind="unknown")
        words = Message(role="user", content=make_content(noted.summary or NO_WORDS))
        source: CutSource = "inferred" if compaction is None else "recorded"
        if prompt:
            through = _fit_kept_turns(noted, prompt - head, ends, dropped)
            tokens = max(0, prompt - head - (ends[turn.index - 1] - ends[through]))
            cut = ContextCut(before=turn.index, through=through, words=words, source=source, tokens=tokens)
        elif noted.kind == "summary" and (noted.kept_from is not None or noted.summary):
            # A summary without a word on what stayed stands for everything.
            through = (noted.kept_from or turn.index) - 1
            cut = ContextCut(before=turn.index, through=max(dropped, through), words=words, source=source)
        else:
            unclear.append(noted)
            continue
        cuts.append(cut)
        dropped = cut.through
    return ContextCuts(cuts=tuple(cuts), unclear=tuple(unclear))


def _fit_kept_turns(noted: Compaction, room: int, ends: Sequence[int], dropped: int) -> int:
    """Return the last turn that the request no longer has.

    room: tokens of the prompt behind the head. ends: tokens of the turns up to each. dropped: turns that were gone.
    """
    newest = noted.before - 1
    said = len(noted.summary) // 4 if noted.summary else 0

    def measure_rest(through: int) -> int:
        return room - (ends[newest] - ends[through])

    if noted.kept_from is not None and dropped < noted.kept_from <= noted.before:
        rest = measure_rest(noted.kept_from - 1)
        if NEAR_LENGTH[0] * said <= rest <= NEAR_LENGTH[1] * said + FRAME_TOKENS:
            return noted.kept_from - 1
    return min(range(dropped, newest + 1), key=lambda through: abs(measure_rest(through) - said))


def _list_falls(run: Trajectory) -> set[int]:
    """Return the calls before which the billed prompt of the run's model fell, and stayed so at the next call."""
    calls = [
        (turn.index, turn.usage.prompt)
        for turn in run.turns
        if turn.usage is not None and turn.usage.prompt and turn.model in ("", run.model)
    ]
    falls = set()
    for place in range(1, len(calls)):
        (_, before), (call, prompt) = calls[place - 1], calls[place]
        following = calls[place + 1][1] if place + 1 < len(calls) else prompt
        if max(prompt, following) < DROP * before:
            falls.add(call)
    return falls
