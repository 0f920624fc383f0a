"""One recorded run as a replay takes it: what its messages count, where its agent cut them, what its head lacks.

Messages have the sizes that the provider counted in its prompts. From one prompt to the next a run grows by what the
model wrote and by what it read. What it wrote has the length that was reported. What it read has what is left of the
growth, divided in proportion to our counts.

From a cut of its history on, a request is the head, what stands for the dropped turns, and the newest turns. Where the
bill of that call is recorded, the prompt tells how many turns stayed: the recording's own word on it is taken where it
agrees with the prompt, else as many are kept as there was room for. What stands for the others has what is left of the
prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Final, Literal, TypeAlias

import msgspec

from elision.errors import PriceError
from elision.providers.provider_table import find_provider
from elision.trajectory.price_lookup import find_prices, find_tokenizer
from elision.trajectory.prices import Prices
from elision.trajectory.tokens import OURS, Sizer, make_counter
from elision.trajectory.trajectory import Compaction, Trajectory, measure_head
from elision.trajectory.turn import Head, Message, Observation, Turn, make_content

#: What was read has at most so many times our count on the model's scale. Beyond that the growth is of something else:
#: the agent changed its prompt, or sent what is not recorded. Less than our count was sent where the agent clipped it.
MOST_SHARE: Final = 4.0


class RecordedSizer(Sizer):
    """Counts the messages of `run`; those without a recorded length, and any other text, as `sizer` does."""

    def __init__(self, sizer: Sizer, run: Trajectory) -> None:
        super().__init__(sizer.counter, reasoning=sizer.reasoning, tokenizer=sizer.tokenizer, takes_output=True)
        # Messages are known by their identity, so they must live as long as this does.
        self._run = run
        self._lengths = dict(_list_lengths(run, sizer.take_output()))
        self._first_prompt = next((turn.usage.prompt for turn in run.turns[:1] if turn.usage is not None), 0)
        self.cuts = find_cuts(
            run,
            lambda turn: self.count_assistant(turn) + count_read(turn, self),
            lambda: measure_head(run.head, self).head,
        )
        self._lengths |= {id(cut.words): cut.tokens for cut in self.cuts.cuts if cut.tokens is not None}

    def take_output(self) -> Sizer:
        return self

    def count_tools(self, head: Head) -> int:
        """Recordings hold tools as JSON, and providers bill a terser form: never more than the first prompt had."""
        counted = Sizer.count_tools(self, head)
        if not self._first_prompt:
            return counted
        return max(0, min(counted, self._first_prompt - sum(map(self.count_message, head.messages))))

    def count_observation(self, observation: Observation) -> int:
        known = self._lengths.get(id(observation))
        return Sizer.count_observation(self, observation) if known is None else known

    def count_message(self, message: Message) -> int:
        known = self._lengths.get(id(message))
        return Sizer.count_message(self, message) if known is None else known


def count_read(turn: Turn, sizer: Sizer) -> int:
    """Return the tokens of what was read after a turn: its results, and words of the user."""
    return sum(map(sizer.count_observation, turn.observations)) + sum(map(sizer.count_message, turn.interjections))


def size_run(run: Trajectory, prices: Prices, sizer: Sizer) -> Sizer:
    """Return how the messages of `run` are counted where it is billed at `prices`.

    They have their recorded lengths where those are of the model that is priced, or of its family. Else our count is
    taken, on the scale of the prices.
    """
    scaled = sizer.count_as(prices.tokenizer)
    if any(turn.usage is not None and turn.usage.prompt for turn in run.turns) and is_recorded_on(run.model, prices):
        return RecordedSizer(scaled, run)
    return scaled


def is_recorded_on(model: str, prices: Prices) -> bool:
    """Whether `model` counts tokens as the model of `prices` does."""
    if prices.tokenizer != OURS:
        return find_tokenizer(model) == prices.tokenizer
    try:
        return find_prices(model).name == prices.name
    except PriceError:
        return False


def _list_lengths(run: Trajectory, sizer: Sizer) -> Iterator[tuple[int, int]]:
    """Yield the identity and the length of what was read in the run."""
    cut = {compaction.before for compaction in run.compactions}
    for turn, following in pairwise(run.turns):
        if following.index in cut or turn.usage is None or following.usage is None or turn.model != following.model:
            continue
        grown = following.usage.prompt - turn.usage.prompt
        yield from _divide_growth(turn, grown - sizer.count_assistant(turn), sizer)


def _divide_growth(turn: Turn, read: int, sizer: Sizer) -> Iterator[tuple[int, int]]:
    """Yield the identity and the length of each thing that was read after `turn`, `read` tokens in all."""
    counts = [(id(each), sizer.count_observation(each)) for each in turn.observations]
    counts += [(id(each), sizer.count_message(each)) for each in turn.interjections]
    counted = sum(count for _, count in counts)
    if not counted or not 0 <= read / counted <= MOST_SHARE:
        return
    for identity, count in counts:
        yield identity, round(count * read / counted)


# -- cuts -------------------------------------------------------------------------------------------------------------


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
    condensed = list(_list_condensed(run))
    if not condensed:
        return ContextCuts()
    ends = [0, *accumulate(map(count_turn, run.turns))]
    first = run.turns[0].usage
    head = first.prompt if first is not None and first.prompt else count_head()
    cuts: list[ContextCut] = []
    unclear: list[Compaction] = []
    for turn, noted, source in condensed:
        room = turn.usage.prompt - head if turn.usage is not None and turn.usage.prompt else None
        cut = _place_cut(noted, room, ends, cuts[-1].through if cuts else 0, source)
        if cut is None:
            unclear.append(noted)
        else:
            cuts.append(cut)
    return ContextCuts(cuts=tuple(cuts), unclear=tuple(unclear))


def _list_condensed(run: Trajectory) -> Iterator[tuple[Turn, Compaction, CutSource]]:
    """Yield the turns before whose call the history was condensed, with what is recorded of it."""
    recorded = {compaction.before: compaction for compaction in run.compactions}
    inferred = _list_falls(run)
    for turn in run.turns[1:]:
        compaction = recorded.get(turn.index)
        if compaction is not None:
            yield turn, compaction, "recorded"
        elif turn.index in inferred:
            yield turn, Compaction(before=turn.index, kind="unknown"), "inferred"


def _place_cut(
    noted: Compaction, room: int | None, ends: Sequence[int], dropped: int, source: CutSource
) -> ContextCut | None:
    """Return what the request of call `noted.before` no longer has; None where nothing says what stayed.

    room: tokens of its billed prompt behind the head, if that is recorded. The others as of `_fit_kept_turns`.
    """
    tokens = None
    if room is not None:
        through = _fit_kept_turns(noted, room, ends, dropped)
        tokens = max(0, room - (ends[noted.before - 1] - ends[through]))
    elif noted.kind == "summary" and (noted.kept_from is not None or noted.summary):
        # A summary without a word on what stayed stands for everything.
        through = max(dropped, (noted.kept_from or noted.before) - 1)
    else:
        return None
    words = Message(role="user", content=make_content(noted.summary or NO_WORDS))
    return ContextCut(before=noted.before, through=through, words=words, source=source, tokens=tokens)


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


# -- head, counter and clock ------------------------------------------------------------------------------------------


def add_recorded_head(trajectory: Trajectory, sizer: Sizer) -> Trajectory:
    """`trajectory` with the unrecorded head as an opaque part: first billed prompt - counted text.

    It is as warm as the first call's recorded cache read says. Unchanged where no usage was recorded. Turns before
    the first billed one (a greeting that no model wrote, in tau2-bench) are part of its prompt.
    """
    first = next((turn for turn in trajectory.turns if turn.usage is not None and turn.usage.prompt), None)
    if first is None or first.usage is None:
        return trajectory
    head = trajectory.head
    counted = sizer.count_tools(head) + sum(sizer.count_message(message) for message in head.messages)
    for turn in trajectory.turns[: first.index - 1]:
        counted += sizer.count_assistant(turn) + count_read(turn, sizer)
    hidden = max(0, first.usage.prompt - counted)
    # What a later call reads is the run's own.
    warm = first.usage.cache_read if first.index == 1 else 0
    return replace(trajectory, head=msgspec.structs.replace(head, hidden_tokens=hidden, warm_tokens=warm))


def sizer(dialect: str, tokens: str) -> Sizer:
    """Counts what `dialect` sends, with the counter `tokens`: Anthropic and Responses take reasoning back only sealed,
    so what is recorded in clear text is not sent and not counted there. Raises SpecError."""
    return Sizer(make_counter(tokens), reasoning=find_provider(dialect).takes_clear_reasoning)


def calls(trajectory: Trajectory) -> Iterator[tuple[float | None, str]]:
    """(seconds since the epoch or None, model) of every call, time never running backwards."""
    latest: float | None = None
    for turn in trajectory.turns:
        if turn.at is not None and (latest is None or turn.at > latest):
            latest = turn.at
        yield (latest if turn.at is not None else None), turn.model
