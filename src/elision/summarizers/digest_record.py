"""The digest as a value: sections of lines, the attempts ledger, facts; and its parser."""

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
    """A digest of turns `first_turn` ... `last_turn`.

    calls, failed_calls: results in all, and how many of them were failures; they add up over rolling digests.
    sections:      lines by section, oldest first.
    attempts:      the ledger; may list fewer failures than `failed_calls` where the limit was tight.
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
    """Return the record whose text is `text`; None if it is no digest."""
    lines = text.strip().splitlines()
    title = _TITLE.fullmatch(lines[0]) if lines else None
    if title is None:
        return None
    first_turn, last_turn, calls, failed_calls = map(int, title.groups())
    sections: dict[str, list[str]] = {}
    newest: list[str] | None = None
    for line in lines[1:]:
        if line.startswith("- ") and newest is not None:
            newest.append(line[2:])
        elif line.endswith(":") and line[:-1] not in sections:
            newest = sections[line[:-1]] = []
    found_facts: list[Fact] = []
    for line in sections.get(FACTS, ()):
        found_facts.extend(facts.parse_facts(line))
    return DigestRecord(
        first_turn=first_turn,
        last_turn=last_turn,
        calls=calls,
        failed_calls=failed_calls,
        sections={name: tuple(sections[name]) for name in SECTIONS if sections.get(name)},
        attempts=tuple(filter(None, map(attempts.parse_attempt, sections.get(ATTEMPTS, ())))),
        facts=tuple(found_facts),
    )
