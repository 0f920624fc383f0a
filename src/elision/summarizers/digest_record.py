"""The digest as a value: sections of lines, the attempts ledger, facts; and its text, there and back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from elision.summarizers import attempts, facts
from elision.summarizers.attempts import Attempt
from elision.summarizers.facts import Fact

#: The sections in the order they are written. EARLIER quotes a previous summary that is no digest.
SECTIONS = (
    "USER_CONTEXT",
    "EARLIER",
    "COMPLETED",
    "PENDING",
    "CURRENT_STATE",
    "CODE_STATE",
    "TESTS",
    "CHANGES",
    "DEPS",
    "VERSION_CONTROL_STATUS",
)
ATTEMPTS = "ATTEMPTS"
FACTS = "FACTS"

_TITLE = re.compile(r"Digest of turns (\d+)-(\d+) \(quoted from the run, no model\): (\d+) calls, (\d+) failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestRecord:
    """What a digest says about turns `first` ... `last`.

    calls, failed: results seen in all, and how many of them were failures; they add up over rolling digests.
    sections:      lines by section, oldest first.
    attempts:      the ledger; may list fewer failures than `failed` where the limit was tight.
    facts:         code-like items, most telling first.
    """

    first_turn: int
    last_turn: int
    calls: int = 0
    failed_calls: int = 0
    sections: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    attempts: tuple[Attempt, ...] = ()
    facts: tuple[Fact, ...] = ()

    @property
    def title(self) -> str:
        span = f"{self.first_turn}-{self.last_turn}"
        return f"Digest of turns {span} (quoted from the run, no model): {self.calls} calls, {self.failed_calls} failed"


def parse_digest(text: str) -> DigestRecord | None:
    """The record whose text is `text`; None if it is no digest."""
    lines = text.strip().splitlines()
    title = _TITLE.fullmatch(lines[0]) if lines else None
    if title is None:
        return None
    first, last, calls, failed = map(int, title.groups())
    found: dict[str, list[str]] = {}
    for line in lines[1:]:
        if line.startswith("- ") and found:
            found[next(reversed(found))].append(line[2:])
        elif line.endswith(":"):
            found.setdefault(line[:-1], [])
    return DigestRecord(
        first_turn=first,
        last_turn=last,
        calls=calls,
        failed_calls=failed,
        sections={name: tuple(found[name]) for name in SECTIONS if found.get(name)},
        attempts=tuple(filter(None, map(attempts.parse_attempt, found.get(ATTEMPTS, ())))),
        facts=tuple(fact for line in found.get(FACTS, ()) for fact in facts.parse_facts(line)),
    )
