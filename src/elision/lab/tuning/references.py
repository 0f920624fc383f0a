"""Strategies that every tuning shows beside what it found: nothing hidden, today's default, the published rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from elision.lab import elongation
from elision.lab.candidates import RECOMMENDED
from elision.strategies.placeholder import PUBLISHED_TEXT
from elision.strategies.spec import describe_strategy, parse_strategy
from elision.strategies.strategy import Strategy
from elision.trajectory.trajectory import Trajectory

_AS_PUBLISHED: Final = f'schedule=every-turn, gist=0, placeholder="{PUBLISHED_TEXT}"'
SWE_AGENT: Final = f"published for {elongation.SWE_AGENT}"
OPENHANDS: Final = f"published for {elongation.OPENHANDS}"

#: Name -> strategy. The published rule of thumb is a window and a summary interval by scaffold; it hides at every turn.
#: The presets have its numbers with Elision's schedule and placeholders.
REFERENCES: Final[tuple[tuple[str, str], ...]] = (
    ("nothing hidden", "raw"),
    ("default", RECOMMENDED),
    (SWE_AGENT, f"hybrid(window=10, summarize_at=43, tail=10, {_AS_PUBLISHED})"),
    ("preset swe-agent", "swe-agent"),
    (OPENHANDS, f"hybrid(window=58, summarize_at=80, tail=58, {_AS_PUBLISHED})"),
    ("preset openhands", "openhands"),
)


def list_references() -> dict[Strategy, tuple[str, ...]]:
    """Return the reference strategies with their names."""
    found: dict[Strategy, tuple[str, ...]] = {}
    for name, text in REFERENCES:
        strategy = parse_strategy(text)
        found[strategy] = (*found.get(strategy, ()), name)
    return found


def describe_default() -> str:
    """Return the text of today's default."""
    return describe_strategy(parse_strategy(RECOMMENDED))


def find_rule_of_thumb(runs: Iterable[Trajectory]) -> str:
    """Return the name of the reference that was published for the scaffold of most of `runs`; "" if there is none."""
    formats = Counter(run.format for run in runs)
    (most, _), *_ = formats.most_common(1)
    return f"published for {elongation.SCAFFOLDS[most]}" if most in elongation.SCAFFOLDS else ""
