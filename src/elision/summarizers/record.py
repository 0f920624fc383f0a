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
class Record:
    """What a digest says about turns `first` ... `last`.

    calls, failed: results seen in all, and how many of them were failures; they add up over rolling digests.
    sections:      lines by section, oldest first.
    attempts:      the ledger; may list fewer failures than `failed` where the limit was tight.
    facts:         code-like items, most telling first.
    """

    first: int
    last: int
    calls: int = 0
    failed: int = 0
    sections: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    attempts: tuple[Attempt, ...] = ()
    facts: tuple[Fact, ...] = ()

    @property
    def title(self) -> str:
        span = f"{self.first}-{self.last}"
        return f"Digest of turns {span} (quoted from the run, no model): {self.calls} calls, {self.failed} failed"


def parse(text: str) -> Record | None:
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
    return Record(
        first=first,
        last=last,
        calls=calls,
        failed=failed,
        sections={name: tuple(found[name]) for name in SECTIONS if found.get(name)},
        attempts=tuple(filter(None, map(attempts.parse, found.get(ATTEMPTS, ())))),
        facts=tuple(fact for line in found.get(FACTS, ()) for fact in facts.parse(line)),
    )
