"""What the tokens of a recorded prompt are: tools never called, repeated text, results that no later step uses.

The definition of a tool is part of every prompt, whether or not the tool is called.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from elision.audit.cause_table import Cause
from elision.lab.evidence import collect_evidence
from elision.lab.recorded_requests import RecordedRequest
from elision.trajectory.items import strip_gutters
from elision.trajectory.plan import Key
from elision.trajectory.tokens import Sizer
from elision.trajectory.tool_definitions import get_tool_name, list_tools
from elision.trajectory.trajectory import Trajectory, join_assistant_text
from elision.trajectory.turn import Head, Observation, Turn
from elision.trajectory.view import Segment, SegmentKind, Track, View

#: So many lines in a row count as repeated where they occurred before; fewer may be chance.
BLOCK_LINES: Final = 3
#: Characters of such a block, and of a line that counts by itself.
BLOCK_CHARACTERS: Final = 60
LINE_CHARACTERS: Final = 200
#: Segments that hold a result: whole, as recordings have it, or folded, as replays do. A placeholder is none.
RESULT_KINDS: Final = frozenset[SegmentKind]({"observation", "folded", "clipped"})


@dataclass(frozen=True, slots=True)
class CausedSpan:
    """Tokens `start` to `stop` of a billed prompt have `cause`."""

    start: int
    stop: int
    cause: Cause


class PromptContent:
    """The prompts of one run, in the order of its calls. tools: that it declares."""

    def __init__(self, trajectory: Trajectory, tools: Mapping[str, ToolBill]) -> None:
        self._last_use = find_last_uses(trajectory)
        self._unused_tools = measure_idle_share(tools)
        self._places: dict[str, _SegmentPlaces] = {}
        self._repeats = _RepeatedText()

    def list_spans(self, request: RecordedRequest) -> list[CausedSpan]:
        """Return the spans of `request` that have a cause by their content, in order; they never overlap."""
        ends = self.find_ends(request)
        repeated = self._repeats.measure_shares(request.counted)
        segments = request.counted.segments
        tools = _find_tools(segments)
        spans: list[CausedSpan] = []
        for place, segment in enumerate(segments):
            start = ends[place - 1] if place else 0
            stop = ends[place]
            if place == tools:
                spans.append(CausedSpan(start, start + round(self._unused_tools * (stop - start)), "unused-tools"))
                continue
            middle = start + round(repeated[place] * (stop - start))
            spans.append(CausedSpan(start, middle, "repeat"))
            # No step from this call on uses it. The call that follows it reads it for the first time.
            last_use = max(self._last_use.get((segment.turn, segment.index), 0), segment.turn + 1)
            if segment.kind in RESULT_KINDS and request.call > last_use:
                spans.append(CausedSpan(middle, stop, "dead-output"))
        return [span for span in spans if span.start < span.stop]

    def find_tools(self, request: RecordedRequest) -> tuple[int, int]:
        """Return where the definitions of tools begin and end in the billed prompt, in tokens."""
        place = _find_tools(request.counted.segments)
        if place is None:
            return 0, 0
        ends = self.find_ends(request)
        return (ends[place - 1] if place else 0), ends[place]

    def describe_place(self, request: RecordedRequest, tokens: int) -> str:
        """Return where in the prompt of `request` token `tokens` is, in words.

        The byte of a result is an estimate: providers report tokens, and in blocks of up to 128.
        """
        ends = self.find_ends(request)
        segments = request.counted.segments
        place = min(bisect_right(ends, tokens), len(segments) - 1)
        segment = segments[place]
        if segment.kind in ("hidden", "tools", "head", "recall"):
            return "system prompt, tools or task"
        if segment.kind == "summary":
            return "the agent's summary"
        if segment.kind == "assistant":
            return f"turn {segment.turn}, the model's message"
        if segment.kind == "interjection":
            return f"turn {segment.turn}, the user's words"
        start = ends[place - 1] if place else 0
        share = (tokens - start) / max(1, ends[place] - start)
        where = f"turn {segment.turn}, result {segment.index}"
        if not isinstance(segment.source, Observation):
            return where
        byte = round(min(1.0, max(0.0, share)) * len(segment.source.text.encode("utf-8", "replace")))
        tool = f" ({segment.source.tool})" if segment.source.tool else ""
        return f"{where}{tool}, near byte {byte:,}"

    def find_ends(self, request: RecordedRequest) -> Sequence[int]:
        """Return where each segment of `request` ends in its billed prompt, in tokens."""
        places = self._places.setdefault(request.model, _SegmentPlaces())
        places.follow(request.counted, request.usage.prompt)
        return places.ends


def _find_tools(segments: Sequence[Segment]) -> int | None:
    """Return which segment has the definitions of tools; None where no segment has them."""
    place = next((place for place, segment in enumerate(segments) if segment.kind == "tools"), 0)
    return place if segments and segments[place].kind in ("tools", "hidden") else None


def find_last_uses(trajectory: Trajectory) -> dict[Key, int]:
    """Return, by (turn, result), the last turn that writes an item for the first time that the result contains."""
    found: dict[Key, int] = {}
    for turn, uses in collect_evidence(trajectory).uses.items():
        for use in uses:
            for key in use.seen:
                found[key] = max(turn, found.get(key, 0))
    return found


@dataclass(slots=True)
class _SegmentPlaces:
    """Where each segment ends in the billed prompt of one model, in tokens.

    What a call adds to the prompt is stretched to what it was billed more than the call before. So a segment stays at
    its place, although the provider's tokenizer counts otherwise than ours.
    """

    ends: list[int] = field(default_factory=list)
    _track: Track | None = None
    _prompt: int = 0

    def follow(self, view: View, prompt: int) -> None:
        if view.track is self._track and len(self.ends) == view.length and prompt == self._prompt:
            return
        known = len(self.ends)
        if view.track is not self._track or view.length <= known or prompt <= self._prompt:
            self.ends = _stretch(view, 0, 0, prompt)
        else:
            self.ends += _stretch(view, known, self._prompt, prompt)
        self._track = view.track
        self._prompt = prompt


def _stretch(view: View, first: int, start: int, stop: int) -> list[int]:
    """Return the ends of the segments from `first` on, laid from token `start` to token `stop`."""
    before = view.track.count_tokens_before(first)
    counted = view.tokens - before
    if not counted:
        return [stop] * (view.length - first)
    scale = (stop - start) / counted
    return [start + round((end - before) * scale) for end in view.track.ends[first : view.length]]


@dataclass(slots=True)
class _RepeatedText:
    """What share of each segment of a track repeats text that is earlier in the same track."""

    shares: list[float] = field(default_factory=list)
    _track: Track | None = None
    _seen: set[int] = field(default_factory=set)

    def measure_shares(self, view: View) -> Sequence[float]:
        if view.track is not self._track:
            # After a compaction only what is still in the prompt can be repeated.
            self._track, self.shares, self._seen = view.track, [], set()
        for segment in view.track.segments[len(self.shares) : view.length]:
            self.shares.append(self._measure_segment(segment))
        return self.shares

    def _measure_segment(self, segment: Segment) -> float:
        lines = [line.strip() for line in strip_gutters(_get_text(segment)).splitlines()]
        lines = [line for line in lines if line]
        repeated = [False] * len(lines)
        fresh: list[int] = []
        for start, block in _list_blocks(lines):
            mark = hash(block)
            if mark in self._seen:
                repeated[start : start + len(block)] = [True] * len(block)
            else:
                fresh.append(mark)
        self._seen.update(fresh)
        every = sum(map(len, lines))
        if not every or segment.kind not in RESULT_KINDS | {"interjection"}:
            return 0.0
        return sum(len(line) for line, again in zip(lines, repeated, strict=True) if again) / every


def _list_blocks(lines: Sequence[str]) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield (place, lines) of what counts as repeated as a whole: lines in a row, and long lines by themselves."""
    for start, line in enumerate(lines):
        if len(line) >= LINE_CHARACTERS:
            yield start, (line,)
        block = tuple(lines[start : start + BLOCK_LINES])
        if len(block) == BLOCK_LINES and sum(map(len, block)) >= BLOCK_CHARACTERS:
            yield start, block


