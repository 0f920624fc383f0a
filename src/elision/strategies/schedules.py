"""When hiding pays. A strategy says what it may hide; a schedule says when doing it is worth a rewrite (design 4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, TypeAlias

from elision.errors import SpecError

Verdict: TypeAlias = Literal["hold", "mask", "summarize"]

#: Our bill, the call at hand included, stays within this many times the bill of sending everything so far.
CAP = 1.10


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What could be done at this call, and what each choice would cost. All costs in USD, prompt side.

    fresh:      turns that became eligible since the last act.
    pending:    whether anything can be masked.
    summary:    whether a summary may be made.
    hold:       this call if nothing is done.
    mask:       this call if everything pending is masked now.
    masked:     this call if it had been masked before: what holding loses is hold - masked.
    summarize:  this call behind a new summary made now, without the summarizer.
    summarized: this call if that summary had stood before.
    window:     this call if only what stands behind the newest pending observation had to be written again.
    summarizer: the call that writes the summary; fixed is the part of it that does not grow with what it covers.
    behind:     turns behind the last summary. until: calls until one may be made by turns alone; None if unknown.
    spent, raw: our bill before this call, and the bill of sending everything, this call included.
    cold:       the cache holds nothing of this conversation; elsewhere: but another model's does.
    small:      the view would be too small to be cached at all.
    """

    call: int
    fresh: int = 0
    pending: bool = False
    summary: bool = False
    hold: float = 0.0
    mask: float = 0.0
    masked: float = 0.0
    window: float = 0.0
    summarize: float = 0.0
    summarized: float = 0.0
    summarizer: float = 0.0
    fixed: float = 0.0
    behind: int = 0
    until: int | None = None
    spent: float = 0.0
    raw: float = 0.0
    cold: bool = False
    elsewhere: bool = False
    small: bool = False


class Clock(Protocol):
    """One session's memory of a schedule."""

    def weigh(self, offer: Offer) -> tuple[Verdict, str]:
        """What to do at this call, and why in a word or two; called once a call."""
        ...

    def acted(self, verdict: Verdict) -> None:
        """What was really done."""
        ...


class Schedule(Protocol):
    """When to act. Frozen; `start` begins a session."""

    name: ClassVar[str]

    def start(self) -> Clock: ...


def _all_at_once(offer: Offer) -> tuple[Verdict, str]:
    if offer.summary:
        return "summarize", "summary due"
    if offer.pending:
        return ("mask", "eligible")
    return ("hold", "nothing eligible")


@dataclass(frozen=True, slots=True)
class EveryTurn:
    """At once: the published behaviour."""

    name: ClassVar[str] = "every-turn"

    def start(self) -> Clock:
        return self

    def weigh(self, offer: Offer) -> tuple[Verdict, str]:
        return _all_at_once(offer)

    def acted(self, verdict: Verdict) -> None:
        """Remembers nothing."""

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Batched:
    """When `n` or more turns became eligible since the last act; a summary when it is due."""

    name: ClassVar[str] = "batched"
    n: int = 10

    def __post_init__(self) -> None:
        if self.n < 1:
            raise SpecError(f"batched(n={self.n}): n must be 1 turn or more")

    def start(self) -> Clock:
        return self

    def weigh(self, offer: Offer) -> tuple[Verdict, str]:
        if offer.summary or offer.fresh >= self.n:
            return _all_at_once(offer)
        return "hold", f"fewer than {self.n} turns eligible"

    def acted(self, verdict: Verdict) -> None:
        """Remembers nothing: `Offer.fresh` counts from the last act."""

    def __str__(self) -> str:
        return f"batched({self.n})"


