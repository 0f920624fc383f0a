"""What one pass did, as a value: the same facts for the caller, the callbacks, the metrics and the log line."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from elision.trajectory.plan import Stop as Stop
from elision.trajectory.plan import StopHint as StopHint

#: What failed and was passed over: the request went out all the same.
FaultKind: TypeAlias = Literal["store", "summarizer", "engine", "dialect", "callback", "budget"]
#: The reason of a pass that a budget forced.
OVER_BUDGET: Final = "over budget"
#: What the requests of a session are: everything, some results replaced by placeholders, or begun by a summary.
ContextPhase: TypeAlias = Literal["raw", "masking", "summarizing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hidden:
    """One observation that this pass hid. tokens: it had. left: tokens of the placeholder. text: the placeholder."""

    handle: str
    tool: str
    tokens: int
    left: int
    text: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summarized:
    """A summary that this pass put in.

    first ... last: turns it newly covers. tokens: they had. left: tokens of the block. usd: of the call that wrote it.
    route: "fresh", "extend", "model-free". seconds: it took; 0 if unknown. model: that wrote it, "" if unknown.
    input, cached, output: tokens of the call that wrote it (cached is part of input); 0 where no model was asked.
    """

    first: int
    last: int
    tokens: int
    left: int
    usd: float
    route: str
    seconds: float = 0.0
    model: str = ""
    input: int = 0
    cached: int = 0
    output: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that failed in this pass. cause: one word. what: a sentence without secrets."""

    kind: FaultKind
    cause: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """The run so far, in USD, in tokens as the provider counts them.

    ours: prompts, as reported or else at the simulated cache, answers and summarizer. raw: of the same agent without
    Elision: everything is sent as the client sends it, and there are no recalls, nor tools and calls for them.
    summarizer, recalls: what they cost, part of `ours`. billed: as the provider reported, None where it did not.
    caching: of what was saved, what cache breakpoints of ours saved where the client sets none.
    """

    ours: float = 0.0
    raw: float = 0.0
    summarizer: float = 0.0
    recalls: float = 0.0
    billed: float | None = None
    caching: float = 0.0

    @property
    def saved(self) -> float:
        """Return the net saving by hiding and by caching, in USD; negative if it cost more.

        The summarizer, recalls and extra cache writes are debited.
        """
        return self.raw - self.ours

    @property
    def hiding(self) -> float:
        """Return what hiding saved, net, in USD: `saved` without what our cache breakpoints saved."""
        return self.saved - self.caching

    @property
    def ratio(self) -> float:
        """Return ours ÷ raw; 1 if nothing was billed."""
        if self.raw:
            return self.ours / self.raw
        return 1.0

    @property
    def hiding_ratio(self) -> float:
        """Return ours ÷ the cost of everything with the same cache breakpoints; 1 if nothing was billed."""
        everything = self.raw - self.caching
        if everything:
            return self.ours / everything
        return 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Savings:
    """Observations so far, in tokens: in all, and what placeholders, summaries and folding took off this call's view.

    masked_tokens: of `hidden_tokens`, what placeholders and clips took off. folded_tokens: what folding did, of
    `folded` results that the view shows; summaries took off the rest.
    visible:       results that are shown whole.
    """

    observation_tokens: int = 0
    hidden_tokens: int = 0
    masked_tokens: int = 0
    folded_tokens: int = 0
    masked: int = 0
    folded: int = 0
    visible: int = 0
    covered: int = 0
    reduction_pct: float = 0.0