def _get_text(segment: Segment) -> str:
    if segment.text or segment.source is None:
        return segment.text
    if isinstance(segment.source, Turn):
        return join_assistant_text(segment.source)
    return segment.source.text


# -- tools -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolBill:
    """One tool.

    tokens: of its definition, the largest where runs declare different ones. calls: of the tool. usd: what its
    definition cost in all prompts, idle_usd: in those of runs that never call it. runs: that declare it; idle_runs: of
    these, the ones that never call it.
    """

    name: str
    tokens: int
    calls: int = 0
    usd: float = 0.0
    idle_usd: float = 0.0
    runs: int = 1
    idle_runs: int = 0

    def __add__(self, other: ToolBill) -> ToolBill:
        return ToolBill(
            name=self.name,
            tokens=max(self.tokens, other.tokens),
            calls=self.calls + other.calls,
            usd=self.usd + other.usd,
            idle_usd=self.idle_usd + other.idle_usd,
            runs=self.runs + other.runs,
            idle_runs=self.idle_runs + other.idle_runs,
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "tokens": self.tokens,
            "calls": self.calls,
            "usd": self.usd,
            "never_called_usd": self.idle_usd,
            "runs": self.runs,
            "runs_without_call": self.idle_runs,
        }


def count_tools(trajectory: Trajectory, sizer: Sizer) -> dict[str, ToolBill]:
    """Return the tools that a run declares, by name, without a price.

    A run without any call may have been cut off before its first one: none of its tools counts as idle.
    """
    called = Counter(action.name for turn in trajectory.turns for action in turn.actions)
    tokens: Counter[str] = Counter()
    for tool in list_tools(trajectory.head):
        tokens[get_tool_name(tool)] += sizer.count_tools(Head(tools=(tool,)))
    return {
        name: ToolBill(name=name, tokens=own, calls=called[name], idle_runs=int(bool(called) and name not in called))
        for name, own in tokens.items()
    }


def measure_idle_share(tools: Mapping[str, ToolBill]) -> float:
    """Return the share of the definitions' tokens, 0 to 1, that belongs to tools which the run never calls."""
    every = sum(tool.tokens for tool in tools.values())
    return sum(tool.tokens for tool in tools.values() if tool.idle_runs) / every if every else 0.0


def bill_tools(tools: Mapping[str, ToolBill], usd: float) -> dict[str, ToolBill]:
    """Return the tools of one run with what each cost it. usd: what all definitions together cost."""
    every = sum(tool.tokens for tool in tools.values())
    found = {}
    for name, tool in tools.items():
        cost = usd * tool.tokens / every if every else 0.0
        found[name] = replace(tool, usd=cost, idle_usd=cost if tool.idle_runs else 0.0)
    return found


def sum_tools(bills: Iterable[dict[str, ToolBill]]) -> list[ToolBill]:
    """Return the tools of several runs, what was paid for nothing first."""
    found: dict[str, ToolBill] = {}
    for tools in bills:
        for name, bill in tools.items():
            found[name] = found[name] + bill if name in found else bill
    return sorted(found.values(), key=lambda bill: (-bill.idle_usd, -bill.usd, bill.name))
