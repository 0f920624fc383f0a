"""What a recording sent, call by call: once as long as our messages count, once as long as the provider billed.

A recording agent that compacted did not send everything it ever said. From there on a request is the head, the
recorded summary and the newest turns; how many of these the agent kept is not recorded in any format we read, so as
many are taken as the billed prompt of that call has room for. That is the one thing that is inferred; it is reported.

How a model counts tokens follows from what its prompts grew by. Growth from one call to the next = `per_output` x
reported output + `per_counted` x our count of tool results and of the user's words. Both numbers are found by least
squares, once over all calls and once more without those that fit worst: an agent that clips a result, or changes its
settings, sends something else than what is recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from typing import Any, Final, Literal, TypeAlias

import msgspec

from elision.lab.run_as_recorded import DROP, add_recorded_head, calls, count_read
from elision.trajectory.events import HeadSet, TurnAdded
from elision.trajectory.state import State
from elision.trajectory.tokens import CREDIBLE_OUTPUT, OURS, Sizer, Tokenizer
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.turn import Head, Turn
from elision.trajectory.usage import Usage
from elision.trajectory.view import Segment, Track, View

#: A difference of that many tokens is none: the coarsest step in which a provider reports cached tokens (OpenAI, 128).
ROUNDING_TOKENS = 128
#: Counted tokens that a run must have grown by before its own tokenizer's ratio to ours is trusted.
GROWN = 2_000

#: Whether the recording agent began its prompt anew here, and how we know: it says so, or its billed prompt fell.
Restart: TypeAlias = Literal["", "recorded", "inferred"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRequest:
    """One recorded request.

    now:      seconds since the epoch, None if unknown. usage: as billed.
    counted:  the view as our rendered messages count it. billed: the same, as long as it was billed.
    restart:  whether the prompt began anew, behind the head.
    growth: what it added to the call before; None unless that is the turn before, of the same model, and reported.
    unsent: tokens of the newest results that are recorded and were not sent: the agent clipped them.
    """

    call: int
    now: float | None
    model: str
    usage: Usage
    counted: View
    billed: View
    restart: Restart = ""
    growth: PromptGrowth | None = None
    unsent: int = 0

    @property
    def day(self) -> date | None:
        return None if self.now is None else datetime.fromtimestamp(self.now, UTC).date()


def list_requests(trajectory: Trajectory, sizer: Sizer) -> Iterator[RecordedRequest]:
    """Every call of `trajectory` whose usage was recorded; the others are left out, what they said is not.

    sizer: on the scale of the recorded model.
    """
    plain = sizer.count_as(OURS)
    told = _estimate_head(add_recorded_head(trajectory, sizer), sizer)
    counted = _CountedConversation(State(sizer))
    billed = _BilledConversation()
    counted.begin(told.head)
    restarts = {compaction.before: compaction.summary for compaction in trajectory.compactions}
    pending: str | None = None
    # What other runs had left in the cache before the first call is what every prompt of this agent begins with.
    fixed = told.head.warm_tokens or counted.sent.count_tokens_before(counted.fixed)
    #: Model -> the share of its newest prompt, from the front, whose cache entries live an hour.
    kept: dict[str, float] = {}
    before: tuple[Turn, str] | None = None
    for turn, (now, model) in zip(told.turns, calls(told), strict=True):
        if turn.index in restarts:
            pending = restarts[turn.index]
        usage = turn.usage
        if usage is not None and usage.prompt:
            model = model or told.model
            restart: Restart = "recorded" if pending is not None else billed.detect_restart(usage.prompt, model)
            if restart:
                counted.restart(usage.prompt, pending or "")
            kept[model] = _kept_tokens(usage, kept.get(model, 0.0))
            unsent = counted.clip_results(usage.prompt, model)
            yield RecordedRequest(
                call=turn.index,
                now=now,
                model=model,
                usage=usage,
                counted=counted.build_view(turn.index, usage.prompt, model, kept[model]),
                billed=billed.build_view(
                    turn.index, usage.prompt, model, kept[model], fixed=fixed, restart=bool(restart)
                ),
                restart=restart,
                unsent=unsent,
                growth=None if restart or unsent else _measure_growth(before, usage, model, plain),
            )
            pending = None
            before = turn, model
        else:
            before = None
        counted.add(turn)


def _measure_growth(before: tuple[Turn, str] | None, usage: Usage, model: str, sizer: Sizer) -> PromptGrowth | None:
    """Return what a prompt has beyond the one before it. before: the turn that the call before got, and its model."""
    if before is None or before[1] != model or before[0].usage is None:
        return None
    turn, reported = before[0], before[0].usage
    if reported.output < CREDIBLE_OUTPUT * sizer.count_assistant(turn):
        return None
    return PromptGrowth(usage.prompt - reported.prompt, reported.output, count_read(turn, sizer))


def _estimate_head(trajectory: Trajectory, sizer: Sizer) -> Trajectory:
    """Tool definitions that count to more than the whole first prompt are taken at what is left of it.

    Recordings hold them as JSON, providers bill a terser form (OpenAI: 25 % less, inspect-ai/browser.json.gz).
    """
    head = trajectory.head
    first = next((turn for turn in trajectory.turns if turn.usage is not None and turn.usage.prompt), None)
    said = sum(sizer.count_message(message) for message in head.messages)
    if first is None or first.usage is None or first.index > 1 or said + sizer.count_tools(head) <= first.usage.prompt:
        return trajectory
    left = max(0, first.usage.prompt - said)
    return replace(trajectory, head=msgspec.structs.replace(head, tools=(), hidden_tokens=left))


@dataclass(slots=True)
class _CountedConversation:
    """The views as our messages make them.

    fixed: leading segments that every prompt of the run begins with: all of the head up to its first user message.
    grown: billed and counted tokens of all growth between two calls without a restart.
    whole: everything that was said, clipped where the agent clipped it. places: where its turns begin.
    """

    state: State
    sent: Track = field(default_factory=Track)
    whole: Track = field(default_factory=Track)
    places: list[int] = field(default_factory=list)
    fixed: int = 0
    grown: list[int] = field(default_factory=lambda: [0, 0])
    _newest_place: int = 0
    _before: tuple[int, int, str] | None = None

    def begin(self, head: Head) -> None:
        self.state.fold_event(HeadSet(head))
        self.sent = self.state.raw_track.fork(self.state.head_length)
        self.whole = self.state.raw_track.fork(self.state.head_length)
        roles = [getattr(segment.source, "role", "") for segment in self.sent.segments if segment.kind == "head"]
        tools = len(self.sent.segments) - len(roles)
        self.fixed = tools + roles.index("user") if "user" in roles else len(self.sent.segments)

    def add(self, turn: Turn) -> None:
        taken = len(self.state.raw_track.segments)
        self.state.fold_event(TurnAdded(turn))
        self._newest_place = len(self.sent.segments)
        self.places.append(len(self.whole.segments))
        for segment in self.state.raw_track.segments[taken:]:
            self.sent.append(segment)
            self.whole.append(segment)

    def restart(self, prompt: int, summary: str) -> None:
        """Head, summary, and as many of the newest turns as a prompt of `prompt` billed tokens has room for."""
        billed, counted = self.grown
        scale = billed / counted if counted >= GROWN and billed > 0 else 1.0
        raw = self.state.raw_track
        room = (prompt - raw.count_tokens_before(self.state.head_length)) / scale
        segments = []
        if summary:
            tokens = self.state.sizer.count_text(summary)
            segments = [Segment(kind="summary", tokens=tokens, text=summary)]
            room -= tokens
        whole = self.whole
        places = (*self.places, len(whole.segments))
        first = min(places, key=lambda place: abs(whole.tokens - whole.count_tokens_before(place) - room))
        self.sent = _replace_end(raw, self.state.head_length, [*segments, *whole.segments[first:]])
        self._newest_place = len(self.sent.segments)
        self._before = None

    def clip_results(self, prompt: int, model: str) -> int:
        """Shorten the largest of the newest results where far more is recorded than a prompt of `prompt` tokens had.

        Return the tokens that were not sent. Tokenizers differ, but by less than half.
        """
        if self._before is None or self._before[2] != model:
            return 0
        billed = prompt - self._before[0]
        newest = self.sent.segments[self._newest_place :]
        excess = self.sent.tokens - self._before[1] - billed
        if not newest or excess <= max(ROUNDING_TOKENS, prompt // 100, billed // 2):
            return 0
        largest = max(newest, key=lambda segment: segment.tokens if segment.kind == "observation" else -1)
        clipped = min(excess, largest.tokens)
        shorter = msgspec.structs.replace(largest, tokens=largest.tokens - clipped)
        short = [shorter if each is largest else each for each in newest]
        self.sent = _replace_end(self.sent, self._newest_place, short)
        self.whole = _replace_end(self.whole, self.places[-1], short)
        return clipped

    def build_view(self, call: int, prompt: int, model: str, kept: float) -> View:
        tokens = self.sent.tokens
        if self._before is not None and self._before[2] == model:
            self.grown[0] += prompt - self._before[0]
            self.grown[1] += tokens - self._before[1]
        self._before = (prompt, tokens, model)
        return _build_view(call, self.sent, self.fixed, kept)


def _replace_end(track: Track, place: int, segments: Sequence[Segment]) -> Track:
    """Return `track` with other segments from `place` on."""
    changed = track.fork(place)
    for segment in segments:
        changed.append(segment)
    return changed


@dataclass(slots=True)
class _BilledConversation:
    """The views as long as they were billed, each model's apart: a segment is what a call added."""

    tracks: dict[str, Track] = field(default_factory=dict)

    def detect_restart(self, prompt: int, model: str) -> Restart:
        known = self.tracks.get(model)
        return "inferred" if known is not None and prompt < DROP * known.tokens else ""

    def build_view(self, call: int, prompt: int, model: str, kept: float, *, fixed: int, restart: bool) -> View:
        known = self.tracks.get(model, Track())
        track = known
        if restart:
            track = known.fork(min(1, len(known.segments)))
        elif prompt < known.tokens:
            track = known.fork(sum(end <= prompt for end in known.ends))
        if not track.segments:
            _grow_track(track, min(fixed, prompt))
        _grow_track(track, prompt - track.tokens)
        self.tracks[model] = track
        return _build_view(call, track, 1, kept)


