"""What a strategy decides, and what guards say, as values that can be printed, stored, compared and replayed.

`lower_end` and `raise_end` say where a run of the oldest results may end if later results refer to earlier ones. A span
is the first result that one refers to, and that one. An end is the first place that is no part of the run. Places are
keys, or numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec

from elision.trajectory.redact import Redaction
from elision.trajectory.turn import Turn
from elision.trajectory.usage import write_always

#: Version of the rules that turn events into views; recorded with every decision (I3).
RENDERER = 1

#: An observation's address: turn index (1-based), position among the turn's observations (1-based).
Key: TypeAlias = tuple[int, int]


def make_handle(key: Key) -> str:
    """The name by which an observation can be recalled: t12.1."""
    return f"t{key[0]}.{key[1]}"


class Gutter(msgspec.Struct, frozen=True, omit_defaults=True):
    """The line numbers in front of a run's lines: `prefix`, the number (at least `width` wide), `mark`.

    first, last: the numbers of the run's first and last line.
    """

    first: int
    last: int
    mark: str
    prefix: str = ""
    width: int = 0


class FoldedRun(msgspec.Struct, frozen=True, omit_defaults=True):
    """Lines of an observation that one line stands for, because an observation that is shown holds them.

    Lines are what `text.split("\\n")` returns, counted from 0.

    start, lines:  where the run begins in the folded observation's own text, and how many lines it has.
    source, source_start: the observation that holds them, and where in its own text.
    gutter:        the line numbers in front of the run's lines; None if there are none, or they count as text.
    source_gutter: those in front of the source's lines; None likewise.
    from_top:      whether numbers that the source shows do not tell which of its lines these are.
    shown_start:   where the lines begin in the source as it is shown, if lines before them are folded; None if not.
    is_whole:      whether the run is all of the folded observation, and all of the source, which is shown whole.
    """

    start: int
    lines: int
    source: Key
    source_start: int
    gutter: Gutter | None = None
    source_gutter: Gutter | None = None
    from_top: bool = False
    shown_start: int | None = None
    is_whole: bool = False


#: What is shown in place of an observation: a placeholder; its head and tail, where the newest one alone broke the
#: budget (I7); all of it with a line for each run that the view shows elsewhere; all of it again.
EditKind: TypeAlias = Literal["mask", "clip", "fold", "whole"]


class Edit(msgspec.Struct, frozen=True, omit_defaults=True):
    """Observation `key` is shown as `text` from now on, word for word. runs: of a fold, each is one line of `text`."""

    key: Key
    kind: EditKind
    text: str = ""
    runs: tuple[FoldedRun, ...] = ()
    renderer: int = RENDERER


@dataclass(frozen=True, slots=True, kw_only=True)
class LivePrefix:
    """The view as it was last sent, in the provider's own shape: what a summary request may extend.

    dialect:  "openai" (chat), "openai-responses" or "anthropic".
    messages: of the last request, cache markers included; system and tools as they were sent; model: "" if unknown.
    """

    dialect: str
    messages: tuple[Mapping[str, Any], ...] = field(hash=False, repr=False)
    system: Any = field(default=None, hash=False, repr=False)
    tools: tuple[Mapping[str, Any], ...] = field(default=(), hash=False, repr=False)
    model: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryRequest:
    """A request for a summary.

    previous:   text of the previous summary, "" if there is none.
    task:       text of the head's user messages.
    turns:      the newly covered turns, unmasked, oldest first.
    max_tokens: the summary's limit: what the model may write by its own count, and what is accepted, in o200k tokens.
    shown:      items that the view shows after these turns, so that the digest need not.
    route:      "extend" where a question after the live prefix, read from cache, is cheaper than a fresh prompt.
    live:       that prefix; None where it cannot be extended.
    redaction:  the rules by which its texts are redacted before a summarizer is given them; None for none.
    redacted_by: by which rules its texts were redacted already; None if by none.
    is_urgent:  whether the call has to wait for it, even where summaries are written in the background.
    """

    previous: str
    task: str
    turns: tuple[Turn, ...]
    max_tokens: int
    shown: frozenset[str] = field(default=frozenset(), repr=False)
    route: Literal["fresh", "extend"] = "fresh"
    live: LivePrefix | None = None
    redaction: Redaction | None = field(default=None, compare=False, repr=False)
    redacted_by: Redaction | None = field(default=None, compare=False, repr=False)
    is_urgent: bool = field(default=False, compare=False, repr=False)

    @property
    def asked_tokens(self) -> int:
        """The tokens that a prompt asks for: four fifths of the limit, since models count badly and would be cut."""
        return self.max_tokens * 4 // 5


class Summary(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    rename={"input_tokens": "input", "output_tokens": "output", "cached_tokens": "cached"},
):
    """Turns 1 ... `covers` are replaced by `text`.

    text:          the summary as the summarizer wrote it.
    block:         the exact text of the user-role message that follows the task: text and quotes, labelled.
    interjections: turns <= covers whose interjections stay word for word after the block.
    input_tokens, output_tokens, cached_tokens: of the call that wrote it (cached is part of input).
    usd:           what it cost, None where only tokens are known.
    route:         "fresh", "extend" (design 4) or "model-free".
    writer:        the model that wrote it; "" for none, or where its name is not known.
    """

    covers: int
    text: str
    block: str
    interjections: tuple[int, ...] = ()
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    usd: float | None = None
    route: str = write_always("fresh")
    writer: str = ""
    renderer: int = RENDERER


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One pass's decision: at most one rewrite, or none and why.

    masks:     newly masked observations with their exact placeholders, in the order of the view.
    summarize_to: cover turns 1 ... `summarize_to` with a new summary; 0 for none.
    summary_tokens: most that it may have, in tokens, where the budget leaves it less than the strategy does; else 0.
    clips:     newest observations cut to fit (I7).
    is_urgent: whether the call has to wait for the summary.
    is_model_free: whether the summary is the digest, for which no model is asked.
    reason:    one of the schedule's or budget's words, always set.
    """

    masks: tuple[Edit, ...] = ()
    summarize_to: int = 0
    summary_tokens: int = 0
    clips: tuple[Edit, ...] = ()
    is_urgent: bool = False
    is_model_free: bool = False
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """A guard says that the run must end: "max_turns" or "max_cost_usd", the limit and the value that reached it."""

    guard: str
    limit: float
    value: float

    def __str__(self) -> str:
        return f"{self.guard}: {self.value:g} of {self.limit:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StopHint:
    """The run seems to make no progress. turns: for how many; why: a sentence."""

    turns: int
    why: str

    def __str__(self) -> str:
        return f"no progress for {self.turns} turns: {self.why}"


#: Anything that is ordered.
Place = TypeVar("Place", bound=Any)


def list_spans(folds: Iterable[Edit]) -> list[tuple[Key, Key]]:
    """Return the spans of `folds`."""
    return [(min(run.source for run in fold.runs), fold.key) for fold in folds]


def lower_end(end: Place, spans: Iterable[tuple[Place, Place]]) -> Place:
    """Return the last end up to `end` that separates no reference from its source."""
    # A lower end may separate what refers to an earlier result, and nothing else.
    for source, place in sorted(spans, reverse=True):
        if source < end <= place:
            end = source
    return end


def raise_end(end: Key, spans: Iterable[tuple[Key, Key]]) -> Key:
    """Return the first end from `end` on that separates no reference from its source."""
    for source, place in sorted(spans):
        if source < end <= place:
            end = find_end(place)
    return end


def find_end(last: Key) -> Key:
    """Return the end of a run whose last result is `last`."""
    return (last[0], last[1] + 1)
