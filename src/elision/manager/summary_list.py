"""The summaries of a session as values: their texts, what they cover, who wrote them, and what that cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from elision.summarizers.summary_acceptance import MODEL_FREE
from elision.trajectory.events import Event, PassDecided
from elision.trajectory.plan import Summary
from elision.trajectory.prices import Prices

#: The writer of a summary that no model wrote.
DIGEST: Final = "digest"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSummary:
    """One summary of a session.

    text:         as it was written, secrets redacted.
    covers_turns: the first and the last turn that it newly covers; an earlier summary is merged into it.
    call:         at which it entered the view. tokens: of its block in the view.
    writer:       the model that wrote it, "digest" where none did, "" where a function of your own did not name one.
    usd:          what writing it cost, in USD; failed attempts are not part of it.
    """

    text: str
    covers_turns: tuple[int, int]
    call: int
    tokens: int
    writer: str
    usd: float


def list_summaries(events: Sequence[Event], count: Callable[[str], int], prices: Prices) -> list[SessionSummary]:
    """Return the summaries of a log, oldest first.

    count: the tokens of a message. prices: of the summaries whose cost in USD was not recorded.
    """
    found: list[SessionSummary] = []
    covered = 0
    for event in events:
        if not isinstance(event, PassDecided) or event.summary is None:
            continue
        summary = event.summary
        usd = summary.usd
        if usd is None:
            usd = prices.bill_call(summary.input_tokens, summary.cached_tokens, summary.output_tokens).usd
        found.append(make_entry(summary, covered + 1, event.call, count(summary.block), usd))
        covered = summary.covers
    return found


def make_entry(summary: Summary, first: int, call: int, tokens: int, usd: float) -> SessionSummary:
    """Return `summary` as an entry. first: the first turn that it newly covers. tokens: of its block."""
    writer = summary.writer
    if summary.route == MODEL_FREE.route:
        writer = DIGEST
    return SessionSummary(
        text=summary.text, covers_turns=(first, summary.covers), call=call, tokens=tokens, writer=writer, usd=usd
    )