@dataclass(frozen=True, slots=True)
class CacheAware:
    """Hold until holding has cost as much as rewriting would, within 1.10 x the bill of sending everything.

    Lot sizing (design 4): behind the newest eligible turn everything has to be written again however long one waits;
    that part is what holding is weighed against. What stands between the first and the newest eligible turn is paid
    once either way, so it says nothing about when, only about whether: a rewrite has to pay for itself within the
    calls that are expected to come. Nobody knows those; half as many as were made is the prior (`HORIZON`), capped by
    the calls until a summary may be made, which would undo the masking.
    """

    name: ClassVar[str] = "cache-aware"

    def start(self) -> Clock:
        return _Accrual()

    def __str__(self) -> str:
        return self.name


#: Calls expected to come, as a share of those made. Measured on the corpus: 0.3 acts too late, 1 too early.
HORIZON = 0.5
#: A masking made while a summary is allowed lives that much shorter: the summary may come at any call.
CLOSING = 0.25


@dataclass(slots=True)
class _Accrual:
    """What holding has cost since the last rewrite, in USD."""

    held: float = 0.0

    def weigh(self, offer: Offer) -> tuple[Verdict, str]:
        if offer.pending:
            self.held += max(0.0, offer.hold - offer.masked)
        if offer.summary and _summary_pays(offer):
            return "summarize", "summary pays"
        if not offer.pending:
            return "hold", "nothing eligible"
        if offer.small:
            return "hold", "too small to cache"
        if offer.cold and offer.elsewhere:
            return "hold", "another model's cache is warm"
        if offer.mask <= offer.hold:
            return "mask", "cold cache" if offer.cold else "rewrite is free"
        if self.held < offer.window - offer.masked:
            return "hold", "rewrite not yet paid for"
        if _expected(offer) * (offer.hold - offer.masked) < offer.mask - offer.masked:
            return "hold", "rewrite would not pay"
        # The other model has to write it all again as well, when its turn comes.
        if offer.elsewhere:
            twice = offer.mask - offer.masked
        else:
            twice = 0.0
        if offer.spent + offer.mask + twice > CAP * offer.raw:
            return "hold", "cap on raw"
        return "mask", "rewrite pays"

    def acted(self, verdict: Verdict) -> None:
        if verdict != "hold":
            self.held = 0.0


def _expected(offer: Offer) -> float:
    """How many calls a masking made now is expected to serve."""
    horizon = HORIZON * offer.call
    if offer.summary:
        return CLOSING * horizon
    if offer.until:
        return min(horizon, offer.until)
    return horizon


def _summary_pays(offer: Offer) -> bool:
    gain = offer.hold - offer.summarized
    rewrite = offer.summarize - offer.summarized
    # Half of what stands behind the last summary: holding has grown from nothing to `gain` a call since then.
    paced = gain * offer.behind / 2 >= rewrite + offer.fixed
    # A summary that fails its checks is paid for, and the view stays as it was.
    dearest = max(offer.summarize, offer.hold) + offer.summarizer + (rewrite if offer.elsewhere else 0.0)
    within = offer.spent + dearest <= CAP * offer.raw and not offer.small
    return paced and within and gain * HORIZON * offer.call >= rewrite + offer.summarizer


@dataclass(frozen=True, slots=True)
class Fixed:
    """At given calls and no others: a plan from elsewhere, such as the lab's hindsight.

    masks, summaries: calls at which to mask what is pending, and to summarize as well.
    """

    name: ClassVar[str] = "fixed"
    masks: frozenset[int] = frozenset()
    summaries: frozenset[int] = frozenset()

    def start(self) -> Clock:
        return self

    def weigh(self, offer: Offer) -> tuple[Verdict, str]:
        if offer.call in self.summaries and offer.summary:
            return "summarize", "planned"
        if offer.call in self.masks and offer.pending:
            return "mask", "planned"
        return "hold", "not planned"

    def acted(self, verdict: Verdict) -> None:
        """Remembers nothing."""


@dataclass(frozen=True, slots=True)
class Hindsight:
    """The cheapest schedule for a run that is already known; the lab works it out (design 4)."""

    name: ClassVar[str] = "hindsight"

    def start(self) -> Clock:
        raise SpecError("schedule=hindsight needs a recorded run: it works in `elision replay` and `elision view` only")

    def __str__(self) -> str:
        return self.name