#: What changed in a history that does not continue, and how it is meant to be.
_HISTORIES: Final = {
    "fork": "these messages leave the history before its end: give each agent its own session, and never edit "
    "messages that were sent",
    "replaced": "these messages are another history than the session's: give each task its own session",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostics:
    """One pass.

    session, branch:  whose log it is; they differ after a fork. call, turns: of the run so far.
    before, after:    tokens of the prompt, had this pass hidden nothing, and as it is sent. raw: had nothing ever been
                      hidden, and nothing recalled. anchor: of them, tokens by which the provider's last usage corrects
                      our count.
    estimated:        whether our counts are character estimates.
    masked, clipped, summarized: what this pass hid. folded: results whose repeated lines it folded, or had name another
                      place; unfolded: handles of those it shows whole again.
    reason:           why something was hidden, or why nothing was.
    phase:            "raw" before anything is hidden, "masking" after that, "summarizing" from the first summary on.
    epoch:            1 + rewrites so far. rewrites: by cause.
    summaries:        written so far. summary_tokens: of the live one.
    history:          how this call's messages went on: "continue", "amended", "undo", "fork", "replaced".
    shadow:           whether the request was sent unchanged, which `raw` counts, and all this is what would have been.
    faults:           what failed and was passed over. seconds: the pass took, summarizer_seconds of it the summarizer.
    """

    session: str
    branch: str
    call: int
    turns: int
    before: int
    after: int
    raw: int
    reason: str
    phase: ContextPhase = "raw"
    epoch: int = 1
    masked: tuple[Hidden, ...] = ()
    clipped: tuple[Hidden, ...] = ()
    folded: tuple[Hidden, ...] = ()
    unfolded: tuple[str, ...] = ()
    summarized: Summarized | None = None
    summaries: int = 0
    summary_tokens: int = 0
    rewrites: dict[str, int] = field(default_factory=dict)
    costs: Costs = field(default_factory=Costs)
    savings: Savings = field(default_factory=Savings)
    stop: Stop | None = None
    hint: StopHint | None = None
    history: str = "continue"
    anchor: int = 0
    estimated: bool = False
    shadow: bool = False
    faults: tuple[Fault, ...] = ()
    notes: tuple[str, ...] = ()
    recalls: int = 0
    seconds: float = 0.0
    summarizer_seconds: float = 0.0
    model: str = ""

    @property
    def acted(self) -> bool:
        """Return whether this pass hid anything."""
        return bool(self.masked or self.clipped or self.summarized)

    def describe(self) -> str:
        """Return what the call did in one line: tokens, what is hidden and why, the bill, and what failed."""
        found = self.savings
        hidden = found.masked + found.covered
        count = hidden + found.folded + found.visible
        results = f"{hidden} of {count} tool results hidden ({self.reason})" if count else "no tool results yet"
        bill = f"{_write_usd(self.costs.ours)} so far, {_write_usd(self.costs.raw)} without Elision"
        sent = f"{self.raw if self.shadow else self.after:,} of {self.raw:,} tokens sent"
        parts = [f"call {self.call}: {sent}", results, bill]
        if self.shadow:
            parts.append(f"shadow mode, else {self.after:,} tokens")
        if self.costs.billed is None and self.call > 1:
            parts.append("no usage recorded: give record() each response")
        if self.history in _HISTORIES:
            parts.append(_HISTORIES[self.history])
        parts += [f"{fault.kind} failed: {fault.what}" for fault in self.faults]
        if self.stop is not None:
            parts.append(f"stop: {self.stop}")
        return " ".join("; ".join(parts).split())

    @property
    def budget_note(self) -> str:
        """Return what this pass did to bring the prompt into its budget, and whether it fits; "" if it did nothing."""
        misses = any(fault.kind == "budget" for fault in self.faults)
        if self.shadow or not (misses or self.clipped or self.reason == OVER_BUDGET):
            return ""
        done = []
        if self.masked:
            done.append(f"{len(self.masked)} masked")
        if self.summarized:
            done.append(f"t{self.summarized.first}-t{self.summarized.last} summarized")
        if self.clipped:
            done.append(f"{len(self.clipped)} of the newest results cut")
        note = ", ".join(done) or "nothing hidden"
        return f"{note}; the prompt does not fit" if misses else note


def _write_usd(usd: float) -> str:
    return f"${usd:.2f}" if usd >= 1 else f"${usd:.4f}"