def _grow_track(track: Track, tokens: int) -> None:
    track.append(Segment(kind="hidden", tokens=max(0, tokens)))


def _kept_tokens(usage: Usage, before: float) -> float:
    """The share of a prompt, from its front, whose cache entries live an hour, as billed; before: of the one before it.

    What is written for an hour stands in front of what is written for five minutes.
    """
    if not usage.cache_write:
        return before
    if usage.cache_write_1h == usage.cache_write:
        return 1.0
    if usage.cache_write_1h:
        return (usage.cache_read + usage.cache_write_1h) / usage.prompt
    return 0.0


def _build_view(call: int, track: Track, fixed: int, kept: float) -> View:
    """Return a request of all of `track`. kept: the share of it, from its front, whose cache entries live an hour.

    Agents that cache put breakpoints behind system prompt and tools, and behind the newest message.
    """
    length = len(track.segments)
    view = View(call=call, epoch=1, track=track, length=length, marks=tuple(sorted({fixed, length} - {0})))
    return msgspec.structs.replace(
        view, hour_length=length if kept >= 1 else view.find_place(round(kept * view.tokens))
    )


# -- how a model counts tokens, from what its prompts grew by ---------------------------------------------------------


#: Calls that a fit needs at least.
LEAST_CALLS: Final = 20
#: Share of the calls that are left out as those that fit worst.
LEFT_OUT: Final = 0.05


@dataclass(frozen=True, slots=True)
class PromptGrowth:
    """What one call added to the prompt of the call before, in tokens.

    billed: as the provider counts. output: the reported output of the call before. counted: of what was read, by our
    count.
    """

    billed: int
    output: int
    counted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenFit:
    """The two numbers, from how many calls they are, and the share of the variation that they explain."""

    per_output: float
    per_counted: float
    calls: int
    explained: float

    def to_json(self, tokenizer: Tokenizer) -> dict[str, Any]:
        """Return the fit beside what the table of prices has."""
        return {
            "tokens_per_counted": self.per_counted,
            "tokens_per_output": self.per_output,
            "explained": self.explained,
            "calls": self.calls,
            "table": {
                "tokenizer": tokenizer.name,
                "tokens_per_counted": tokenizer.tokens_per_counted,
                "output_sent_again": tokenizer.output_sent_again,
            },
        }


def fit_growth(growths: Iterable[PromptGrowth]) -> TokenFit | None:
    """Return the fit; None for fewer than `LEAST_CALLS` calls, or where output and results cannot be held apart."""
    known = [growth for growth in growths if growth.counted > 0 and growth.billed > 0]
    if len(known) < LEAST_CALLS:
        return None
    # The first time every call weighs the same, or one clipped result of 50,000 tokens would decide.
    rough = _fit_least_squares(known, [1 / (growth.output + growth.counted) for growth in known])
    if rough is None:
        return None
    known.sort(key=lambda growth: abs(growth.billed - rough[0] * growth.output - rough[1] * growth.counted))
    kept = known[: len(known) - round(LEFT_OUT * len(known))]
    found = _fit_least_squares(kept, [1.0] * len(kept))
    if found is None:
        return None
    per_output, per_counted = found
    mean = sum(growth.billed for growth in kept) / len(kept)
    spread = sum((growth.billed - mean) ** 2 for growth in kept)
    missed = sum((growth.billed - per_output * growth.output - per_counted * growth.counted) ** 2 for growth in kept)
    explained = 1 - missed / spread if spread else 1.0
    return TokenFit(per_output=per_output, per_counted=per_counted, calls=len(kept), explained=explained)


def _fit_least_squares(growths: Sequence[PromptGrowth], weights: Sequence[float]) -> tuple[float, float] | None:
    """Solve the normal equations of two unknowns, without a constant. weights: of each growth, before it is squared."""
    output_squares = counted_squares = mixed = by_output = by_counted = 0.0
    for growth, weight in zip(growths, weights, strict=True):
        billed, output, counted = growth.billed * weight, growth.output * weight, growth.counted * weight
        output_squares += output * output
        counted_squares += counted * counted
        mixed += output * counted
        by_output += output * billed
        by_counted += counted * billed
    determinant = output_squares * counted_squares - mixed * mixed
    if determinant <= 1e-9 * output_squares * counted_squares:
        return None
    per_output = (by_output * counted_squares - by_counted * mixed) / determinant
    per_counted = (by_counted * output_squares - by_output * mixed) / determinant
    return per_output, per_counted
